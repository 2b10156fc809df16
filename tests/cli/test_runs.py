import hashlib
import re
import zipfile

import numpy as np
import pandas as pd
import pytest
from scipy.spatial.distance import jensenshannon

from attnprobe.cli.conditions import names_in
from attnprobe.cli.main import main
from attnprobe.findings.changes import compare_runs, run_at
from attnprobe.findings.headlines import headline
from attnprobe.findings.stored import card_of_run
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


def test_changes_are_paired_by_text(runs):
    changes = compare_runs(*map(run_at, runs))
    assert (changes.shared, changes.first_only, changes.second_only) == (30, 0, 0)
    numbers = changes.numbers.set_index("metric")
    tables = [read_results(one) for one in runs]
    rows = [
        table[(table["metric"] == "median_tvd") & (table["example_id"] >= 0)] for table in tables
    ]
    tvd = [table.set_index("example_id")["value"] for table in rows]
    change = numbers.loc["median_tvd"]
    assert change["change"] == pytest.approx((tvd[1] - tvd[0]).mean())
    assert change["low"] <= change["change"] <= change["high"]
    assert change["first"] == pytest.approx(headline(tables[0])["permutation/median_tvd"])
    examples = [read_examples(one).set_index("example_id") for one in runs]
    right = [(table["prediction"] == table["label"]).mean() for table in examples]
    assert numbers.loc["correct", "change"] == pytest.approx(right[1] - right[0])
    for row in changes.examples.head(5).to_dict("records"):
        a, b = (table.loc[row["example_id"], "attention"] for table in examples)
        assert row["attention"] == pytest.approx(np.nan_to_num(jensenshannon(a, b)) ** 2)
        assert (
            row["first"]
            == ["negative", "positive"][examples[0].loc[row["example_id"], "prediction"]]
        )
    other = changes.examples["first"] != changes.examples["second"]
    assert changes.flipped == other.sum()
    assert other.iloc[: changes.flipped].all()


def test_compare_on_the_command_line(runs, tmp_path, capsys):
    main(
        [
            "compare",
            *map(str, runs),
            "-o",
            str(tmp_path / "out"),
            "--fail-if",
            "change.correct < -1.5",
        ]
    )
    shown = capsys.readouterr().out
    assert [line.split(";")[0] for line in shown.splitlines()[:2]] == [
        f"A: {runs[0]}",
        f"B: {runs[1]}",
    ]
    assert "texts in both: 30; another prediction for " in shown
    assert "passed: none of 1 condition holds" in shown
    assert re.search(
        r"\| exclusivity +\| +\D+ 0\.\d{3} \|", shown
    )  # the verdict and the number that it goes by
    numbers = pd.read_csv(tmp_path / "out" / "numbers.csv")
    more = int(re.search(r"(\d+) more numbers: --all shows them", shown)[1])
    assert 0 < more < len(numbers)
    main(["compare", *map(str, runs), "--all"])
    everything = capsys.readouterr().out
    assert "more numbers" not in everything
    assert len(everything.splitlines()) - len(shown.splitlines()) >= more - 4
    assert set(pd.read_csv(tmp_path / "out" / "numbers.csv")["metric"]) >= {"correct", "median_tvd"}
    assert len(pd.read_csv(tmp_path / "out" / "examples.csv")) == 30
    with pytest.raises(SystemExit) as ended:
        main(["compare", *map(str, runs), "--no-text", "--fail-if", "first.accuracy <= 1"])
    assert ended.value.code == 3
    words = read_examples(runs[0])["tokens"].iloc[0]
    assert " ".join(words) not in capsys.readouterr().out


def test_mistakes_in_compare_are_one_line(runs, tmp_path, capsys):
    for first, second, message in (
        (str(tmp_path / "none"), str(runs[0]), "does not exist"),
        (str(runs[0].parent), str(runs[0]), "holds 2 finished runs"),
        (str(runs[0]), str(runs[1]) + "x", "no finished run"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(["compare", first, second])
        assert ended.value.code == 2
        assert message in capsys.readouterr().err
    other = run(small_run(tmp_path, "model=average", "data.source.seed=9"))
    with pytest.raises(SystemExit):
        main(["compare", str(runs[0]), str(other)])
    assert "have no test text in common" in capsys.readouterr().err


def test_numbers_and_verdicts_by_name(runs):
    one = run_at(runs[0])
    numbers, verdicts = names_in(one, card_of_run(one))
    assert (
        numbers["permutation.median_tvd"]
        == headline(read_results(runs[0]))["permutation/median_tvd"]
    )
    assert {
        "exclusivity.permuting_moves_the_prediction",
        "exclusivity.no_other_attention_exists",
    } <= set(numbers)
    assert {name for name in verdicts if "." not in name} == {"exclusivity"}
    assert numbers["exclusivity"] == numbers["exclusivity.no_other_attention_exists"]


def test_a_page_and_its_archive(runs, tmp_path, capsys):
    page = tmp_path / "page.html"
    archive = tmp_path / "evidence.zip"
    main(["report", *map(str, runs), "-o", str(page), "--archive", str(archive)])
    assert f"archive: {archive}" in capsys.readouterr().out
    with zipfile.ZipFile(archive) as zipped:
        names = zipped.namelist()
        sums = dict(
            reversed(line.split("  ")) for line in zipped.read("SHA256SUMS").decode().splitlines()
        )
        assert set(names) == {*sums, "SHA256SUMS", "README.txt"}
        for name, digest in sums.items():
            assert hashlib.sha256(zipped.read(name)).hexdigest() == digest
        assert zipped.read("report.html") == page.read_bytes()
    for one in runs:
        tables = {f"runs/{one.name}/tables/{probe}.parquet" for probe in RunDirectory(one).probes()}
        assert {f"runs/{one.name}/manifest.json", f"runs/{one.name}/config.yaml", *tables} <= set(
            names
        )
    assert not [name for name in names if "examples/" in name or name.endswith(".safetensors")]
    first = archive.read_bytes()
    from attnprobe.report.archive import write_archive

    assert write_archive(runs, page, archive).read_bytes() == first
    with pytest.raises(SystemExit) as ended:
        main(["report", str(runs[0]), "--archive", str(tmp_path / "evidence.rar")])
    assert ended.value.code == 2
    assert "expected a name that ends in .zip" in capsys.readouterr().err


def test_explain_on_the_command_line(runs, tmp_path, capsys):
    (tmp_path / "more.txt").write_text("the film was good\n\n", encoding="utf-8")
    page = tmp_path / "explained.html"
    main(
        [
            "explain",
            str(runs[0]),
            "the xyzzy was bad",
            "--file",
            str(tmp_path / "more.txt"),
            "--html",
            str(page),
        ]
    )
    shown = capsys.readouterr().out
    assert shown.count("text: ") == 2
    assert re.search(r"predicted: (negative|positive) 0\.\d{3}", shown)
    assert "xyzzy* 0." in shown
    assert "* unknown to the model" in shown
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert "default-src 'none'" in page.read_text(encoding="utf-8")
    for arguments, message in (
        (["nowhere", "text"], "nowhere"),
        ([str(runs[0])], "no text: give some in quotes"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(["explain", *arguments])
        assert ended.value.code == 2
        assert message in capsys.readouterr().err
