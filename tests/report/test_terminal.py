import io

import numpy as np
import pytest

from attnprobe.report.terminal import headline, notes_of_tests, print_summary
from attnprobe.results.table import read_results


def printed(results, **settings) -> str:
    stream = io.StringIO()
    print_summary(results, stream=stream, **settings)
    return stream.getvalue()


def test_headline_numbers_are_plain_means(make_run):
    results = read_results(make_run(longest=3))
    numbers = headline(results)
    performance = ["performance/accuracy", "performance/f1_macro", "performance/roc_auc"]
    assert list(numbers)[:4] == [*performance, "permutation/median_tvd"]
    rows = results[results["probe"] == "adversarial"]
    for metric in ("found_jsd", "optimum_jsd", "reached_share"):
        values = [v for m, v in zip(rows["metric"], rows["value"], strict=True) if m == metric]
        expected = sum(v for v in values if v == v) / sum(v == v for v in values)
        assert numbers[f"adversarial/{metric}"] == pytest.approx(expected)
    assert sum(np.isnan(rows.loc[rows["metric"] == "reached_share", "value"])) > 0
    # of texts of one token there is no optimum to reach a share of
    results = read_results(make_run("short", longest=1, probes=("adversarial",)))
    (line,) = [line for line in printed(results).splitlines() if "the search reached" in line]
    assert "undefined" in line


def test_headline_takes_one_run_and_what_is_there(make_run):
    runs = [make_run("a", probes=("permutation",)), make_run("b")]
    with pytest.raises(ValueError, match="one run, got 2: a, b"):
        headline(read_results(runs))
    assert list(headline(read_results(runs[0]))) == ["permutation/median_tvd", "permutation/max_attention"]


def test_the_summary_shows_means_intervals_and_published_values(make_run):
    text = printed(read_results(make_run()))
    (accuracy,) = [line for line in text.splitlines() if "accuracy" in line]
    assert "0.808" in accuracy
    assert " to " in accuracy
    assert "Jain & Wallace 2019" in text
    assert text.count("0.480") == 1
    without = printed(read_results(make_run("mine", data="mine")))
    assert "Jain" not in without


def test_classes_are_listed_by_name_unless_they_are_many_and_markup_is_printed_not_obeyed(make_run):
    assert "predicted class" in printed(read_results(make_run("a", classes=4, count=80)))
    assert "predicted class" not in printed(read_results(make_run("b", classes=6, count=80)))
    odd = {"data": "[bold]$x$[/bold]", "model": "[/nonsense]"}
    text = printed(read_results(make_run(**odd)), classes=["[bold]bad", "good"], directory="/runs/[red]x")
    assert all(part in text for part in (*odd.values(), "/runs/[red]x", "predicted [bold]bad", "predicted good"))


def test_a_pipe_gets_plain_ascii_lines_whatever_its_encoding(make_run):
    results = read_results(make_run(data="фильмы"))
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    print_summary(results, directory="runs/" + "long/" * 60, stream=stream)
    text = raw.getvalue().decode("ascii")
    assert "??????, lstm_additive" in text
    assert "\x1b" not in text
    assert f"results: runs/{'long/' * 60}\n" in text
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    print_summary(results, stream=terminal)
    assert "\x1b[" in terminal.getvalue()


def test_what_was_measured_again_is_said_once_and_only_then_and_times_are_of_all_runs_together():
    fine = {"removals_checked": 128, "largest_error": 3e-7, "texts_remeasured": 0, "texts_reencoded": 0}
    assert notes_of_tests([{"leave_one_out": {"notes": fine}, "permutation": {"notes": {}}, "of_a_package": {}}]) == []
    again = fine | {"texts_remeasured": 1200, "largest_error_before": 0.02, "texts_reencoded": 64}
    (said,) = notes_of_tests([{"leave_one_out": {"notes": again}, "correlation": {"notes": again}}])
    assert "1,200 texts were measured again" in said
    assert "off by up to 2e-2" in said
    first = {"swaps": {"seconds": 1.2}, "permutation": {"seconds": 2.0}, "training": {"seconds": 0.0}}
    assert notes_of_tests([first, {"swaps": {"seconds": 3.0}}]) == ["seconds of the tests: swaps 4.2, permutation 2.0"]
