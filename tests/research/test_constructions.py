from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from attnprobe.evidence.deciding_words import SHARE_METRICS
from attnprobe.evidence.evidence import Evidence
from attnprobe.evidence.statistics import clopper_pearson
from research.constructions.__main__ import PAGE
from research.constructions.asking import BATCH, ask, columns, table_of
from research.constructions.catalogue import BEFORE, answers_before, catalogue, one_cue, token
from research.constructions.coverage import Coverage, SeedChanges, attention_of_runs, coverages
from research.constructions.models import (
    CUE,
    WORDS,
    HandBuilt,
    mass,
    on_cues,
    on_places,
    sometimes,
    split_of,
    spread,
)
from research.constructions.samples import MeasuredTexts

CONSTRUCTIONS = {construction.name: construction for construction in catalogue()}


@pytest.mark.parametrize("name", CONSTRUCTIONS)
def test_the_model_decides_by_the_words_that_decide(name):
    """It predicts the label, and says something else with another word there."""
    construction = CONSTRUCTIONS[name].with_texts(40)
    texts = construction.written(0)
    model = construction.model(texts, 0)
    batch = split_of(texts)[range(40)]
    logits = model(batch).logits
    labels = np.random.default_rng((0, 0)).permutation(construction.labels())
    assert logits.argmax(-1).tolist() == labels.tolist()

    moved = torch.zeros(40, dtype=torch.bool)
    for word in (4, *range(CUE, WORDS)):  # another cue says the same of some texts
        changed = batch.ids.clone()
        for row, text in enumerate(texts):
            place = torch.from_numpy(np.flatnonzero(text.decides)[:1]) + 1
            changed[row, place] = word
        with_another = model(replace(batch, ids=changed)).logits
        moved |= (with_another - logits).abs().amax(-1) > 0.1
    assert moved.tolist() == [text.decides.any() for text in texts]


@pytest.mark.parametrize("name", CONSTRUCTIONS)
def test_the_attention_is_one(name):
    construction = CONSTRUCTIONS[name]
    texts = construction.written(1)
    model = construction.model(texts, 1)
    attention = model(split_of(texts)[range(len(texts))]).attention
    assert attention.sum(-1).tolist() == pytest.approx([1] * len(texts))
    assert attention.min() >= 0


def test_names_are_told_apart():
    assert len(CONSTRUCTIONS) == len(catalogue())


def test_the_mass_is_the_weight_beyond_chance():
    construction = token(name="", source="", attend=on_cues(), expected="", length=5)
    texts = construction.with_texts(3).written(0)
    uniform = [np.full(5, 0.2)] * 3
    on_deciding_words = [spread(5, np.flatnonzero(text.decides), 0.6) for text in texts]
    assert mass(texts, uniform) == pytest.approx(0)
    assert mass(texts, on_deciding_words) == pytest.approx((0.6 - 0.2) / 0.8)


EASY = ("hard on the word", "shield: on the neighbours of the cue, never on it")


@pytest.mark.parametrize("name", EASY)
def test_the_answer_is_that_of_the_whole_verdict(name):
    construction = CONSTRUCTIONS[name].with_texts(60)
    outcome = ask(construction)
    assert outcome.answer == construction.expected
    assert outcome.line.value == pytest.approx(outcome.mass, abs=0.1)
    assert outcome.passes == 400
    assert [part.answer for part in outcome.classes] == [construction.expected] * 2


def test_several_attentions_have_the_shares_that_the_probe_gives_each():
    construction = token("", "", on_cues(), "").with_texts(30)
    measured = MeasuredTexts.of(construction, 0)
    for attend in (on_cues(), on_places(0)):
        line = ask(replace(construction, attend=attend)).line
        draw = np.random.default_rng((0, 1))
        weights = [attend(draw, text) for text in measured.texts]
        share = measured.share([weights])
        assert share.value == pytest.approx(line.value, abs=1e-6)
        assert (share.low, share.high) == pytest.approx((line.low, line.high), abs=1e-6)


# Invariances


@pytest.fixture(scope="module")
def sample():
    """Texts of two lengths, a model and what the probe measures of it."""
    construction = token("", "", sometimes(0.5, on_cues()), "").with_texts(20)
    texts = construction.written(0) + replace(
        construction, write=partial(one_cue, length=7)
    ).written(1)
    model = construction.model(texts, 0)
    return texts, model, shares_of(model, texts)


def shares_of(model, texts):
    return np.concatenate(columns(table_of(model, texts, 0), *SHARE_METRICS))


def with_score(model, score):
    changed = HandBuilt(score, [model.weights_of(row) for row in range(len(model.lengths))])
    changed.classes = model.classes
    return changed


def test_temperature_changes_nothing(sample):
    texts, model, expected = sample
    colder = with_score(model, lambda ids: 40 * model.score(ids))
    assert shares_of(colder, texts) == pytest.approx(expected, abs=1e-9)


def test_a_constant_added_to_all_logits_changes_nothing(sample):
    texts, model, expected = sample
    shifted = with_score(model, lambda ids: model.score(ids) + 7)
    assert shares_of(shifted, texts) == pytest.approx(expected, abs=1e-9)


def test_classes_swapped_change_nothing(sample):
    texts, model, expected = sample
    swapped = with_score(model, lambda ids: model.score(ids).flip(-1))
    assert shares_of(swapped, texts) == pytest.approx(expected, abs=1e-9)


def test_words_renamed_change_nothing(sample):
    texts, model, expected = sample
    new = np.random.default_rng(0).permutation(np.arange(4, WORDS))
    names = np.concatenate([np.arange(4), new])
    renamed = [replace(text, words=names[text.words]) for text in texts]
    back = torch.from_numpy(np.argsort(names))
    assert shares_of(with_score(model, lambda ids: model.score(back[ids])), renamed) == (
        pytest.approx(expected, abs=1e-9)
    )


@pytest.mark.parametrize("size", [1, 7])
def test_batch_size_and_padding_change_nothing(sample, size, monkeypatch):
    texts, model, expected = sample
    monkeypatch.setattr("research.constructions.asking.BATCH", size)
    assert size != BATCH
    assert shares_of(model, texts) == pytest.approx(expected, abs=1e-9)


# Coverage


def evidence(low, high):
    return Evidence((low + high) / 2, low, high, 10)


def test_coverage_counts_intervals_that_hold_the_truth():
    shares = [evidence(0.1, 0.3), evidence(0.25, 0.5), evidence(0.45, 0.6)]
    line = Coverage("", 0.5, 10, 1, truth=0.28, shares=shares)
    assert line.holds == 2
    assert line.answers == {"yes": 1, "no": 1, "open": 1, "not asked": 0}
    assert line.width == pytest.approx(0.2)


def test_changes_by_seed_are_those_from_the_most_frequent_answer():
    shares = [evidence(0.5, 0.6), evidence(0.3, 0.5), evidence(0.45, 0.6)]
    assert SeedChanges(0.5, shares).changed == 1


def test_a_small_part_of_the_coverage_runs():
    lines = list(coverages("right in half", 0.5, sizes=(20,), data_sets=4))
    assert [line.runs for line in lines] == [1, 3]
    for line in lines:
        assert len(line.shares) == 4
        _, _, high = clopper_pearson(line.holds, 4)
        assert high > 0.93  # four data sets cannot show less but by missing it


def test_several_runs_have_attentions_of_their_own():
    construction = token("right in half", "", sometimes(0.5, on_cues()), "").with_texts(50)
    texts = construction.written(0)
    first, second = attention_of_runs(construction, texts, 0, 2)
    assert not all(np.array_equal(*pair) for pair in zip(first, second, strict=True))


# Page


def test_what_is_reported_of_the_measure_before_is_of_constructions():
    assert set(BEFORE) <= set(CONSTRUCTIONS)


def test_the_measure_before_was_asked_about_every_construction():
    answers = answers_before()
    assert set(answers) == set(CONSTRUCTIONS)
    assert {answer.split()[0] for answer in answers.values()} == {"yes", "no", "open", "not"}


def test_the_page_counts_the_right_answers_of_both_measures():
    text = PAGE.read_text(encoding="utf-8")
    table = text.partition("<!-- constructions -->")[2].partition("<!-- end of constructions -->")[
        0
    ]
    lines = [line.split(" | ") for line in table.strip().splitlines()[2:]]
    right_before = sum("**" not in cells[4] for cells in lines)
    right_now = sum("**" not in cells[6] for cells in lines)
    assert f"**{right_now} of {len(lines)} constructions get the answer" in text
    assert f"the measure before gave it to {right_before}" in " ".join(text.split())


def test_cues_are_no_plain_words():
    for construction in CONSTRUCTIONS.values():
        text = construction.with_texts(20).written(0)[0]
        plain = np.delete(text.words, list(text.cues))
        assert plain.max(initial=0) < CUE or not text.cues
