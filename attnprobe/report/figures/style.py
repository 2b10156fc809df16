"""One look for every figure: sized for a paper's text width, vector, fonts embedded, legible without colour vision."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

import matplotlib as mpl
from cycler import cycler
from matplotlib.backends.backend_agg import RendererAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font, get_font_names

from attnprobe.results.files import write_atomically

TEXT_WIDTH = 6.3
"""Width of the text block of an ACL page, in inches."""
COLUMN_WIDTH = 3.03
"""Width of one of its two columns, which a figure of one panel fills."""
LETTERS = 7.0
"""Points of all letters but those of notes within a panel."""

# Okabe & Ito's palette: told apart with any colour vision, and in grey by lightness
CLASS_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
FOUND = "#E69F00"
"""What the gradient adversary found, in every figure."""
OPTIMUM = "#0072B2"
"""What the exact solver proved, in every figure."""
INK, FAINT = "#222222", "#8A8A8A"

_MEASURE = RendererAgg(8, 8, 720)

MISSING_GLYPH = "□"
FALLBACK_FONTS = ("Noto Sans", "Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans Devanagari", "Noto Sans Arabic")
"""Used, where they are installed, for the characters that matplotlib's own DejaVu Sans does not have."""


@cache
def fonts() -> tuple[str, ...]:
    """Font families in the order in which they are asked for a character; only installed ones, so nothing warns."""
    installed = set(get_font_names())
    return ("DejaVu Sans", *(name for name in FALLBACK_FONTS if name in installed))


def settings() -> dict[str, Any]:
    """The matplotlib settings of every figure."""
    return {
        "font.family": list(fonts()),
        "font.size": LETTERS,
        "axes.titlesize": LETTERS,
        "axes.labelsize": LETTERS,
        "xtick.labelsize": LETTERS,
        "ytick.labelsize": LETTERS,
        "legend.fontsize": LETTERS,
        "figure.titlesize": LETTERS,
        "figure.dpi": 100,
        "savefig.dpi": 220,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.linewidth": 0.6,
        "axes.edgecolor": INK,
        "axes.labelcolor": INK,
        "text.color": INK,
        "xtick.color": INK,
        "ytick.color": INK,
        "xtick.major.width": 0.6,
        "ytick.major.width": 0.6,
        "xtick.major.size": 2.5,
        "ytick.major.size": 2.5,
        "lines.linewidth": 1.0,
        "patch.linewidth": 0.6,
        "legend.frameon": False,
        "legend.handlelength": 1.2,
        "axes.prop_cycle": cycler(color=CLASS_COLOURS),
        # TrueType inside the PDF: journals refuse Type 3, and the text stays text
        "pdf.fonttype": 42,
        # a `$` in somebody's review is a dollar, not the start of a formula
        "text.parse_math": False,
        "text.usetex": False,
        "svg.hashsalt": "attnprobe",
    }


@contextmanager
def paper_style() -> Iterator[None]:
    """The settings for the length of a `with` block: a reader's own matplotlib settings come back afterwards."""
    with mpl.rc_context():
        mpl.rcdefaults()  # a matplotlibrc in somebody's home must not change a figure
        chosen: Any = settings()  # newer matplotlib types each key by itself
        mpl.rcParams.update(chosen)
        yield


def new_figure(width: float = TEXT_WIDTH, height: float = 2.4) -> Figure:
    """An empty figure outside pyplot, so that no window and no global state is left behind. Sizes in inches."""
    return Figure(figsize=(width, height), layout="constrained")


def drawable(text: str, families: Sequence[str] | None = None) -> str:
    """The text with every character that cannot be drawn replaced: control characters by a space, characters that no
    installed font has by `□` (else matplotlib would warn once per character)."""
    faces = [get_font(findfont(FontProperties(family=name))) for name in families or fonts()]
    shown = []
    for character in text:
        if not character.isprintable():
            shown.append(" ")
        elif any(face.get_char_index(ord(character)) for face in faces):
            shown.append(character)
        else:
            shown.append(MISSING_GLYPH)
    return "".join(shown)


def text_width(text: str, size: float) -> float:
    """The width of a drawn text in points, at a size of letters in points."""
    font = FontProperties(family=list(fonts()), size=size)
    width, _, _ = _MEASURE.get_text_width_height_descent(text, font, False)
    return float(width) / 10


def save(figure: Figure, directory: Path, stem: str) -> list[Path]:
    """Write `stem.pdf` and `stem.png`; the same figure gives the same bytes (no date, no version inside)."""
    nameless: dict[str, dict[str, None]] = {
        "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
        "png": {"Software": None},
    }
    paths = []
    for kind, metadata in nameless.items():
        path = directory / f"{stem}.{kind}"
        with paper_style():
            write_atomically(path, partial(figure.savefig, format=kind, metadata=metadata))
        paths.append(path)
    return paths
