import io

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnprobe.core.errors import UserError
from attnprobe.core.sanitise import spreadsheet_cell, visible
from attnprobe.findings.headlines import compare
from attnprobe.report.tables import Table, csv_table, latex_table
from attnprobe.report.terminal import data_notes, print_summary

EVIL = [
    "\x1b[31mred",
    "\x1b]0;title\x07",
    "\x9b31m",
    "\u202eolleh",
    "\u2066a\u2069",
    "a\u2028b",
    "a\u2029b",
    "\x00",
]
FORMULAS = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"]


@pytest.mark.parametrize("text", [*EVIL, "\ud800"])
def test_hidden_characters_are_shown_as_escapes(text):
    assert visible(text).isprintable()
    assert "\\" in visible(text)
    assert str(UserError(f"data.text={text}: no such column")).isprintable()


@given(st.text())
def test_what_is_visible_is_printed_as_it_is(text):
    assert all(
        character.isprintable()
        or character in "\u200c\u200d"
        or character.isspace()
        or not character.isascii()
        for character in visible(text)
    )
    if text.isprintable():
        assert visible(text) == text


@pytest.mark.parametrize("text", [*EVIL, *FORMULAS])
def test_no_csv_cell_is_run_or_hides_anything(text, tmp_path):
    rows = pd.DataFrame(
        {
            "data": [text, "plain"],
            "value": [-0.5, 2.0],
            text: ["a", "b"],
        }
    )
    file = Table("table", "A caption", rows).write(tmp_path)[0]
    written = file.read_text(encoding="utf-8")
    assert all(line.isprintable() for line in written.split("\n"))
    back = pd.read_csv(file)
    assert back["value"].tolist() == [-0.5, 2.0]  # numbers are untouched
    for cell in [*back["data"], *back.columns]:
        assert not str(cell).startswith(("=", "+", "-", "@", "\t", "\r"))


def test_an_apostrophe_stands_before_formulas_alone():
    cells = ["=a", "a=", 3, None]
    assert [spreadsheet_cell(cell) for cell in cells] == ["'=a", "a=", 3, None]
    assert csv_table(pd.DataFrame({"n": [-1], "t": ["-1"]})) == "n,t\n-1,'-1\n"


@pytest.mark.parametrize("text", EVIL)
def test_latex_shows_hidden_characters(text):
    table = latex_table(pd.DataFrame({"data": [text]}), "Caption", "label")
    assert table.replace("\n", "").isprintable()


def test_the_summary_on_the_terminal_shows_hidden_characters(tmp_path):
    stream = io.StringIO()
    name = "\x1b]0;title\x07data"
    rows = pd.DataFrame(
        {
            "run_id": "r",
            "experiment": "default",
            "data": name,
            "model": "m",
            "seed": 0,
            "split": "test",
            "probe": "performance",
            "metric": "accuracy",
            "example_id": -1,
            "step": float("nan"),
            "value": [0.5],
        }
    )
    print_summary(compare(rows), directory=f"runs/{name}", stream=stream)
    assert "\x1b" not in stream.getvalue()
    assert "\x07" not in stream.getvalue()
    assert "\\x1b]0;title" in stream.getvalue()
    assert data_notes({"test": {"loaded": 9, "dropped": {f"filter {name}": 2}}})[0].isprintable()
