"""Frozen and imposed attention."""

from copy import deepcopy

import pytest
import torch

from attnprobe.errors import UserError
from attnprobe.models.attention import ImposedAttention, UniformAttention
from tests.toys import ATTENTIONS, toy_batch, toy_classifier


@pytest.fixture(autouse=True)
def frozen(monkeypatch):
    monkeypatch.setitem(ATTENTIONS, "uniform", UniformAttention)
    monkeypatch.setitem(ATTENTIONS, "imposed", ImposedAttention)


def given(batch, seed=0):
    """A random attention over each row's words."""
    weights = torch.rand(batch.ids.shape, generator=torch.Generator().manual_seed(seed)) * batch.content
    return weights / weights.sum(-1, keepdim=True)


def test_uniform_attention_is_the_same_everywhere_and_learns_nothing():
    batch, classifier = toy_batch([5, 2, 1], padding=3), toy_classifier(attention="uniform")
    assert not list(classifier.attention.parameters())
    outputs = classifier(batch)
    lengths = batch.content.sum(-1, keepdim=True)
    torch.testing.assert_close(outputs.attention, batch.content / lengths)
    assert not outputs.attention.requires_grad  # nothing upstream can move it
    assert (outputs.attention[~batch.content] == 0).all()


def test_imposed_attention_is_what_was_given_to_the_last_digit():
    batch, classifier = toy_batch([5, 2, 1], padding=3), toy_classifier("average", "imposed")
    batch.teacher_attention = given(batch)
    before = batch.teacher_attention.clone()
    outputs = classifier.train()(batch)
    assert torch.equal(outputs.attention, before)
    assert (outputs.attention[~batch.content] == 0).all()
    assert not outputs.attention.requires_grad
    assert not list(classifier.attention.parameters())
    outputs.logits.sum().backward()
    assert all(p.grad.abs().sum() > 0 for p in classifier.encoder.parameters())
    assert torch.equal(batch.teacher_attention, before)
    # the decoder sees Σ a_t h_t of the given attention
    context = torch.einsum("bs,bsh->bh", before, outputs.hidden)
    torch.testing.assert_close(outputs.logits, classifier.decoder(context))


def test_training_moves_the_rest_and_not_the_attention():
    batch, classifier = toy_batch([5, 4, 3]), toy_classifier("lstm", "imposed").train()
    batch.teacher_attention = given(batch)
    start = deepcopy(classifier.state_dict())
    optimizer = classifier.configure_optimizers()
    for _ in range(3):
        optimizer.zero_grad()
        classifier.losses(classifier(batch), batch)["loss"].sum().backward()
        optimizer.step()
    assert torch.equal(classifier(batch).attention, batch.teacher_attention)
    moved = [name for name, value in classifier.state_dict().items() if not torch.equal(value, start[name])]
    assert {name.split(".")[0] for name in moved} == {"embedding", "encoder", "decoder"}


def test_imposed_attention_needs_a_teacher():
    with pytest.raises(UserError, match="teacher=PATH"):
        toy_classifier("average", "imposed")(toy_batch([3]))
