"""The page's text, from its parts and the templates."""

import base64
import hashlib
import time
from pathlib import Path
from typing import Any

import jinja2

from attnprobe import __version__
from attnprobe.report.claims import CRITERIA, LEVELS
from attnprobe.report.page.formats import capital, count, number, p_value, short, signed, unbroken
from attnprobe.report.page.glossary import ADDED_BY, MEANS, TERMS, VERDICTS, explained
from attnprobe.report.page.verdicts import KINDS, MARKS, SAID
from attnprobe.shown import visible

HERE = Path(__file__).parent
SCRIPT = ("tables", "blocks", "tips", "examples", "search", "links", "browser", "pieces", "playground", "heatmaps")
"""The parts of the script, each of which may use what comes before it. Every word from data goes through textContent."""
STYLE = ("style", "glance", "playground")
"""The parts of its style sheet."""


def rendered(**parts: Any) -> jinja2.environment.TemplateStream:
    """The page's text, a piece at a time; every string of `parts` is escaped."""
    loader = jinja2.FileSystemLoader(HERE / "templates")
    environment = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        finalize=with_hidden_shown,
    )  # fmt: skip
    environment.filters |= {"number": number, "signed": signed, "count": count, "short": short, "capital": capital}
    environment.filters |= {"p_value": p_value, "unbroken": unbroken}
    environment.filters["explained"] = lambda text: explained(text, with_hidden_shown)
    style = "".join((HERE / f"{name}.css").read_text(encoding="utf-8") for name in STYLE)
    script = script_text()
    environment.globals |= {"claim_words": SAID, "level_words": {level: f"{level}s" for level in LEVELS}}
    environment.globals |= {
        "means": MEANS,
        "verdict_means": VERDICTS,
        "added_by": ADDED_BY,
        "kinds": KINDS,
        "marks": MARKS,
        "files": jinja2.filters.do_urlencode(parts["folder"]),
    }
    return environment.get_template("page.html").stream(
        **parts,
        criteria=CRITERIA,
        terms=TERMS,
        version=__version__,
        made=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        style=style,
        script=script,
        style_hash=digest(style),
        script_hash=digest(script),
    )


def with_hidden_shown(value: Any) -> Any:
    r"""A string of the data with its control and format characters as escapes; a page is read with `less` as well. Line
    ends stay, and so does whatever is not a plain string.

    >>> print(with_hidden_shown("a\x1b[31mb"))
    a\x1b[31mb
    """
    return "\n".join(map(visible, value.split("\n"))) if type(value) is str else value


def script_text() -> str:
    """The page's script: its parts in one function of their own, so that they share names and the page gets none."""
    parts = [(HERE / "script" / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPT]
    return "\n".join(['"use strict";', "(() => {", *parts, "})();", ""])


def digest(text: str) -> str:
    """How a content security policy names a text that may run."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
