"""The documentation's tables against counts by hand."""

import pandas as pd

from attnprobe.evidence.statistics import clopper_pearson
from research.calibration.records import RIGHTNESS
from research.calibration.summary import NAMES, counted, summary
from tests.report.calibration.test_rates import models as simulated

CLAIM = "weights_follow_words"


def answered():
    """A primary claim's answers about 20 right and 20 wrong models per data set and encoder."""
    parts = [simulated(20, gap=3, encoder=encoder, seed=seed) for seed, encoder in enumerate(("cnn", "lstm"))]
    table = pd.concat(parts, ignore_index=True).assign(claim=CLAIM)
    return table.assign(run_id=table["run_id"] + table["encoder"])


def rows_of(text, caption):
    """The rows of the table under a caption, cell by cell."""
    lines = text.split(f"## {caption}\n\n")[1].split("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_every_count_is_that_of_the_models():
    table = answered()
    models = table.drop_duplicates("run_id")
    text = summary(models, table)
    by_kind = dict(zip(["data", "encoder", *RIGHTNESS], zip(*rows_of(text, "Models"), strict=True), strict=True))
    assert by_kind["right"] == ("20", "20", "20", "20", "80")
    assert by_kind["data"] == ("ordered pair", "ordered pair", "token", "token", "all")
    ((name, asked, *shares),) = rows_of(text, "Yes, of all models asked")
    assert name == f"**{NAMES['current', CLAIM].strip('* ')}** *"
    assert asked == "erasure, word"
    for kind, share in zip(("right", "wrong", "meaningless"), shares, strict=True):
        met = table.loc[table["rightness_label"] == kind, "met"]
        if not len(met):
            assert share == "–"
            continue
        yes = int((met == 1).sum())
        _, low, high = clopper_pearson(yes, len(met))
        assert share == f"{yes} of {len(met)} [{100 * low:.0f}, {100 * high:.0f}]"
    for caption, columns in (("Primary claims by encoder", 1), ("Primary claims by data and encoder", 2)):
        rows = rows_of(text, caption)
        assert len(rows) == 2**columns
        # what the cells hold adds up to all models of the kind
        assert sum(int(row[1 + columns].split(" ")[2]) for row in rows) == 80


def test_undecided_models_are_asked_and_not_decided():
    met = pd.Series([1.0, 0.0, float("nan"), float("nan")])
    assert counted(met).startswith("1 of 4 ")
    assert counted(met, decided=True).startswith("1 of 2 ")
    assert counted(met.iloc[2:], decided=True) == "–"
