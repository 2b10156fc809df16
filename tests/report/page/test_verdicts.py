import shlex
from types import SimpleNamespace

import pandas as pd
import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from attnprobe.evidence.claims import Claim, Finding
from attnprobe.evidence.evidence import MEETS, NOT_TESTED, Evidence
from attnprobe.findings.groups import Group, read_run
from attnprobe.findings.verdicts import LINES, NEEDS_MARKS, SEVERAL, answer_of, judge
from attnprobe.report.page.sections import advice, cards, cost_of, headline_rows

RUN = SimpleNamespace(directory="runs/a", manifest={})
GROUP, OTHER = (Group("sst", model, "", (RUN,)) for model in ("lstm", "cnn"))
ABOVE = (0.2, 0.1, 0.3)
BELOW = (-0.2, -0.3, -0.1)
ACROSS = (0.0, -0.1, 0.1)


def finding(numbers, speaks="for", name="c", primary=False):
    claim = Claim(
        name,
        "erasure",
        "A claim",
        "A paper",
        lambda _: None,
        "share, 0 to 1",
        speaks=speaks,
        level="word",
        primary=primary,
    )
    return "test-x", Finding(claim, Evidence(*numbers, n=10), "sst", "m")


def test_a_card_has_a_line_for_every_criterion_and_level_and_its_own_group_only():
    given = [
        finding(ABOVE, primary=True),
        finding(BELOW, name="d"),
        finding(ABOVE, "neither", name="e"),
    ]
    parts = []
    for model, own in (("lstm", given), ("cnn", [finding(BELOW, primary=True)])):
        judged = judge(own)
        chip, sentence = answer_of(judged)
        parts.append(judged.assign(group=f"sst · {model}", chip=chip, sentence=sentence))
    first, second = cards([GROUP, OTHER], pd.concat(parts, ignore_index=True))
    lines = {
        (line.criterion, line.level): (name, line, details)
        for name, line, details, _ in first["lines"]
    }
    assert set(lines) == set(LINES)
    name, word, details = lines["erasure", "word"]
    assert (name, word.verdict, word.claim, [one.claim for one in details]) == (
        "erasure.word",
        MEETS,
        "c",
        ["d"],
    )
    name, agreement, _ = lines["agreement", "word"]
    assert (name, agreement.verdict) == ("agreement", NOT_TESTED)
    assert second["lines"][5][1].verdict == "fails"
    assert first["answer"].words != second["answer"].words


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
    said, given = advice(SimpleNamespace(criterion=criterion, reason=reason), run)
    assert lacks in said
    assert given == setting


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
        "mean": 0.5,
        "low": 0.4,
        "high": 0.6,
    }
    (found,) = headline_rows(
        pd.DataFrame([row]), [Group("d", "m", "", (SimpleNamespace(run_id="a"),))], tables
    )
    assert (found["unit"], found["title"], found["inner"], found["cells"][0]["low"]) == (
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
    one = {"seconds": 2.0, "importances": facts}
    of_importances = (
        "Of the importances, which are computed once for all tests: leave-one-out 1.2 s."
    )
    assert cost_of([one]) == f"This test took 2.0 s. {of_importances}"
    assert cost_of([one, {"seconds": 1.5}, {}]).startswith("This test took 3.5 s in 2 runs. Of")
    assert cost_of([{"seconds": 1.5}]) == "This test took 1.5 s."
    assert cost_of([{}, {}]) == ""
