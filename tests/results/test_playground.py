"""The playground's file is somebody else's until it is checked: each number that the page computes from."""

import pytest

from attnprobe.report.page.browser.packing import Blocks
from attnprobe.report.page.playground import playgrounds
from attnprobe.report.page.runs import grouped, read_runs
from attnprobe.results.checksums import DamagedRun
from attnprobe.results.directory import PLAYGROUND, RunDirectory
from attnprobe.results.playground import read_playground, write_playground
from attnprobe.results.table import read_examples
from tests.report.conftest import invented_run
from tests.runs import seal_again


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run, and a row of a playground that fits its first longer text."""
    run = invented_run(tmp_path_factory.mktemp("runs"), "a", classes=2, count=6, probes=("performance", "permutation"))
    examples = read_examples(run)
    text = examples[examples["tokens"].map(len) > 2].iloc[0]
    length = len(text["tokens"])
    weights = [1.0, *[0.0] * (length - 1)]
    row = {
        "example_id": int(text["example_id"]), "attention": weights, "position_logits": [0.0, 1.0] * length,
        "epsilon": 0.05, "farthest": weights[::-1], "jsd": 0.6, "upper_bound": 0.6, "is_exact": True,
        "flipping": [False] * length, "flips_to": -1,
    }  # fmt: skip
    return run, row


def written(run, *rows):
    write_playground(rows, run / PLAYGROUND)
    seal_again(run)
    return RunDirectory(run)


def test_what_fits_is_read(made):
    run, row = made
    assert read_playground(written(run, row)) == [row]


@pytest.mark.parametrize(
    "change",
    [
        lambda row: {"attention": row["attention"][1:]},
        lambda row: {"attention": [], "farthest": [], "flipping": [], "position_logits": []},
        lambda row: {"attention": [2.0, -1.0, *row["attention"][2:]]},
        lambda row: {"attention": [value / 2 for value in row["attention"]]},
        lambda row: {"farthest": row["farthest"][1:]},
        lambda row: {"farthest": [float("nan"), *row["farthest"][1:]]},
        lambda row: {"farthest": [None, *row["farthest"][1:]]},
        lambda row: {"flipping": row["flipping"][1:]},
        lambda row: {"position_logits": row["position_logits"][1:]},
        lambda row: {"position_logits": row["position_logits"][::2]},
        lambda row: {"position_logits": [float("inf"), *row["position_logits"][1:]]},
        lambda row: {"epsilon": None},
        lambda row: {"jsd": float("nan")},
        lambda row: {"flips_to": 2},
        lambda row: {"flips_to": -2},
    ],
)
def test_what_no_attention_is_names_the_file(made, change):
    run, row = made
    with pytest.raises(
        DamagedRun, match=rf"playground\.parquet is damaged: the numbers of example {row['example_id']}"
    ):
        read_playground(written(run, row | change(row)))


def test_texts_of_different_classes_or_twice_the_same_are_refused(made):
    run, row = made
    more = row | {"example_id": 4000, "position_logits": [0.0] * 3 * len(row["attention"])}
    for other in (row, more):
        with pytest.raises(DamagedRun, match="different classes, or one is there twice"):
            read_playground(written(run, row, other))


def longer(row):
    """One position more than the text has words, in every list."""
    return {
        "attention": [*row["attention"], 0.0], "farthest": [0.0, *row["farthest"]], "flipping": [*row["flipping"], False],
        "position_logits": [*row["position_logits"], 0.0, 1.0],
    }  # fmt: skip


@pytest.mark.parametrize("change", [lambda row: {"example_id": 4000}, longer])
def test_a_text_that_the_run_does_not_have_is_named(made, change):
    run, row = made
    changed = row | change(row)
    written(run, changed)
    with pytest.raises(DamagedRun, match=rf"example {changed['example_id']} is none of the test split, or has"):
        playgrounds(grouped(read_runs(run)), Blocks())
