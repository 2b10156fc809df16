import shlex
from types import SimpleNamespace

import pandas as pd
import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from attnprobe.evidence.verdicts import Verdict
from attnprobe.findings.groups import Group, read_run
from attnprobe.findings.lines import LINES, NEEDS_MARKS, SEVERAL, WORDS
from attnprobe.report.page.sections import (
    advice,
    cost_of,
    headline_rows,
    overview_of,
    shown_card,
)
from tests.findings.cards import ABOVE, BELOW, card, finding, guards

RUN = SimpleNamespace(directory="runs/a", run_id="none", manifest={})
GROUP = Group("sst", "lstm", "", (RUN,))


def shown_lines():
    """The lines of a card with a yes on words, two details, and a claim about the test."""
    findings = [
        finding(ABOVE),
        finding(BELOW, name="d", primary=False),
        finding(ABOVE, name="e", primary=False, speaks="neither"),
        *guards(),
    ]
    lines = shown_card(GROUP, card(findings)).lines
    return {line.judgement.place: line for line in lines}


def test_a_card_has_a_line_for_every_criterion_and_level():
    lines = shown_lines()
    assert set(lines) == set(LINES)
    assert lines[WORDS.place].judgement.verdict == Verdict.MEETS
    assert lines[WORDS.place].judgement.claim == "c"
    assert lines["agreement", "word"].judgement.verdict == Verdict.NOT_TESTED


def test_the_details_of_a_line_are_what_else_speaks_for_the_attention():
    assert [judgement.claim for judgement in shown_lines()[WORDS.place].details] == ["d"]


def test_a_card_says_what_its_own_findings_say():
    yes = shown_card(GROUP, card([finding(ABOVE), *guards()]))
    no = shown_card(GROUP, card([finding(BELOW)]))
    assert no.lines[5].judgement.verdict == Verdict.FAILS
    assert yes.answer.words != no.answer.words


def accuracies(**of_runs):
    """Headline numbers with the accuracy of some runs; that of a class does not count."""
    rows = []
    for run_id, mean in of_runs.items():
        row = {
            "run_id": run_id,
            "metric": "accuracy",
            "n": 9,
            "low": mean - 0.1,
            "high": mean + 0.1,
        }
        rows += [row | {"group": "overall", "mean": mean}, row | {"group": "class_0", "mean": 0.0}]
    return pd.DataFrame(rows)


def test_the_overview_has_what_was_tested_on_one_model_at_least_the_deciding_words_first():
    seeds = tuple(SimpleNamespace(**vars(RUN) | {"run_id": run_id}) for run_id in "ab")
    group = Group("sst", "lstm", "", seeds)
    tested = card([finding(ABOVE), *guards()])
    untested = card([])
    cards = [shown_card(group, tested), shown_card(GROUP, untested)]
    table = overview_of(cards, accuracies(a=0.5, b=0.75, c=1.0))
    shown = [question.yes for question in table.questions]
    assert shown[0] == WORDS.yes
    assert table.questions[0].has_interval
    assert {*shown, *table.untested} == {line.yes for line in LINES.values()}
    assert len(shown) + len(table.untested) == len(LINES)
    first, second = table.rows
    assert first.lines[0].verdict == Verdict.MEETS
    assert {line.verdict for line in second.lines} == {Verdict.NOT_TESTED}
    assert [first.chip, second.chip] == [card.answer.chip for card in cards]
    assert first.chip_place < second.chip_place
    assert first.accuracy["value"] == 0.625
    assert first.accuracy["low"] == 0.5
    assert first.accuracy["high"] == 0.75
    assert second.accuracy is None


def test_an_untested_question_names_the_command_that_adds_its_probe_to_this_run(make_run):
    run = read_run(make_run("it's (1) a=b"))
    _, command = advice(SimpleNamespace(criterion="erasure", reason="probe=[skill]"), run)
    program, verb, where, probe = shlex.split(command)
    assert (program, verb, probe) == ("attnprobe", "run", "probe=[skill]")
    assert OverridesParser.create().parse_override(where).value() == str(run.directory)


@pytest.mark.parametrize(
    ("criterion", "reason", "training", "lacks", "setting"),
    [
        ("plausibility", NEEDS_MARKS, {}, "no words that people marked", NEEDS_MARKS),
        ("stability", SEVERAL, {"training": {"epochs": 8}}, "more trainings", SEVERAL),
        (
            "stability",
            SEVERAL,
            {"training": {"epochs": 0}},
            "no second training",
            f"training=finetune {SEVERAL}",
        ),
        (
            "leak",
            "+experiment=wiegreffe",
            {"model": {"_target_": "x.PretrainedClassifier"}},
            "pretrained",
            "",
        ),
    ],
)
def test_what_a_run_lacks_for_a_question_is_said_of_this_run(
    make_run, criterion, reason, training, lacks, setting
):
    run = read_run(make_run(training=training))
    lack, expected_setting = advice(SimpleNamespace(criterion=criterion, reason=reason), run)
    assert lacks in lack
    assert expected_setting == setting


TVD = {"unit": "TVD", "low": 0, "high": 1, "step": "", "higher_is_better": True}
ITEMS = {"unit": "items", "low": 1, "high": None, "higher_is_better": None}


@pytest.mark.parametrize(
    ("metric", "tables", "expected"),
    [
        ("tvd", [{}, {"metrics": {"tvd": TVD}}], "TVD, 0 to 1; higher is better"),
        (
            "tvd",
            [{"metrics": {"tvd": TVD | {"higher_is_better": False}}}],
            "TVD, 0 to 1; lower is better",
        ),
        ("n", [{"metrics": {"n": ITEMS}}], "items, 1 or more"),
        ("tvd_std", [{"metrics": {"tvd": TVD}}], ""),  # made of a metric, with a unit of its own
    ],
)
def test_the_unit_of_a_number(metric, tables, expected):
    row = {
        "run_id": "a",
        "metric": metric,
        "group": "overall",
        "title": " x",
        "n": 10,
        "mean": 0.5,
        "low": 0.4,
        "high": 0.6,
    }
    (headline_row,) = headline_rows(
        pd.DataFrame([row]), [Group("d", "m", "", (SimpleNamespace(run_id="a"),))], tables
    )
    assert (
        headline_row["unit"],
        headline_row["title"],
        headline_row["inner"],
        headline_row["cells"][0]["low"],
    ) == (
        expected,
        "x",
        True,
        0.4,
    )


def test_the_time_of_a_test_and_of_its_importances_over_all_runs():
    facts = {
        "a": {"title": "leave-one-out", "seconds": 1.25},
        "b": {"title": "gradient", "seconds": 0.01},
    }
    table = {"seconds": 2.0, "importances": facts}
    importance_times = (
        "Of the importances, which are computed once for all tests: leave-one-out 1.2 s."
    )
    assert cost_of([table]) == f"This test took 2.0 s. {importance_times}"
    assert cost_of([table, {"seconds": 1.5}, {}]).startswith("This test took 3.5 s in 2 runs. Of")
    assert cost_of([{"seconds": 1.5}]) == "This test took 1.5 s."
    assert cost_of([{}, {}]) == ""
