import pytest

from attnprobe.findings.studies.criteria.exclusivity import chosen_adversary
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
