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
    for row, length in enumerate(LENGTHS):
        scores = subject.scores("position")[row][subject.outputs.content[row]]
        assert scores.tolist() == [1 / (place + 1) for place in range(length)]


def test_random_belongs_to_the_seed_and_the_example():
    scores = subject_of().scores("random")
    content = subject_of().outputs.content
    torch.testing.assert_close(
        subject_of(padding=3).scores("random")[:, : content.shape[1]], scores, rtol=0, atol=0
    )
    assert not torch.equal(subject_of(seed=1).scores("random"), scores)
    assert ((scores[content] > 0) & (scores[content] < 1)).all()


def test_contribution_equals_the_decoder_at_each_state():
    subject = subject_of(classes=4)
    scores = subject.scores("contribution").detach()
    logits = subject.outputs.logits
    decoder = subject.classifier.decoder
    for row, length in enumerate(LENGTHS):
        decision, rival = logits[row].argsort(descending=True)[:2].tolist()
        for t in range(1, length + 1):
            z = decoder(subject.outputs.hidden[row, t])
            expected = float(subject.outputs.attention[row, t] * (z[decision] - z[rival]).detach())
            assert float(scores[row, t]) == pytest.approx(expected)
    nonlinear = subject_of(question=True)
    assert not nonlinear.importance("contribution").is_defined(nonlinear)


def test_idf_counts_the_training_texts():
    data = small_data()
    importance = Idf()
    importance.prepare(data, "test")
    train = data.splits["train"]
    batch = batch_of(data)
    texts = []
    for row in range(len(train)):
        ids = train.vocabulary_id[train.words[row]]
        texts.append({data.vocabulary.words[number] for number in ids})
    scores = importance.scores(subject_on(batch, torch.zeros(len(batch), dtype=torch.long)))
    for row, place in batch.content.nonzero()[:200].tolist():
        word = data.vocabulary.words[batch.ids[row, place]]
        holds = sum(word in text for text in texts)
        assert scores[row, place].item() == pytest.approx(log((1 + len(texts)) / (1 + holds)) + 1)
    assert torch.isfinite(scores).all()


def test_idf_new_texts_are_refused():
    with pytest.raises(
        UserError, match="idf counts the training texts, which a loaded run does not hold"
    ):
        Idf().prepare_texts(["a text"], [["a", "text"]])


def test_log_odds_the_log_of_the_odds_ratio_of_the_two_by_two_table():
    data = small_data()
    importance = LogOdds()
    importance.prepare(data, "test")
    train = data.splits["train"]
    batch = batch_of(data)
    predicted = torch.arange(len(batch)) % 2
    scores = importance.scores(subject_on(batch, predicted))
    holds = [set(train.vocabulary_id[train.words[row]].tolist()) for row in range(len(train))]
    for row, place in batch.content.nonzero()[:200].tolist():
        word = int(batch.ids[row, place])
        table = np.full((2, 2), 0.5)
        for text, label in zip(holds, train.labels.tolist(), strict=True):
            table[int(label != predicted[row]), int(word not in text)] += 1
        ratio = contingency.odds_ratio(np.rint(table * 2).astype(int), kind="sample").statistic
        assert scores[row, place].item() == pytest.approx(np.log(ratio))
