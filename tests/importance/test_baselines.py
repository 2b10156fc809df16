from math import log

import numpy as np
import pytest
import torch
from scipy.stats import contingency

from attnprobe.core.errors import UserError
from attnprobe.importance.baselines import Idf, LogOdds
from tests.importance.subjects import LENGTHS, subject_of
from tests.importance.trained import batch_of, small_data, subject_on


def test_position_the_first_word_first():
    subject = subject_of(padding=2)
    scores = subject.scores("position")
    for row, length in enumerate(LENGTHS):
        content = subject.outputs.content[row]
        expected = [1 / number for number in range(1, length + 1)]
        assert scores[row, content].tolist() == expected


def test_random_belongs_to_the_seed_and_the_example():
    subject = subject_of()
    scores = subject.scores("random")
    padded_scores = subject_of(padding=3).scores("random")
    assert torch.equal(padded_scores[:, : scores.shape[1]], scores)
    scores_of_another_seed = subject_of(seed=1).scores("random")
    assert not torch.equal(scores_of_another_seed, scores)
    word_scores = scores[subject.outputs.content]
    assert (word_scores > 0).all()
    assert (word_scores < 1).all()


def test_contribution_equals_the_decoder_at_each_state():
    subject = subject_of(classes=4)
    outputs = subject.outputs
    scores = subject.scores("contribution").detach()
    for row, length in enumerate(LENGTHS):
        decision, rival = outputs.logits[row].argsort(descending=True)[:2].tolist()
        for t in range(1, length + 1):
            position_logits = subject.classifier.decoder(outputs.hidden[row, t])
            lead = position_logits[decision] - position_logits[rival]
            expected = (outputs.attention[row, t] * lead).item()
            assert float(scores[row, t]) == pytest.approx(expected)


def test_contribution_is_undefined_where_the_decoder_is_not_linear():
    nonlinear = subject_of(question=True)
    assert not nonlinear.importance("contribution").is_defined(nonlinear)


@pytest.fixture
def data():
    return small_data()


def training_texts(data):
    """The distinct vocabulary ids of each training text."""
    train = data.splits["train"]
    texts = []
    for row in range(len(train)):
        ids = train.vocabulary_id[train.words[row]]
        texts.append(set(ids.tolist()))
    return texts


def test_idf_counts_the_training_texts(data):
    """ln((1 + N) / (1 + n)) + 1, of n of N training texts that hold the word."""
    importance = Idf()
    importance.prepare(data, "test")
    batch = batch_of(data)
    predicted = torch.zeros(len(batch), dtype=torch.long)
    scores = importance.scores(subject_on(batch, predicted))
    assert torch.isfinite(scores).all()

    texts = training_texts(data)
    for row, place in batch.content.nonzero()[:200].tolist():
        word = int(batch.ids[row, place])
        holding = sum(word in text for text in texts)
        expected = log((1 + len(texts)) / (1 + holding)) + 1
        assert scores[row, place].item() == pytest.approx(expected)


def test_idf_new_texts_are_refused():
    message = "idf counts the training texts, which a loaded run does not hold"
    with pytest.raises(UserError, match=message):
        Idf().prepare_texts(["a text"], [["a", "text"]])


def test_log_odds_the_log_of_the_odds_ratio_of_the_two_by_two_table(data):
    """Texts of the predicted class or of another, that hold the word or do not; ½ in each cell."""
    importance = LogOdds()
    importance.prepare(data, "test")
    batch = batch_of(data)
    predicted = torch.arange(len(batch)) % 2
    scores = importance.scores(subject_on(batch, predicted))

    texts = training_texts(data)
    labels = data.splits["train"].labels.tolist()
    for row, place in batch.content.nonzero()[:200].tolist():
        word = int(batch.ids[row, place])
        doubled_counts = np.ones((2, 2), dtype=int)
        for text, label in zip(texts, labels, strict=True):
            is_another_class = int(label != predicted[row])
            is_without_word = int(word not in text)
            doubled_counts[is_another_class, is_without_word] += 2
        ratio = contingency.odds_ratio(doubled_counts, kind="sample").statistic
        assert scores[row, place].item() == pytest.approx(log(ratio))
