"""One look for every figure.

Sized for a paper's text width, vector, fonts embedded, legible without colour vision.
"""

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
"""Size of all letters but those of notes within a panel, in points."""
CLASS_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
"""Okabe & Ito's palette: told apart with any colour vision, and in grey by lightness."""
FOUND = "#E69F00"
"""What the gradient adversary found, in every figure."""
OPTIMUM = "#0072B2"
"""What the exact solver proved, in every figure."""
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
    """Installed font families, in the order in which they are searched for a character."""
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
        settings: Any = SETTINGS | {"font.family": list(fonts())}  # newer matplotlib types each key
        mpl.rcParams.update(settings)
        yield


def new_figure(width: float = TEXT_WIDTH, height: float = 2.4) -> Figure:
    """An empty figure outside pyplot, so that no window and no global state is left behind.

    Args:
        width: in inches.
        height: in inches.
    """
    return Figure(figsize=(width, height), layout="constrained")


def drawable(text: str, families: Sequence[str] | None = None) -> str:
    """The text with every character that cannot be drawn replaced.

    Control characters become a space, characters that no font has `□`; otherwise matplotlib would
    warn once per character.

    Args:
        text: of any origin.
        families: of the fonts; None: `fonts`.
    """
    faces = [get_font(findfont(FontProperties(family=name))) for name in families or fonts()]

    def replaced(character: str) -> str:
        if not character.isprintable():
            return " "
        has_glyph = any(face.get_char_index(ord(character)) for face in faces)
        return character if has_glyph else MISSING_GLYPH

    return "".join(map(replaced, text))


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
        pipeline = read_json(run_dir / PIPELINE)
    except FileNotFoundError:
        return []
    return [drawable(shorten(name)) for name in pipeline.get("classes", [])]


def text_width(text: str, size: float) -> float:
    """The width of a drawn text, in points, with letters of a size in points."""
    font = FontProperties(family=list(fonts()), size=size)
    return float(_MEASURE.get_text_width_height_descent(text, font, False)[0]) / 10


NAMELESS = {
    "pdf": ("CreationDate", "Creator", "Producer"),
    "png": ("Software",),
    "svg": ("Date", "Creator"),
}
"""Metadata that names date or version: without it the same figure gives the same bytes."""


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
    """x and density by a Gaussian kernel (Scott's bandwidth), cut at both ends of the values.

    Few or equal values are returned themselves, with a density of 0.
    """
    if len(values) < FEWEST or np.ptp(values) < 1e-6:
        return values, np.zeros(1)
    x = np.linspace(values.min(), values.max(), 200)
    return x, scipy.stats.gaussian_kde(values)(x)


def violin(axes: Axes, values: np.ndarray, centre: float, height: float, colour: str) -> None:
    """Draw a horizontal violin: the density, a bar between the quartiles, a dot at the median.

    Fewer than `FEWEST` examples, or all equal, are drawn as points.

    Args:
        axes: that it is drawn on.
        values: one per example; NaN is left out.
        centre: vertical position.
        height: at its widest.
        colour: of all but the dot's inside.
    """
    values = values[~np.isnan(values)]
    if len(values) == 0:
        return
    x, y = density(values)
    if y.any():
        half = y / y.max() * height / 2
        axes.fill_between(x, centre - half, centre + half, color=colour, alpha=0.4, linewidth=0)
    else:
        points: dict[str, Any] = {
            "ms": 2.5,
            "mew": 0,
            "alpha": 0.6,
            "color": colour,
            "clip_on": False,
        }
        axes.plot(values, np.full(len(values), centre), "o", **points)

    low, median, high = np.quantile(values, [0.25, 0.5, 0.75])
    bar: dict[str, Any] = {"lw": 2.2, "color": colour, "solid_capstyle": "butt", "clip_on": False}
    axes.plot([low, high], [centre, centre], "-", **bar)
    dot: dict[str, Any] = {
        "ms": 3,
        "mfc": "white",
        "mec": colour,
        "mew": 0.9,
        "clip_on": False,
        "zorder": 4,
    }
    axes.plot([median], [centre], "o", **dot)


def box(axes: Axes, values: np.ndarray, centre: float, width: float, colour: str) -> None:
    """Draw a vertical box: quartiles, median, whiskers from the 5th to the 95th percentile.

    Fewer than `FEWEST_IN_BOX` examples are a median line alone.

    Args:
        axes: that it is drawn on.
        values: one per example; NaN is left out.
        centre: horizontal position.
        width: of the box.
        colour: of the lines.
    """
    values = values[~np.isnan(values)]
    if len(values) == 0:
        return
    bottom, low, median, high, top = np.quantile(values, [0.05, 0.25, 0.5, 0.75, 0.95])
    sides = [centre - width / 2, centre + width / 2]
    if len(values) >= FEWEST_IN_BOX:
        axes.plot([centre, centre], [bottom, top], "-", lw=0.8, color=colour, zorder=3)
        inside: dict[str, Any] = {"facecolor": "white", "edgecolor": colour, "lw": 0.9, "zorder": 4}
        axes.fill_between(sides, [low, low], [high, high], **inside)
    line: dict[str, Any] = {"lw": 1.6, "color": colour, "solid_capstyle": "butt", "zorder": 5}
    axes.plot(sides, [median, median], "-", **line)
