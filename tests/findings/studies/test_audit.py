import csv
import json
import random
from dataclasses import replace

import numpy as np
import pytest

from attnprobe.core.errors import UserError
from attnprobe.core.sanitise import quoted
from attnprobe.evidence.claims import CRITERIA
from attnprobe.evidence.reading import readings
from attnprobe.findings.studies.audit import Audit
from attnprobe.findings.studies.base import Costs, Plan, already_answered
from attnprobe.report.publish import publish_study
from attnprobe.results.directory import RunDirectory
from attnprobe.results.table import read_results
from attnprobe.runs.forecasts import measured_costs, seconds_per_text
from attnprobe.runs.settings import Settings
from attnprobe.runs.studies import PLAN, carry_out_study
from tests.small_runs import SMALL_ADVERSARY, composed

QUICK = (
    "training.epochs=12",
    "training.recipe.optimizer.lr=0.03",
    "data.embedding_size=50",
    "study.seeds=[1]",
    "trainer.accelerator=cpu",
    *SMALL_ADVERSARY,
)


def compose(overrides):
    return composed(*overrides)


def written(path, words, count=60, more=()):
    """Texts of a few words that say nothing and one of their label's."""
    draw = random.Random(0)
    rows = []
    rest = [
        "the",
        "a",
        "film",
        "plot",
        "it",
        "was",
        "really",
        "quite",
        "and",
        "scenes",
        "with",
        "of",
        "to",
        "me",
    ]
    for label, own in words.items():
        for _ in range(count):
            sentence = draw.choices(rest, k=draw.randint(4, 9))
            sentence[draw.randrange(len(sentence))] = draw.choice(own)
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
    said = capsys.readouterr().out
    assert all(
        words in said for words in ("audit: 4 trainings of 12 epochs on ", "on this machine (cpu)")
    )
    publish_study(directory)
    assert len(capsys.readouterr().out.splitlines()) <= 15
    publish_study(directory, verbose=True)
    shown = capsys.readouterr().out
    assert all(words in shown for words in (*CRITERIA, "(text is null"))
    page = (directory / "report.html").read_text(encoding="utf-8")
    assert "May this attention be read? Отзывы_März_1" in page
    assert "<script>alert" not in page
    content = json.loads((directory / "study.json").read_text())
    members = [RunDirectory(directory / one["directory"]) for one in content["members"]]
    assert [one.is_finished for one in members] == [
        True
    ] * 4  # a model that guesses would have been the last
    base = members[0].manifest()
    assert set(base["tables"]) >= {"permutation", "adversarial", "erasure"}
    dropped = [sum(count.get("dropped", {}).values()) for count in base["counts"].values()]
    assert sum(dropped) == 3, dropped  # two without words, one without a label


def test_a_plan_is_kept_when_an_audit_of_one_probe_is_resumed(
    tmp_path, monkeypatch, capsys, no_pictures
):
    path = written(tmp_path / "reviews.csv", BINARY, 70)
    command = [
        "+experiment=audit",
        "data=files",
        f"data.path={path}",
        "data.text=review",
        "data.label=verdict",
        *QUICK,
    ]
    command += [f"output={tmp_path / 'runs'}", "study.probes=[permutation]"]
    costs = Costs({"train": 95, "validation": 17, "test": 28}, 99, 1, "cpu")
    monkeypatch.setattr("attnprobe.runs.studies.measured_costs", lambda config: costs)
    monkeypatch.setattr("attnprobe.findings.studies.audit.FEWEST", {"train": 60, "test": 20})
    first = carry_out_study(command, compose)
    said = capsys.readouterr().out
    assert (
        "taking 20 of 28 test rows and 60 of 95 train rows, at random; study.minutes=… allows more"
        in said
    )
    members = json.loads((first / "study.json").read_text())["members"]
    assert [member["role"] for member in members] == ["base", "base", "uniform", "uniform"]
    assert set(read_results(first / members[0]["directory"])["probe"]) == {
        "training",
        "performance",
        "permutation",
    }
    manifest = RunDirectory(first / members[0]["directory"]).manifest()
    assert [manifest["counts"][split]["kept"] for split in ("test", "train")] == [20, 60]
    # no figures, as its experiment says, of which the members know nothing
    assert len(list(first.parent.glob("*-seed*"))) == 4
    assert not list(first.parent.glob("*-seed*/figures"))
    assert already_answered(compose([*command, "verbose=true"])) == first
    elsewhere = f"data.path={written(tmp_path / 'b.csv', BINARY, 70)}"
    for other in ("seed=1", "on_finished=remeasure", "probe.permutation.samples=9", elsewhere):
        assert already_answered(compose([*command, other])) is None, other
    rows = path.read_bytes()
    path.write_bytes(rows + rows.splitlines()[-1])
    assert already_answered(compose(command)) is None
    path.write_bytes(rows)
    (first / "study.json").unlink()
    assert already_answered(compose(command)) is None
    monkeypatch.setattr(
        "attnprobe.runs.studies.measured_costs", lambda config: pytest.fail("planned twice")
    )
    assert carry_out_study(command, compose) == first
    assert json.loads((first / "study.json").read_text())["members"] == members
    publish_study(first, verbose=True)
    said = capsys.readouterr().out
    assert "is not tested: it needs the probe adversarial." in " ".join(said.split())
    # an audit does not send its reader to an audit
    assert "more questions; the page says what each of them needs" in " ".join(said.split())
    assert "adversary (search)" not in said
    for broken in ("{", '{"rows": {"train": "many"}, "words": ""}'):
        (first / PLAN).write_text(broken)
        with pytest.raises(UserError, match=r"plan\.json"):
            carry_out_study(command, compose)


def test_any_of_its_probes_can_be_set():
    config = composed(
        "+experiment=audit", "probe.faithfulness.operators=[delete]", "study.seeds=[1]"
    )
    assert config.probe.faithfulness.operators == ["delete"]
    assert list(config.study.probes) == list(config.probe)
    assert {"agreement", "adversarial", "erasure"} < set(config.study.probes)
    Settings.of(config)  # the names at a place may stand for a value
    fewer = composed("+experiment=audit", "probe=[skill]")
    assert fewer.study.probes == ["skill"]


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
    assert (
        min(costs.training, costs.probing, costs.each, costs.figure) > 0
    )  # how long is this machine's affair
    assert costs.seconds(4, 3) == pytest.approx(
        3 * costs.each + 12 * 300 * costs.training + 60 * costs.probing
    )


def test_what_a_batch_costs_by_itself_is_told_from_what_its_texts_cost():
    lengths = np.array([5] * 20 + [10] * 20 + [15] * 20)

    def together(rows):
        return 0.7 + sum(0.01 * lengths[row] for row in rows)

    assert seconds_per_text(together, lengths, batch_size=64) == pytest.approx(0.1 + 0.7 / 64)
    # so slow that four texts together, and single ones, are all that is timed: a text costs a
    # quarter of the four
    slow = seconds_per_text(
        lambda rows: 5 + sum(lengths[row] for row in rows), lengths, batch_size=64
    )
    assert slow == pytest.approx(45 / 4)
    for few in range(1, 7):  # too few to tell them apart, or nearly
        assert 0.1 <= seconds_per_text(together, lengths[20 : 20 + few] + 0, batch_size=64) <= 1


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
    half, five, two = (planned(costs, minutes, 0, *checkpoint) for minutes in (30, 5, 2))
    assert half.rows == {}
    assert "faithfulness 5 minutes, skill 1 minute" in half.words
    assert 75 <= five.rows["test"] <= 300 / 3.7
    assert five.seconds <= 300
    assert "study.minutes=" not in five.words.replace("study.minutes=…", "")
    assert two.rows == {"test": 50}
    assert (
        "3.1 minutes, more than study.minutes=2, with no fewer than 50 test rows: without faithfulness"
        in two.words
    )
    assert "probe=[permutation,skill], would take about 0.8" in two.words


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
