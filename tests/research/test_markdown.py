import pandas as pd
import pytest

from attnprobe.core.errors import UserError
from research.markdown import markdown, put_between_markers, require_parts


def test_a_table_has_a_line_per_row():
    table = pd.DataFrame({"model": ["lstm", "cnn"], "texts": [3, 4]})
    assert markdown(table) == "| model | texts |\n|---|---|\n| lstm | 3 |\n| cnn | 4 |"


def test_a_part_replaces_the_one_before(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- null -->\nold\n<!-- end of null -->\nb\n")
    put_between_markers(page, {"null": "new"})
    put_between_markers(page, {"null": r"new \1"})
    assert page.read_text() == "a\n<!-- null -->\n\nnew \\1\n\n<!-- end of null -->\nb\n"


@pytest.mark.parametrize(
    ("content", "count"),
    [
        ("", 0),
        ("<!-- null -->\nwithout an end\n", 0),
        (2 * "<!-- x -->\n<!-- end of x -->\n", 0),
    ],
    ids=["nothing", "no end", "another part"],
)
def test_a_page_without_the_part_is_refused(tmp_path, content, count):
    page = tmp_path / "page.md"
    page.write_text(content)
    with pytest.raises(UserError, match=rf"has {count} parts <!-- null -->.*: expected one"):
        put_between_markers(page, {"null": "new"})
    assert page.read_text() == content


def test_a_part_that_stands_twice_is_refused(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(2 * "<!-- null -->\n<!-- end of null -->\n")
    with pytest.raises(UserError, match="has 2 parts"):
        put_between_markers(page, {"null": "new"})


def test_a_page_is_written_with_all_of_its_parts_or_not_at_all(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("<!-- null -->\nold\n<!-- end of null -->\n")
    with pytest.raises(UserError, match="has 0 parts <!-- cells -->"):
        put_between_markers(page, {"null": "new", "cells": "new"})
    assert "old" in page.read_text()
    with pytest.raises(UserError, match=r"nowhere\.md: there is no such page"):
        put_between_markers(tmp_path / "nowhere.md", {"null": "new"})


def test_a_page_that_lacks_a_part_is_refused_before_the_work_begins(tmp_path):
    page = tmp_path / "page.md"
    content = "<!-- null -->\nold\n<!-- end of null -->\n"
    page.write_text(content)
    require_parts(page, ["null"])
    assert page.read_text() == content
    with pytest.raises(UserError, match="has 0 parts <!-- cells -->"):
        require_parts(page, ["null", "cells"])
    with pytest.raises(UserError, match=r"nowhere\.md: there is no such page"):
        require_parts(tmp_path / "nowhere.md", ["null"])
