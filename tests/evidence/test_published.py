import pandas as pd
import pytest

from attnprobe.evidence.published import FILES, NUMBERS, published


def value(table: pd.DataFrame, metric: str, group: str = "overall") -> float:
    rows = table[table["metric"] == metric]
    (number,) = rows[rows["group"] == group]["value"]
    return number


@pytest.mark.parametrize(
    ("data", "metric", "group", "number"),
    [
        ("sst", "accuracy", "overall", 0.808),
        ("sst", "f1_macro", "overall", 0.806),
        ("sst", "f1", "class_1", 0.784),
        ("sst", "n", "class_0", 863),
        ("sst", "adversarial_max_jsd_mean", "class_0", 0.480),
        ("sst", "adversarial_max_jsd_mean", "class_1", 0.493),
        ("sst", "tau_attention_gradient_mean", "overall", 0.351),
        ("snli", "accuracy", "overall", 0.779),
        ("babi1", "adversarial_max_jsd_mean", "overall", 0.468),
    ],
)
def test_the_numbers_of_jain_and_wallace_stand_under_our_names(data, metric, group, number):
    table = published(data, "lstm_additive")
    assert list(table.columns) == ["metric", "group", "value", "source"]
    assert value(table, metric, group) == pytest.approx(number, abs=5e-4)


def test_the_numbers_of_serrano_and_smith_stand_under_our_names():
    yelp = published("yelp", "hanconv")
    assert value(yelp, "fewer_gradient_than_attention") == pytest.approx(0.478, abs=5e-4)


def test_of_other_data_nothing_is_published():
    assert published("testbed", "lstm_additive").empty


def test_every_published_number_is_whole_and_unique():
    table = pd.concat(pd.read_csv(NUMBERS / name, comment="#") for name in FILES.values())
    assert table["value"].notna().all()
    assert not table.duplicated(["data", "model", "metric", "group"]).any()
    assert table["group"].str.fullmatch(r"overall|class_\d+").all()
    jain = {f"{e}_{a}" for e in ("lstm", "cnn", "average") for a in ("additive", "dot")}
    assert set(table["model"]) == jain | {"hanrnn", "hanconv", "flanrnn", "flanconv"}
    bounded = table[~table["metric"].isin(["n"])]
    assert bounded["value"].between(-1, 1).all()
