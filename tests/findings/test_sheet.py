"""The sheet: each answer's sentences, and the same ones on page and terminal of a real run."""

import re
from html import unescape

import pytest

from attnprobe.evidence.deciding_words import EVERY_CLASS_CLAIM
from attnprobe.evidence.verdicts import Chip, Verdict
from attnprobe.findings.groups import grouped, read_run
from attnprobe.findings.lines import NECESSITY, STABILITY
from attnprobe.findings.sheet import (
    MEANINGS,
    NEEDLESS,
    QUESTION,
    SHOW_WITH_ANSWER,
    TRAIN_AGAIN,
    sheet_of,
    title_of,
)
from attnprobe.findings.slices import slices_of
from attnprobe.findings.stored import card_of_run
from attnprobe.findings.studies.criteria.alternative import CLAIM as ANOTHER_IS_BETTER
from attnprobe.findings.track_record import NO, OPEN, YES, errors_of
from attnprobe.report.page.build import write_report
from attnprobe.report.terminal import answer_lines
from attnprobe.results.table import read_examples
from tests.findings.cards import ABOVE, ACROSS, BELOW, card, finding, guards
from tests.findings.counts import counts
from tests.invented_runs import without_pictures
from tests.small_runs import command_line


@pytest.fixture
def group(make_run):
    (group,) = grouped([read_run(make_run())])
    return group


@pytest.mark.parametrize("chip", list(Chip))
def test_every_answer_means_two_sentences(chip):
    assert len(re.findall(r"[.](?: |$)", MEANINGS[chip])) == 2


@pytest.mark.parametrize(
    ("epochs", "advised"), [(8, ["training.epochs="]), (0, ["training=finetune", "model.path="])]
)
def test_a_poor_checkpoint_as_it_is_is_not_trained_longer(make_run, epochs, advised):
    (group,) = grouped([read_run(make_run(training={"training": {"epochs": epochs}}))])
    advice = sheet_of(group, card([finding(ABOVE)], guessing="a coin")).text("to do")
    assert re.findall(r"training[.]epochs=|training=finetune|model[.]path=", advice) == advised


def better(value=0.3):
    """A finding that another method is better than attention."""
    return finding(
        (value, value - 0.1, value + 0.1), name=ANOTHER_IS_BETTER.name, primary=False, speaks="for"
    )


@pytest.mark.parametrize(
    ("findings", "chip", "advice"),
    [
        ([finding(ABOVE)], Chip.CARE, SHOW_WITH_ANSWER),
        ([finding(BELOW)], Chip.NO, "Do not show it. attnprobe audit measures what to show"),
        ([finding(BELOW), better()], Chip.NO, "Do not show it. A claim (by 0.30)."),
        ([finding(ABOVE), better()], Chip.CARE, f"{SHOW_WITH_ANSWER} Better: a claim (by 0.30)."),
        (
            [finding(ACROSS)],
            Chip.UNSHOWN,
            "Do not show it yet: the interval reaches across what is needed",
        ),
        ([finding(ACROSS, unasked="no word acts")], Chip.UNSHOWN, "not show it yet: no word acts."),
        ([], Chip.UNSHOWN, "run the test first (probe=[swaps])."),
    ],
)
def test_what_to_do_follows_from_the_answer(findings, chip, advice, group):
    decided = card([*findings, *guards()])
    assert decided.chip is chip
    assert advice in sheet_of(group, decided).text("to do")


def test_what_speaks_against_a_yes_is_named_and_a_grave_doubt_comes_before_more_trainings(group):
    untrained = sheet_of(group, card([finding(ABOVE), *guards()], encoder="lstm"))
    assert "But this test is unproven" in untrained.text("means")  # the claim `c` has no record
    assert untrained.text("to do") == SHOW_WITH_ANSWER
    guarded = guards(**{EVERY_CLASS_CLAIM.name: 0.1})
    assert " goes by no words of its own." in sheet_of(
        group, card([finding(ABOVE), *guarded])
    ).text("means")


def test_where_only_other_trainings_are_missing_it_is_trained_again(group, monkeypatch):
    record = counts((40, 38), (60, 0))
    monkeypatch.setattr("attnprobe.findings.track_record.calibration", lambda: record)
    sheet = sheet_of(group, card([finding(ABOVE), *guards()], encoder="lstm"))
    assert sheet.text("means").endswith("But only one training was checked.")
    assert sheet.text("to do") == TRAIN_AGAIN


def test_an_audit_sends_nobody_to_an_audit(make_run):
    """That of a checkpoint as it is has one training, and has looked for something better."""
    (group,) = grouped([read_run(make_run(experiment="audit_base"))])
    sheet = sheet_of(group, card([finding(BELOW), *guards()]))
    assert sheet.text("to do") == "Do not show it."
    assert "audit" not in sheet.further
    assert "in a single run" in sheet.text("errors")


def test_a_checkpoint_as_it_is_is_fine_tuned_for_a_second_training(make_run, monkeypatch):
    record = counts((40, 38), (60, 0))
    monkeypatch.setattr("attnprobe.findings.track_record.calibration", lambda: record)
    (group,) = grouped([read_run(make_run(training={"training": {"epochs": 0}}))])
    sheet = sheet_of(group, card([finding(ABOVE), *guards()], encoder="lstm"))
    assert "training=finetune" in sheet.text("to do")


@pytest.mark.parametrize(
    ("source", "columns"),
    [
        ({}, "has_label"),
        ({"column": "codes", "one_per_label": None}, "codes"),
        ({"column": None, "one_per_label": ["fever", "cough"]}, "fever, cough"),
    ],
)
def test_the_columns_of_the_labels_are_the_files(make_run, source, columns):
    data = {"path": "notes.csv", "text": "note", "label": "has_label", "source": source}
    (group,) = grouped([read_run(make_run(training={"data": data}))])
    sheet = sheet_of(group, card([finding(ABOVE), *guards()]))
    assert sheet.text("data").startswith(f"notes.csv, column note, labels in {columns}.")


def test_of_several_labels_no_test_is_named_that_refuses_them(make_run):
    (group,) = grouped([read_run(make_run(training={"data": {"multi_label": True}}))])
    sheet = sheet_of(group, card(guards()))
    assert "task=labels" in sheet.text("to do")
    assert "swaps" not in sheet.text("to do")
    assert "audit" not in sheet.further


def test_both_columns_of_pairs_are_named(make_run):
    data = {"path": "pairs.csv", "text": "query", "text2": "passage", "label": "relevant"}
    (group,) = grouped([read_run(make_run(training={"data": data}))])
    sheet = sheet_of(group, card([finding(ABOVE), *guards()]))
    assert sheet.text("data").startswith("pairs.csv, columns query and passage, labels in relevant")


def test_where_equal_weights_do_as_well_this_is_what_the_answer_means(group):
    needless = finding(BELOW, *NECESSITY.place, name="needed")
    decided = card([finding(ABOVE), needless, *guards()])
    assert decided.chip is Chip.UNSHOWN
    sheet = sheet_of(group, decided)
    assert sheet.text("means") == NEEDLESS
    assert "Equal weights" in sheet.text("to do")


def test_an_audit_is_compared_with_audits(group):
    stable = finding(ABOVE, *STABILITY.place, name="alike")
    audit = sheet_of(group, card([finding(ABOVE), stable, *guards()]))
    single_run = sheet_of(group, card([finding(ABOVE), *guards()]))
    assert "in an audit" in audit.text("errors")
    assert "in a single run" in single_run.text("errors")


def test_what_was_not_tested_has_no_rate_of_errors(group):
    assert sheet_of(group, card(guards())).text("errors") == ""
    assert sheet_of(group, card([finding(ABOVE)], guessing="a coin")).text("errors") == ""


@pytest.mark.parametrize(
    ("chip", "verdict", "answer", "truth"),
    [
        (Chip.READ, Verdict.MEETS, YES, "wrong"),
        (Chip.CARE, Verdict.MEETS, YES, "wrong"),
        (Chip.NO, Verdict.NO_DIFFERENCE, NO, "right"),
        (Chip.UNSHOWN, Verdict.CANNOT_DECIDE, OPEN, "right"),
    ],
)
def test_an_answer_is_wrong_where_the_truth_is_the_other_one(chip, verdict, answer, truth):
    answers = counts((40, 38), (60, 3)).assign(claim="chip", mode="run")
    sentence = errors_of(chip, verdict, "lstm", is_audit=False, answers=answers)
    rows = answers[answers["truth"] == truth]
    told = int((rows["answer"] == answer).sum())
    assert f"Of {len(rows)} models whose attention is known to be {truth}, {told} got" in sentence
    assert f": {100 * told / len(rows):.0f} % [" in sentence
    assert f"] over {len(rows)} rules" in sentence  # each of the models is of its own rule
    unmeasured = errors_of(chip, verdict, "mamba", is_audit=False, answers=answers)
    assert f"known to be {truth}, none of them of this kind, {told} got" in unmeasured
    none = errors_of(chip, verdict, "lstm", is_audit=True, answers=answers)
    assert none == "How often this answer is wrong is not known: no model was tried."


def test_what_the_record_does_not_count_as_an_answer_has_no_rate_of_errors(group):
    """*Not shown* is open there where the line of words is; else these texts could not say."""
    unasked = sheet_of(group, card([finding(ACROSS, unasked="no word acts"), *guards()]))
    assert unasked.summary.chip is Chip.UNSHOWN
    assert unasked.text("errors") == ""
    needless = finding(BELOW, *NECESSITY.place, name="needed")
    decided = card([finding(ABOVE), needless, *guards()])
    assert decided.chip is Chip.UNSHOWN
    assert sheet_of(group, decided).text("errors") == ""
    undecided = sheet_of(group, card([finding(ACROSS), *guards()]))
    assert undecided.text("errors").endswith(" rules, which leaves the question open.")


def test_several_models_have_one_title(make_run):
    groups = grouped([read_run(make_run("a")), read_run(make_run("b", model="cnn_additive"))])
    assert title_of(groups) == "Attention of 2 models"
    assert title_of(groups[:1]) == "Attention of lstm_additive on sst"


@pytest.fixture(scope="module")
def command(tmp_path_factory):
    """What a small run from a file printed; and its page, as its words."""
    folder = tmp_path_factory.mktemp("sheet")
    rows = ["review,stars,region"]
    for number in range(240):
        region = ("north", "south")[number % 2]
        for word in ("good", "dull"):
            rows.append(f"the film was {word} number {number % 9},{word},{region}")
    rows += ["the film was good,good,islands", "the film was dull,dull,"] * 12
    rows.append("lost,,north")
    (folder / "reviews.csv").write_text("\n".join(rows))
    settings = (
        "data=files",
        "data.path=reviews.csv",
        "data.text=review",
        "data.label=stars",
        "data.slice=region",
    )
    printed = command_line(
        folder,
        *settings,
        "probe=[swaps,permutation]",
        "probe.swaps.passes=100",
        "figures=false",
        "training.epochs=2",
        "data.embedding_size=12",
        "trainer.accelerator=cpu",
        "run_dir=run",
    )
    assert printed.returncode == 0, printed.stderr
    with without_pictures():
        path = write_report(folder / "run", folder / "report.html")
    page = path.read_text(encoding="utf-8")
    (section,) = re.findall(r'(?s)<section id="sheet".*?</section>', page)
    text = unescape(re.sub(r"<[^>]+>", " ", section))
    words = " ".join(text.split())
    words_printed = " ".join(printed.stdout.split())
    return folder / "run", words_printed, words, page


def test_terminal_and_page_say_every_sentence_of_the_sheet(command):
    directory, printed, shown, page = command
    run = read_run(directory)
    (group,) = grouped([run])
    sheet = sheet_of(group, card_of_run(run))
    assert " ".join(" ".join(answer_lines(sheet)).split()) in printed
    assert f"<title>{sheet.title}</title>" in page
    assert [entry.heading for entry in sheet.entries][:7] == [
        "model",
        "data",
        "accuracy",
        "question",
        "answer",
        "means",
        "to do",
    ]
    for entry in sheet.entries:
        assert " ".join(entry.text.split()) in printed
        text = entry.text
        if entry.heading == "answer":  # the chip stands apart
            text = card_of_run(run).sentence
        assert text in shown, entry.heading
    assert QUESTION in shown


def test_the_file_is_named_with_its_digest_and_the_rows_that_were_left_out(command):
    directory, _, shown, _ = command
    assert re.search(r"reviews\.csv \(sha256 [0-9a-f]{12}\), column review, labels in stars", shown)
    assert re.search(r"504 of 505 rows used, \d+ of them to test\. 2 classes: dull, good", shown)
    assert str(directory.parent) not in shown


def test_the_answer_is_divided_by_class_and_by_the_column_that_was_named(command):
    """Sizes and right decisions as counted by hand; a part's share is that of its texts."""
    directory, _, _, page = command
    (group,) = grouped([read_run(directory)])
    by_class, by_region = slices_of(group)
    examples = read_examples(directory)
    distinct = examples[~examples["tokens"].map(tuple).duplicated()]
    assert {row.name: row.texts for row in by_class.rows} == {
        name: int((distinct["prediction"] == number).sum())
        for number, name in enumerate(("dull", "good"))
    }
    assert by_region.by == "region"
    shown = {row.name for row in by_region.rows}
    assert shown <= {"north", "south"}
    for row in by_region.rows:
        part = distinct[distinct["slice"] == row.name]
        assert row.texts == len(part)
        assert row.right.value == (part["label"] == part["prediction"]).mean()
    (note,) = by_region.notes
    assert note.startswith("Not asked, with fewer than 10 test texts: ")
    section = re.search(r'(?s)<section id="parts".*?</section>', page)[0]
    assert "By region" in section
    assert note in unescape(section)
