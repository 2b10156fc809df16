from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import kendalltau
from sklearn.metrics import average_precision_score

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
    _, found = measured(classifier, batch)
    decided = set()
    for row in range(len(batch)):
        words = batch.ids[row][batch.content[row]]
        label = int(batch.labels[row])
        mark = batch.rationale[row][batch.content[row]]
        texts = {
            "correct": (words, label),
            "correct_contradicted": (batch.counterfactual[row][batch.content[row]], 1 - label),
            "correct_without": (words[~mark], label),
            "correct_alone": (words[mark], label),
        }
        for metric, (ids, right) in texts.items():
            decision = int(classifier(text_of(ids.tolist())).logits.argmax())
            assert float(found[metric][row]) == float(decision == right), metric
            decided.add((metric, decision))
    assert len(decided) > 4  # both decisions occur, so that a wrong label would show


def test_rightness_at_both_levels_against_loops():
    batch = marked([6, 9, 5])
    classifier = toy_classifier("average", spread=4)
    subject, found = measured(classifier, batch)
    for row in range(3):
        there = batch.content[row]
        weights = subject.readout.attention[row][there].numpy()
        mark = batch.rationale[row][there].numpy()
        chance = mark.mean()
        top = np.argsort(-weights)[: mark.sum()]
        assert float(found["chance"][row]) == pytest.approx(chance)
        assert float(found["mass_on_rationale"][row]) == pytest.approx(weights[mark].sum() - chance)
        assert float(found["precision_on_rationale"][row]) == pytest.approx(
            mark[top].mean() - chance
        )
        assert float(found["auprc_on_rationale"][row]) == pytest.approx(
            average_precision_score(mark, weights) - chance
        )
        logits = subject.readout.position_logits[row][there].numpy()
        decided = int((weights @ logits).argmax())
        margin = logits[:, decided] - logits[:, 1 - decided]
        size = np.abs(weights * (margin - margin.mean()))
        common = np.minimum(weights, size / size.sum()).sum()
        assert float(found["state_mass_agreement"][row]) == pytest.approx(common)
        assert float(found["state_rank_agreement"][row]) == pytest.approx(
            kendalltau(weights, size).statistic
        )


def test_which_states_know_the_reason_against_a_loop():
    batch = marked([6, 9, 5])
    classifier = toy_classifier("average", spread=4)
    subject, found = measured(classifier, batch)
    for row in range(3):
        there = batch.content[row]
        changed = text_of(batch.counterfactual[row][there].tolist())
        with torch.no_grad():
            other = (
                classifier.readout(changed, classifier(changed)).position_logits[0, 1:-1].numpy()
            )
        moved = other - subject.readout.position_logits[row][there].numpy()
        change = moved.max(-1) - moved.min(-1)
        assert (
            (change > 1e-9) == batch.rationale[row][there].numpy()
        ).all()  # without context no other state changes
        weights = subject.readout.attention[row][there].numpy()
        expected = {"own": weights @ change, "null": change.mean(), "best": change.max()}
        for kind, value in expected.items():
            assert float(found[f"state_change_{kind}"][row]) == pytest.approx(value)


@pytest.mark.parametrize(
    ("attention", "weight"), [(FirstAttention, 0.95), (RationaleAttention, 0.05 / 3)]
)
def test_of_a_relay_the_first_state_knows_and_not_the_word_that_decides(
    attention, weight, monkeypatch
):
    monkeypatch.setitem(ENCODERS, "relay", RelayEncoder)
    monkeypatch.setitem(ATTENTIONS, "built", attention)
    classifier = toy_classifier("relay", "built")
    batch = marked([4, 4])
    batch.rationale[:, 4] = False
    batch.counterfactual[:, 4] = batch.ids[:, 4]
    vectors = classifier.embedding(batch.ids)
    states = classifier(batch).hidden
    torch.testing.assert_close(states[:, 1], vectors[:, 2])
    torch.testing.assert_close(states[:, 2], vectors[:, 1])
    torch.testing.assert_close(states[:, 3:], vectors[:, 3:])
    unmarked = replace(batch, rationale=torch.zeros_like(batch.rationale))
    torch.testing.assert_close(
        classifier(unmarked).hidden, vectors
    )  # the null: nothing decides, and nothing moves
    found = measured(classifier, batch)[1]
    torch.testing.assert_close(found["state_change_own"], weight * found["state_change_best"])
    torch.testing.assert_close(found["state_change_null"], found["state_change_best"] / 4)
    # exclusive by construction: the one state that knows outweighs all others, and where two know
    # it is not
    alone = torch.tensor([[[0.0, 0], [4, -4], [-1, 1], [-1, 1], [-1, 1], [0, 0]]]).double()
    weights = torch.tensor([[0, 0.95, 0.05 / 3, 0.05 / 3, 0.05 / 3, 0]]).double()
    content = batch.content[:1]
    two = alone.clone()
    two[:, 2] = alone[:, 1]
    far = [
        farthest_attention(weights, logits, content, epsilon=0.01).jsd.item()
        for logits in (alone, two)
    ]
    assert far[0] < 0.3 < 0.5 < far[1]


def test_what_is_not_known_is_no_number():
    batch = marked([6, 5, 4])
    classifier = toy_classifier("cnn")
    batch.rationale[1] = False
    batch.rationale[2] = batch.content[2]
    batch.counterfactual[0] = 0
    _, found = measured(classifier, batch)
    assert all(value[1].isnan() for value in found.values())
    assert found["correct_contradicted"][0].isnan()
    assert not found["correct_without"][0].isnan()
    assert found["correct_without"][2].isnan()  # nothing is left
    assert not found["correct_alone"][2].isnan()
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
        left = kept(batch, keep)
        text = " ".join(word for place, word in enumerate(words, 1) if keep[0, place])
        with torch.no_grad():
            torch.testing.assert_close(model(left).logits, model(batch_of(model, [text])).logits)
    _, found = measured(model, batch)
    assert "correct_without" in found
    assert "correct_contradicted" not in found  # its words are not cut into pieces


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
        "training.epochs=12",
        "training.recipe.optimizer.lr=0.01",
        "data.embedding_size=32",
        "model.encoder.hidden_size=24",
    ]
    directory = run(small_run(tmp_path, *settings, probes="[known_answer]"))
    means = read_results(directory, probe="known_answer").groupby("metric")["value"].mean()
    assert means["correct"] > 0.9
    assert means["correct_contradicted"] > 0.9
    assert 0.35 < means["correct_without"] < 0.65
