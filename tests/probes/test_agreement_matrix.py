from functools import cache
from itertools import combinations

import numpy as np
import pytest
import torch
from scipy import stats
from torch.testing import assert_close

from attnprobe.measures import rank_biased_overlap
from attnprobe.probes.agreement_matrix import KINDS, AgreementMatrix, agreement_table
from tests.importance.subjects import subject_of
from tests.probes.tables import table, values

NAMES = ["attention", "gradient_input", "random"]


@cache
def compared():
    """Texts of six, nine and one words, and how far every pair agrees on them."""
    subject = subject_of(lengths=[6, 9, 1], padding=2)
    return subject, values(AgreementMatrix(NAMES, top=3), subject)


@pytest.mark.parametrize("row", [0, 1])
@pytest.mark.parametrize(("first", "second"), list(combinations(NAMES, 2)))
def test_every_pair_is_compared_as_scipy_does(first, second, row):
    subject, numbers = compared()
    content = subject.batch.content[row]
    a = subject.scores(first)[row][content].abs().detach().numpy()
    b = subject.scores(second)[row][content].abs().detach().numpy()
    top_of_a = set(np.argsort(-a)[:3])
    top_of_b = set(np.argsort(-b)[:3])
    expected = {
        "tau": stats.kendalltau(a, b).statistic,
        "weighted_tau": stats.weightedtau(a, b).statistic,
        "top_overlap": len(top_of_a & top_of_b) / 3,
    }
    for metric, number in expected.items():
        assert numbers[f"{metric}_{first}_and_{second}"][row].item() == pytest.approx(number)


@pytest.mark.parametrize(("first", "second"), list(combinations(NAMES, 2)))
def test_the_tau_of_a_single_word_is_undefined(first, second):
    _, numbers = compared()
    assert numbers[f"tau_{first}_and_{second}"][2].isnan()


def test_rank_biased_overlap_is_that_of_its_definition():
    generator = torch.Generator().manual_seed(0)
    a = torch.rand(5, 12, generator=generator).double()
    b = torch.rand(5, 12, generator=generator).double()
    mask = torch.arange(12) < torch.tensor([12, 7, 3, 1, 0])[:, None]
    overlap = rank_biased_overlap(a, b, mask)
    for row, n in enumerate([12, 7, 3, 1]):
        order = np.argsort(-a[row, :n].numpy())
        rival_order = np.argsort(-b[row, :n].numpy())
        terms = [
            len(set(order[:depth]) & set(rival_order[:depth])) / depth * 0.9**depth
            for depth in range(1, n + 1)
        ]
        expected = terms[-1] + 0.1 / 0.9 * sum(terms)
        assert overlap[row].item() == pytest.approx(expected)
        assert rank_biased_overlap(a, a, mask)[row].item() == pytest.approx(1)
    assert overlap[4].isnan()


def test_a_method_that_draws_nothing_has_a_ceiling_of_1_and_one_that_does_has_not():
    numbers = values(AgreementMatrix(NAMES), subject_of(lengths=[30] * 40))
    for metric in ("tau", "weighted_tau", "rbo", "top_overlap"):
        assert_close(numbers[f"{metric}_ceiling_attention"], torch.ones(40).double())
    # 40 rows of 30: the standard error of the mean τ is 0.02
    assert abs(numbers["tau_ceiling_random"].mean()) < 0.1
    assert abs(numbers["tau_floor_attention"].mean()) < 0.1
    assert numbers["tau_floor_attention"].abs().max() > 0


def test_the_table_has_every_pair_and_each_ones_floor_and_ceiling():
    endings = [
        "attention_and_random",
        "floor_attention",
        "floor_random",
        "ceiling_attention",
        "ceiling_random",
    ]
    metrics = {
        f"{kind}_{ending}": [0.1 * number, 0.3]
        for kind in KINDS
        for number, ending in enumerate(endings)
    }
    numbers = agreement_table(table("agreement_matrix", metrics))
    assert numbers["importance"].tolist() == [
        "attention",
        "attention",
        "random",
        "attention",
        "random",
    ]
    assert numbers["against"][0] == "random"
    assert numbers["tau"].tolist() == pytest.approx([0.15, 0.2, 0.25, 0.3, 0.35])
    assert list(numbers["n"]) == [2] * 5
