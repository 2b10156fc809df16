import numpy as np
import pandas as pd
import pytest

from attnprobe.report.claims import Claim, Evidence, put_to_test


def claim(**changes):
    fields = {
        "name": "c", "criterion": "erasure", "statement": "s", "source": "p", "quantity": "q",
        "measure": lambda rows: Evidence.of(rows["value"]),
    }  # fmt: skip
    return Claim(**(fields | changes))


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(0.1, 0.2, "holds"), (-0.2, -0.1, "fails"), (-0.1, 0.1, "undecided"), (np.nan, np.nan, "undecided"),
     (0.0, 0.0, "fails"), (0.0, 0.1, "undecided")],
)  # fmt: skip
def test_only_a_whole_interval_decides(low, high, verdict):
    assert Evidence(0.05, low, high, 9).exceeds(0.0) == verdict


@pytest.mark.parametrize(
    ("speaks", "values", "met"),
    [("for", [1.0, 1.1, 1.2], True), ("for", [-1.0, -1.1], False), ("against", [1.0, 1.1], False),
     ("against", [-1.0, -1.1], True), ("neither", [1.0, 1.1], None), ("for", [-5.0, 5.0, 0.0], None)],
)  # fmt: skip
def test_a_criterion_is_met_by_what_the_claim_speaks_for(speaks, values, met):
    table = pd.DataFrame({"data": "sst", "model": "lstm", "value": values})
    (finding,) = put_to_test((claim(speaks=speaks),), table)
    assert finding.criterion_met is met


def test_each_data_set_and_model_is_tested_apart_and_absent_numbers_say_nothing():
    table = pd.DataFrame({"data": ["a", "a", "b", "b"], "model": "m", "value": [1.0, 2.0, -1.0, np.nan]})
    absent = claim(measure=lambda rows: None)
    found = put_to_test((claim(), absent), table)
    assert [(f.data, f.verdict, f.evidence.n) for f in found] == [("a", "holds", 2), ("b", "fails", 1)]


def test_a_claim_names_a_known_criterion():
    with pytest.raises(ValueError, match="criterion='beauty': expected one of necessity"):
        claim(criterion="beauty")
    with pytest.raises(ValueError, match="speaks='yes'"):
        claim(speaks="yes")
