"""The playground's file, read and packed for the page."""

import pytest

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
