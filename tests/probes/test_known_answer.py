from dataclasses import dataclass, replace
from functools import cache

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
from tests.small_runs import small_run
from tests.toys import ATTENTIONS, ENCODERS, toy_classifier


def measured(classifier, batch):
    subject = subject_of(classifier, batch)
    return subject, values(KnownAnswer(), subject)


def text_of(words):
    """One text of these ids, made by hand."""
    ids = torch.tensor([[2, *words, 3]])
    content = torch.tensor([[False, *[True] * len(words), False]])
    return Batch(ids, ids != 0, content, torch.zeros(1).long(), torch.zeros(1).long())


@pytest.mark.parametrize("encoder", ["lstm", "cnn", "average"])
def test_every_changed_text_is_decided_as_one_made_by_hand(encoder):
    batch = marked([6, 5, 9, 7, 8, 6], padding=2)
    classifier = toy_classifier(encoder, spread=6)
    with torch.no_grad():  # half of the texts are decided one way
        classifier.decoder.output.bias -= classifier(batch).logits[:, 1].median()
    _, numbers = measured(classifier, batch)
    decided = set()
    for row in range(len(batch)):
        content = batch.content[row]
        words = batch.ids[row][content]
        mark = batch.rationale[row][content]
        label = int(batch.labels[row])
        texts = {
            "correct": (words, label),
            "correct_contradicted": (batch.counterfactual[row][content], 1 - label),
            "correct_without": (words[~mark], label),
            "correct_alone": (words[mark], label),
        }
        for metric, (ids, expected) in texts.items():
            decision = int(classifier(text_of(ids.tolist())).logits.argmax())
            assert float(numbers[metric][row]) == float(decision == expected), metric
            decided.add((metric, decision))
    assert len(decided) > 4  # both decisions occur, so that a wrong label would show


@cache
def without_context():
    """Three marked texts as a model without context reads them, and what is measured."""
    batch = marked([6, 9, 5])
    subject, numbers = measured(toy_classifier("average", spread=4), batch)
    return subject, numbers


@dataclass
class Words:
    """The words of one text: attention, logits if it were on the word alone, and which are marked.

    Its numbers are NumPy's, so that a test shares no arithmetic with the probe.
    """

    weights: np.ndarray
    logits: np.ndarray
    mark: np.ndarray


def words_of(subject, row):
    content = subject.batch.content[row]
    columns = (
        subject.readout.attention,
        subject.readout.position_logits,
        subject.batch.rationale,
    )
    return Words(*(column[row][content].numpy() for column in columns))


@pytest.mark.parametrize("row", range(3))
def test_rightness_about_words_against_numpy(row):
    subject, numbers = without_context()
    words = words_of(subject, row)
    weights = words.weights
    mark = words.mark
    top = np.argsort(-weights)[: mark.sum()]
    chance = mark.mean()
    expected = {
        "chance": chance,
        "mass_on_rationale": weights[mark].sum() - chance,
        "precision_on_rationale": mark[top].mean() - chance,
        "auprc_on_rationale": average_precision_score(mark, weights) - chance,
    }
    for metric, number in expected.items():
        assert float(numbers[metric][row]) == pytest.approx(number)


@pytest.mark.parametrize("row", range(3))
def test_rightness_about_states_against_numpy(row):
    subject, numbers = without_context()
    words = words_of(subject, row)
    weights = words.weights
    logits = words.logits
    decided = int((weights @ logits).argmax())
    margin = logits[:, decided] - logits[:, 1 - decided]
    size = np.abs(weights * (margin - margin.mean()))
    common = np.minimum(weights, size / size.sum()).sum()
    assert float(numbers["state_mass_agreement"][row]) == pytest.approx(common)
    tau = kendalltau(weights, size).statistic
    assert float(numbers["state_rank_agreement"][row]) == pytest.approx(tau)


@pytest.mark.parametrize("row", range(3))
def test_which_states_know_the_reason_against_numpy(row):
    subject, numbers = without_context()
    classifier = subject.classifier
    content = subject.batch.content[row]
    contradicted = text_of(subject.batch.counterfactual[row][content].tolist())
    with torch.no_grad():
        readout = classifier.readout(contradicted, classifier(contradicted))
    words = words_of(subject, row)
    moved = readout.position_logits[0, 1:-1].numpy() - words.logits
    change = moved.max(-1) - moved.min(-1)
    # without context no other state changes
    assert ((change > 1e-9) == words.mark).all()
    expected = {"own": words.weights @ change, "null": change.mean(), "best": change.max()}
    for kind, value in expected.items():
        assert float(numbers[f"state_change_{kind}"][row]) == pytest.approx(value)


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
    # the null: nothing decides, and nothing moves
    unmarked = replace(batch, rationale=torch.zeros_like(batch.rationale))
    assert_close(classifier(unmarked).hidden, vectors)


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


def test_attention_is_exclusive_where_one_state_outweighs_all_others_and_not_where_two_know():
    marker = [0.0, 0.0]
    knows = [4.0, -4.0]
    leans_away = [-1.0, 1.0]
    exclusive = [marker, knows, leans_away, leans_away, leans_away, marker]
    shared = [marker, knows, knows, leans_away, leans_away, marker]
    rest = 0.05 / 3
    weights = torch.tensor([[0, 0.95, rest, rest, rest, 0]]).double()
    content = marked([4, 4]).content[:1]

    def farthest_jsd(position_logits):
        logits = torch.tensor([position_logits]).double()
        return farthest_attention(weights, logits, content, epsilon=0.01).jsd.item()

    assert farthest_jsd(exclusive) < 0.3
    assert farthest_jsd(shared) > 0.5


def test_what_is_not_known_is_no_number():
    batch = marked([6, 5, 4])
    classifier = toy_classifier("cnn")
    batch.rationale[1] = False
    batch.rationale[2] = batch.content[2]
    batch.counterfactual[0] = 0
    _, numbers = measured(classifier, batch)
    assert all(value[1].isnan() for value in numbers.values())
    assert numbers["correct_contradicted"][0].isnan()
    assert not numbers["correct_without"][0].isnan()
    assert numbers["correct_without"][2].isnan()  # nothing is left
    assert not numbers["correct_alone"][2].isnan()
    without = replace(batch, counterfactual=None)
    assert "correct_contradicted" not in measured(classifier, without)[1]
    assert measured(classifier, replace(batch, rationale=None))[1] == {}


def test_a_model_that_reads_pieces_is_given_those_of_the_words_that_are_left():
    pytest.importorskip("transformers")
    model = classifier().double()
    words = TEXTS[1].split()
    batch = batch_of(model, [TEXTS[1]])
    mark = torch.zeros_like(batch.content)
    mark[0, [4, 8]] = True  # "dull", and "unable" of two pieces
    batch = replace(batch, rationale=mark, counterfactual=batch.ids)
    model.prepare(batch)
    for keep in (mark, ~mark):
        shortened = kept(batch, keep)
        text = " ".join(word for place, word in enumerate(words, 1) if keep[0, place])
        with torch.no_grad():
            assert_close(model(shortened).logits, model(batch_of(model, [text])).logits)
    _, numbers = measured(model, batch)
    assert "correct_without" in numbers
    assert "correct_contradicted" not in numbers  # its words are not cut into pieces


@pytest.mark.parametrize("kind", KINDS)
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
    means = read_results(directory, probe="known_answer").groupby("metric")["value"].mean()
    assert means["correct"] > 0.9
    assert means["correct_contradicted"] > 0.9
    assert 0.35 < means["correct_without"] < 0.65
