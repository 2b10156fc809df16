import numpy as np
import pytest
import torch
from scipy.stats import contingency

from attnprobe.importance.baselines import LogOdds
from tests.importance.trained import batch_of, small_data, subject_on


def test_it_is_the_log_of_the_odds_ratio_of_the_two_by_two_table():
    data, one = small_data(), LogOdds()
    one.prepare(data, "test")
    train, batch = data.splits["train"], batch_of(data)
    predicted = torch.arange(len(batch)) % 2
    scores = one.scores(subject_on(batch, predicted))
    holds = [set(train.vocabulary_id[train.words[row]].tolist()) for row in range(len(train))]
    for row, place in batch.content.nonzero()[:200].tolist():
        word = int(batch.ids[row, place])
        table = np.full((2, 2), 0.5)
        for text, label in zip(holds, train.labels.tolist(), strict=True):
            table[int(label != predicted[row]), int(word not in text)] += 1
        ratio = contingency.odds_ratio(np.rint(table * 2).astype(int), kind="sample").statistic
        assert scores[row, place].item() == pytest.approx(np.log(ratio))
