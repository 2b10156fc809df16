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


def rows(**changed):
    return ROW | changed


@pytest.fixture
def written(tmp_path):
    """A document of two papers and one number of ours, of names that LaTeX would stumble over."""
    frame = pd.DataFrame(
        [
            rows(probe="permutation", published=0.125),
            rows(probe="permutation", group="predicted 1"),
            rows(probe="erasure", data="<b>$x$ \\input{/etc/passwd}", model="映画 кино 👍 été"),
            rows(probe="skill", mean=0.25),
            rows(probe="skill", mean=0.75, seed=1),
        ]
    )
    (path,) = write_paper(frame, tmp_path)
    return path


def test_one_table_per_paper_with_n_intervals_and_seeds(written):
    text = written.read_text(encoding="utf-8")
    captions = re.findall(r"\\caption\{(.{0,40})", text)
    assert [one.split(" (")[0].split(".")[0] for one in captions] == [
        "The tests of Jain and Wallace", "The tests of Serrano and Smith", "Numbers of this work",
    ]  # fmt: skip
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


def test_two_numbers_of_one_title_stay_two(tmp_path):
    """Every pair of importances has its standard deviation; none is taken for another seed of the first."""
    frame = pd.DataFrame(
        [
            rows(probe="correlation", metric=f"tau_{name}{end}", title=title, mean=mean)
            for name, mean in (("gradient", 0.25), ("leave_one_out", 0.75))
            for end, title in (("", f"tau(attention, {name})"), ("_std", "  standard deviation"))
        ]
    )
    text = write_paper(frame, tmp_path)[0].read_text(encoding="utf-8")
    numbers = re.findall(r"^(.*?) & .*? & 60 & (0\.\d+)", text, re.M)
    assert numbers == [
        ("tau(attention, gradient)", "0.250"), (f"{INNER}standard deviation", "0.250"),
        (r"tau(attention, leave\_one\_out)", "0.750"), (f"{INNER}standard deviation", "0.750"),
    ]  # fmt: skip


def test_a_real_latex_compiles_it(written):
    if shutil.which("pdflatex") is None:
        pytest.skip("no pdflatex: apt-get install texlive-latex-recommended")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", written.name]
    done = subprocess.run(command, cwd=written.parent, capture_output=True, text=True, errors="replace")
    assert done.returncode == 0, done.stdout[-3000:]
    assert written.with_suffix(".pdf").stat().st_size > 10_000
    assert "Undefined control sequence" not in done.stdout


def test_no_number_no_document(tmp_path):
    assert write_paper(pd.DataFrame([rows(probe="permutation", group="predicted 0")]), tmp_path) == []
