import errno
import hashlib
import re
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.spatial.distance import jensenshannon

from attnprobe.cli.compare import show_examples
from attnprobe.cli.conditions import names_in
from attnprobe.cli.main import main
from attnprobe.findings.changes import compare_runs, run_at
from attnprobe.findings.headlines import headline
from attnprobe.findings.stored import card_of_run
from attnprobe.report.archive import write_archive
from attnprobe.results.directory import RunDirectory
from attnprobe.results.table import read_examples, read_results
from attnprobe.runs.run import run
from tests.small_runs import small_run


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two seeds of one model on the same texts."""
    output = tmp_path_factory.mktemp("runs")
    settings = ("model=average", "training.epochs=3", "probe.adversarial.restarts=0")
    probes = "[permutation,adversarial]"
    return [run(small_run(output, f"seed={seed}", *settings, probes=probes)) for seed in (0, 1)]


@pytest.fixture(scope="module")
def changes(runs):
    """What changed between the two."""
    first, second = runs
    return compare_runs(run_at(first), run_at(second))


def test_both_runs_have_the_same_texts(changes):
    assert changes.shared == 30
    assert changes.first_only == 0
    assert changes.second_only == 0


def test_changes_are_paired_by_text(runs, changes):
    values = []
    for directory in runs:
        table = read_results(directory)
        rows = table[(table["metric"] == "median_tvd") & (table["example_id"] >= 0)]
        values.append(rows.set_index("example_id")["value"])
    before, after = values
    change = changes.numbers.set_index("metric").loc["median_tvd"]
    assert change["change"] == pytest.approx((after - before).mean())
    assert change["low"] <= change["change"] <= change["high"]
    assert change["first"] == pytest.approx(
        headline(read_results(runs[0]))["permutation/median_tvd"]
    )


def test_right_decisions_are_compared(runs, changes):
    shares = []
    for directory in runs:
        examples = read_examples(directory)
        shares.append((examples["prediction"] == examples["label"]).mean())
    before, after = shares
    change = changes.numbers.set_index("metric").loc["correct", "change"]
    assert change == pytest.approx(after - before)


def test_examples_show_both_predictions_and_how_far_the_attention_moved(runs, changes):
    first, second = [read_examples(directory).set_index("example_id") for directory in runs]
    for row in changes.examples.head(5).to_dict("records"):
        example_id = row["example_id"]
        distance = jensenshannon(
            first.loc[example_id, "attention"], second.loc[example_id, "attention"]
        )
        assert row["attention"] == pytest.approx(np.nan_to_num(distance) ** 2)
        assert row["first"] == ["negative", "positive"][first.loc[example_id, "prediction"]]


def test_other_predictions_come_first(changes):
    is_flipped = changes.examples["first"] != changes.examples["second"]
    assert changes.flipped == is_flipped.sum()
    assert is_flipped.iloc[: changes.flipped].all()


def test_compare_on_the_command_line(runs, tmp_path, capsys):
    first, second = map(str, runs)
    tables = tmp_path / "out"
    main(["compare", first, second, "-o", str(tables), "--fail-if", "change.correct < -1.5"])
    output = capsys.readouterr().out
    lines = output.splitlines()
    assert f"A: {first}" in lines
    assert f"B: {second}" in lines
    assert "texts in both: 30; another prediction for " in output
    assert "passed: none of 1 condition holds" in output
    assert {len(line) for line in lines if line.startswith(("|   median TVD", "| example"))} == {80}
    assert re.search(r"\| permutation +(\| +)+\|\n\|   median TVD under", output)
    verdict_and_number = r"\| exclusivity +\| +\D+ 0\.\d{3} \|"
    assert re.search(verdict_and_number, output)

    numbers = pd.read_csv(tables / "numbers.csv")
    assert set(numbers["metric"]) >= {"correct", "median_tvd"}
    assert len(pd.read_csv(tables / "examples.csv")) == 30

    hidden = int(re.search(r"(\d+) more numbers: --all shows them", output)[1])
    assert 0 < hidden < len(numbers)
    main(["compare", first, second, "--all"])
    everything = capsys.readouterr().out
    assert "more numbers" not in everything
    assert len(everything.splitlines()) - len(lines) >= hidden - 4


def test_compare_leaves_room_for_a_text_beside_long_names_of_classes(runs, changes, capsys):
    name = "talk.politics.mideast"
    examples = changes.examples.assign(label=name, first=name, second=name)
    show_examples(replace(changes, examples=examples))
    lines = capsys.readouterr().out.splitlines()
    [first_line] = [line for line in lines if line.startswith(f"| {examples['example_id'][0]:>7} ")]
    line_of_text = first_line.split("|")[2].strip()
    assert examples["text"][0].startswith(line_of_text)
    assert line_of_text.count(" ") >= 1


def test_compare_shows_no_texts_where_none_are_wanted_and_fails_by_a_condition(runs, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["compare", *map(str, runs), "--no-text", "--fail-if", "first.accuracy <= 1"])
    assert ended.value.code == 3
    words = read_examples(runs[0])["tokens"].iloc[0]
    assert " ".join(words) not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ("{empty}/none", "{run}", "does not exist"),
        ("{parent}", "{run}", "holds 2 finished runs"),
        ("{run}", "{run}x", "no finished run"),
    ],
)
def test_mistakes_in_compare_are_one_line(runs, tmp_path, capsys, first, second, message):
    places = {"empty": tmp_path, "run": runs[0], "parent": runs[0].parent}
    with pytest.raises(SystemExit) as ended:
        main(["compare", first.format(**places), second.format(**places)])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_runs_on_other_texts_cannot_be_compared(runs, tmp_path, capsys):
    stranger = run(small_run(tmp_path, "model=average", "data.source.seed=9"))
    with pytest.raises(SystemExit):
        main(["compare", str(runs[0]), str(stranger)])
    assert "have no test text in common" in capsys.readouterr().err


def test_numbers_and_verdicts_by_name(runs):
    finished = run_at(runs[0])
    numbers, verdicts = names_in(finished, card_of_run(finished))
    median = headline(read_results(runs[0]))["permutation/median_tvd"]
    assert numbers["permutation.median_tvd"] == median
    assert "exclusivity.permuting_moves_the_prediction" in numbers
    assert numbers["exclusivity"] == numbers["exclusivity.no_other_attention_exists"]
    assert {name for name in verdicts if "." not in name} == {"exclusivity"}


@pytest.fixture(scope="module")
def page_and_archive(runs, tmp_path_factory):
    """The page about both runs, and its archive."""
    folder = tmp_path_factory.mktemp("page")
    page = folder / "page.html"
    archive = folder / "evidence.zip"
    main(["report", *map(str, runs), "-o", str(page), "--archive", str(archive)])
    return page, archive


def test_an_archive_holds_the_page_and_the_checksums_of_its_files(page_and_archive):
    page, archive = page_and_archive
    with zipfile.ZipFile(archive) as zipped:
        checksums = {}
        for line in zipped.read("SHA256SUMS").decode().splitlines():
            checksum, name = line.split("  ")
            checksums[name] = checksum
        assert set(zipped.namelist()) == {*checksums, "SHA256SUMS", "README.txt"}
        for name, checksum in checksums.items():
            assert hashlib.sha256(zipped.read(name)).hexdigest() == checksum
        assert zipped.read("report.html") == page.read_bytes()


def test_an_archive_holds_every_table_and_neither_texts_nor_weights(runs, page_and_archive):
    _, archive = page_and_archive
    with zipfile.ZipFile(archive) as zipped:
        names = zipped.namelist()
    for directory in runs:
        place = f"runs/{directory.name}"
        assert f"{place}/manifest.json" in names
        assert f"{place}/config.yaml" in names
        for probe in RunDirectory(directory).probes():
            assert f"{place}/tables/{probe}.parquet" in names
    assert not [name for name in names if "examples/" in name or name.endswith(".safetensors")]


def test_an_archive_of_the_same_runs_is_the_same_file(runs, page_and_archive):
    page, archive = page_and_archive
    content = archive.read_bytes()
    assert write_archive(runs, page, archive).read_bytes() == content


def test_report_says_where_the_archive_is(runs, tmp_path, capsys):
    archive = tmp_path / "evidence.zip"
    main(["report", str(runs[0]), "-o", str(tmp_path / "page.html"), "--archive", str(archive)])
    assert f"archive: {archive}" in capsys.readouterr().out


def test_an_archive_of_another_kind_is_refused(runs, tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["report", str(runs[0]), "--archive", str(tmp_path / "evidence.rar")])
    assert ended.value.code == 2
    assert "expected a name that ends in .zip" in capsys.readouterr().err


def test_explain_on_the_command_line(runs, tmp_path, capsys):
    texts = tmp_path / "more.txt"
    # what some programs take for the end of a line is within this one
    texts.write_text("the film\u2028was \x0c good\r\n\n", encoding="utf-8", newline="")
    page = tmp_path / "explained.html"
    options = ["--file", str(texts), "--html", str(page)]
    main(["explain", str(runs[0]), "the xyzzy was bad", *options])
    output = capsys.readouterr().out
    assert output.count("text: ") == 2
    assert re.search(r"predicted: (negative|positive) 0\.\d{3}", output)
    assert "xyzzy* 0." in output
    assert "* unknown to the model" in output
    html = page.read_text(encoding="utf-8")
    assert html.startswith("<!doctype html>")
    assert "default-src 'none'" in html


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["nowhere", "text"], "nowhere"), (["{run}"], "no text: give some in quotes")],
)
def test_mistakes_in_explain_are_one_line(runs, capsys, arguments, message):
    with pytest.raises(SystemExit) as ended:
        main(["explain", *[argument.format(run=runs[0]) for argument in arguments]])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["report", "closed"],
        ["compare", "closed", "closed"],
        ["explain", "closed", "a"],
        ["run", "data=files", "data.path=closed", "data.text=text", "data.label=label"],
    ],
)
def test_what_is_closed_to_this_user_is_one_line(capsys, monkeypatch, arguments):
    """Whoever runs the tests may be root, to whom no folder is closed."""

    exists = Path.exists

    def exists_if_open(path):
        if "closed" in path.parts:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return exists(path)

    monkeypatch.setattr(Path, "exists", exists_if_open)
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert re.search(r": closed\S*: Permission denied: ask its owner for the right to it", error)
    assert error.count("\n") == 1


def test_files_that_explain_cannot_read_are_one_line(runs, tmp_path, capsys):
    latin = tmp_path / "latin.txt"
    latin.write_text("a good film\nune soirée\n", encoding="cp1252")
    table = tmp_path / "reviews.CSV"
    table.write_text("text,stars\na good film,5\n")
    messages = {
        latin: "latin.txt: line 2 is not UTF-8, expected",
        tmp_path: "expected a file with",
        table: "reviews.CSV is a table: expected a file with a text on every line",
    }
    for path, message in messages.items():
        with pytest.raises(SystemExit) as ended:
            main(["explain", str(runs[0]), "--file", str(path)])
        assert ended.value.code == 2
        assert message in capsys.readouterr().err
