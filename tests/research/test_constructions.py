import itertools
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from attnprobe.evidence.deciding_words import SHARE_METRICS
from attnprobe.evidence.evidence import Evidence
from attnprobe.evidence.statistics import clopper_pearson
from research.constructions.__main__ import PAGE, TABLES, main
from research.constructions.asking import BATCH, ask, columns, table_of
from research.constructions.catalogue import BEFORE, answers_before, catalogue, one_cue, token
from research.constructions.coverage import (
    MINORITIES,
    SAMPLES,
    Coverage,
    Samples,
    SeedChanges,
    attention_of_runs,
    construction_of,
    coverages,
    seed_of,
)
from research.constructions.models import (
    CUE,
    WORDS,
    HandBuilt,
    Text,
    mass,
    on_cues,
    on_places,
    sometimes,
    split_of,
    spread,
)
from research.constructions.page import coverage_table
from research.constructions.samples import MeasuredTexts
from research.constructions.trained import (
    ENCODERS,
    Network,
    ask_trained,
    mixed,
    mixture,
    trainable,
)

# a network is trained, and verdicts are whole ones
pytestmark = pytest.mark.whole

CONSTRUCTIONS = {construction.name: construction for construction in catalogue()}


@pytest.mark.parametrize("name", CONSTRUCTIONS)
def test_the_attention_is_one(name):
    construction = CONSTRUCTIONS[name]
    texts = construction.written(1)
    model = construction.model(texts, 1)
    count = len(texts)
    batch = split_of(texts)[range(count)]
    attention = model(batch).attention
    assert attention.sum(-1).tolist() == pytest.approx([1] * count)
    assert attention.min() >= 0


def test_names_are_told_apart():
    assert len(CONSTRUCTIONS) == len(catalogue())


def test_the_mass_is_the_weight_beyond_chance():
    construction = token(name="", source="", attend=on_cues(), expected="", length=5)
    texts = construction.with_texts(3).written(0)
    uniform = [np.full(5, 0.2)] * 3
    on_deciding_words = []
    for text in texts:
        deciding_words = np.flatnonzero(text.decides)
        on_deciding_words.append(spread(5, deciding_words, 0.6))
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
    first, second = outcome.classes
    assert first.answer == second.answer == construction.expected


def test_several_attentions_have_the_shares_that_the_probe_gives_each():
    construction = token("", "", on_cues(), "").with_texts(30)
    measured = MeasuredTexts.of(construction, 0)
    for attend in (on_cues(), on_places(0)):
        outcome = ask(replace(construction, attend=attend))
        line = outcome.line
        draw = np.random.default_rng((0, 1))
        weights = [attend(draw, text) for text in measured.texts]
        share = measured.share([weights])
        assert share.value == pytest.approx(line.value, abs=1e-6)
        assert share.low == pytest.approx(line.low, abs=1e-6)
        assert share.high == pytest.approx(line.high, abs=1e-6)


# Invariances


@pytest.fixture(scope="module")
def sample():
    """Texts of two lengths, a model and what the probe measures of it."""
    construction = token("", "", sometimes(0.5, on_cues()), "").with_texts(20)
    short = replace(construction, write=partial(one_cue, length=7))
    texts = construction.written(0) + short.written(1)
    model = construction.model(texts, 0)
    return texts, model, shares_of(model, texts)


def shares_of(model, texts):
    """What the share is computed from, of each text."""
    measured = table_of(model, texts, 0)
    return np.concatenate(columns(measured, *SHARE_METRICS))


def with_score(model, score):
    """The same attention, another score of the words."""
    texts = range(len(model.lengths))
    weights = [model.weights_of(text) for text in texts]
    changed = HandBuilt(score, weights)
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
    names = np.arange(WORDS)
    np.random.default_rng(0).shuffle(names[4:])
    renamed_texts = []
    for text in texts:
        renamed_words = names[text.words]
        renamed_texts.append(replace(text, words=renamed_words))
    back = torch.from_numpy(np.argsort(names))
    renamed = with_score(model, lambda ids: model.score(back[ids]))
    assert shares_of(renamed, renamed_texts) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("size", [1, 7])
def test_batch_size_and_padding_change_nothing(sample, size, monkeypatch):
    texts, model, expected = sample
    monkeypatch.setattr("research.constructions.asking.BATCH", size)
    assert size != BATCH
    assert shares_of(model, texts) == pytest.approx(expected, abs=1e-9)


# Coverage


def evidence(low, high):
    middle = (low + high) / 2
    return Evidence(middle, low, high, n=10)


def test_coverage_counts_intervals_that_hold_the_truth():
    shares = [
        evidence(0.1, 0.3),
        evidence(0.25, 0.5),
        evidence(0.45, 0.6),
    ]
    line = Coverage("", 0.5, 10, 1, truth=0.28, shares=shares)
    assert line.holds == 2
    assert line.answers == {"yes": 1, "no": 1, "open": 1, "not asked": 0}
    assert line.width == pytest.approx(0.2)


def test_coverage_of_the_asked_leaves_out_what_is_not_asked():
    unasked = replace(evidence(0.6, 0.7), unasked="too few texts")
    asked = evidence(0.1, 0.3)
    line = Coverage("", 0.5, 10, 1, truth=0.28, shares=[asked, unasked])
    assert line.holds == 1
    assert line.of_asked.holds == 1
    assert line.of_asked.shares == [asked]
    of_all, of_asked = coverage_table([line]).splitlines()[-2:]
    assert of_all == "| **all** | | | | | **0.50** | 2 | | |"
    assert of_asked == "| **all that are asked** | | | | | **1.00** | 1 | | |"


def test_changes_by_seed_are_those_from_the_most_frequent_answer():
    shares = [
        evidence(0.5, 0.6),
        evidence(0.3, 0.5),
        evidence(0.45, 0.6),
    ]
    assert SeedChanges(0.5, shares).changed == 1


def test_a_small_part_of_the_coverage_runs():
    samples = Samples((20,), (1, 3), data_sets=4)
    lines = list(coverages("right in half", 0.5, samples))
    assert [line.runs for line in lines] == [1, 3]
    for line in lines:
        assert len(line.shares) == 4
        _, _, high = clopper_pearson(line.holds, 4)
        assert high > 0.93  # four data sets cannot show less but by missing it


ANSWERS = ("yes", "no", "open", "not asked")


@pytest.mark.slow
def test_the_page_has_the_coverage_that_is_measured():
    """Of the line that is measured fastest: width and answers, which go by no other line."""
    construction = construction_of("by absence", 0.5, 50)
    shares = []
    for number in range(SAMPLES["by absence"].data_sets):
        seed = seed_of(0.5, 50, number)
        measured = MeasuredTexts.of(construction, seed)
        attention = attention_of_runs(construction, measured.texts, seed, 1)
        shares.append(measured.share(attention))
    line = Coverage("by absence", 0.5, 50, 1, truth=0.0, shares=shares)
    rows = part_of_page("coverage").splitlines()
    setting = "| by absence | 50 % | 50 | 1 |"
    (row,) = [row for row in rows if row.startswith(setting)]
    *_, width, answers = row.removesuffix(" |").split(" | ")
    assert line.width == pytest.approx(float(width), abs=0.02)
    counts = answers.split(" / ")
    for count, answer in zip(counts, ANSWERS, strict=True):
        assert line.answers[answer] == pytest.approx(int(count), abs=1)


def test_the_page_has_a_line_for_each_size_minority_and_number_of_runs():
    rows = part_of_page("coverage").splitlines()[2:-2]
    expected = []
    for base, samples in SAMPLES.items():
        settings = itertools.product(MINORITIES, samples.sizes, samples.runs)
        for minority, texts, runs in settings:
            expected.append(f"| {base} | {100 * minority:.0f} % | {texts} | {runs} |")
    for row, beginning in zip(rows, expected, strict=True):
        assert row.startswith(beginning)


def test_several_runs_have_attentions_of_their_own():
    right_in_half = sometimes(0.5, on_cues())
    construction = token("right in half", "", right_in_half, "").with_texts(50)
    texts = construction.written(0)
    runs = attention_of_runs(construction, texts, 0, 2)
    first, second = map(np.concatenate, runs)
    assert not np.array_equal(first, second)


# Trained networks


@pytest.mark.parametrize("name", CONSTRUCTIONS)
def test_the_model_predicts_the_label(name):
    construction = CONSTRUCTIONS[name].with_texts(40)
    texts = construction.written(0)
    model = construction.model(texts, 0)
    batch = split_of(texts)[range(40)]
    logits = model(batch).logits
    draw = np.random.default_rng((0, 0))
    labels = draw.permutation(construction.labels())
    assert logits.argmax(-1).tolist() == labels.tolist()


@pytest.mark.parametrize("name", CONSTRUCTIONS)
def test_the_model_says_something_else_with_another_word_in_a_place_that_decides(name):
    construction = CONSTRUCTIONS[name].with_texts(40)
    texts = construction.written(0)
    model = construction.model(texts, 0)
    batch = split_of(texts)[range(40)]
    logits = model(batch).logits

    first_places = {}
    for row, text in enumerate(texts):
        if text.decides.any():
            first_places[row] = 1 + text.decides.argmax()

    moved = torch.zeros(40, dtype=torch.bool)
    for word in (4, *range(CUE, WORDS)):  # another cue says the same of some texts
        ids = batch.ids.clone()
        for row, place in first_places.items():
            ids[row, place] = word
        changed_logits = model(replace(batch, ids=ids)).logits
        change = (changed_logits - logits).abs().amax(-1)
        moved |= change > 0.1
    has_deciding_word = [text.decides.any() for text in texts]
    assert moved.tolist() == has_deciding_word


@pytest.fixture(scope="module")
def weighted_texts():
    """Texts of two lengths, and an attention over each."""
    construction = token("", "", on_cues(), "")
    short = replace(construction, write=partial(one_cue, length=5))
    texts = construction.with_texts(4).written(0) + short.with_texts(3).written(1)
    draw = np.random.default_rng(0)
    weights = []
    for text in texts:
        even = np.ones(len(text.words))
        weights.append(draw.dirichlet(even))
    return texts, weights


@pytest.mark.parametrize("encoder", ENCODERS)
def test_a_network_decides_by_the_mean_of_its_states_under_the_given_attention(
    encoder, weighted_texts
):
    """Text by text and without padding, as a plain loop has it."""
    texts, weights = weighted_texts
    network = Network(ENCODERS[encoder](), weights, 2).eval().double()
    split = split_of(texts)
    with torch.no_grad():
        logits = network(split[range(7)]).logits
        for row in range(7):
            text = split[[row]]
            vectors = network.embedding(text.ids)
            states = network.encoder(vectors, text.mask, text.content)
            attention = torch.from_numpy(weights[row])
            mean = attention @ states[text.content]
            expected = network.decoder(mean).tolist()
            assert logits[row].tolist() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("encoder", ENCODERS)
def test_a_networks_readout_says_what_the_network_says(encoder, weighted_texts):
    texts, weights = weighted_texts
    network = Network(ENCODERS[encoder](), weights, 2).eval().double()
    batch = split_of(texts)[range(7)]
    with torch.no_grad():
        outputs = network(batch)
        readout = network.readout(batch, outputs)
        logits = readout.logits(outputs.attention)
    assert_close(logits, outputs.logits, atol=1e-9, rtol=0)


@pytest.mark.parametrize("name", [each.name for each in trainable()])
def test_every_training_text_has_the_label_of_the_score(name):
    construction = CONSTRUCTIONS[name]
    draw = np.random.default_rng(0)
    sample = mixed(construction, draw, 60)
    assert 0 < len(sample.texts) <= 60
    for text, label, weights in zip(sample.texts, sample.labels, sample.weights, strict=True):
        single = split_of([text])[[0]]
        [scores] = construction.score(single.ids)
        assert int(scores.argmax()) == int(label)
        assert len(weights) == len(text.words)


def test_a_mixture_has_words_of_both_texts_in_their_places():
    draw = np.random.default_rng(0)
    longer = Text(np.arange(4, 16), np.zeros(12, bool))
    shorter = Text(np.arange(30, 39), np.zeros(9, bool))
    mixtures = [mixture(draw, longer, shorter) for _ in range(200)]
    words = np.stack([text.words for text in mixtures])
    is_of_longer = words == longer.words
    shared_places = slice(9)
    is_of_shorter = words[:, shared_places] == shorter.words
    is_of_either = is_of_longer[:, shared_places] | is_of_shorter
    assert is_of_either.all()
    assert is_of_longer[:, 9:].all()
    assert 0.3 < is_of_longer[:, shared_places].mean() < 0.7
    assert longer.words.tolist() == list(range(4, 16))


ON_THE_WORD, BESIDE_THE_WORD = EASY


@pytest.mark.parametrize(
    "name",
    [
        ON_THE_WORD,
        pytest.param(BESIDE_THE_WORD, marks=pytest.mark.slow),
    ],
)
def test_a_trained_network_gets_the_answer_of_its_mass(name):
    construction = CONSTRUCTIONS[name].with_texts(60)
    trained_outcome = ask_trained(construction, "transformer")
    assert trained_outcome.right >= 0.95
    outcome = trained_outcome.outcome
    assert outcome.answer == construction.expected
    assert outcome.line.value == pytest.approx(trained_outcome.mass, abs=0.1)


def test_a_network_that_does_not_solve_its_rule_is_not_asked(monkeypatch):
    """A window of seven words does not reach from the last word to a cue elsewhere."""
    monkeypatch.setattr("research.constructions.trained.EPOCHS", 2)
    construction = token("", "", on_places(-1, weight=1.0), "")
    outcome = ask_trained(construction.with_texts(40), "CNN")
    assert outcome.right < 0.95
    assert outcome.outcome is None


def test_one_construction_of_each_rule_and_attention_is_trained():
    names = [each.name for each in trainable()]
    assert len(names) == 40
    assert "3 runs, 4 % of the texts missed" in names
    assert "2 runs, 4 % of the texts missed" not in names


# Page


def test_what_is_reported_of_the_measure_before_is_of_constructions():
    assert set(BEFORE) <= set(CONSTRUCTIONS)


def test_the_measure_before_was_asked_about_every_construction():
    answers = answers_before()
    first_words = {answer.split()[0] for answer in answers.values()}
    assert set(answers) == set(CONSTRUCTIONS)
    assert first_words == {"yes", "no", "open", "not"}


def part_of_page(name):
    text = PAGE.read_text(encoding="utf-8")
    _, _, from_beginning = text.partition(f"<!-- {name} -->")
    part, _, _ = from_beginning.partition(f"<!-- end of {name} -->")
    return part.strip()


def answers_on_page():
    """What the page says of each network that solved its rule: the answer before → the present."""
    _, _, table = part_of_page("trained").partition("\n\n")
    lines = table.splitlines()[2:]
    assert len(lines) == len(trainable())
    answers = []
    for line in lines:
        for cell in line.split(" | ")[3:]:
            if "not solved" not in cell:
                answers.append(cell.split(" → "))
    return answers


def test_the_page_counts_the_networks_that_solve_their_rule_and_the_right_answers_about_them():
    answers = answers_on_page()
    asked = sum(len(answers_before(encoder)) for encoder in ENCODERS)
    assert len(answers) == asked
    # a wrong answer is bold
    right_before = sum("**" not in before for before, _ in answers)
    right_now = sum("**" not in now for _, now in answers)
    counts, _, _ = part_of_page("trained").partition("\n\n")
    assert counts == (
        f"{asked} networks solved their rule; of these the measure before gives the right "
        f"answer to {right_before}, the present one to {right_now}."
    )
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    assert f"**{right_now} of {asked} trained networks" in text


def test_the_page_counts_the_right_answers_of_both_measures():
    text = PAGE.read_text(encoding="utf-8")
    words = " ".join(text.split())
    _, _, *lines = part_of_page("constructions").splitlines()
    rows = [line.split(" | ") for line in lines]
    right_before = sum("**" not in cells[4] for cells in rows)
    right_now = sum("**" not in cells[6] for cells in rows)
    assert f"**{right_now} of {len(rows)} constructions get the answer" in text
    assert f"the measure before gave it to {right_before}" in words


def test_cues_are_no_plain_words():
    for construction in CONSTRUCTIONS.values():
        text, *_ = construction.with_texts(20).written(0)
        cues = list(text.cues)
        plain = np.delete(text.words, cues)
        assert plain.max(initial=0) < CUE or not text.cues


def test_a_page_that_is_not_there_is_refused_before_an_hour_of_work(tmp_path, monkeypatch, capsys):
    made = []
    monkeypatch.setitem(TABLES, "null", lambda: made.append("null"))
    page = tmp_path / "nowhere.md"
    with pytest.raises(SystemExit):
        main(["null", "--page", str(page)])
    assert "nowhere.md: there is no such page" in capsys.readouterr().err
    assert not made
