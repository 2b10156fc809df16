from functools import cache
from itertools import combinations

import numpy as np
import pytest
import torch
from scipy import stats
from torch.testing import assert_close

from attnprobe.measures import rank_biased_overlap
from attnprobe.probes.agreement_matrix import KINDS, READING, AgreementMatrix, agreement_table
from attnprobe.results.pivot import ASKED
from tests.importance.subjects import subject_of
from tests.probes.tables import draw, table, values
from tests.probes.texts import Text, numbers_of, overlap_of_top

NAMES = ["attention", "gradient_input", "random"]


@cache
def compared():
    """Texts of six, nine and one words, and how far every pair agrees on them."""
    subject = subject_of(lengths=[6, 9, 1], padding=2)
    return subject, values(AgreementMatrix(NAMES, top=3), subject)


PAIRS = list(combinations(NAMES, 2))


@pytest.mark.parametrize("row", [0, 1])
@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_every_pair_is_compared_as_scipy_does(first, second, row):
    subject, numbers = compared()
    text = Text(subject, row)
    a = np.abs(text.scores(first))
    b = np.abs(text.scores(second))
    expected = {
        "tau": stats.kendalltau(a, b).statistic,
        "weighted_tau": stats.weightedtau(a, b).statistic,
        "top_overlap": overlap_of_top(a, b, 3),
    }
    result = numbers_of(numbers, row)
    for metric, number in expected.items():
        assert result[f"{metric}_{first}_and_{second}"] == pytest.approx(number), metric


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_the_tau_of_a_single_word_is_undefined(first, second):
    _, numbers = compared()
    assert numbers[f"tau_{first}_and_{second}"][2].isnan()


def overlap_by_its_definition(a, b, persistence=0.9):
    """Extrapolated rank-biased overlap (Webber et al. 2010, equation 30) of whole rankings.

    RBO = A_n · pⁿ + (1 − p) / p · Σ_d A_d · pᵈ, where A_d is the share that the first d have in
    common.
    """
    weighted = []
    for depth in range(1, len(a) + 1):
        weighted.append(overlap_of_top(a, b, depth) * persistence**depth)
    return weighted[-1] + (1 - persistence) / persistence * sum(weighted)


def test_rank_biased_overlap_is_that_of_its_definition():
    generator = torch.Generator().manual_seed(0)
    a, b = torch.rand(2, 5, 12, generator=generator, dtype=torch.float64)
    lengths = torch.tensor([12, 7, 3, 1, 0])
    mask = torch.arange(12) < lengths.unsqueeze(-1)

    overlap = rank_biased_overlap(a, b, mask)

    for row, length in enumerate(lengths[:4]):
        first = a[row, :length].numpy()
        second = b[row, :length].numpy()
        expected = overlap_by_its_definition(first, second)
        assert overlap[row].item() == pytest.approx(expected)
    assert overlap[4].isnan()


def test_a_method_that_draws_nothing_has_a_ceiling_of_1_and_one_that_does_has_not():
    numbers = values(AgreementMatrix(NAMES), subject_of(lengths=[30] * 40))
    for metric in ("tau", "weighted_tau", "rbo", "top_overlap"):
        assert_close(numbers[f"{metric}_ceiling_attention"], torch.ones(40).double())
    # 40 rows of 30: the standard error of the mean τ is 0.02
    assert abs(numbers["tau_ceiling_random"].mean()) < 0.1
    assert abs(numbers["tau_floor_attention"].mean()) < 0.1
    assert numbers["tau_floor_attention"].abs().max() > 0


def test_the_rank_biased_overlap_of_a_ranking_with_itself_is_1():
    scores = torch.rand(5, 12, generator=torch.Generator().manual_seed(0))
    mask = torch.ones(5, 12, dtype=torch.bool)
    overlap = rank_biased_overlap(scores, scores, mask)
    assert overlap.tolist() == pytest.approx([1] * 5)


ENDINGS = [
    "attention_and_random",
    "floor_attention",
    "floor_random",
    "ceiling_attention",
    "ceiling_random",
]


def test_the_table_has_every_pair_and_each_ones_floor_and_ceiling():
    metrics = {}
    for kind in KINDS:
        for number, ending in enumerate(ENDINGS):
            metrics[f"{kind}_{ending}"] = [0.1 * number, 0.3]
    lines = agreement_table(table("agreement_matrix", metrics))
    assert lines["importance"].tolist() == [
        "attention",
        "attention",
        "random",
        "attention",
        "random",
    ]
    assert lines["against"][0] == "random"
    assert lines["tau"].tolist() == pytest.approx([0.15, 0.2, 0.25, 0.3, 0.35])
    assert lines["n"].tolist() == [2] * 5


def test_the_figure_has_the_means_of_the_table_however_much_a_text_is_asked():
    """Rows 0 and 1 are one text's: its mean 0.1 and the other's 0.5 have the mean 0.3."""
    metrics = {f"tau_{end}_{name}": np.ones(3) for end in ("floor", "ceiling") for name in "ab"}
    results = table("agreement_matrix", metrics | {"tau_a_and_b": [0.0, 0.2, 0.5]})
    results.attrs[ASKED] = {"hanconv": {"1": 0}}
    [drawing] = [each for each in READING.drawings if each.name == "agreement_matrix"]
    panel, *_ = draw(drawing, results).axes
    matrix = panel.images[0].get_array()
    assert matrix[0, 1] == matrix[1, 0] == pytest.approx(0.3)
