import re
import shutil
import subprocess

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

from attnprobe.evidence.claims import CRITERIA
from attnprobe.findings.headlines import compare
from attnprobe.findings.judgement import Findings
from attnprobe.report.tables import all_tables, latex, latex_table, write_paper, write_tables
from attnprobe.results.numbers import numbers_of
from attnprobe.results.table import read_results
from tests.probes.tables import NAN, erased, table


def tables(results):
    numbers = numbers_of(results)
    nothing = Findings(())
    return {table.name: table.rows for table in all_tables(numbers, compare(numbers), nothing)}


def test_files_of_a_run(make_run, tmp_path):
    run = make_run(data="sst", model="lstm_additive")
    files = write_tables(run, tmp_path / "tables")
    names = ["headlines", "findings", "published", "verdicts"]
    assert [file.name for file in files] == [
        f"{name}.{kind}" for name in names for kind in ("csv", "tex")
    ]
    headlines = pd.read_csv(files[0])
    expected = compare(read_results(run))
    assert_allclose(headlines["mean"], expected["mean"], rtol=1e-12)
    published = pd.read_csv(files[4])
    assert len(published) == expected["published"].notna().sum() > 0
    row = published.set_index(["title", "group"]).loc[("accuracy", "overall")]
    assert row["difference"] == pytest.approx(row["mean"] - row["published"])
    findings = pd.read_csv(files[2])
    assert set(findings["criterion"]) <= set(CRITERIA)
    assert {"meets", "fails", "cannot decide"} >= set(findings["interval_verdict"])
    assert (
        findings["interval_verdict"].eq("meets") == (findings["low"] > findings["threshold"])
    ).all()
    assert "\\label{tab:findings}" in files[3].read_text(encoding="utf-8")


def test_latex_by_hand():
    rows = pd.DataFrame(
        {
            "a_b": ["50 % & $x$", "#1 {y}\n\\z~^"],
            "n": [3, 1200],
            "v": [-0.12345, NAN],
            "m": ["τ", 0.5],
        }
    )
    lines = latex_table(rows, "C & D", "name").splitlines()
    assert lines == [
        "\\begin{table}",
        "\\caption{C \\& D}",
        "\\label{tab:name}",
        "\\begin{tabular}{lrrl}",
        "\\toprule",
        "a\\_b & n & v & m \\\\",
        "\\midrule",
        "50 \\% \\& \\$x\\$ & 3 & $-$0.123 & $\\tau$ \\\\",
        "\\#1 \\{y\\} \\textbackslash{}z\\textasciitilde{}\\textasciicircum{} "
        "& 1200 & -- & 0.500 \\\\",
        "\\bottomrule",
        "\\end{tabular}",
        "\\end{table}",
    ]


def test_no_command_of_latex_survives_in_words():
    printed = re.sub(
        r"\$[^$\\]\$|\\textbackslash\{\}|\\textascii\w+\{\}",
        "",
        latex("".join(map(chr, range(32, 127)))),
    )
    assert not re.search(r"(?<!\\)[&%$#_{}]|[\\~^<>|](?![&%$#_{}])", printed)
    assert latex("\\") == "\\textbackslash{}"


COUNTS = {
    "attention": [4, 8, NAN, NAN] * 5,
    "random": [8, NAN, NAN, NAN] * 5,
    "optimal": [2, 2, 2, NAN] * 5,
}


def test_rankings_by_hand():
    metrics = erased(np.full(20, 16), **COUNTS)
    rows = tables(table("erasure", metrics))["erasure_rankings"].set_index("ranking")
    assert list(rows.index) == ["random", "attention", "optimal"]
    attention = rows.loc["attention"]
    assert (attention["n"], attention["it flips"]) == (15, 10)
    assert attention["share removed where it flips"] == pytest.approx(6 / 16)
    assert attention["share removed"] == pytest.approx((4 + 8 + 16) / 3 / 16)
    assert (
        attention["share removed, low"]
        < attention["share removed"]
        < attention["share removed, high"]
    )
    assert attention["regret"] == pytest.approx((2 + 6) / 2)
    assert rows.loc["optimal", ["share removed", "regret"]].tolist() == [2 / 16, 0]
    rows = tables(table("erasure", metrics))["erasure_pairs"]
    pair = rows.set_index(["ranking", "against"]).loc[("attention", "random")]
    assert pair["needs fewer"] == 0.5
    assert pair["tie"] == 0
    assert pair["neither flips"] == 0.5
    assert pair["n"] == 20


def test_flips_stand_beside_each_other_by_what_chose_the_item():
    metrics = {
        f"flip_{kind}_{top}": [1, 0, 0, NAN]
        for kind in ("top", "random")
        for top in ("attention", "gradient")
    }
    results = pd.concat(
        [table("single_weight", metrics), table("single_weight", metrics, model="flat")]
    )
    rows = tables(results)["single_weight_flips"]
    assert rows["top by"].tolist() == ["attention", "gradient"] * 2
    assert rows["both"].tolist() == pytest.approx([1 / 3] * 4)
    assert rows["n"].tolist() == [3] * 4


INNER = r"\hangindent=1em\quad "
ROW = {
    "metric": "median_tvd",
    "data": "sst_2",
    "model": "lstm",
    "seed": 0,
    "title": "  median TVD, τ ≥ −1 & 50 %",
    "group": "overall",
    "n": 60,
    "mean": -0.5,
    "low": -0.75,
    "high": 0.25,
    "published": float("nan"),
}
ROWS = (
    {"probe": "permutation", "published": 0.125},
    {"probe": "permutation", "group": "predicted 1"},
    {"probe": "erasure", "data": "<b>$x$ \\input{/etc/passwd}", "model": "映画 кино 👍 été"},
    {"probe": "skill", "mean": 0.25},
    {"probe": "skill", "mean": 0.75, "seed": 1},
)


def written(rows, folder):
    return [
        path.read_text(encoding="utf-8")
        for path in write_paper(pd.DataFrame([ROW | changes for changes in rows]), folder)
    ]


def test_one_table_per_paper_with_n_intervals_and_seeds(tmp_path):
    (text,) = written(ROWS, tmp_path)
    captions = re.findall(r"\\caption\{(.*?)[.(]", text)
    assert captions == [
        "The tests of Jain and Wallace ",
        "The tests of Serrano and Smith ",
        "Numbers of this work",
    ]
    title = rf"{INNER}median TVD, $\tau$ $\geq$ $-$1 \& 50 \%"
    assert rf"{title} & sst\_2, lstm & 60 & $-$0.500 [$-$0.750, 0.250] & 0.125 \\" in text
    assert r"& 120 & 0.500 (0.250 to 0.750) &" in text
    assert "predicted 1" not in text
    assert r"[U+6620][U+753B] [U+043A]" in text
    assert r"\textbackslash{}input\{/etc/passwd\}" in text
    begun, ended = (re.findall(rf"\\{side}\{{(\w+)\}}", text) for side in ("begin", "end"))
    assert sorted(begun) == sorted(ended)
    assert len(begun) == 4
    assert written([{"probe": "permutation", "group": "predicted 0"}], tmp_path) == []


def test_two_numbers_of_one_title_stay_two(tmp_path):
    """Every pair of importances has its standard deviation; none is taken for another seed of the
    first."""
    (text,) = written(
        [
            {"probe": "correlation", "metric": f"tau_{name}{end}", "title": title, "mean": mean}
            for name, mean in (("gradient", 0.25), ("leave_one_out", 0.75))
            for end, title in (("", f"tau(attention, {name})"), ("_std", "  standard deviation"))
        ],
        tmp_path,
    )
    assert re.findall(r"^(.*?) & .*? & 60 & (0\.\d+)", text, re.M) == [
        ("tau(attention, gradient)", "0.250"),
        (f"{INNER}standard deviation", "0.250"),
        (r"tau(attention, leave\_one\_out)", "0.750"),
        (f"{INNER}standard deviation", "0.750"),
    ]


@pytest.mark.skipif(
    shutil.which("pdflatex") is None,
    reason="no pdflatex: apt-get install texlive-latex-recommended",
)
def test_a_real_latex_compiles_it(tmp_path):
    written(ROWS, tmp_path)
    command = [
        "pdflatex",
        "-interaction=nonstopmode",
        "-halt-on-error",
        "-no-shell-escape",
        "paper.tex",
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace")
    assert done.returncode == 0, done.stdout[-3000:]
    assert (tmp_path / "paper.pdf").stat().st_size > 10_000
    assert "Undefined control sequence" not in done.stdout
