"""Tables as docs/ has them, and the generated parts of its pages."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import pandas as pd

from attnprobe.core.errors import UserError
from attnprobe.results.files import write_text


def markdown(table: pd.DataFrame) -> str:
    """The table without its index, in Markdown."""
    rows = [list(table), *table.to_numpy().tolist()]
    lines = [f"| {' | '.join(map(str, row))} |" for row in rows]
    lines.insert(1, "|" + "---|" * table.shape[1])
    return "\n".join(lines)


def percent(share: float, low: float, high: float) -> str:
    """A share with its interval, such as `95 % [83, 99]`.

    Args:
        share: 0 to 1.
        low: lower end of the interval, 0 to 1.
        high: upper end.
    """
    return f"{100 * share:.0f} % [{100 * low:.0f}, {100 * high:.0f}]"


def put_between_markers(page: Path, parts: Mapping[str, str]) -> None:
    """Replace generated parts of a page (`with_part`): all of them, or none.

    Args:
        page: that has them.
        parts: name of each → its content.

    Raises:
        UserError: there is no such page, or it lacks one of the parts or has it twice.
    """
    write_text(page_with(page, parts), page)


def require_parts(page: Path, names: Iterable[str]) -> None:
    """Refuse a page before the work that is to be written into it begins.

    Raises:
        UserError: as `put_between_markers`.
    """
    page_with(page, dict.fromkeys(names, ""))


def page_with(page: Path, parts: Mapping[str, str]) -> str:
    """The text of a page with some of its generated parts written anew.

    Raises:
        UserError: as `put_between_markers`.
    """
    if not page.is_file():
        raise UserError(f"{page}: there is no such page: expected a file that has the parts")
    text = page.read_text(encoding="utf-8")
    for name, content in parts.items():
        text = with_part(text, name, content, page)
    return text


def with_part(text: str, name: str, content: str, page: Path | str = "the page") -> str:
    """A page with one of its generated parts written anew.

    The part stands between `<!-- NAME -->` and `<!-- end of NAME -->`; of a name such as
    `record: headline` the end says what is before the colon.

    Args:
        text: of the page, in Markdown.
        name: of the part.
        content: that stands there from now on.
        page: what an error calls it.

    Raises:
        UserError: the page has no such part, or several.
    """
    start = f"<!-- {name} -->"
    end = f"<!-- end of {name.partition(':')[0]} -->"
    part = f"{start}\n\n{content}\n\n{end}"
    pattern = f"{re.escape(start)}\n.*?{re.escape(end)}"
    replaced, count = re.subn(pattern, lambda _: part, text, flags=re.DOTALL)
    if count != 1:
        raise UserError(f"{page} has {count} parts {start} … {end}: expected one")
    return replaced
