"""What the papers report.

The numbers are CSV files in this folder; each file's head says what they are.
"""

from functools import cache
from pathlib import Path

import pandas as pd

FILES = {"Jain & Wallace 2019": "jain_wallace.csv", "Serrano & Smith 2019": "serrano_smith.csv"}
REMARKS = {
    "Jain & Wallace 2019": "pretrained word vectors; largest JSD among those with TVD <= 0.05",
    "Serrano & Smith 2019": "other word vectors and splits; a ranking that never flips is counted "
    "as needing more",
}
"""What a reader must know before comparing, in plain ASCII."""
NUMBERS = Path(__file__).parent / "published_numbers"


@cache
def published(data: str, model: str) -> pd.DataFrame:
    """What the papers report for a data set and model, under this project's names.

    Returns:
        Columns `metric group value source`: `group` is `overall` or `class_0`, `class_1`, …;
        `source` names the paper and where in it the number was read. No row where they report
        nothing.
    """
    tables = []
    for paper, name in FILES.items():
        table = pd.read_csv(NUMBERS / name, comment="#")
        tables.append(table.assign(source=f"{paper}, " + table["source"]))
    numbers = pd.concat(tables)
    rows = numbers[(numbers["data"] == data) & (numbers["model"] == model)]
    return rows[["metric", "group", "value", "source"]].reset_index(drop=True)
