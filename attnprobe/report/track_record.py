"""How often a verdict was right on models whose attention is known to be right or wrong: looked up, not computed here.

`calibration.parquet` in this folder is what `+experiment=calibration` found, a row per criterion, level, encoder and kind
of attention: `criterion level encoder rightness models meets`, where `rightness` is `right` or `wrong`, `models` says how
many trained models were decided and `meets` how many of them by "meets". It may lack a kind of model, or be absent.
"""

from functools import cache
from pathlib import Path

import pandas as pd

from attnprobe.results.statistics import clopper_pearson

CALIBRATION = Path(__file__).parent / "calibration.parquet"
COLUMNS = ["criterion", "level", "encoder", "rightness", "models", "meets"]
NONE = "No track record exists for this kind of model."


@cache
def calibration(path: Path = CALIBRATION) -> pd.DataFrame:
    """The shipped table; without rows where there is none."""
    return pd.read_parquet(path, columns=COLUMNS) if path.exists() else pd.DataFrame(columns=COLUMNS)


def track_record(criterion: str, level: str, encoder: str, *, table: pd.DataFrame | None = None) -> str:
    """One sentence on how often this criterion's test said yes on right and on wrong attention.

    Args:
        table: instead of the shipped one.
    """
    known = calibration() if table is None else table
    rows = known[(known["criterion"] == criterion) & (known["level"] == level) & (known["encoder"] == encoder)]
    shares = {}
    for rightness, own in rows.groupby("rightness", observed=True):
        models, meets = int(own["models"].sum()), int(own["meets"].sum())
        if models:
            value, low, high = (100 * one for one in clopper_pearson(meets, models))
            shares[str(rightness)] = f"{value:.0f} % [{low:.0f}, {high:.0f}] of {models}"
    if not {"right", "wrong"} <= set(shares):
        return NONE
    return (
        f"On models of this kind whose attention was right this test said yes in {shares['right']}, on wrong ones in "
        f"{shares['wrong']}."
    )
