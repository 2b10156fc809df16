"""The tables that go to W&B."""

from attnprobe.report import tracking as content
from attnprobe.results.numbers import numbers_of
from attnprobe.results.table import read_results


def test_probe_tables_are_one_row_per_example(make_run):
    results = read_results(make_run(count=9))
    numbers = numbers_of(results)
    table = content.probe_table(numbers, "adversarial")
    assert len(table) == 9
    assert table["example_id"].tolist() == list(range(9))
    row = results[(results["metric"] == "optimum_jsd") & (results["example_id"] == 4)]
    assert table.loc[4, "optimum_jsd"] == row["value"].item()
    assert "found_attention" not in table
    assert content.probe_table(numbers, "performance").empty


def test_a_curve_of_a_class_has_its_name():
    names = ["no", "yes/maybe"]
    assert content.curve("validation/f1_1", names) == "validation/f1_yes-maybe"
    assert [content.curve(one, names) for one in ("validation/f1_macro", "validation/f1_2", "train/loss")] == [
        "validation/f1_macro", "validation/f1_2", "train/loss",
    ]  # fmt: skip
