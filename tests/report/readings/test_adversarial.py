import numpy as np
import pandas as pd
import pytest

from attnprobe.report.figures.adversarial import exclusivity_by_epsilon, shares_along


def along(seeds=1, texts=40):
    """Farthest attentions that grow with ε; a third of the texts is at ln 2 from the start."""
    rows = [
        {
            "run_id": f"r{seed}", "experiment": "jain", "data": "sst", "model": "lstm", "seed": seed, "split": "test",
            "probe": "adversarial", "metric": "optimum_jsd_within", "example_id": text, "step": epsilon,
            "value": np.log(2) if text % 3 == 0 else min(np.log(2), 0.1 + epsilon * (text + 1) / 10),
        }
        for seed in range(seeds) for text in range(texts) for epsilon in (0.01, 0.05, 0.2)
    ]  # fmt: skip
    return pd.DataFrame(rows)


def test_shares_along_epsilon_are_counted_with_wilsons_interval():
    table = along()
    found = shares_along(table, 0.4)
    assert found["epsilon"].tolist() == [0.01, 0.05, 0.2]
    for row in found.to_dict("records"):
        own = table.loc[table["step"] == row["epsilon"], "value"]
        count = int((own <= 0.4).sum())
        assert row["share"] == count / 40
        z = 1.959964
        middle, half = count + z**2 / 2, z * np.sqrt(count * (40 - count) / 40 + z**2 / 4)
        assert [row["low"], row["high"]] == pytest.approx(
            [(middle - half) / (40 + z**2), (middle + half) / (40 + z**2)]
        )
    pd.testing.assert_frame_equal(shares_along(along(seeds=3), 0.4), found)  # seeds are no further texts


def test_the_curve_has_a_line_for_each_bound():
    figure = exclusivity_by_epsilon(along(), None)
    lines = [line for line in figure.axes[0].lines if len(line.get_xdata()) == 3]
    assert [line.get_ydata()[0] for line in lines] == [
        shares_along(along(), bound)["share"][0] for bound in (0.2, 0.4, 0.6)
    ]
