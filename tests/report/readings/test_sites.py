"""The maps of layers and heads, from numbers that are known."""

import numpy as np
import pandas as pd
import pytest

from attnprobe.errors import UserError
from attnprobe.report.readings.sites import maps, means, rows


def table():
    lines = [
        {"metric": metric, "site": site, "example_id": number, "value": float(layer + head / 10 + number)}
        for metric in ("median_tvd", "tau_gradient")
        for layer in (0, 1)
        for head, site in enumerate([f"layer {layer}", f"layer {layer}, head 0", f"layer {layer}, head 1"])
        for number in (0, 2)
    ]
    identity = {"run_id": "r", "experiment": "sites", "data": "d", "model": "m", "seed": 0, "split": "test"}
    return pd.DataFrame(lines).assign(**identity, probe="sites", step=np.nan)


def test_the_mean_of_the_texts_stands_at_its_layer_and_head():
    ((_, found),) = means(table())
    assert found["layer"].tolist() == [0, 0, 0, 1, 1, 1]
    assert found["head"].tolist() == [-1, 0, 1, -1, 0, 1]
    np.testing.assert_allclose(found["median_tvd"], [1.0, 1.1, 1.2, 2.0, 2.1, 2.2])
    assert set(found["n"]) == {2}
    lines = rows(table())
    assert lines["head"].tolist() == ["all", "0", "1"] * 2
    np.testing.assert_allclose(lines["τ with gradient"], found["tau_gradient"])


def test_the_picture_has_a_map_of_each_measure_with_its_numbers():
    figure = maps(table(), None)
    first, second = figure.axes
    assert first.get_title("left").startswith("weights permuted: TVD")
    assert second.get_title("left").startswith("τ with gradient")
    shown = first.images[0].get_array()
    assert shown[1, 0] == 2.1  # layer 1, head 0
    assert shown[0, 3] == 1.0  # layer 0, all heads
    assert shown.mask[:, 2].all()  # a gap between the heads and all of them


@pytest.mark.parametrize("site", ["", "layer 1000000000, head 0", "layer x"])
def test_a_table_whose_sites_are_no_layers_is_refused(site):
    with pytest.raises(UserError, match="names no layer"):
        maps(table().assign(site=site), None)
