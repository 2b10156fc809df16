import numpy as np
import pandas as pd
import pytest
import scipy

from attnprobe.core.sanitise import quoted
from attnprobe.evidence.verdicts import Verdict
from attnprobe.findings.studies.base import Done, Member
from attnprobe.findings.studies.criteria.exclusivity import (
    adversary_table,
    allowed_tvd,
    chosen_adversary,
    escape,
)
from attnprobe.findings.studies.wiegreffe import Wiegreffe
from tests.findings.studies.invented import invented_run

DISTANCES = {"a": (0.01, 0.3), "b": (0.05, 0.45), "c": (0.09, 0.6)}
"""Adversary → TVD and JSD to the base on the validation split."""


@pytest.mark.parametrize(
    ("above", "chosen"),
    [
        pytest.param(0.4, "b", id="the closest of those that are far"),
        pytest.param(0.65, "c", id="none is far: the farthest"),
    ],
)
def test_the_adversary_is_chosen_by_the_validation_split(tmp_path, above, chosen):
    for name, (tvd, jsd) in DISTANCES.items():
        validation = {"loss": 0.1, "tvd": tvd, "jsd": jsd}
        invented_run(tmp_path / name, name, 0, f1=0.5, validation=validation)
    runs = [tmp_path / name for name in DISTANCES]
    assert chosen_adversary(runs, above) == tmp_path / chosen


def test_plain_distillation_guides_no_model(tmp_path):
    """It is the closest of those that are far, and no adversary."""
    done = [Done(Member("base", 0), tmp_path / "base")]
    for weight, (tvd, jsd) in {0.0: (0.01, 0.6), 0.1: (0.3, 0.5)}.items():
        validation = {"loss": 0.1, "tvd": tvd, "jsd": jsd}
        invented_run(tmp_path / f"{weight}", "adversary", 0, f1=0.5, validation=validation)
        done.append(Done(Member("adversary", 0, parameter=weight), tmp_path / f"{weight}"))
    study = Wiegreffe(tests=("guide",), weights=(0.0, 0.1))
    *_, guided_by_adversary = study.stages(0, "lstm", done)
    (member,) = guided_by_adversary
    assert f"teacher={quoted(str(tmp_path / '0.1'))}" in member.overrides


def test_an_escape_is_paired_with_what_distillation_costs():
    """Texts differ by 0.4 in how hard they are to imitate, and the adversary is 0.03 worse on each:
    told apart from 0.05 worse, though each of the two means is known to 0.03 only."""
    generator = np.random.default_rng(0)
    difficulty = generator.uniform(0, 0.4, 60)
    parts = []
    for weight, more in ((0.0, 0.0), (0.1, 0.03)):
        tvd = difficulty + more + generator.normal(0, 0.01, 60)
        part = pd.DataFrame({"tvd": tvd, "jsd": generator.uniform(0.5, 0.6, 60)})
        parts.append(part.assign(parameter=weight).rename_axis("example_id"))
    compared = pd.concat(parts)
    adversary = adversary_table(compared, pd.Series({0.0: 0.8, 0.1: 0.8})).iloc[1]
    assert adversary["TVD high"] - adversary["TVD low"] > 0.05

    evidence = escape(adversary, compared, allowed_tvd(compared))
    gap = parts[0]["tvd"] + 0.05 - parts[1]["tvd"]
    expected = scipy.stats.ttest_1samp(gap, 0).confidence_interval()
    assert evidence.value == pytest.approx(gap.mean())
    assert (evidence.low, evidence.high) == pytest.approx(tuple(expected), abs=1e-3)
    assert evidence.exceeds(0) == Verdict.MEETS
