"""Generated parts of pages: between `<!-- NAME -->` and `<!-- end of NAME -->`."""

import re
from pathlib import Path

from attnprobe.core.errors import UserError
from attnprobe.results.files import write_text


def put_between_markers(page: Path, name: str, content: str) -> None:
    """Replace a generated part of a page.

    Args:
        page: in Markdown.
        name: of the part.
        content: that stands there from now on.

    Raises:
        UserError: the page has no such part.
    """
    text = page.read_text(encoding="utf-8")
    pattern = rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)"
    replaced, count = re.subn(
        pattern, lambda match: match[1] + content + "\n" + match[2], text, flags=re.DOTALL
    )
    if count != 1:
        raise UserError(
            f"{page} has {count} parts <!-- {name} --> … <!-- end of {name} -->: expected one"
        )
    write_text(replaced, page)
