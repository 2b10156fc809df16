"""Tables as docs/ has them, and the generated parts of its pages."""

import re
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


def put_between_markers(page: Path, name: str, content: str) -> None:
    """Replace a generated part of a page (`with_part`).

    Raises:
        UserError: the page has no such part, or several.
    """
    text = with_part(page.read_text(encoding="utf-8"), name, content, page)
    write_text(text, page)


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
