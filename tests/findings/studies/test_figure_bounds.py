import itertools
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

from attnprobe.findings.studies.wiegreffe import Members, curve, performances, spread
from attnprobe.importance.base import built_in
from attnprobe.plots.style import drawable, paper_style
from attnprobe.results.table import IMPORTANCES
from tests.probes.tables import draw
from tests.report.test_figure_bounds import NAMES, OF_SITES, problems


@pytest.mark.parametrize(("runs", "layers", "heads"), [(1, 12, 12), (2, 2, 4), (1, 1, 1)])
def test_no_map_of_layers_and_heads_is_cut_off(runs, layers, heads):
    draw_from = np.random.default_rng(layers)
    numbers = ("", *(f", head {head}" for head in range(heads)))
    places = [f"layer {layer}{head}" for layer in range(layers) for head in numbers]
    rows = list(
        itertools.product(["median_tvd", "max_attention", "tau_gradient"], places, range(2))
    )
    metric, site, example = zip(*rows, strict=True)
    parts = [
        {
            "run_id": f"run{run}",
            "experiment": "sites",
            "data": f"customer reviews of the year 202{run}",
            "model": "minilm_l6",
            "seed": 0,
            "split": "test",
            "probe": "sites",
            "metric": metric,
            "site": site,
            "example_id": example,
            "step": np.nan,
            "value": draw_from.uniform(-1, 1, len(rows)),
        }
        for run in range(runs)
    ]
    results = pd.concat(map(pd.DataFrame, parts), ignore_index=True)
    results.attrs[IMPORTANCES] = {"sites": {"gradient": built_in("gradient").facts}}
    assert problems(draw(OF_SITES, results)) == []


@pytest.mark.parametrize("classes", range(2, 11))
def test_nothing_of_a_study_is_cut_off(classes):
    draw_from = np.random.default_rng(classes)
    frame = pd.DataFrame(
        {
            "seeds": draw_from.random(80) * 0.3,
            "found_jsd": draw_from.random(80) * 0.6,
            "max_attention": draw_from.random(80),
            "optimum_jsd": 0.6 + draw_from.random(80) * 0.09,
            "predicted_class": draw_from.integers(0, classes, 80),
        }
    )
    frame.attrs = {"classes": list(map(drawable, NAMES[:classes]))}
    with paper_style():
        figure = spread(frame, "customer reviews of the year 2026", "adversary, best known")
    assert problems(figure) == []
    shown = [text.get_text() for text in figure.findobj(mpl.text.Text)]
    assert any("hardware and software" in text for text in shown) == (classes == 2)


@pytest.mark.parametrize("f1", [[0.99, 0.91], [0.0, 0.02, 0.0], [0.5], [1.0, 1.0]])
def test_nothing_of_the_f1_figure_is_cut_off(f1):
    roles = {"base": "attention of the trained adversary", "uniform": "uniform attention"}
    members = Members(Path(), {})
    vars(members)["runs"] = pd.DataFrame(
        [{"role": role, "f1": one} for role in roles for one in f1]
    )
    with paper_style():
        figure = performances(members, roles, {f"f1_{role}": 0.87 for role in roles}, "sst")
    assert problems(figure) == []


def test_the_labels_of_the_curve_lie_beside_the_bars_of_their_points():
    lambdas = [0, 0.001, 0.01, 0.1, 1]
    tvd = np.array([0.02, 0.05, 0.2, 0.4, 0.6])
    table = pd.DataFrame({"lambda": lambdas, "TVD": tvd, "JSD": [0.1, 0.3, 0.5, 0.6, 0.65]})
    for name in ("TVD", "JSD"):
        table[f"{name} low"], table[f"{name} high"] = table[name] - 0.02, table[name] + 0.02
    seeds = pd.DataFrame({"tvd": [0.1, 0.1], "jsd": [0.1, 0.2]})
    single = pd.Series(
        {"found_tvd": 0.01, "found_jsd": 0.4, "optimum_tvd": 0.01, "optimum_jsd": 0.6}
    )
    quoted = pd.DataFrame({"TVD": [0.03], "JSD": [0.62]})
    with paper_style():
        figure = curve(table, seeds, single, quoted, "sst", "exact optimum")
    assert problems(figure) == []
    axes = figure.axes[0]
    boxes = [text.get_window_extent() for text in axes.texts]
    assert len(boxes) == 5
    for segment in (segment for bars in axes.collections for segment in bars.get_segments()):
        ends = axes.transData.transform(segment)
        for box in boxes:
            assert not box.overlaps(mpl.transforms.Bbox([ends.min(0), ends.max(0) + 0.1]))
