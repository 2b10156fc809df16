"""What README and docs say of the record, written from the shipped rows and by nobody's hand."""

import re
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from attnprobe.core.errors import UserError
from attnprobe.results.files import write_text
from research.markdown import markdown, with_part
from research.words.tables import headline, tables_of

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("README.md", "docs/concepts.md", "docs/results/calibration.md")
"""Pages with parts that are written here."""
PART = re.compile(r"<!-- (record: ([\w, ]+)) -->")
"""The comment before a part, which says which one."""
EMPTY = "*Not measured for this version.*"


def parts_of(table: pa.Table) -> dict[str, str]:
    """Name of a part → its Markdown."""
    parts = {
        name: markdown(rows) if len(rows) else EMPTY for name, rows in tables_of(table).items()
    }
    return parts | {"headline": headline(table)}


def with_parts(text: str, parts: Mapping[str, str]) -> str:
    """A page with its parts written anew.

    Raises:
        UserError: the page has a part that does not exist, or one twice.
    """
    for marker, name in PART.findall(text):
        if name not in parts:
            raise UserError(f"{marker}: expected one of {', '.join(parts)}")
        text = with_part(text, marker, parts[name])
    return text


def write_pages(table: pa.Table, root: Path = ROOT) -> None:
    """Write the parts of all pages."""
    parts = parts_of(table)
    for page in PAGES:
        path = root / page
        write_text(with_parts(path.read_text(encoding="utf-8"), parts), path)
