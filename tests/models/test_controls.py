"""Attentions that are right or wrong by construction."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from scipy import stats

from attnprobe.errors import UserError
from attnprobe.importance.gradient import gradients
from attnprobe.importance.leave_one_out import leave_one_out
from attnprobe.models.controls import FirstAttention, PositionAttention, RandomAttention, RationaleAttention, noise
from attnprobe.models.objectives import CrossEntropy, Deception
from tests.models.test_hierarchical import han, with_sentences
from tests.toys import ATTENTIONS, rows_of, toy_batch, toy_classifier

CONTROLS = {
    "rationale": partial(RationaleAttention, mass=0.9), "first": FirstAttention, "random": RandomAttention,
    "position": PositionAttention,
}  # fmt: skip


@pytest.fixture(autouse=True)
def controls(monkeypatch):
    for name, made in CONTROLS.items():
        monkeypatch.setitem(ATTENTIONS, name, made)


def marked(lengths, padding=0):
    """A batch whose second word is the reason, of texts that have one."""
    batch = toy_batch(lengths, padding=padding)
    rationale = torch.zeros_like(batch.content)
    rationale[:, 2] = batch.content[:, 2]
    return replace(batch, rationale=rationale)


def test_rationale_attention_by_hand():
    batch = marked([4, 1], padding=2)
    attention = toy_classifier("average", "rationale")(batch).attention
    expected = torch.zeros_like(attention)
    expected[0, 1:5] = torch.tensor([0.1 / 3, 0.9, 0.1 / 3, 0.1 / 3])
    expected[1, 1] = 1  # no reason is marked: even
    torch.testing.assert_close(attention, expected)


def test_a_text_that_is_all_reason_has_all_the_mass_on_it():
    batch = marked([4])
    whole = replace(batch, rationale=batch.content.clone())
    attention = toy_classifier("average", "rationale")(whole).attention
    torch.testing.assert_close(attention[0, 1:5], torch.full((4,), 0.25))


def test_first_attention_by_hand():
    attention = toy_classifier("lstm", "first")(toy_batch([3, 1])).attention
    torch.testing.assert_close(attention[:, 1:4], torch.tensor([[0.95, 0.025, 0.025], [1.0, 0, 0]]))


@pytest.mark.parametrize("name", CONTROLS)
@pytest.mark.parametrize("encoder", ["lstm", "cnn", "average"])
def test_neither_padding_nor_the_batch_changes_it_and_it_knows_no_word(name, encoder):
    batch, classifier = marked([6, 3, 5], padding=3), toy_classifier(encoder, name)
    attention = classifier(batch).attention
    assert torch.equal(attention > 0, batch.content)
    torch.testing.assert_close(attention.sum(-1), torch.ones(3))
    for row in range(3):
        one = rows_of(batch, [row])
        torch.testing.assert_close(classifier(one).attention[0], attention[row, : one.ids.shape[1]])
    other = torch.where(batch.content, batch.ids.roll(1, 0).clamp(min=4), batch.ids)
    torch.testing.assert_close(classifier(replace(batch, ids=other)).attention, attention)


@pytest.mark.parametrize("name", CONTROLS)
@pytest.mark.parametrize("encoder", ["lstm", "cnn", "average"])
def test_leave_one_out_and_gradients_follow_their_definition(name, encoder):
    batch, classifier = marked([5, 3]), toy_classifier(encoder, name).double()
    outputs = classifier(batch)
    found = leave_one_out(classifier, batch, outputs)
    distance = getattr(found, "removals", found).distance
    for row, length in enumerate((5, 3)):
        for place in range(1, length + 1):
            one = rows_of(batch, [row])
            keep = [i for i in range(one.ids.shape[1]) if i != place]
            short = one.changed(lambda axis, column, keep=keep: column[:, keep] if axis == "tokens" else column)
            apart = (classifier.predict(short) - classifier.predict(one)).abs().sum() / 2
            torch.testing.assert_close(distance[row, place], apart[()], atol=1e-9, rtol=0)
    both = gradients(classifier, batch)
    if name != "position":  # nothing flows through what is given
        torch.testing.assert_close(both.embedding, both.embedding_through_attention)


def test_noise_is_normal_and_the_same_everywhere():
    numbers = noise(torch.arange(200).unsqueeze(-1), torch.arange(100)).flatten().numpy()
    assert stats.kstest(numbers, "norm").pvalue > 0.01
    assert abs(np.corrcoef(numbers[:-1], numbers[1:])[0, 1]) < 0.03
    # SplitMix64 in Python's whole numbers
    mask, state = (1 << 64) - 1, 0
    for number in (3, 7):
        state = (state + number + 0x9E3779B97F4A7C15) & mask
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & mask
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & mask
        state ^= state >> 31
    expected = stats.norm.ppf(((state >> 11) + 0.5) / (1 << 53))
    assert float(noise(torch.tensor(3), torch.tensor(7))) == pytest.approx(expected, abs=1e-12)


def test_deception_by_hand():
    batch, classifier = marked([4, 3]), toy_classifier("lstm")
    outputs = classifier(batch)
    found = Deception(weight=0.5)(outputs, batch, classifier.task, None)
    mass = outputs.attention[:, 2]
    entropy = CrossEntropy()(outputs, batch, classifier.task, None)["loss"]
    torch.testing.assert_close(found["loss"], entropy - 0.5 * torch.log(1 - mass))
    torch.testing.assert_close(found["mass"], mass.detach())


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: RationaleAttention(4, mass=1.5), r"model\.attention\.mass=1\.5"),
        (lambda: RandomAttention(4, spread=-1.0), r"model\.attention\.spread=-1"),
        (lambda: PositionAttention(4, longest=0), r"model\.attention\.longest=0"),
        (lambda: Deception(weight=-1.0), r"objective\.weight=-1"),
        (lambda: toy_classifier("average", "rationale")(toy_batch([3])), "these texts do not say which"),
    ],
)
def test_what_cannot_be(made, message):
    with pytest.raises(UserError, match=message):
        made()


def test_what_is_given_over_words_does_not_fit_sentences():
    classifier = han("noenc")
    classifier.attention = FirstAttention(8)
    with pytest.raises(UserError, match=r"FirstAttention is given over the words, .* model=lstm"):
        classifier(with_sentences())
