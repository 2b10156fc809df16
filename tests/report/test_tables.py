import re

import numpy as np
import pandas as pd
import pytest

from attnprobe.evidence.claims import CRITERIA
from attnprobe.evidence.published import compare
from attnprobe.findings.table import COLUMNS
from attnprobe.report.tables import all_tables, latex, latex_table, write_tables
from attnprobe.results.numbers import numbers_of
from attnprobe.results.table import read_results
from tests.probes.tables import NAN, erased, table


def tables(results):
    numbers = numbers_of(results)
    nothing = pd.DataFrame(columns=COLUMNS).astype({"primary": bool})
    return {table.name: table.rows for table in all_tables(numbers, compare(numbers), nothing)}


def test_files_of_a_run(make_run, tmp_path):
    run = make_run(data="sst", model="lstm_additive")
    files = write_tables(run, tmp_path / "tables")
    names = ["headlines", "findings", "published", "verdicts"]
    assert [file.name for file in files] == [f"{name}.{kind}" for name in names for kind in ("csv", "tex")]
    headlines = pd.read_csv(files[0])
    expected = compare(read_results(run))
    assert headlines["mean"].tolist() == expected["mean"].tolist()
    published = pd.read_csv(files[4])
    assert len(published) == expected["published"].notna().sum() > 0
    row = published.set_index(["title", "group"]).loc[("accuracy", "overall")]
    assert row["difference"] == pytest.approx(row["mean"] - row["published"])
    findings = pd.read_csv(files[2])
    assert set(findings["criterion"]) <= set(CRITERIA)
    assert {"meets", "fails", "cannot decide"} >= set(findings["interval_verdict"])
    assert (findings["interval_verdict"].eq("meets") == (findings["low"] > findings["threshold"])).all()
    assert "\\label{tab:findings}" in files[3].read_text(encoding="utf-8")


def test_latex_by_hand():
    rows = pd.DataFrame({"a_b": ["50 % & $x$", "#1 {y}\n\\z~^"], "n": [3, 1200], "v": [-0.12345, NAN], "m": ["τ", 0.5]})
    lines = latex_table(rows, "C & D", "name").splitlines()
    assert lines == [
        "\\begin{table}", "\\caption{C \\& D}", "\\label{tab:name}", "\\begin{tabular}{lrrl}", "\\toprule",
        "a\\_b & n & v & m \\\\", "\\midrule",
        "50 \\% \\& \\$x\\$ & 3 & $-$0.123 & $\\tau$ \\\\",
        "\\#1 \\{y\\} \\textbackslash{}z\\textasciitilde{}\\textasciicircum{} & 1200 & -- & 0.500 \\\\",
        "\\bottomrule", "\\end{tabular}", "\\end{table}",
    ]  # fmt: skip


def test_no_command_of_latex_survives_in_words():
    printed = re.sub(r"\$[^$\\]\$|\\textbackslash\{\}|\\textascii\w+\{\}", "", latex("".join(map(chr, range(32, 127)))))
    assert not re.search(r"(?<!\\)[&%$#_{}]|[\\~^<>|](?![&%$#_{}])", printed)
    assert latex("\\") == "\\textbackslash{}"


def test_every_cell_has_its_column(make_run, tmp_path):
    files = write_tables(make_run(data="a & b", model="x_y"), tmp_path / "tables")
    for file in files[1::2]:
        body = file.read_text(encoding="utf-8").split("\\toprule")[1].split("\\bottomrule")[0]
        lines = [line for line in body.splitlines() if line.endswith("\\\\")]
        columns = len(pd.read_csv(file.with_suffix(".csv")).columns)
        assert {len(re.split(r"(?<!\\)&", line)) for line in lines} == {columns}
    assert "a \\& b & x\\_y" in (tmp_path / "tables/headlines.tex").read_text(encoding="utf-8")


COUNTS = {"attention": [4, 8, NAN, NAN] * 5, "random": [8, NAN, NAN, NAN] * 5, "optimal": [2, 2, 2, NAN] * 5}


def test_rankings_by_hand():
    metrics = erased(np.full(20, 16), **COUNTS)
    rows = tables(table("erasure", metrics))["erasure_rankings"].set_index("ranking")
    assert list(rows.index) == ["random", "attention", "optimal"]
    attention = rows.loc["attention"]
    assert (attention["n"], attention["it flips"]) == (15, 10)
    assert attention["share removed where it flips"] == pytest.approx(6 / 16)
    assert attention["share removed"] == pytest.approx((4 + 8 + 16) / 3 / 16)
    assert attention["share removed, low"] < attention["share removed"] < attention["share removed, high"]
    assert attention["regret"] == pytest.approx((2 + 6) / 2)
    assert rows.loc["optimal", ["share removed", "regret"]].tolist() == [2 / 16, 0]
    rows = tables(table("erasure", metrics))["erasure_pairs"]
    pair = rows.set_index(["ranking", "against"]).loc[("attention", "random")]
    assert (pair["needs fewer"], pair["tie"], pair["neither flips"], pair["n"]) == (0.5, 0, 0.5, 20)


def test_flips_stand_beside_each_other_by_what_chose_the_item():
    metrics = {f"flip_{kind}_{top}": [1, 0, 0, NAN] for kind in ("top", "random") for top in ("attention", "gradient")}
    results = pd.concat([table("single_weight", metrics), table("single_weight", metrics, model="flat")])
    rows = tables(results)["single_weight_flips"]
    assert rows["top by"].tolist() == ["attention", "gradient"] * 2
    assert rows["both"].tolist() == pytest.approx([1 / 3] * 4)
    assert rows["n"].tolist() == [3] * 4
