import io

import numpy as np
import pytest

from attnprobe.core.printing import WIDTH
from attnprobe.findings.groups import grouped, read_run
from attnprobe.findings.headlines import compare, headline
from attnprobe.findings.lines import LINES, STATES
from attnprobe.findings.sheet import sheet_of
from attnprobe.report.terminal import (
    GAUGE,
    answer_lines,
    notes_of_tests,
    print_summary,
)
from attnprobe.results.table import read_results
from tests.findings.cards import card, finding, guards


def printed(results, **settings) -> str:
    stream = io.StringIO()
    print_summary(compare(results), stream=stream, **settings)
    return stream.getvalue()


def test_headline_numbers_are_plain_means(make_run):
    results = read_results(make_run(longest=3))
    numbers = headline(results)
    performance = ["performance/accuracy", "performance/f1_macro", "performance/roc_auc"]
    assert list(numbers)[:4] == [*performance, "permutation/median_tvd"]
    rows = results[results["probe"] == "adversarial"]
    for metric in ("found_jsd", "optimum_jsd", "reached_share"):
        values = rows[rows["metric"] == metric]["value"].tolist()
        defined = [value for value in values if not np.isnan(value)]
        expected = sum(defined) / len(defined)
        assert numbers[f"adversarial/{metric}"] == pytest.approx(expected)
    reached_share = rows[rows["metric"] == "reached_share"]["value"]
    assert reached_share.isna().any()
    # of texts of one token there is no optimum to reach a share of
    results = read_results(make_run("short", longest=1, probes=("adversarial",)))
    (line,) = [line for line in printed(results).splitlines() if "the search reached" in line]
    assert "undefined" in line


def test_headline_takes_one_run_and_what_is_there(make_run):
    runs = [make_run("a", probes=("permutation",)), make_run("b")]
    with pytest.raises(ValueError, match="one run, got 2: a, b"):
        headline(read_results(runs))
    assert list(headline(read_results(runs[0]))) == [
        "permutation/median_tvd",
        "permutation/max_attention",
    ]


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
    text = printed(
        read_results(make_run(**odd)), classes=["[bold]bad", "good"], directory="/runs/[red]x"
    )
    assert all(
        part in text
        for part in (*odd.values(), "/runs/[red]x", "predicted [bold]bad", "predicted good")
    )


def test_a_pipe_gets_plain_ascii_lines_whatever_its_encoding(make_run, monkeypatch):
    results = read_results(make_run(data="фильмы"))
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    print_summary(compare(results), directory="runs/" + "long/" * 60, stream=stream)
    text = raw.getvalue().decode("ascii")
    assert "??????, lstm_additive" in text
    assert "\x1b" not in text
    assert f"results: runs/{'long/' * 60}\n" in text
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setenv("TERM", "xterm")  # a dumb one has no colours
    print_summary(compare(results), stream=terminal)
    assert "\x1b[" in terminal.getvalue()


def test_what_was_measured_again_is_said_once_and_only_then_and_times_are_of_all_runs_together():
    fine = {
        "removals_checked": 128,
        "largest_error": 3e-7,
        "texts_remeasured": 0,
        "texts_reencoded": 0,
    }
    assert (
        notes_of_tests(
            [{"leave_one_out": {"notes": fine}, "permutation": {"notes": {}}, "of_a_package": {}}]
        )
        == []
    )
    again = fine | {"texts_remeasured": 1200, "largest_error_before": 0.02, "texts_reencoded": 64}
    (note,) = notes_of_tests([{"leave_one_out": {"notes": again}, "correlation": {"notes": again}}])
    assert "1,200 texts were measured again" in note
    assert "off by up to 2e-2" in note
    first = {
        "swaps": {"seconds": 1.2},
        "permutation": {"seconds": 2.0},
        "training": {"seconds": 0.0},
    }
    assert notes_of_tests([first, {"swaps": {"seconds": 3.0}}]) == [
        "seconds of the tests: swaps 4.2, permutation 2.0"
    ]


ABOVE = (0.5, 0.4, 0.7)
ACROSS = (0.1, -0.2, 0.4)


@pytest.fixture
def told(make_run):
    """The chip and the printed lines of a model with these numbers."""
    (group,) = grouped([read_run(make_run())])

    def told_of(numbers, guessing=""):
        findings = [
            finding(number, *place, name=f"c{count}", n=60)
            for count, (place, number) in enumerate(numbers.items())
        ]
        decided = card([*findings, *guards()], group="d · m", guessing=guessing)
        return decided.chip, answer_lines(sheet_of(group, decided))

    return told_of


@pytest.mark.parametrize("lines", [(), tuple(LINES), tuple(LINES)[3:6]])
@pytest.mark.parametrize("numbers", [ABOVE, ACROSS, (9.0, -30.0, 40.0)])
def test_it_is_short_and_narrow(lines, numbers, told):
    chip, lines_printed = told(dict.fromkeys(lines, numbers))
    assert len(lines_printed) <= 32
    assert max(map(len, lines_printed)) <= WIDTH
    assert lines_printed[0] == "Attention of lstm_additive on sst"
    heads = [line[2:12].strip() for line in lines_printed]
    assert heads.count("answer") == 1
    assert f"  answer    {chip}." in "\n".join(lines_printed)
    answer = {ABOVE: "yes"}.get(numbers, "open") if lines else "untested"
    # the line about states does not stand under a chip about words
    shown = [line for line in lines if line != STATES.place]
    assert heads.count(answer) == (len(shown) if answer == "yes" else 1)
    assert sum("#" in line for line in lines_printed) == (
        ("erasure", "word") in lines and numbers is ABOVE
    )


def test_of_a_poor_model_it_is_said_what_to_do_and_no_question_is_answered(told):
    chip, lines_printed = told({("erasure", "word"): ABOVE}, guessing="a coin")
    assert chip == "Do not read"
    heads = [line[2:12].strip() for line in lines_printed]
    assert not {"yes", "no", "open", "untested", "errors"} & set(heads)
    assert "training.epochs=" in " ".join(lines_printed)


@pytest.mark.parametrize("numbers", [ABOVE, (0.3, 0.21, 0.45), (1.0, 0.9, 1.2)])
def test_a_gauge_has_its_number_within_its_interval(numbers, told):
    _, lines_printed, *_ = told({("erasure", "word"): numbers})
    (line,) = [line for line in lines_printed if "|" in line]
    line_before = lines_printed[lines_printed.index(line) - 1]
    assert "weight on words that move the prediction" in line_before
    _, gauge, *_ = line.split("|")
    assert len(gauge) == GAUGE
    value, low, high = [round(min(number, 1) * (GAUGE - 1)) for number in numbers]
    assert gauge.index("#") == value
    marked = [place for place, mark in enumerate(gauge) if mark != "-"]
    assert marked == [*range(low, high + 1)]
