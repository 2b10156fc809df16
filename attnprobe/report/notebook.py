"""A text as strips of coloured tokens in HTML, one strip per measure: for a notebook, and for a
cell of a table."""

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
from attnprobe.evidence.reading import facts_of
from attnprobe.results.table import IMPORTANCES

EXPLAINED = "explain"
SENTENCE = "sentence"
"""Keys of an explanation's `attrs`: the importances, and what this classifier's tests say first of
its attention."""
MOST_TEXTS = 25
"""A notebook shows no more texts than these: every token of every measure is an element of the
page."""
NAMED = 3

# One hue: on paper more is darker, on a dark page more is brighter. The notebook's own theme goes
# before the system's, and the background is set as well, so that a theme that is not known here
# costs looks, not legibility.
_LIGHT = "--paper: #ffffff; --heat: 8 81 156; --ink: #000000; --over: #ffffff; --faint: #5c5c5c; --line: #8a8a8a"
_DARK = "--paper: #111111; --heat: 94 153 187; --ink: #ffffff; --over: #000000; --faint: #b0b0b0; --line: #8a8a8a"
MUCH = 0.77
"""Depth of colour from which the word changes colour: it is legible at any depth (contrast 4.5 or
more)."""
STYLE = f"""<style>
.attnprobe-strips {{ {_LIGHT}; background: var(--paper); color: var(--ink); font: 14px/1.6 system-ui, sans-serif;
  text-align: start; padding: .3em .6em }}
@media (prefers-color-scheme: dark) {{ .attnprobe-strips {{ {_DARK} }} }}
[data-jp-theme-light=true] .attnprobe-strips, .vscode-light .attnprobe-strips {{ {_LIGHT} }}
[data-jp-theme-light=false] .attnprobe-strips, .vscode-dark .attnprobe-strips, html[theme=dark] .attnprobe-strips {{
  {_DARK} }}
@media print {{ html:root .attnprobe-strips {{ {_LIGHT} }} }}
.attnprobe-strips section {{ border-top: 1px solid var(--line); margin: 0; padding: .4em 0 .6em }}
.attnprobe-strips p {{ margin: 0 0 .2em }}
.attnprobe-strips .strip {{ display: flex; flex-wrap: wrap; gap: 0 .8em; margin: .15em 0 }}
.attnprobe-strips .name {{ flex: 0 0 auto; min-width: 8.5em; color: var(--faint); font-size: .9em }}
.attnprobe-strips .tokens {{ flex: 1 1 20em; min-width: 0; overflow-wrap: anywhere }}
.attnprobe-strips i {{ font-style: normal; unicode-bidi: isolate; padding: .05em .2em; border-radius: .2em;
  min-width: .5em; background: rgb(var(--heat) / var(--w, 0)); print-color-adjust: exact;
  -webkit-print-color-adjust: exact }}
.attnprobe-strips i.much {{ color: var(--over) }}
.attnprobe-strips i.undefined {{ color: var(--faint); text-decoration: underline dotted }}
.attnprobe-strips i.member {{ text-decoration: line-through 2px; font-weight: bold; outline: 1px solid var(--line) }}
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
    """

    name: str
    values: Iterable[float]
    tokens: Sequence[str] | None = None
    ends: Sequence[int] = ()
    is_set: bool = False


def page(fragments: Iterable[str]) -> str:
    """Fragments of `strips_html` with the style that they need."""
    return f'<div class="attnprobe-strips">{STYLE}{"".join(fragments)}</div>'


def strips_html(strips: Iterable[Strip], *, head: str = "") -> str:
    """One text's strips below each other, without the style; `head` is plain text above them.

    A strip is a name, and the tokens on their colours with the number as a tooltip. A colour's
    depth is the square root of the value. A reader who does not see the colours is told the largest
    values, or the members of the set."""
    fragments = [f"<p>{_escaped(head)}</p>"] if head else []
    for strip in strips:
        values = np.array(list(strip.values), float).tolist()
        words = [*map(str, range(len(values)))] if strip.tokens is None else list(strip.tokens)
        tokens = []
        told = []
        for position, (word, value) in enumerate(zip(words, values, strict=True)):
            look = ""
            if isnan(value):
                said = "undefined"
                look = ' class="undefined"'
            elif strip.is_set:
                said, look = ("erased", ' class="member"') if value else ("kept", "")
            else:
                said = f"{value:.3f}" if value >= 0.0005 or value == 0 else f"{value:.1e}"
                depth = min(max(value, 0.0), 1.0) ** 0.5
                look = ' class="much"' if depth > MUCH else ""
                look += f' style="--w:{depth:.2f}"' if depth >= 0.005 else ""
                told.append((-value, position, f"{word} {said}"))
            end = "<br>" if position in strip.ends else ""
            title = _escaped(f"{position}: {word} — {said}")
            tokens.append(f'<i{look} title="{title}">{_escaped(word)}</i>{end}')
        if strip.is_set:
            label = (
                ", ".join(word for word, value in zip(words, values, strict=True) if value == 1)
                or "none"
            )
        else:
            largest = ", ".join(said for _, _, said in sorted(told)[:NAMED])
            label = f"{f'largest {largest}' if told else 'undefined'}; {len(values)} in all"
        fragments.append(
            f'<div class="strip"><span class="name">{_escaped(strip.name)}</span><span class="tokens" role="group" '
            f'aria-label="{_escaped(f"{strip.name}: {label}")}">{" ".join(tokens)}</span></div>'
        )
    return f"<section>{''.join(fragments)}</section>"


def _escaped(text: str) -> str:
    return escape(visible(re.sub(r"\s", " ", text)))


class Explanation(pd.DataFrame):
    """What a classifier says about some texts, one row per text (`TrainedRun.explain` has the
    columns): a DataFrame that a notebook shows as heat maps.

    Selecting rows keeps the heat maps; without the columns that they need, the ordinary table is
    shown."""

    @property
    def _constructor(self) -> type["Explanation"]:
        return Explanation

    def _repr_html_(self) -> str | None:
        if not {"prediction", "probability", "tokens", "attention"} <= set(self.columns):
            return pd.DataFrame(self)._repr_html_()  # type: ignore[operator]
        rows: list[Any] = self.head(MOST_TEXTS).to_dict("records")
        told = self.attrs.get(IMPORTANCES, {}).get(EXPLAINED, {})
        titles = {name: facts_of(name, self, EXPLAINED).title for name in told if name in self}
        fragments = []
        for number, row in enumerate(rows, start=1):
            prediction = row["prediction"]
            probability = row["probability"]
            if isinstance(prediction, str):
                said = f"{prediction} ({sureness(probability.values(), probability[prediction])})"
            else:
                said = (
                    ", ".join(f"{name} (p = {probability[name]:.3f})" for name in prediction)
                    or "no label"
                )
            asked = f"{row['question']} " if "question" in row else ""
            never = "flips_to" in row and not isinstance(row["flips_to"], str)
            head = f"{asked}→ {said}" + (
                "; no erasure from the attention changes that" if never else ""
            )
            strips = attention_strips(row, shows_words=True)
            tokens = row["tokens"]
            strips += [
                Strip(name, row[column], tokens)
                for column, name in titles.items()
                if column != "attention"
            ]
            if isinstance(row.get("flips_to"), str):
                flipping = Strip(
                    f"erased: {row['flips_to']}",
                    row["flipping_set"],
                    tokens,
                    strips[0].ends,
                    is_set=True,
                )
                strips.append(flipping)
            fragments.append(strips_html(strips, head=f"Text {number} {head}"))
        note = "Colour: square root of the number, 0 to 1; hover over a token to read it."
        if len(self) > MOST_TEXTS:
            note = f"The first {MOST_TEXTS} of {len(self):,} texts. {note}"
        first = (
            [f"<p><b>{_escaped(self.attrs[SENTENCE])}</b></p>"] if self.attrs.get(SENTENCE) else []
        )
        return page([*first, f"<p>{note}</p>", *fragments])


def attention_strips(row: Mapping[str, Any], *, shows_words: bool) -> list[Strip]:
    """The model's attention to its positions; and in a hierarchical model, among the words of each
    sentence."""
    sentences = row.get("words") is not None
    ends = [*range(len(row["attention"]))] if sentences else []
    strips = [Strip("attention", row["attention"], row["tokens"] if shows_words else None, ends)]
    if sentences:
        words = [word for sentence in row["words"] for word in sentence]
        weights = [weight for sentence in row["word_attention"] for weight in sentence]
        ends = [end - 1 for end in accumulate(map(len, row["words"]))]
        strips.append(Strip("within sentences", weights, words if shows_words else None, ends))
    return strips
