"""Frozen, imposed and sparse attention."""

import itertools

import numpy as np
import pytest
import torch
from scipy.optimize import brentq

from attnprobe.core.errors import UserError
from attnprobe.models.attention import (
    AdditiveAttention,
    EntmaxAttention,
    ImposedAttention,
    SparsemaxAttention,
    UniformAttention,
)
from attnprobe.results.table import read_results
from attnprobe.runs.run import run
from tests.runs import SMALL, SMALL_ADVERSARY, composed
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


def test_imposed_attention_is_what_was_given_to_the_last_digit_and_needs_a_teacher():
    batch, classifier = toy_batch([5, 2, 1], padding=3), toy_classifier("average", "imposed")
    with pytest.raises(UserError, match="teacher=PATH"):
        classifier(batch)
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


KINDS = {"sparsemax": SparsemaxAttention, "entmax": EntmaxAttention}


def nearest_point(scores):
    """The point of the simplex nearest to the scores: the best of the projections onto every face."""
    best = None
    for size in range(1, len(scores) + 1):
        for face in map(list, itertools.combinations(range(len(scores)), size)):
            point = np.zeros(len(scores))
            point[face] = scores[face] + (1 - scores[face].sum()) / size
            distance = ((point - scores) ** 2).sum()
            if (point >= 0).all() and (best is None or distance < best[0]):
                best = distance, point
    return best[1]


def by_threshold(scores):
    """The 1.5-entmax, its threshold found as a root."""
    half = scores / 2
    root = brentq(lambda tau: (np.maximum(half - tau, 0) ** 2).sum() - 1, half.max() - 1, half.max(), xtol=1e-14)
    return np.maximum(half - root, 0) ** 2


@pytest.mark.parametrize(("kind", "reference"), [("sparsemax", nearest_point), ("entmax", by_threshold)])
@pytest.mark.parametrize("spread", [0.1, 1.0, 30.0])
def test_the_weights_are_those_of_the_definition(kind, reference, spread):
    scores = torch.randn(20, 6, generator=torch.Generator().manual_seed(0)).double() * spread
    content = torch.arange(8) < 6
    wide = torch.nn.functional.pad(scores, (0, 2), value=-torch.inf)
    found = KINDS[kind](4).weights(wide, content.expand(20, -1))
    assert (found[:, 6:] == 0).all()
    np.testing.assert_allclose(found[:, :6].numpy(), [reference(row) for row in scores.numpy()], atol=1e-7)


@pytest.mark.parametrize("kind", KINDS)
def test_it_gives_exact_zeros_and_gradients_without_nan(kind):
    attention = KINDS[kind](4)
    scores = torch.tensor([[3.0, 0.0, 2.9, -torch.inf]], requires_grad=True)
    found = attention.weights(scores, torch.tensor([[True, True, True, False]]))
    assert found[0, 1] == 0
    assert found.sum().item() == pytest.approx(1)
    found[0, 0].backward()
    assert torch.isfinite(scores.grad).all()
    assert scores.grad[0, 0] > 0 > scores.grad[0, 2]
    assert AdditiveAttention.positionwise
    assert not KINDS[kind].positionwise


@pytest.mark.parametrize(("kind", "model"), [("sparsemax", "cnn"), ("entmax", "hanrnn")])
def test_every_test_of_attention_takes_it(kind, model, tmp_path):
    probes = "[permutation,adversarial,single_weight,erasure]"
    probes = probes if model == "hanrnn" else probes[:-1] + ",gradient,leave_one_out,correlation,plausibility]"
    chosen = [f"model/attention={kind}"]
    if model == "hanrnn":
        target = f"{KINDS[kind].__module__}.{KINDS[kind].__name__}"
        chosen = ["data.sentences=rule", f"model.attention._target_={target}"]
    config = composed(
        *SMALL, *SMALL_ADVERSARY, f"model={model}", *chosen, f"probe={probes}", 
        f"output={tmp_path}",
    )  # fmt: skip
    results = read_results(run(config))
    assert set(results["probe"]) >= set(config.probe)
    assert {name.rpartition("_")[2] for name in results["model"]} == {kind} or model == "hanrnn"
    assert results.loc[results["metric"] == "max_attention", "value"].between(0, 1).all()
