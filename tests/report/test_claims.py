import numpy as np
import pandas as pd
import pytest

from attnprobe.report.claims import Claim, Evidence, least, mean_of, put_to_test, share_of
from attnprobe.results.table import Rows


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


def table(**metrics):
    """One run's table of one probe."""
    identity = {"run_id": "r", "experiment": "e", "data": "d", "model": "m", "seed": 0, "split": "test", "probe": "p"}
    rows = Rows()
    for metric, values in metrics.items():
        rows.add(metric, np.arange(len(values)), np.array(values))
    return rows.table(identity).to_pandas()


def test_means_pair_within_the_example_and_leave_out_what_is_undefined():
    a, b = np.arange(12.0), np.arange(12.0) - np.linspace(1, 2, 12)
    a[0] = np.nan
    evidence = mean_of("a", "b", value=np.subtract)(table(a=a, b=b))
    assert evidence.value == pytest.approx(np.linspace(1, 2, 12)[1:].mean())
    assert evidence.n == 11
    assert 1 < evidence.low < evidence.value < evidence.high < 2  # the spread of a alone would be far wider


def test_a_share_has_wilsons_interval():
    evidence = share_of("a", value=lambda a: a > 0)(table(a=[1.0] * 12 + [-1.0] * 4))
    z, n, p = 1.959964, 16, 0.75
    middle, reach = p + z**2 / (2 * n), z * np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    assert evidence.low == pytest.approx((middle - reach) / (1 + z**2 / n), abs=1e-6)
    assert evidence.high == pytest.approx((middle + reach) / (1 + z**2 / n), abs=1e-6)
    assert share_of("a")(table(a=[1.0] * 10)).low < 0.75  # ten of ten is not everything


def test_few_examples_have_no_interval_and_none_no_number():
    few = mean_of("a")(table(a=[1.0] * 9 + [np.nan] * 3))
    assert (few.value, few.n, few.exceeds(0)) == (1.0, 9, "undecided")
    assert mean_of("a")(table(a=[np.nan] * 12)) is None
    assert mean_of("b")(table(a=[1.0] * 12)) is None
    assert mean_of("a")(table(a=[1.0] * 12).iloc[:0]) is None


def test_the_least_of_several_holds_only_where_all_do():
    def just(low, high):
        return lambda rows: Evidence((low + high) / 2, low, high, 20)

    nothing = pd.DataFrame()
    assert least(just(1, 2), just(3, 4))(nothing) == Evidence(1.5, 1, 2, 20)
    assert least(just(1, 2), just(-3, 9))(nothing).exceeds(0) == "undecided"
    assert least(just(-3, 9), just(-2, -1))(nothing).exceeds(0) == "fails"
    assert least(just(1, 2), just(np.nan, np.nan))(nothing).exceeds(0) == "undecided"
    assert least(just(1, 2), lambda rows: None)(nothing) is None
