import itertools

import numpy as np
import pandas as pd
import pytest

from attnprobe.importance.base import built_in
from attnprobe.results.table import IMPORTANCES
from tests.probes.tables import draw
from tests.report.test_figure_bounds import OF_SITES, problems


@pytest.mark.parametrize(("runs", "layers", "heads"), [(1, 12, 12), (2, 2, 4), (1, 1, 1)])
def test_no_map_of_layers_and_heads_is_cut_off(runs, layers, heads):
    generator = np.random.default_rng(layers)
    heads_of_layer = ["", *(f", head {head}" for head in range(heads))]
    sites = [f"layer {layer}{head}" for layer in range(layers) for head in heads_of_layer]
    metrics = ["median_tvd", "max_attention", "tau_gradient"]
    rows = pd.DataFrame(
        itertools.product(metrics, sites, range(2)), columns=["metric", "site", "example_id"]
    )
    tables = [
        rows.assign(
            run_id=f"run{run}",
            experiment="sites",
            data=f"customer reviews of the year 202{run}",
            model="minilm_l6",
            seed=0,
            split="test",
            probe="sites",
            step=np.nan,
            value=generator.uniform(-1, 1, len(rows)),
        )
        for run in range(runs)
    ]
    results = pd.concat(tables, ignore_index=True)
    results.attrs[IMPORTANCES] = {"sites": {"gradient": built_in("gradient").facts}}
    assert problems(draw(OF_SITES, results)) == []
