"""Counts of the calibration study for tests, made by hand."""

import pandas as pd

from attnprobe.findings.track_record import COLUMNS


def counts(right, wrong, level="word", encoder="lstm"):
    """What one claim `c` said of models with right and with wrong attention.

    Args:
        right: (models, meets); None where none were measured.
        wrong: the same.
        level: of the claim.
        encoder: kind of model.
    """
    rows = [
        ("erasure", level, encoder, rightness, *models_and_meets, "c")
        for rightness, models_and_meets in {"right": right, "wrong": wrong}.items()
        if models_and_meets
    ]
    return pd.DataFrame(rows, columns=COLUMNS)
