"""What is printed of two claims, and of one that was not asked."""

import pandas as pd

from attnprobe.readings.registry import readings
from research.classes import TESTS, cell

ROWS = pd.DataFrame(
    {
        "claim": ["a", "b"],
        "part": ["", "class Sports"],
        "value": [0.5, -0.126],
        "low": [0.4, -0.2],
        "high": [0.6, 0.1],
        "verdict": ["meets", "cannot decide"],
    }
).set_index("claim")


def test_a_cell_has_number_interval_verdict_and_the_class():
    assert cell(ROWS, "a") == "0.50 [0.40, 0.60] meets"
    assert cell(ROWS, "b") == "class Sports: -0.13 [-0.20, 0.10] cannot decide"
    assert cell(ROWS, "c") == "as the predicted class"


def test_every_claim_of_the_table_exists():
    names = {claim.name for reading in readings().values() for claim in reading.claims}
    assert {claim for claims in TESTS.values() for claim in claims} <= names
