"""Annotators against each other, by a plain loop over people and tokens."""

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, f1_score

from attnprobe.data.columns import packed
from attnprobe.importance.plausibility import against_others, average_precision, human

CONTENT = torch.tensor([[False, True, True, True, True, True, False]])


def batch_of(masks):
    column = torch.zeros(1, 7, dtype=torch.long)
    column[0, 1:6] = torch.from_numpy(packed([np.array(mask, bool) for mask in masks])).long()
    return column


@pytest.mark.parametrize(
    "masks",
    [
        [[1, 1, 0, 0, 0], [1, 0, 0, 0, 0], [0, 0, 0, 0, 1]],
        [[1, 1, 0, 0, 0], [0, 1, 1, 0, 0]],
        [[1, 1, 0, 0, 0], [0, 0, 0, 0, 0], [1, 1, 1, 0, 0], [1, 0, 0, 0, 1], [0, 1, 0, 0, 1]],
    ],
)
def test_each_annotator_against_what_half_of_the_others_marked(masks):
    scores = np.array([0.1, 0.5, 0.3, 0.2, 0.4])
    f1s, precisions, of_scores = [], [], []
    for number, own in enumerate(masks):
        others = [mask for place, mask in enumerate(masks) if place != number]
        votes = np.sum(others, 0)
        reference = (votes >= len(others) / 2) & (votes > 0)
        if reference.any():
            f1s.append(f1_score(reference, own, zero_division=0))
            precisions.append(average_precision_score(reference, own))
            of_scores.append(average_precision_score(reference, scores))
    found = human(batch_of(masks), CONTENT)
    assert found["f1"].item() == pytest.approx(np.mean(f1s))
    assert found["auprc"].item() == pytest.approx(np.mean(precisions))
    wide = torch.zeros(1, 7, dtype=torch.float64)
    wide[0, 1:6] = torch.from_numpy(scores)
    method = against_others(wide, batch_of(masks), CONTENT, average_precision)
    assert method.item() == pytest.approx(np.mean(of_scores))


def test_nobody_agrees_with_a_text_that_has_no_marks():
    column = torch.cat([batch_of([[1, 0, 0, 0, 0], [1, 0, 0, 0, 0]]), torch.zeros(1, 7, dtype=torch.long)])
    found = human(column, CONTENT.expand(2, -1))
    assert found["f1"][0] == 1
    assert found["f1"][1].isnan()
    assert human(column[1:], CONTENT)["f1"].isnan().all()  # a batch without any
