"""The table of methods names every importance there is, and none that there is not."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_importance_has_a_place_in_the_table_of_methods():
    text = (ROOT / "docs/results/attributions.md").read_text().split("## The methods")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    named = [name for cell in rows for name in re.findall(r"`(\w+)`", cell)]
    assert sorted(named) == sorted(path.stem for path in (ROOT / "conf/importance").glob("*.yaml"))
