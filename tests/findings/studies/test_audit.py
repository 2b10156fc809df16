import csv
import json
import random
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path

import numpy as np
import pytest

from attnprobe.core.errors import UserError
from attnprobe.core.sanitise import quoted
from attnprobe.evidence.claims import CRITERIA
from attnprobe.findings.studies.audit import Audit
from attnprobe.findings.studies.base import Costs, Plan, already_answered
from attnprobe.readings.registry import readings
from attnprobe.report.publish import publish_study
from attnprobe.results.directory import RunDirectory
from attnprobe.results.table import read_results
from attnprobe.runs.forecasts import measured_costs, seconds_per_text
from attnprobe.runs.settings import Settings
from attnprobe.runs.studies import PLAN, carry_out_study
from tests.small_runs import NARROW, SMALL_ADVERSARY, composed

QUICK = (
    "training.epochs=12",
    "training.recipe.optimizer.lr=0.03",
    "data.embedding_size=50",
    "study.seeds=[1]",
    "trainer.accelerator=cpu",
    NARROW,
    *SMALL_ADVERSARY,
)


def compose(overrides):
    return composed(*overrides)


FILLER = ["the", "a", "film", "plot", "it", "was", "really", "quite", "and", "scenes"]
FILLER += ["with", "of", "to", "me"]


def written(path, words, count=60, more=()):
    """Texts of a few words that say nothing and one of their label's."""
    draw = random.Random(0)
    rows = []
    for label, cues in words.items():
        for _ in range(count):
            sentence = draw.choices(FILLER, k=draw.randint(4, 9))
            sentence[draw.randrange(len(sentence))] = draw.choice(cues)
            rows.append((" ".join(sentence), label))
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("review", "verdict"), *more, *rows])
    return path


WORDS = {"да": ["прекрасно", "чудесно", "素晴らしい"], "нет": ["ужасно", "скучно", "退屈な"]}
BINARY = {"good": ["lovely", "superb"], "bad": ["awful", "dull"]}
HOLES = [
    ("", "да"),
    ("   ", "нет"),
    ("<script>alert('x')</script> & прекрасно", "да"),
    ("без оценки", ""),
]


def test_from_a_csv_to_the_verdict(tmp_path, capsys, no_pictures):
    # the file's name goes into directories, and from there into other settings
    path = written(tmp_path / "Отзывы = März (1).csv", WORDS, more=HOLES)
    command = [
        "+experiment=audit",
        "data=files",
        f"data.path={quoted(str(path))}",
        "data.text=review",
        *QUICK,
        "data.label=verdict",
        "probe=[permutation,adversarial,erasure]",
        f"output={tmp_path / 'runs'}",
    ]
    directory = carry_out_study(command, compose)
    output = " ".join(capsys.readouterr().out.split())
    assert "audit: 4 trainings of 12 epochs on " in output
    assert "on this machine (cpu)" in output
    publish_study(directory)
    answer = capsys.readouterr().out.splitlines()
    assert len(answer) <= 25
    publish_study(directory, verbose=True)
    output = capsys.readouterr().out
    assert all(words in output for words in (*CRITERIA, "(text is null"))
    page = (directory / "report.html").read_text(encoding="utf-8")
    assert "May this attention be read? Отзывы_März_1" in page
    assert "<script>alert" not in page
    content = json.loads((directory / "study.json").read_text())
    runs = [RunDirectory(directory / member["directory"]) for member in content["members"]]
    assert len(runs) == 4  # a model that guesses would have been the last
    assert all(run.is_finished for run in runs)
    base = runs[0].manifest()
    assert set(base["tables"]) >= {"permutation", "adversarial", "erasure"}
    dropped = [sum(counts.get("dropped", {}).values()) for counts in base["counts"].values()]
    assert sum(dropped) == 3, dropped  # two without words, one without a label


@dataclass(frozen=True)
class SlowAudit:
    """An audit of one probe, on so slow a machine that rows are left out."""

    command: list[str]
    directory: Path
    texts: Path
    output: str

    @property
    def members(self):
        return json.loads((self.directory / "study.json").read_text())["members"]

    def run(self, number):
        return RunDirectory(self.directory / self.members[number]["directory"])

    def again(self, *settings):
        """The finished study that answers the same command with further settings."""
        return already_answered(compose([*self.command, *settings]))


@pytest.fixture(scope="module")
def slow_audit(tmp_path_factory):
    folder = tmp_path_factory.mktemp("audit")
    texts = written(folder / "reviews.csv", BINARY, 70)
    command = [
        "+experiment=audit",
        "data=files",
        f"data.path={texts}",
        "data.text=review",
        "data.label=verdict",
        *QUICK,
        f"output={folder / 'runs'}",
        "study.probes=[permutation]",
    ]
    costs = Costs({"train": 95, "validation": 17, "test": 28}, 99, 1, "cpu")
    output = StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(output):
        patch.setattr("attnprobe.runs.studies.measured_costs", lambda config: costs)
        patch.setattr("attnprobe.findings.studies.audit.FEWEST", {"train": 60, "test": 20})
        directory = carry_out_study(command, compose)
    return SlowAudit(command, directory, texts, output.getvalue())


def test_a_plan_says_what_is_left_out_and_is_kept_to(slow_audit):
    assert (
        "taking 20 of 28 test rows and 60 of 95 train rows, at random; study.minutes=… allows more"
        in " ".join(slow_audit.output.split())
    )
    counts = slow_audit.run(0).manifest()["counts"]
    assert (counts["test"]["kept"], counts["train"]["kept"]) == (20, 60)


def test_an_audit_of_one_probe_trains_again_and_asks_no_other(slow_audit):
    roles = [member["role"] for member in slow_audit.members]
    assert roles == ["base", "base", "uniform", "uniform"]
    probes = set(read_results(slow_audit.run(0).path)["probe"])
    assert probes == {"training", "performance", "permutation"}


def test_an_experiment_without_figures_has_members_without_them(slow_audit):
    folder = slow_audit.directory.parent
    assert len(list(folder.glob("*-seed*"))) == 4
    assert not list(folder.glob("*-seed*/figures"))


def test_the_same_command_is_answered_already_however_much_it_shows(slow_audit):
    assert slow_audit.again("verbose=true") == slow_audit.directory


@pytest.mark.parametrize(
    "setting", ["seed=1", "on_finished=remeasure", "probe.permutation.samples=9"]
)
def test_other_settings_are_not_answered_yet(slow_audit, setting):
    assert slow_audit.again(setting) is None


def test_other_texts_are_not_answered_yet(slow_audit, tmp_path):
    assert slow_audit.again(f"data.path={written(tmp_path / 'b.csv', BINARY, 70)}") is None
    rows = slow_audit.texts.read_bytes()
    slow_audit.texts.write_bytes(rows + rows.splitlines()[-1])
    assert slow_audit.again() is None
    slow_audit.texts.write_bytes(rows)


@pytest.fixture
def planned_once(monkeypatch):
    monkeypatch.setattr(
        "attnprobe.runs.studies.measured_costs", lambda config: pytest.fail("planned twice")
    )


@pytest.mark.usefixtures("planned_once")
def test_a_plan_is_kept_when_an_audit_is_resumed(slow_audit):
    members = slow_audit.members
    (slow_audit.directory / "study.json").unlink()
    assert slow_audit.again() is None
    assert carry_out_study(slow_audit.command, compose) == slow_audit.directory
    assert slow_audit.members == members


@pytest.mark.usefixtures("planned_once")
@pytest.mark.parametrize("broken", ["{", '{"rows": {"train": "many"}, "words": ""}'])
def test_a_broken_plan_is_named(slow_audit, broken):
    path = slow_audit.directory / PLAN
    plan = path.read_text()
    path.write_text(broken)
    with pytest.raises(UserError, match=r"plan\.json"):
        carry_out_study(slow_audit.command, compose)
    path.write_text(plan)


def test_what_was_not_measured_is_said_and_no_reader_is_sent_to_another_audit(
    slow_audit, capsys, no_pictures
):
    publish_study(slow_audit.directory, verbose=True)
    output = " ".join(capsys.readouterr().out.split())
    assert "is not tested: it needs the probe adversarial." in output
    assert "more questions; the page says what each of them needs" in output
    assert "adversary (search)" not in output


def test_any_of_its_probes_can_be_set():
    config = composed(
        "+experiment=audit", "probe.faithfulness.operators=[delete]", "study.seeds=[1]"
    )
    assert config.probe.faithfulness.operators == ["delete"]
    assert list(config.study.probes) == list(config.probe)
    assert {"agreement", "adversarial", "erasure"} < set(config.study.probes)
    Settings.of(config)  # the names at a place may stand for a value
    assert composed("+experiment=audit", "probe=[skill]").study.probes == ["skill"]


def test_an_estimate_has_a_time_for_every_part():
    config = composed(
        "data.source.train_size=300",
        "data.source.test_size=60",
        "data.embedding_size=50",
        "trainer.accelerator=cpu",
        "probe=[permutation,novelty]",
        "probe.novelty.importances=[attention]",
        "probe.novelty.operators=[delete]",
    )
    costs = measured_costs(config)
    assert costs.rows["train"] == 300
    assert costs.device == "cpu"
    assert not Settings.of(config).directory.exists()  # nothing is written
    # how long is this machine's affair
    assert min(costs.training, costs.probing, costs.each, costs.figure) > 0
    assert costs.seconds(4, 3) == pytest.approx(
        3 * costs.each + 12 * 300 * costs.training + 60 * costs.probing
    )


LENGTHS = np.array([5] * 20 + [10] * 20 + [15] * 20)


def seconds_together(rows):
    return 0.7 + sum(0.01 * LENGTHS[row] for row in rows)


def test_what_a_batch_costs_by_itself_is_told_from_what_its_texts_cost():
    seconds = seconds_per_text(seconds_together, LENGTHS, batch_size=64)
    assert seconds == pytest.approx(0.1 + 0.7 / 64)


def test_of_slow_texts_four_are_timed_together_and_a_text_costs_a_quarter_of_them():
    def together(rows):
        return 5 + sum(LENGTHS[row] for row in rows)

    assert seconds_per_text(together, LENGTHS, batch_size=64) == pytest.approx(45 / 4)


@pytest.mark.parametrize("count", range(1, 7))
def test_of_too_few_texts_to_tell_them_apart_an_estimate_is_near(count):
    lengths = LENGTHS[20 : 20 + count]
    assert 0.1 <= seconds_per_text(seconds_together, lengths, batch_size=64) <= 1


def test_the_estimate_holds_the_planning_and_the_page_and_stands_beside_what_it_took(
    tmp_path, monkeypatch, capsys
):
    ticks = iter([100.0, 130.0])
    monkeypatch.setattr("attnprobe.findings.studies.audit.perf_counter", lambda: next(ticks))
    costs = Costs(
        {"train": 5000, "validation": 500, "test": 2000}, 0.001, 0.05, "cpu", each=2.0, figure=1.0
    )
    plan = Audit(seeds=(1,), probes=("permutation", "skill"), minutes=3, epochs=2).plan(
        lambda changes: compose(["training.epochs=2", *changes]), lambda config: costs
    )
    page = 4 + sum(len(readings()[name].drawings) for name in ("permutation", "skill"))
    # 30 s of planning, the page, 4 runs to set up, 4 trainings of 2 epochs; the rest is for test
    # texts
    assert plan.rows == {"test": (180 - 30 - page - 48) * 20}
    assert plan.seconds == pytest.approx(180)
    assert plan.beside(210) == "took 3.5 minutes; 3.0 were expected"
    assert Plan().beside(210) == ""


def planned(costs, minutes, epochs, *settings):
    audit = Audit(probes=("permutation", "skill", "faithfulness"), minutes=minutes, epochs=epochs)
    return audit.plan(lambda changes: compose([*settings, *changes]), lambda _: costs)


def test_without_a_limit_nothing_is_estimated_and_no_row_is_left_out():
    def measure(config):
        pytest.fail("estimated")

    audit = Audit(probes=("permutation",), minutes=None)
    assert audit.plan(compose, measure) == Plan()


def test_a_checkpoint_of_a_hundred_texts_is_cut_too_and_what_is_too_slow_is_named(monkeypatch):
    monkeypatch.setattr("attnprobe.findings.studies.audit.perf_counter", lambda: 0.0)
    costs = Costs(
        {"test": 101},
        0.0,
        3.7,
        "cpu",
        shares={"faithfulness": 0.75, "skill": 0.22, "permutation": 0.03},
    )
    checkpoint = ("model=pretrained", "model.path=x", "training=none")
    in_half_an_hour = planned(costs, 30, 0, *checkpoint)
    assert in_half_an_hour.rows == {}
    assert "faithfulness 5 minutes, skill 1 minute" in in_half_an_hour.words

    in_five_minutes = planned(costs, 5, 0, *checkpoint)
    assert 75 <= in_five_minutes.rows["test"] <= 300 / 3.7
    assert in_five_minutes.seconds <= 300
    assert "study.minutes=" not in in_five_minutes.words.replace("study.minutes=…", "")

    in_two_minutes = planned(costs, 2, 0, *checkpoint)
    assert in_two_minutes.rows == {"test": 50}
    assert (
        "3.1 minutes, more than study.minutes=2, with no fewer than 50 test rows, so that the last "
        "tests are left out: without faithfulness" in in_two_minutes.words
    )
    assert "probe=[permutation,skill], would take about 0.8" in in_two_minutes.words


def test_where_the_trainings_take_the_time_fewer_epochs_are_the_remedy(monkeypatch):
    monkeypatch.setattr("attnprobe.findings.studies.audit.perf_counter", lambda: 0.0)
    costs = Costs(
        {"train": 2000, "test": 50}, 0.001, 0.4, "cpu", shares={"skill": 0.6, "permutation": 0.4}
    )
    # 6 trainings of 8 epochs on 2,000 texts: 96 s, and half of it; 50 texts: 20 s, of which skill
    # takes 12
    assert (
        "training.epochs=4 would take about 1.1" in planned(costs, 1, 8, "training.epochs=8").words
    )
    assert (
        "more than"
        not in planned(replace(costs, training=0.00005), 1, 8, "training.epochs=8").words
    )


@pytest.mark.parametrize(("each", "timed"), [(3.7, range(8)), (37, [4]), (0.037, [52])])
def test_slow_probes_are_timed_on_few_texts(each, timed):
    seen = []

    def together(rows):
        seen.append(len(rows))
        return each * len(rows)

    assert seconds_per_text(together, np.arange(101), batch_size=64) == pytest.approx(each)
    assert sum(seen) in timed
