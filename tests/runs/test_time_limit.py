"""A study whose time is up answers with what is finished, and goes on when it is asked again."""

import json
import math
from dataclasses import replace
from unittest.mock import create_autospec

import pytest

from attnprobe.core.clock import CLOCK, Clock, Step, TimeIsUp
from attnprobe.core.errors import UserError
from attnprobe.findings.studies.audit import Audit, AuditForecast
from attnprobe.findings.studies.base import Costs, already_answered, read_study
from attnprobe.importance.base import Subject
from attnprobe.probes.faithfulness import Faithfulness
from attnprobe.results.directory import RunDirectory
from attnprobe.runs import forecasts, studies
from attnprobe.runs.forecasts import measured_costs
from attnprobe.runs.run import fit, run
from attnprobe.runs.settings import Settings
from attnprobe.runs.studies import carry_out_study
from tests.invented_time import InventedTime
from tests.small_runs import NARROW, SMALL, composed, small_run

COMMAND = (
    "+experiment=audit",
    *SMALL,
    NARROW,
    "study.seeds=[1]",
    "study.minutes=3",
    "study.probes=[permutation,readouts]",
)
COSTS = Costs({"train": 120, "validation": 40, "test": 30}, 0.001, 0.01, "cpu", each=1.0)


@pytest.fixture
def time():
    return InventedTime()


@pytest.fixture
def audit(tmp_path, monkeypatch, time):
    """Carries out the audit; each of its runs takes as many seconds as are named."""
    monkeypatch.setattr(studies, "measured_costs", lambda config: COSTS)
    # so small a model may be guessing, and would not be trained again
    monkeypatch.setattr("attnprobe.findings.studies.audit.quality_of", lambda directory: None)
    run = studies.run

    def carry_out(*seconds_of_runs):
        durations = iter(seconds_of_runs)

        def timed(config, *, sweep):
            duration = next(durations, None)
            if duration is None:
                raise KeyboardInterrupt
            directory = run(config, sweep=sweep)
            time.passes(duration)
            studies.CLOCK.check()
            return directory

        monkeypatch.setattr(studies, "run", timed)
        clock = Clock(now=time)
        monkeypatch.setattr(studies, "CLOCK", clock)
        with clock.command():
            directory = carry_out_study(command, lambda overrides: composed(*overrides))
            (step,) = clock.steps
            assert step.total == step.done + 1  # the page alone is left, whatever was left out
        return json.loads((directory / "study.json").read_text()), directory

    command = [*COMMAND, f"output={tmp_path}"]
    carry_out.command = command
    return carry_out


def test_what_is_finished_is_the_answer_and_the_rest_is_named(audit, capsys):
    content, directory = audit(5, 60, 150)
    # 180 s less the page: the third run is over the limit and counts no more than those after it
    assert [member["role"] for member in content["members"]] == ["base", "base"]
    assert content["left_out"] == [
        "uniform, seed 0",
        "uniform, seed 1",
        "tests of base, seed 0: readouts",
    ]
    output = " ".join(capsys.readouterr().out.split())
    assert "audit: time was up after 3:35; left out: uniform, seed 0; " in output
    reading = read_study(directory)
    assert "Time was up; left out: uniform, seed 0; uniform, seed 1;" in " ".join(reading.notes)
    assert already_answered(composed(*audit.command)) is None

    content, _ = audit(0, 0, 1, 1, 1)
    assert content["left_out"] == []
    assert [member["role"] for member in content["members"]] == ["base"] * 2 + ["uniform"] * 2
    base = RunDirectory(directory / content["members"][0]["directory"])
    assert {"permutation", "readouts"} <= set(base.manifest()["tables"])
    assert already_answered(composed(*audit.command)) == directory


def test_a_run_that_cannot_be_done_in_the_time_left_is_not_begun(audit):
    # the first run took 50 times as long as expected: so will the others
    content, _ = audit(100)
    assert [member["role"] for member in content["members"]] == ["base"]
    assert len(content["left_out"]) == 4


def test_where_nothing_is_finished_the_way_on_is_said(audit):
    with pytest.raises(UserError, match=r"Nothing can be answered yet: .*study\.minutes"):
        audit(200)


def test_tables_are_there_as_soon_as_they_are_measured(audit, tmp_path):
    """Whatever ends the process, the run directory holds what was finished before."""
    with pytest.raises(KeyboardInterrupt):
        audit(1)  # somebody ends the second run
    (manifest,) = tmp_path.rglob("manifest.json")
    assert "permutation" in RunDirectory(manifest.parent).manifest()["tables"]


def test_a_training_is_kept_whose_time_is_up_before_the_other_splits_are_predicted(
    tmp_path, monkeypatch, time
):
    def slow(*arguments, **options):
        fitted = fit(*arguments, **options)
        time.passes(100)
        return fitted

    monkeypatch.setattr("attnprobe.runs.run.fit", slow)
    monkeypatch.setattr(CLOCK, "now", time)
    config = small_run(tmp_path)
    with pytest.raises(TimeIsUp), CLOCK.phases("audit"), CLOCK.limited(50):
        run(config)
    assert RunDirectory(Settings.of(config).directory).is_trained


def test_planning_ends_after_its_share_of_the_time(monkeypatch, time):
    clock = Clock(now=time)
    monkeypatch.setattr("attnprobe.findings.studies.audit.CLOCK", clock)

    def measure(config):
        for _ in clock.track(range(100), "time a text"):
            time.passes(10)
        return COSTS

    def planned(*settings):
        audit = Audit(probes=("permutation", "skill"), minutes=4)
        with clock.phases("audit"):
            time.passes(20)
            return audit.plan(lambda changes: composed(*settings, *changes), measure)

    plan = planned("training.epochs=2", "data.most={train: 500, validation: 300}")
    # nothing was timed within 20 s, and a quarter of the 220 s that were left
    assert time.seconds == 20 + 60
    assert clock.deadline is None
    assert plan.rows == {"train": 500, "validation": 300, "test": 50}
    assert plan.page == 48
    assert "within 25 % of study.minutes=4: taking at most 50 test rows and 500 train" in plan.words
    assert planned("training.epochs=0").rows == {"test": 50}


ROWS = {"train": 3400, "validation": 600, "test": 1000}


@pytest.fixture
def planned_after(monkeypatch):
    """Plans an audit of four minutes so many seconds after it began, with these costs."""

    def plan(seconds, costs, *settings):
        clock = Clock(now=lambda: seconds)
        clock.steps = [Step("audit", began=0.0)]
        monkeypatch.setattr("attnprobe.findings.studies.audit.CLOCK", clock)
        audit = Audit(probes=("swaps", "skill"), minutes=4)
        return audit.plan(lambda changes: composed(*settings, *changes), lambda _: costs)

    return plan


def test_as_many_rows_are_trained_on_as_leave_time_for_the_first_test(planned_after):
    """On a busy machine 2,000 rows once took all of four minutes, and nothing was answered."""

    def planned(training, *settings):
        costs = Costs(ROWS, training, math.inf, "cpu", each=12.0, figure=60.0)
        return planned_after(80.0, costs, *settings)

    plan = planned(0.01, "training.epochs=8")
    # 240 s less 80, the page's 48 and the 12 in which the run begins; 0.08 s for each row
    assert plan.rows == {"train": 500, "validation": 88, "test": 50}
    assert plan.page == 48
    assert "taking at most 50 test rows and 500 train rows and 88 validation rows" in plan.words
    assert planned(0.001, "training.epochs=8").rows["train"] == 2000
    assert planned(1.0, "training.epochs=8").rows == {"train": 200, "validation": 50, "test": 50}
    assert planned(1.0, "training.epochs=8", "data.most={train: 90}").rows["train"] == 90
    assert planned(0.0, "training.epochs=0").rows == {"test": 50}


def test_what_was_timed_before_the_time_was_up_is_known(monkeypatch, time):
    def slow(*arguments):
        time.passes(100)
        CLOCK.check()

    monkeypatch.setattr("attnprobe.runs.forecasts.probing_seconds", slow)
    monkeypatch.setattr(CLOCK, "now", time)
    with CLOCK.phases("audit"), CLOCK.limited(50):
        costs = measured_costs(composed(*SMALL, "probe=[permutation]"))
    assert costs.probing == math.inf
    assert min(costs.training, costs.each, costs.figure) > 0


def test_the_test_that_the_answer_goes_by_is_timed_first_and_alone(monkeypatch, time):
    timed = []

    def probing(runner, model, batch, spent=None):
        timed.append(([probe.name for probe in runner.probes], len(batch)))
        if len(timed) > 1:
            time.passes(100)
            CLOCK.check()
        return 0.25

    monkeypatch.setattr("attnprobe.runs.forecasts.probing_seconds", probing)
    monkeypatch.setattr(CLOCK, "now", time)
    with CLOCK.phases("audit"), CLOCK.limited(50):
        costs = measured_costs(composed(*SMALL, "probe=[permutation,swaps]"))
    assert timed[0] == (["swaps"], 20)
    assert timed[1][0] == ["permutation", "swaps"]
    assert costs.answering == 0.25
    assert costs.probing == math.inf


def test_the_answer_has_as_many_test_rows_as_it_has_time_for(planned_after):
    """Fifty texts once were all where the time was enough for four times as many."""

    def test_rows(answering, *settings):
        costs = Costs(ROWS, 0.01, math.inf, "cpu", each=12.0, answering=answering)
        return planned_after(60.0, costs, *settings).rows["test"]

    # 240 s less 60 and the 12 in which the run begins; half of what four tenths for the training
    # leave, and four times as many passes as were timed
    assert test_rows(0.08) == int(0.5 * 0.6 * 168 / 0.32) == 157
    assert test_rows(0.001) == 400
    assert test_rows(1.0) == 50
    assert test_rows(0.08, "training.epochs=0") == int(0.5 * 168 / 0.32)


def test_time_may_be_up_between_two_importances(monkeypatch, time):
    """On a busy machine, faithfulness once went on for a minute after the time was up."""
    scored = []

    def slow(name):
        time.passes(100)
        scored.append(name)

    subject = create_autospec(Subject, instance=True)
    subject.scores.side_effect = slow
    monkeypatch.setattr(CLOCK, "now", time)
    probe = Faithfulness(importances=["attention", "gradient", "leave_one_out"])
    with CLOCK.phases("audit"), CLOCK.limited(150), pytest.raises(TimeIsUp, match="score 2/3"):
        probe.scores(subject)
    assert scored == ["attention", "gradient"]


def test_the_test_that_the_answer_goes_by_is_enough_for_an_answer(audit):
    audit.command.append("study.probes=[swaps,permutation,readouts]")
    content, directory = audit(100)
    assert content["left_out"] == [
        "tests of base, seed 0: permutation, readouts",
        "base, seed 1",
        "uniform, seed 0",
        "uniform, seed 1",
    ]
    (member,) = content["members"]
    tables = RunDirectory(directory / member["directory"]).manifest()["tables"]
    assert "swaps" in tables
    assert "permutation" not in tables


def test_the_page_is_never_kept_all_of_the_time():
    """One slow figure, on a machine that does other work, once left nothing for the first run."""
    audit = Audit(probes=("permutation", "skill"), minutes=4)
    plan = audit.plan(lambda changes: composed(*changes), lambda _: replace(COSTS, figure=60.0))
    assert plan.page == 48
    assert plan.seconds < 240


def test_the_page_has_its_own_time_besides_that_of_its_figures():
    def kept(**costs):
        audit = Audit(probes=("permutation", "skill"), minutes=4)
        measured = replace(COSTS, **costs)
        return audit.plan(lambda changes: composed(*changes), lambda _: measured).page

    assert kept(figure=0.0, page=20.0) == 20
    assert kept(figure=1.0, page=20.0) == kept(figure=1.0) + 20


def test_the_slowness_of_a_machine_is_what_it_takes_for_a_second_of_work(monkeypatch):
    monkeypatch.setattr(forecasts, "process_time", lambda: 10.0)
    monkeypatch.setattr(forecasts, "seconds_of_process", lambda: 35.0)
    assert forecasts.slowness() == 3.5
    monkeypatch.setattr(forecasts, "seconds_of_process", lambda: 6.0)  # several threads
    assert forecasts.slowness() == 1


def test_tests_come_in_order_of_worth():
    probes = ("faithfulness", "adversarial", "gradient", "erasure", "swaps")
    answering, first, then, last = Audit(probes=probes).probes_in_order
    assert answering == ["swaps"]
    assert first == ["adversarial", "swaps"]
    assert then == ["adversarial", "gradient", "swaps"]
    assert last == list(probes)
    assert Audit(probes=("faithfulness",)).probes_in_order == [["faithfulness"]]


def test_seconds_come_in_the_order_of_the_stages():
    """Two lists of tests, five further trainings, the last tests."""
    shares = {"swaps": 0.5, "skill": 0.25, "gradient": 0.25}
    costs = Costs({"train": 100, "test": 100}, 0.1, 0.4, "cpu", each=1.0, shares=shares)
    lists = [["swaps"], ["skill", "swaps"], ["skill", "swaps", "gradient"]]
    seconds = AuditForecast(costs, {}, epochs=1, trainings=6, beside_runs=0.0).members(lists)
    assert seconds == pytest.approx([31.0, 11.0, *[11.0] * 5, 11.0])
    stages = Audit(probes=("swaps", "skill", "gradient")).stages(0, "lstm", [])
    assert [str(member) for stage in (next(stages), next(stages)) for member in stage] == [
        "base, seed 0",
        "base, seed 0",
    ]


def test_the_first_run_leaves_time_for_its_answer():
    costs = Costs({"train": 4000, "test": 50}, 0.01, 0.1, "cpu", shares={"swaps": 1.0})
    all_rows = AuditForecast(costs, {}, epochs=8, trainings=6, beside_runs=0.0)
    within = all_rows.with_first_run_within(90.0, [["swaps"]])
    # 50 texts of 0.1 s; each training row takes 0.08 s
    assert within.rows == {"train": 1062}
    assert within.members([["swaps"]])[0] == pytest.approx(90.0, abs=0.1)
    assert all_rows.with_first_run_within(400.0, [["swaps"]]) == all_rows
    assert all_rows.with_first_run_within(1.0, [["swaps"]]).rows == {"train": 200}
