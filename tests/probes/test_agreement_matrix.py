import numpy as np
import pytest
import torch
from scipy import stats

from attnprobe.measures import rank_biased_overlap
from attnprobe.probes.agreement_matrix import KINDS, AgreementMatrix, agreement_table
from tests.importance.subjects import subject_of
from tests.probes.tables import table, values

NAMES = ["attention", "gradient_input", "random"]


def test_every_pair_is_compared_as_scipy_does():
    subject = subject_of(lengths=[6, 9, 1], padding=2)
    found = values(AgreementMatrix(NAMES, top=3), subject)
    for first, second in (
        ("attention", "gradient_input"),
        ("attention", "random"),
        ("gradient_input", "random"),
    ):
        for row in range(2):
            there = subject.batch.content[row]
            a, b = (
                subject.scores(name)[row][there].abs().detach().numpy() for name in (first, second)
            )
            pair = f"{first}_and_{second}"
            assert found[f"tau_{pair}"][row].item() == pytest.approx(
                stats.kendalltau(a, b).statistic
            )
            assert found[f"weighted_tau_{pair}"][row].item() == pytest.approx(
                stats.weightedtau(a, b).statistic
            )
            common = set(np.argsort(-a)[:3]) & set(np.argsort(-b)[:3])
            assert found[f"top_overlap_{pair}"][row].item() == pytest.approx(len(common) / 3)
        assert found[f"tau_{pair}"][2].isnan()


def test_rank_biased_overlap_is_that_of_its_definition():
    draw = torch.Generator().manual_seed(0)
    a = torch.rand(5, 12, generator=draw).double()
    b = torch.rand(5, 12, generator=draw).double()
    mask = torch.arange(12) < torch.tensor([12, 7, 3, 1, 0])[:, None]
    found = rank_biased_overlap(a, b, mask)
    for row, n in enumerate([12, 7, 3, 1]):
        left, right = (np.argsort(-one[row, :n].numpy()) for one in (a, b))
        terms = [len(set(left[:d]) & set(right[:d])) / d * 0.9**d for d in range(1, n + 1)]
        expected = terms[-1] + 0.1 / 0.9 * sum(terms)
        assert found[row].item() == pytest.approx(expected)
        assert rank_biased_overlap(a, a, mask)[row].item() == pytest.approx(1)
    assert found[4].isnan()


def test_a_method_that_draws_nothing_has_a_ceiling_of_1_and_one_that_does_has_not():
    found = values(AgreementMatrix(NAMES), subject_of(lengths=[30] * 40))
    for metric in ("tau", "weighted_tau", "rbo", "top_overlap"):
        torch.testing.assert_close(found[f"{metric}_ceiling_attention"], torch.ones(40).double())
    # 40 rows of 30: the standard error of the mean τ is 0.02
    assert abs(found["tau_ceiling_random"].mean()) < 0.1
    assert abs(found["tau_floor_attention"].mean()) < 0.1
    assert found["tau_floor_attention"].abs().max() > 0


def test_the_table_has_every_pair_and_each_ones_floor_and_ceiling():
    ends = [
        "attention_and_random",
        "floor_attention",
        "floor_random",
        "ceiling_attention",
        "ceiling_random",
    ]
    metrics = {f"{kind}_{end}": [0.1 * at, 0.3] for kind in KINDS for at, end in enumerate(ends)}
    found = agreement_table(table("agreement_matrix", metrics))
    assert found["importance"].tolist() == [
        "attention",
        "attention",
        "random",
        "attention",
        "random",
    ]
    assert found["against"][0] == "random"
    assert found["tau"].tolist() == pytest.approx([0.15, 0.2, 0.25, 0.3, 0.35])
    assert list(found["n"]) == [2] * 5
