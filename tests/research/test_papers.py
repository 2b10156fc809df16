import numpy as np
import pandas as pd
import pytest
import scipy.stats

from attnprobe.core.errors import UserError
from attnprobe.evidence.published import NUMBERS
from attnprobe.results.table import read_results
from research.papers import NO_DATA, RANDOM, Cell, cells_of, page_of
from tests.invented_runs import invented_run


def starting_from(vectors):
    return {"data": {"vectors": vectors}}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    base = tmp_path_factory.mktemp("papers")
    for seed in (0, 1, 2):
        invented_run(base, f"random{seed}", seed=seed, training=starting_from(None))
    invented_run(base, "started", seed=3, training=starting_from("corpora/glove.vec"))
    return base


def cell(cells, metric, group="overall", model="lstm_additive"):
    (published,) = [
        each
        for each in cells
        if (each.data, each.model, each.metric, each.group) == ("sst", model, metric, group)
    ]
    return published


def test_every_published_number_is_a_cell():
    tables = [
        pd.read_csv(NUMBERS / name, comment="#")
        for name in ("jain_wallace.csv", "serrano_smith.csv")
    ]
    cells = cells_of([])
    assert len(cells) == sum(map(len, tables))
    assert [each.published for each in cells] == [
        value for table in tables for value in table["value"]
    ]
    assert not any(each.measured for each in cells)


def test_a_cells_number_is_the_mean_over_seeds_with_students_interval(runs):
    accuracy = cell(cells_of([str(runs)]), "accuracy")
    results = read_results(runs, "performance")
    is_accuracy = results["metric"] == "accuracy"
    values = results[is_accuracy].set_index("run_id")["value"].astype(float)
    random = values[["random0", "random1", "random2"]].to_numpy()

    (with_vectors, without) = sorted(accuracy.measured, key=lambda measured: measured.seeds)
    assert (with_vectors.start, with_vectors.seeds) == ("glove", 1)
    assert with_vectors.number[0] == pytest.approx(values["started"])
    assert (without.start, without.seeds) == (RANDOM, 3)
    ends = scipy.stats.t.interval(0.95, 2, random.mean(), scipy.stats.sem(random))
    np.testing.assert_allclose(without.number, [random.mean(), *ends])


def test_runs_of_one_seed_are_no_sample_of_seeds(tmp_path):
    for name, count in (("whole", 60), ("part", 40)):
        invented_run(tmp_path, name, seed=1, count=count, training=starting_from(None))
    with pytest.raises(UserError, match=r"sst, lstm_additive, random vectors: .* with seed 1"):
        cells_of([str(tmp_path)])


def test_a_published_number_outside_the_interval_is_bold(runs):
    page = page_of([str(runs)])
    accuracy = cell(cells_of([str(runs)]), "accuracy")
    for measured in accuracy.measured:
        value, low, high = measured.number
        bold = "**" if not low <= accuracy.published <= high else ""
        assert f"{bold}{value:.3f} [{low:.3f}, {high:.3f}]" in page


@pytest.mark.parametrize(
    ("published", "beyond"), [(0.5, False), (0.4, False), (0.39, True), (0.61, True)]
)
def test_beyond_is_outside_of_the_ends(runs, published, beyond):
    (measured, _) = cell(cells_of([str(runs)]), "accuracy").measured
    number = measured.number._replace(value=0.5, low=0.4, high=0.6)
    invented = type(measured)("start", 1, number)
    accuracy = Cell("paper", "sst", "lstm", "accuracy", "overall", published, [invented])
    assert accuracy.beyond("start") is beyond
    assert accuracy.beyond("another start") is None


def test_what_was_not_run_and_what_cannot_be_had_are_told_apart(runs):
    page = page_of([str(runs)])
    lines = page.splitlines()
    assert sum("not run" in line for line in lines if "| cnn_dot |" in line) > 0
    assert not [line for line in lines if "| lstm_dot | accuracy" in line and "no data" in line]
    assert all(f"no data: {reason}" in page for reason in NO_DATA.values())
    assert "| sst |" not in page  # a heading of its own
