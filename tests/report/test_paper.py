"""paper.tex, compiled by a real LaTeX where there is one."""

import re
import shutil
import subprocess

import pandas as pd
import pytest

from attnprobe.report.tables import write_paper

INNER = r"\hangindent=1em\quad "
"""What stands before the title of a number that belongs to the one above it."""
ROW = {
    "metric": "median_tvd", "data": "sst_2", "model": "lstm", "seed": 0, "title": "  median TVD, τ ≥ −1 & 50 %",
    "group": "overall", "n": 60, "mean": -0.5, "low": -0.75, "high": 0.25, "published": float("nan"),
}  # fmt: skip
ROWS = (
    {"probe": "permutation", "published": 0.125}, {"probe": "permutation", "group": "predicted 1"},
    {"probe": "erasure", "data": "<b>$x$ \\input{/etc/passwd}", "model": "映画 кино 👍 été"},
    {"probe": "skill", "mean": 0.25}, {"probe": "skill", "mean": 0.75, "seed": 1},
)  # fmt: skip
"""Numbers of two papers and one of ours, of names that LaTeX would stumble over."""


def written(rows, folder):
    return [path.read_text(encoding="utf-8") for path in write_paper(pd.DataFrame([ROW | one for one in rows]), folder)]


def test_one_table_per_paper_with_n_intervals_and_seeds(tmp_path):
    (text,) = written(ROWS, tmp_path)
    captions = re.findall(r"\\caption\{(.*?)[.(]", text)
    assert captions == ["The tests of Jain and Wallace ", "The tests of Serrano and Smith ", "Numbers of this work"]
    line = (
        rf"{INNER}median TVD, $\tau$ $\geq$ $-$1 \& 50 \% & sst\_2, lstm & 60 & $-$0.500 [$-$0.750, 0.250] & 0.125 \\"
    )
    assert line in text
    assert r"& 120 & 0.500 (0.250 to 0.750) &" in text
    assert "predicted 1" not in text
    assert r"[U+6620][U+753B] [U+043A]" in text
    assert r"\textbackslash{}input\{/etc/passwd\}" in text
    begun, ended = (re.findall(rf"\\{side}\{{(\w+)\}}", text) for side in ("begin", "end"))
    assert sorted(begun) == sorted(ended)
    assert len(begun) == 4
    assert written([{"probe": "permutation", "group": "predicted 0"}], tmp_path) == []


def test_two_numbers_of_one_title_stay_two(tmp_path):
    """Every pair of importances has its standard deviation; none is taken for another seed of the first."""
    (text,) = written(
        [
            {"probe": "correlation", "metric": f"tau_{name}{end}", "title": title, "mean": mean}
            for name, mean in (("gradient", 0.25), ("leave_one_out", 0.75))
            for end, title in (("", f"tau(attention, {name})"), ("_std", "  standard deviation"))
        ],
        tmp_path,
    )
    assert re.findall(r"^(.*?) & .*? & 60 & (0\.\d+)", text, re.M) == [
        ("tau(attention, gradient)", "0.250"), (f"{INNER}standard deviation", "0.250"),
        (r"tau(attention, leave\_one\_out)", "0.750"), (f"{INNER}standard deviation", "0.750"),
    ]  # fmt: skip


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no pdflatex: apt-get install texlive-latex-recommended")
def test_a_real_latex_compiles_it(tmp_path):
    written(ROWS, tmp_path)
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "paper.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace")
    assert done.returncode == 0, done.stdout[-3000:]
    assert (tmp_path / "paper.pdf").stat().st_size > 10_000
    assert "Undefined control sequence" not in done.stdout
