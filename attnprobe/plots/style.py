"""One look for every figure: sized for a paper's text width, vector, fonts embedded, legible
without colour vision."""

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import scipy
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import RendererAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font, get_font_names

from attnprobe.results.directory import PIPELINE
from attnprobe.results.files import read_json, write_atomically
from attnprobe.results.writer import OwnFolder

TEXT_WIDTH = 6.3
"""Width of the text block of an ACL page, in inches."""
COLUMN_WIDTH = 3.03
"""Width of one of its two columns, which a figure of one panel fills."""
LETTERS = 7.0
"""Points of all letters but those of notes within a panel."""
CLASS_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
"""Okabe & Ito's palette: told apart with any colour vision, and in grey by lightness."""
FOUND = "#E69F00"
OPTIMUM = "#0072B2"
"""What the gradient adversary found, and what the exact solver proved, in every figure."""
INK = "#222222"
FAINT = "#8A8A8A"
MISSING_GLYPH = "□"
ELLIPSIS = "…"
LONGEST_TOKEN = 22
FALLBACK_FONTS = (
    "Noto Sans",
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",
    "Noto Sans Devanagari",
    "Noto Sans Arabic",
)
_MEASURE = RendererAgg(8, 8, 720)


@cache
def fonts() -> tuple[str, ...]:
    """Font families in the order in which they are asked for a character; only installed ones, so
    nothing warns."""
    installed = set(get_font_names())
    return ("DejaVu Sans", *(name for name in FALLBACK_FONTS if name in installed))


SIZED = (
    "font.size",
    "axes.titlesize",
    "axes.labelsize",
    "xtick.labelsize",
    "ytick.labelsize",
    "legend.fontsize",
)
INKED = ("axes.edgecolor", "axes.labelcolor", "text.color", "xtick.color", "ytick.color")
THIN = ("axes.linewidth", "xtick.major.width", "ytick.major.width", "patch.linewidth")
SETTINGS: dict[str, Any] = {
    **dict.fromkeys((*SIZED, "figure.titlesize"), LETTERS),
    **dict.fromkeys(INKED, INK),
    **dict.fromkeys(THIN, 0.6),
    **dict.fromkeys(("xtick.major.size", "ytick.major.size"), 2.5),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right", "legend.frameon"), False),
    "figure.dpi": 100,
    "savefig.dpi": 220,
    "lines.linewidth": 1.0,
    "legend.handlelength": 1.2,
    "axes.prop_cycle": cycler(color=CLASS_COLOURS),
    "pdf.fonttype": 42,  # TrueType inside the PDF: journals refuse Type 3, and the text stays text
    "text.parse_math": False,  # a `$` in somebody's review is a dollar, not the start of a formula
    "text.usetex": False,
    "svg.hashsalt": "attnprobe",
}
"""The matplotlib settings of every figure, fonts aside."""


@contextmanager
def paper_style() -> Iterator[None]:
    """The settings for the length of a `with` block."""
    with mpl.rc_context():
        mpl.rcdefaults()  # a matplotlibrc in somebody's home must not change a figure
        chosen: Any = SETTINGS | {
            "font.family": list(fonts())
        }  # newer matplotlib types each key by itself
        mpl.rcParams.update(chosen)
        yield


def new_figure(width: float = TEXT_WIDTH, height: float = 2.4) -> Figure:
    """An empty figure outside pyplot, so that no window and no global state is left behind. Sizes
    in inches."""
    return Figure(figsize=(width, height), layout="constrained")


def drawable(text: str, families: Sequence[str] | None = None) -> str:
    """The text with every character that cannot be drawn replaced: control characters by a space,
    characters that no installed font has by `□` (else matplotlib would warn once per character)."""
    faces = [get_font(findfont(FontProperties(family=name))) for name in families or fonts()]

    def shown(character: str) -> str:
        if not character.isprintable():
            return " "
        return (
            character
            if any(face.get_char_index(ord(character)) for face in faces)
            else MISSING_GLYPH
        )

    return "".join(map(shown, text))


def shorten(token: str) -> str:
    """A token short enough for a line: its beginning and its end.

    >>> shorten("https://example.org/a/very/long/address")
    'https://ex…ong/address'
    """
    if len(token) <= LONGEST_TOKEN:
        return token
    half = (LONGEST_TOKEN - 1) // 2
    return token[:half] + ELLIPSIS + token[-(LONGEST_TOKEN - 1 - half) :]


def class_names(run_dir: Path) -> list[str]:
    """The names of a run's classes, fit for a figure; none where it does not say."""
    try:
        return [
            drawable(shorten(name)) for name in read_json(run_dir / PIPELINE).get("classes", [])
        ]
    except FileNotFoundError:
        return []


def text_width(text: str, size: float) -> float:
    """The width of a drawn text in points, at a size of letters in points."""
    font = FontProperties(family=list(fonts()), size=size)
    return float(_MEASURE.get_text_width_height_descent(text, font, False)[0]) / 10


NAMELESS = {
    "pdf": ("CreationDate", "Creator", "Producer"),
    "png": ("Software",),
    "svg": ("Date", "Creator"),
}
"""Metadata per format that would say date or version: without them the same figure gives the same
bytes."""


def rendered(figure: Figure, kind: str) -> bytes:
    """The figure as bytes of a `pdf`, `png` or `svg` file."""
    target = io.BytesIO()
    metadata: Any = dict.fromkeys(NAMELESS[kind])
    with paper_style():
        figure.savefig(target, format=kind, metadata=metadata)
    return target.getvalue()


def save(
    figure: Figure, directory: Path | OwnFolder, stem: str, kinds: Sequence[str] = ("pdf", "png")
) -> list[Path]:
    """Write `stem.pdf` and `stem.png`, or other kinds (`rendered`)."""
    paths = [directory / f"{stem}.{kind}" for kind in kinds]
    for path, kind in zip(paths, kinds, strict=True):
        content = rendered(figure, kind)
        write_atomically(path, lambda target, content=content: target.write_bytes(content))
    return paths


FEWEST = 10
"""Below this many examples a density would be invention: the examples themselves are drawn."""
FEWEST_IN_BOX = 5
"""Below this many examples quartiles say nothing: a box is its median alone."""


def density(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(x, density) by a Gaussian kernel (Scott's bandwidth), cut at the smallest and largest value;
    few or equal values are (themselves, 0)."""
    if len(values) < FEWEST or np.ptp(values) < 1e-6:
        return values, np.zeros(1)
    x = np.linspace(values.min(), values.max(), 200)
    return x, scipy.stats.gaussian_kde(values)(x)


def violin(axes: Axes, values: np.ndarray, at: float, height: float, colour: str) -> None:
    """One horizontal violin of `values` [examples] around the vertical position `at`, `height` tall
    at its widest: the `density`, a bar from the lower to the upper quartile, a dot at the median.
    Fewer than `FEWEST` examples, or all equal, are drawn as points. NaN values are left out."""
    values = values[~np.isnan(values)]
    if len(values) == 0:
        return
    x, y = density(values)
    if not y.any():
        axes.plot(
            values,
            np.full(len(values), at),
            "o",
            ms=2.5,
            mew=0,
            alpha=0.6,
            color=colour,
            clip_on=False,
        )
    else:
        half = y / y.max() * height / 2
        axes.fill_between(x, at - half, at + half, color=colour, alpha=0.4, linewidth=0)
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
    axes.plot(
        [low, high], [at, at], "-", lw=2.2, color=colour, solid_capstyle="butt", clip_on=False
    )
    axes.plot([middle], [at], "o", ms=3, mfc="white", mec=colour, mew=0.9, clip_on=False, zorder=4)


def box(axes: Axes, values: np.ndarray, at: float, width: float, colour: str) -> None:
    """One vertical box of `values` [examples] at the horizontal position `at`: quartiles, median,
    and whiskers from the 5th to the 95th percentile; fewer than `FEWEST_IN_BOX` are a median line
    alone. NaN values are left out."""
    values = values[~np.isnan(values)]
    if len(values) == 0:
        return
    bottom, low, middle, high, top = np.quantile(values, [0.05, 0.25, 0.5, 0.75, 0.95])
    left = at - width / 2
    right = at + width / 2
    if len(values) < FEWEST_IN_BOX:
        axes.plot(
            [left, right],
            [middle, middle],
            "-",
            lw=1.6,
            color=colour,
            solid_capstyle="butt",
            zorder=5,
        )
        return
    axes.plot([at, at], [bottom, top], "-", lw=0.8, color=colour, zorder=3)
    axes.fill_between(
        [left, right],
        [low, low],
        [high, high],
        facecolor="white",
        edgecolor=colour,
        lw=0.9,
        zorder=4,
    )
    axes.plot(
        [left, right], [middle, middle], "-", lw=1.6, color=colour, solid_capstyle="butt", zorder=5
    )
