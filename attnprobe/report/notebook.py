"""A text as strips of coloured tokens in HTML, one strip per measure.

For a notebook, and for a cell of a table.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import accumulate
from math import isnan
from typing import Any

import numpy as np
import pandas as pd

from attnprobe.core.metrics import sureness
from attnprobe.core.sanitise import visible
from attnprobe.readings.importances import facts_of
from attnprobe.results.table import IMPORTANCES

EXPLAINED = "explain"
"""Key of an explanation's `attrs`: the importances."""
SENTENCE = "sentence"
"""Key of an explanation's `attrs`: what this classifier's tests say first of its attention."""
BESIDE = "beside"
"""Key of an explanation's `attrs`: the column of what was read beside the words that are shown."""
MOST_TEXTS = 25
"""Texts that a notebook shows: every token of every measure is an element of the page."""
NAMED = 3
"""Largest values that are named for who does not see the colours."""

# One hue: on paper more is darker, on a dark page more is brighter. The notebook's own theme goes
# before the system's, and the background is set as well, so that a theme that is not known here
# costs looks, not legibility.
_LIGHT = (
    "--paper: #ffffff; --heat: 8 81 156; --ink: #000000; "
    "--over: #ffffff; --faint: #5c5c5c; --line: #8a8a8a"
)
_DARK = (
    "--paper: #111111; --heat: 94 153 187; --ink: #ffffff; "
    "--over: #000000; --faint: #b0b0b0; --line: #8a8a8a"
)
MUCH = 0.77
"""Depth of colour from which the word changes colour: its contrast is 4.5 or more at any depth."""
STYLE = f"""<style>
.attnprobe-strips {{ {_LIGHT}; background: var(--paper); color: var(--ink);
  font: 14px/1.6 system-ui, sans-serif; text-align: start; padding: .3em .6em }}
@media (prefers-color-scheme: dark) {{ .attnprobe-strips {{ {_DARK} }} }}
[data-jp-theme-light=true] .attnprobe-strips, .vscode-light .attnprobe-strips {{ {_LIGHT} }}
[data-jp-theme-light=false] .attnprobe-strips, .vscode-dark .attnprobe-strips,
html[theme=dark] .attnprobe-strips {{ {_DARK} }}
@media print {{ html:root .attnprobe-strips {{ {_LIGHT} }} }}
.attnprobe-strips section {{ border-top: 1px solid var(--line); margin: 0; padding: .4em 0 .6em }}
.attnprobe-strips p {{ margin: 0 0 .2em }}
.attnprobe-strips .strip {{ display: flex; flex-wrap: wrap; gap: 0 .8em; margin: .15em 0 }}
.attnprobe-strips .name {{ flex: 0 0 auto; min-width: 8.5em; color: var(--faint);
  font-size: .9em }}
.attnprobe-strips .tokens {{ flex: 1 1 20em; min-width: 0; overflow-wrap: anywhere }}
.attnprobe-strips i {{ font-style: normal; unicode-bidi: plaintext; padding: .05em .2em;
  border-radius: .2em; min-width: .5em; background: rgb(var(--heat) / var(--w, 0));
  print-color-adjust: exact; -webkit-print-color-adjust: exact }}
.attnprobe-strips i.much {{ color: var(--over) }}
.attnprobe-strips i.undefined {{ color: var(--faint); text-decoration: underline dotted }}
.attnprobe-strips i.member {{ text-decoration: line-through 2px; font-weight: bold;
  outline: 1px solid var(--line) }}
</style>"""
"""Self-contained: no font, script or picture is fetched."""


@dataclass(frozen=True)
class Strip:
    """One measure over one text.

    Attributes:
        name: shown before the strip.
        values: per position, 0 to 1, NaN where undefined.
        tokens: the words there; None shows the positions' numbers.
        ends: positions after which a new line begins.
        is_set: the values are 0 or 1, and those of 1 are erased: they are shown struck out.
        missing: what is said of a NaN.
    """

    name: str
    values: Iterable[float]
    tokens: Sequence[str] | None = None
    ends: Sequence[int] = ()
    is_set: bool = False
    missing: str = "undefined"


def page(fragments: Iterable[str]) -> str:
    """Fragments of `strips_html` with the style that they need."""
    return f'<div class="attnprobe-strips">{STYLE}{"".join(fragments)}</div>'


def strips_html(strips: Iterable[Strip], *, head: str = "") -> str:
    """One text's strips below each other, without the style.

    A strip is a name, and the tokens on their colours with the number as a tooltip. A colour's
    depth is the square root of the value. A reader who does not see the colours is told the largest
    values, or the members of the set.

    Args:
        strips: of the text.
        head: plain text above them.
    """
    fragments = [f"<p>{_escaped(head)}</p>"] if head else []
    fragments += [_strip_html(strip) for strip in strips]
    return f"<section>{''.join(fragments)}</section>"


def _strip_html(strip: Strip) -> str:
    """One strip: its name, and its tokens on their colours."""
    values = np.array(list(strip.values), float).tolist()
    words = [*map(str, range(len(values)))] if strip.tokens is None else list(strip.tokens)
    tokens = []
    for position, (word, value) in enumerate(zip(words, values, strict=True)):
        number = strip.missing if isnan(value) else _number_text(value, is_set=strip.is_set)
        tooltip = _escaped(f"{position}: {word} — {number}")
        look = _look(value, is_set=strip.is_set)
        end = "<br>" if position in strip.ends else ""
        tokens.append(f'<i{look} title="{tooltip}">{_escaped(word)}</i>{end}')
    if strip.is_set:
        members = [word for word, value in zip(words, values, strict=True) if value == 1]
        label = ", ".join(members) or "none"
    else:
        label = f"{_largest(words, values)}; {len(values)} in all"
    description = _escaped(f"{strip.name}: {label}")
    return (
        f'<div class="strip"><span class="name">{_escaped(strip.name)}</span>'
        f'<span class="tokens" dir="auto" role="group" aria-label="{description}">'
        f"{' '.join(tokens)}</span></div>"
    )


def _number_text(value: float, *, is_set: bool) -> str:
    """What a token's tooltip says of its value."""
    if is_set:
        return "erased" if value else "kept"
    return f"{value:.3f}" if value >= 0.0005 or value == 0 else f"{value:.1e}"


def _look(value: float, *, is_set: bool) -> str:
    """The attributes of a token's element that give it its look."""
    if isnan(value):
        return ' class="undefined"'
    if is_set:
        return ' class="member"' if value else ""
    depth = min(max(value, 0.0), 1.0) ** 0.5
    look = ' class="much"' if depth > MUCH else ""
    if depth >= 0.005:
        look += f' style="--w:{depth:.2f}"'
    return look


def _largest(words: Sequence[str], values: Sequence[float]) -> str:
    """The words with the largest values, of equal ones the first."""
    defined = [(-value, position) for position, value in enumerate(values) if not isnan(value)]
    if not defined:
        return "undefined"
    named = [
        f"{words[position]} {_number_text(values[position], is_set=False)}"
        for _, position in sorted(defined)[:NAMED]
    ]
    return f"largest {', '.join(named)}"


def _escaped(text: str) -> str:
    return escape(visible(re.sub(r"\s", " ", text)))


class Explanation(pd.DataFrame):
    """What a classifier says about some texts, one per row; a notebook shows them as heat maps.

    `TrainedRun.explain` has the columns. Selecting rows keeps the heat maps; without the columns
    that they need, the ordinary table is shown.
    """

    @property
    def _constructor(self) -> type["Explanation"]:
        return Explanation

    def _repr_html_(self) -> str | None:
        if not {"prediction", "probability", "tokens", "attention"} <= set(self.columns):
            return pd.DataFrame(self)._repr_html_()  # type: ignore[operator]
        rows: list[Any] = self.head(MOST_TEXTS).to_dict("records")
        importances = self.attrs.get(IMPORTANCES, {}).get(EXPLAINED, {})
        titles = {
            name: facts_of(name, self, EXPLAINED).title
            for name in importances
            if name in self and name != "attention"
        }
        note = "Colour: square root of the number, 0 to 1; hover over a token to read it."
        if len(self) > MOST_TEXTS:
            note = f"The first {MOST_TEXTS} of {len(self):,} texts. {note}"
        fragments = [f"<p>{note}</p>"]
        if self.attrs.get(SENTENCE):
            fragments.insert(0, f"<p><b>{_escaped(self.attrs[SENTENCE])}</b></p>")
        beside = self.attrs.get(BESIDE, "question")
        for number, row in enumerate(rows, start=1):
            head = f"Text {number} {_decision(row, beside)}"
            fragments.append(strips_html(_explained_strips(row, titles), head=head))
        return page(fragments)


def _decision(row: Mapping[str, Any], beside: str) -> str:
    """What a text was asked, or read with, and what the classifier says."""
    prediction = row["prediction"]
    probability = row["probability"]
    if isinstance(prediction, str):
        decision = f"{prediction} ({sureness(probability.values(), probability[prediction])})"
    else:
        labels = [f"{name} (p = {probability[name]:.3f})" for name in prediction]
        decision = ", ".join(labels) or "no label"
    question = f"{row[beside]} " if beside in row else ""
    never_flips = "flips_to" in row and not isinstance(row["flips_to"], str)
    remark = "; no erasure from the attention changes that" if never_flips else ""
    return f"{question}→ {decision}{remark}"


def _explained_strips(row: Mapping[str, Any], titles: Mapping[str, str]) -> list[Strip]:
    """A text's attention, other importances, and smallest flipping set."""
    strips = attention_strips(row, shows_words=True)
    tokens = row["tokens"]
    ends = strips[0].ends
    strips += [Strip(title, row[column], tokens, ends) for column, title in titles.items()]
    flips_to = row.get("flips_to")
    if isinstance(flips_to, str):
        strips.append(Strip(f"erased: {flips_to}", row["flipping_set"], tokens, ends, is_set=True))
    return strips


def attention_strips(row: Mapping[str, Any], *, shows_words: bool) -> list[Strip]:
    """The model's attention to its positions; in a hierarchical model, to words of sentences too.

    A sentence, and the second text of a pair, begins a line of its own.

    Args:
        row: of an explanation, or of a run's examples.
        shows_words: False shows the positions' numbers.
    """
    has_sentences = row.get("words") is not None
    ends: list[int] = []
    if has_sentences:
        ends = [*range(len(row["attention"]))]
    elif row.get("first_words") is not None:
        ends = [row["first_words"] - 1]
    attention = np.array(row["attention"], float)
    if row.get("unseen") is not None:
        attention = np.where(row["unseen"], np.nan, attention)
    tokens = row["tokens"] if shows_words else None
    strips = [Strip("attention", attention, tokens, ends, missing="not seen by this attention")]
    if has_sentences:
        words = [word for sentence in row["words"] for word in sentence]
        weights = [weight for sentence in row["word_attention"] for weight in sentence]
        ends = [end - 1 for end in accumulate(map(len, row["words"]))]
        strips.append(Strip("within sentences", weights, words if shows_words else None, ends))
    return strips
