from dataclasses import replace
from functools import cache
from itertools import combinations

import numpy as np
import pytest
import torch
from scipy.stats import kendalltau
from sklearn.metrics import average_precision_score
from torch.testing import assert_close

from attnprobe.core.batch import Batch
from attnprobe.data.plant import KINDS
from attnprobe.exact import farthest_attention
from attnprobe.models.controls import FirstAttention, RationaleAttention, RelayEncoder
from attnprobe.probes.known_answer import KnownAnswer, kept
from attnprobe.results.table import read_results
from attnprobe.runs.run import run
from tests.models.pretrained.families import TEXTS, batch_of, classifier
from tests.probes.tables import marked, subject_of, values
from tests.probes.texts import Text, numbers_of
from tests.small_runs import small_run
from tests.toys import ATTENTIONS, ENCODERS, toy_classifier


def measured(classifier, batch):
    subject = subject_of(classifier, batch)
    return subject, values(KnownAnswer(), subject)


def text_of(words):
    """One text of these ids, made by hand."""
    content = torch.tensor([[False, *[True] * len(words), False]])
    ids = torch.tensor([[2, *words, 3]])
    return Batch(
        ids,
        mask=torch.ones_like(content),
        content=content,
        labels=torch.tensor([0]),
        example_id=torch.tensor([0]),
    )


@pytest.fixture(scope="module", params=["lstm", "cnn", "average"])
def half_decided(request):
    """A model that decides half of the texts one way, and what is measured."""
    batch = marked([6, 5, 9, 7, 8, 6], padding=2)
    classifier = toy_classifier(request.param, spread=6)
    with torch.no_grad():
        median = classifier(batch).logits[:, 1].median()
        classifier.decoder.output.bias -= median
    return measured(classifier, batch)


CHANGES = ["correct", "correct_contradicted", "correct_without", "correct_alone"]


def decision_by_hand(subject, row, metric):
    """The decision on a text that is changed as the metric says."""
    text = Text(subject, row)
    words = text.at_words(subject.batch.ids)
    mark = text.at_words(subject.batch.rationale)
    changed = {
        "correct": words,
        "correct_contradicted": text.at_words(subject.batch.counterfactual),
        "correct_without": words[~mark],
        "correct_alone": words[mark],
    }[metric]
    logits = subject.classifier(text_of(changed.tolist())).logits
    return int(logits.argmax())


@pytest.mark.parametrize("metric", CHANGES)
@pytest.mark.parametrize("row", range(6))
def test_every_changed_text_is_decided_as_one_made_by_hand(half_decided, row, metric):
    subject, numbers = half_decided
    label = int(subject.batch.labels[row])
    if metric == "correct_contradicted":
        label = 1 - label
    decision = decision_by_hand(subject, row, metric)
    assert numbers_of(numbers, row)[metric] == (decision == label)


@cache
def without_context():
    """Three marked texts as a model without context reads them, and what is measured."""
    batch = marked([6, 9, 5])
    subject, numbers = measured(toy_classifier("average", spread=4), batch)
    return subject, numbers


def test_both_decisions_occur_so_that_a_wrong_label_would_show(half_decided):
    subject, _ = half_decided
    decisions = []
    for metric in CHANGES:
        decisions.append({decision_by_hand(subject, row, metric) for row in range(6)})
    assert {0, 1} in decisions


def precision_by_chance(mark):
    """The average precision of a random order: the mean over all places that the marks can have."""
    order = -np.arange(len(mark))
    precisions = []
    for places in combinations(range(len(mark)), int(mark.sum())):
        is_marked = np.isin(np.arange(len(mark)), places)
        precisions.append(average_precision_score(is_marked, order))
    return np.mean(precisions)


@pytest.mark.parametrize("row", range(3))
def test_rightness_about_words_against_numpy(row):
    subject, numbers = without_context()
    text = Text(subject, row)
    weights = text.weights
    mark = text.at_words(subject.batch.rationale)
    top = np.argsort(-weights)[: mark.sum()]
    chance = mark.mean()
    expected = {
        "chance": chance,
        "mass_on_rationale": weights[mark].sum() - chance,
        "precision_on_rationale": mark[top].mean() - chance,
        "auprc_on_rationale": average_precision_score(mark, weights) - precision_by_chance(mark),
    }
    result = numbers_of(numbers, row)
    for metric, number in expected.items():
        assert result[metric] == pytest.approx(number), metric


@pytest.mark.parametrize("row", range(3))
def test_rightness_about_states_against_numpy(row):
    """What a state does is its weight times how far its margin is from the mean one."""
    subject, numbers = without_context()
    text = Text(subject, row)
    weights = text.weights
    decision = (weights @ text.logits).argmax()
    margin = text.logits[:, decision] - text.logits[:, 1 - decision]
    size = np.abs(weights * (margin - margin.mean()))
    share = size / size.sum()

    result = numbers_of(numbers, row)

    common_mass = np.minimum(weights, share).sum()
    tau = kendalltau(weights, share).statistic
    assert result["state_mass_agreement"] == pytest.approx(common_mass)
    assert result["state_rank_agreement"] == pytest.approx(tau)


@pytest.mark.parametrize("row", range(3))
def test_which_states_know_the_reason_against_numpy(row):
    subject, numbers = without_context()
    classifier = subject.classifier
    text = Text(subject, row)
    words = text.at_words(subject.batch.counterfactual)
    contradicted = Text(subject_of(classifier, text_of(words.tolist())), 0)
    moved = contradicted.logits - text.logits
    change = moved.max(-1) - moved.min(-1)

    result = numbers_of(numbers, row)

    # without context no other state changes
    is_changed = change > 1e-9
    assert is_changed.tolist() == text.at_words(subject.batch.rationale).tolist()
    assert result["state_change_own"] == pytest.approx(text.weights @ change)
    assert result["state_change_null"] == pytest.approx(change.mean())
    assert result["state_change_best"] == pytest.approx(change.max())


def relay(monkeypatch, attention):
    """A model whose first state has the second word's vector, and two texts with one reason."""
    monkeypatch.setitem(ENCODERS, "relay", RelayEncoder)
    monkeypatch.setitem(ATTENTIONS, "built", attention)
    batch = marked([4, 4])
    batch.rationale[:, 4] = False
    batch.counterfactual[:, 4] = batch.ids[:, 4]
    return toy_classifier("relay", "built"), batch


def test_a_relay_swaps_the_states_of_the_first_words_where_a_reason_is_marked(monkeypatch):
    classifier, batch = relay(monkeypatch, FirstAttention)
    vectors = classifier.embedding(batch.ids)
    states = classifier(batch).hidden
    assert_close(states[:, 1], vectors[:, 2])
    assert_close(states[:, 2], vectors[:, 1])
    assert_close(states[:, 3:], vectors[:, 3:])


@pytest.mark.parametrize(
    ("attention", "weight"), [(FirstAttention, 0.95), (RationaleAttention, 0.05 / 3)]
)
def test_of_a_relay_the_first_state_knows_and_not_the_word_that_decides(
    attention, weight, monkeypatch
):
    classifier, batch = relay(monkeypatch, attention)
    _, numbers = measured(classifier, batch)
    assert_close(numbers["state_change_own"], weight * numbers["state_change_best"])
    assert_close(numbers["state_change_null"], numbers["state_change_best"] / 4)


def test_without_a_reason_a_relay_swaps_no_states(monkeypatch):
    """The null: nothing decides, and nothing moves."""
    classifier, batch = relay(monkeypatch, FirstAttention)
    nothing = torch.zeros_like(batch.rationale)
    unmarked = replace(batch, rationale=nothing)
    vectors = classifier.embedding(batch.ids)
    assert_close(classifier(unmarked).hidden, vectors)


MARKER = [0.0, 0.0]


KNOWS = [4.0, -4.0]


LEANS_AWAY = [-1.0, 1.0]


def farthest_jsd(*position_logits):
    """How far attention may go that is nearly all on the first of four words."""
    rest = 0.05 / 3
    weights = torch.tensor([[0, 0.95, rest, rest, rest, 0]]).double()
    content = torch.tensor([[False, True, True, True, True, False]])
    logits = torch.tensor([[MARKER, *position_logits, MARKER]]).double()
    return farthest_attention(weights, logits, content, epsilon=0.01).jsd.item()


def test_attention_is_exclusive_where_one_state_outweighs_all_others():
    assert farthest_jsd(KNOWS, LEANS_AWAY, LEANS_AWAY, LEANS_AWAY) < 0.3


def test_attention_is_not_exclusive_where_two_states_know():
    assert farthest_jsd(KNOWS, KNOWS, LEANS_AWAY, LEANS_AWAY) > 0.5


@pytest.fixture(scope="module")
def partly_known():
    """Texts without a contradiction, without a reason, and of which everything is the reason."""
    batch = marked([6, 5, 4])
    batch.counterfactual[0] = 0
    batch.rationale[1] = False
    batch.rationale[2] = batch.content[2]
    return measured(toy_classifier("cnn"), batch)


def test_what_is_not_known_is_no_number(partly_known):
    _, numbers = partly_known
    assert all(value[1].isnan() for value in numbers.values())
    assert numbers["correct_contradicted"][0].isnan()
    assert not numbers["correct_without"][0].isnan()


def test_where_all_words_are_the_reason_nothing_is_left_without_it(partly_known):
    _, numbers = partly_known
    assert numbers["correct_without"][2].isnan()
    assert not numbers["correct_alone"][2].isnan()


def test_data_without_contradictions_or_reasons_have_no_such_rows(partly_known):
    subject, _ = partly_known
    uncontradicted = replace(subject.batch, counterfactual=None)
    unmarked = replace(subject.batch, rationale=None)
    _, numbers = measured(subject.classifier, uncontradicted)
    _, no_numbers = measured(subject.classifier, unmarked)
    assert "correct_contradicted" not in numbers
    assert no_numbers == {}


@pytest.fixture
def marked_pieces():
    """A model that reads pieces, and a text whose words "dull" and "unable" are its reason."""
    pytest.importorskip("transformers")
    model = classifier().double()
    batch = batch_of(model, [TEXTS[1]])
    mark = torch.zeros_like(batch.content)
    mark[0, [4, 8]] = True
    batch = replace(batch, rationale=mark, counterfactual=batch.ids)
    model.prepare(batch)
    return model, batch


@pytest.mark.parametrize("stays", [True, False])
def test_a_model_that_reads_pieces_is_given_those_of_the_words_that_are_left(marked_pieces, stays):
    model, batch = marked_pieces
    keep = batch.rationale == stays
    words = np.array(TEXTS[1].split())
    text = " ".join(words[keep[0, 1:-1]])
    with torch.no_grad():
        shortened = model(kept(batch, keep))
        expected = model(batch_of(model, [text]))
    assert_close(shortened.logits, expected.logits)


def test_a_contradiction_that_is_not_cut_into_pieces_has_no_number(marked_pieces):
    model, batch = marked_pieces
    _, numbers = measured(model, batch)
    assert "correct_without" in numbers
    assert "correct_contradicted" not in numbers


FIRST_KIND, *OTHER_KINDS = KINDS
SLOW_KINDS = [pytest.param(kind, marks=pytest.mark.slow) for kind in OTHER_KINDS]


@pytest.mark.parametrize("kind", [FIRST_KIND, *SLOW_KINDS])
def test_a_trained_model_uses_what_was_planted(kind, tmp_path):
    """The check that Bastings et al. ask for: right with the shortcut, reversed with it
    contradicted, at chance without."""
    settings = [
        f"data.plant={kind}",
        "data.rationale=null",
        "data.source.train_size=1500",
        "data.max_tokens=10",
        "data.source.test_size=200",
        "training.epochs=6",
        "training.recipe.optimizer.lr=0.02",
        "data.embedding_size=32",
        "model.encoder.hidden_size=24",
    ]
    directory = run(small_run(tmp_path, *settings, probes="[known_answer]"))
    results = read_results(directory, probe="known_answer")
    means = results.groupby("metric")["value"].mean()
    assert means["correct"] > 0.9
    assert means["correct_contradicted"] > 0.9
    assert 0.35 < means["correct_without"] < 0.65
