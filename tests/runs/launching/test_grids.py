"""Several grids as one sweep."""

import importlib
import itertools

import pytest
from hydra import compose
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins

from attnprobe.runs.composition import composed, composing
from tests.small_runs import command_line

GRIDS = {
    "first": {"+experiment": "jain", "model": "lstm,cnn", "seed": "0,1"},
    "second": {"+experiment": "serrano", "model": "flanrnn", "seed": 0},
}


def grids_sweeper(*arguments, **settings):
    """Made after Hydra has looked for plugins, which imports its own sweeper anew."""
    Plugins.instance()
    module = importlib.reload(importlib.import_module("hydra_plugins.attnprobe_sweeper"))
    return module.GridsSweeper(*arguments, **settings)


def jobs_of(*arguments, names=("first", "second"), **settings):
    sweeper = grids_sweeper(GRIDS, names, **settings)
    overrides = OverridesParser.create().parse_overrides(list(arguments))
    return sweeper.split_arguments(overrides, sweeper.max_batch_size)


def test_every_grid_gives_its_own_combinations():
    (jobs,) = jobs_of("data=sst")
    first = [
        ["+experiment=jain", f"model={model}", f"seed={seed}", "data=sst"]
        for model, seed in itertools.product(("lstm", "cnn"), (0, 1))
    ]
    assert jobs == [*first, ["+experiment=serrano", "model=flanrnn", "seed=0", "data=sst"]]


def test_the_command_line_replaces_what_a_grid_says():
    (jobs,) = jobs_of("seed=7", "model=cnn,average", names=["first"])
    assert [job[1:] for job in jobs] == [["model=cnn", "seed=7"], ["model=average", "seed=7"]]


def test_names_choose_grids_and_their_order():
    (jobs,) = jobs_of(names=["second", "first"])
    assert [job[0] for job in jobs] == ["+experiment=serrano", *["+experiment=jain"] * 4]


def test_hydra_may_ask_for_fewer_jobs_at_once():
    assert [len(batch) for batch in jobs_of(max_batch_size=2)] == [2, 2, 1]


def test_a_grid_that_is_nowhere_is_named(tmp_path):
    ended = command_line(tmp_path, "+experiment=papers", "grids=[jain,jan]")
    assert ended.returncode == 2
    assert ended.stderr == (
        "attnprobe: grids=[jain,jan]: there is no jan; expected some of jain_questions, jain, "
        "jain_imdb, serrano, wiegreffe\n"
    )


@pytest.mark.parametrize("every", [6, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("grid", "jobs"),
    [("jain_questions", 24), ("jain", 54), ("jain_imdb", 6), ("serrano", 24), ("wiegreffe", 4)],
)
def test_the_jobs_of_the_papers_compose(grid, jobs, every):
    """Each job composes, or every sixth of them, and no two are of the same model."""
    with composing():
        sweep = compose("config", ["+experiment=papers"], return_hydra_config=True).hydra.sweeper
        sweeper = grids_sweeper(sweep.grids, [grid])
        ((*lines,),) = sweeper.split_arguments([], None)
        assert len(set(map(tuple, lines))) == jobs
        chosen = lines[::every]
        names = {
            (config.data.name, config.model.name, config.seed) for config in map(composed, chosen)
        }
    assert len(names) == len(chosen)


def test_a_forecast_times_what_is_left_and_starts_nothing(tmp_path):
    ended = command_line(
        tmp_path,
        "+experiment=papers",
        "grids=[jain]",
        "launcher=forecast",
        *("data=testbed", "model=average", "seed=0", "probe=[permutation]", "training.epochs=1"),
        *("data.source.train_size=60", "data.source.test_size=30"),
        "trainer.accelerator=cpu",
        f"output={tmp_path}/runs",
    )
    assert ended.returncode == 0, ended.stderr
    lines = ended.stdout.splitlines()
    assert lines[0] == "2 jobs: 0 done"
    assert sum(": about " in line and line.startswith("  ") for line in lines) == 2
    assert lines[-1].startswith("all that is left, one job after another: about ")
    assert not list(tmp_path.rglob("manifest.json"))
