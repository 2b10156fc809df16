"""A figure as an SVG element of the page: known elements and attributes alone, ids of its own, words on hover."""

import base64
import io
import re
from collections.abc import Iterator
from xml.etree import ElementTree

from markupsafe import Markup
from matplotlib.figure import Figure

from attnprobe.report.figures.notes import Spot, spots
from attnprobe.report.figures.style import paper_style
from attnprobe.shown import visible

LARGEST = 250_000
"""Characters of a drawing; a larger one (thousands of points, or texts drawn as outlines) is shown as pixels."""
MOST_SPOTS = 2_000
"""A figure with more places that say something says nothing: its table does."""
PIXELS_PER_INCH = 180
PIXELS = 120
"""CSS pixels of the page for an inch of paper: print is small on a screen."""
ELEMENTS = frozenset({"svg", "g", "defs", "path", "use", "clipPath", "rect", "circle", "image", "pattern"})
"""What matplotlib draws with; everything else, scripts and links among it, is left out with all that it holds."""
GEOMETRY = frozenset(
    [
        "d",
        "x",
        "y",
        "cx",
        "cy",
        "r",
        "width",
        "height",
        "transform",
        "viewBox",
        "patternUnits",
        "preserveAspectRatio",
        "clip-path",
        "clip-rule",
    ]
)
LOOKS = frozenset(
    [
        "fill",
        "fill-opacity",
        "fill-rule",
        "stroke",
        "stroke-opacity",
        "stroke-width",
        "stroke-linecap",
        "stroke-linejoin",
        "stroke-dasharray",
        "stroke-dashoffset",
        "stroke-miterlimit",
        "opacity",
    ]
)
"""What a style may say; it is said by attributes, since the page's security policy lets no element have a style."""
PLAIN = re.compile(r"[\w\s.,;:#%()+-]*")
OWN = re.compile(r"#([\w.-]+)")
PIXEL_DATA = re.compile(r"data:image/png;base64,[A-Za-z0-9+/=\s]+")


def inline(figure: Figure, name: str, alternative: str) -> Markup:
    """The figure as markup for the page; it has been laid out after that.

    Args:
        figure: as its function drew it.
        name: begins every id of it, so that two figures of a page never share one: letters, digits, dots, dashes.
        alternative: what a screen reader says instead.
    """
    drawing = rendered(figure, "svg").decode()
    figure.set_layout_engine("none")
    width, height = (72 * float(inches) for inches in figure.get_size_inches())
    root = ElementTree.Element(
        "svg", {"viewBox": f"0 0 {width:g} {height:g}", "role": "img", "aria-label": alternative}
    )
    root.attrib |= {"width": f"{width / 72 * PIXELS:.0f}", "height": f"{height / 72 * PIXELS:.0f}"}
    # what the drawing's own style sheet says
    root.attrib |= {"stroke-linejoin": "round", "stroke-linecap": "butt"}
    if len(drawing) <= LARGEST:
        root.extend(cleaned(ElementTree.fromstring(drawing), f"{name}-"))
    else:
        pixels = base64.b64encode(rendered(figure, "png")).decode()
        size = {"width": f"{width:g}", "height": f"{height:g}"}
        ElementTree.SubElement(root, "image", size | {"href": f"data:image/png;base64,{pixels}"})
    told = list(spots(figure))
    root.extend(pointed(spot) for spot in told if len(told) <= MOST_SPOTS)
    return Markup(ElementTree.tostring(root, encoding="unicode"))


def rendered(figure: Figure, kind: str) -> bytes:
    """The figure's bytes; the same figure gives the same ones."""
    target = io.BytesIO()
    metadata: dict[str, str | None] = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}[kind]  # type: ignore[assignment]
    with paper_style():
        figure.savefig(target, format=kind, metadata=metadata, dpi=PIXELS_PER_INCH)
    return target.getvalue()


def cleaned(drawing: ElementTree.Element, prefix: str) -> Iterator[ElementTree.Element]:
    """The children of a drawing, of known kinds, with their known attributes; comments went with the parsing."""
    for child in drawing:
        kind = local(child.tag)
        if kind in ELEMENTS:
            kept = ElementTree.Element(kind, dict(known(child, prefix)))
            kept.extend(cleaned(child, prefix))
            yield kept


def known(element: ElementTree.Element, prefix: str) -> Iterator[tuple[str, str]]:
    """The attributes of an element that may stay: geometry, looks, its id, and references to what is drawn here."""
    for key, value in element.attrib.items():
        attribute = local(key)
        if attribute == "style":
            said = (part.partition(":") for part in value.split(";"))
            yield from (
                (look.strip(), own(what.strip(), prefix))
                for look, _, what in said
                if look.strip() in LOOKS and PLAIN.fullmatch(what)
            )
        elif attribute == "id" and OWN.fullmatch(f"#{value}"):
            yield "id", prefix + value
        elif attribute == "href" and (OWN.fullmatch(value) or PIXEL_DATA.fullmatch(value)):
            yield "href", f"#{prefix}{value[1:]}" if value.startswith("#") else value
        elif attribute in GEOMETRY | LOOKS and PLAIN.fullmatch(value):
            yield attribute, own(" ".join(value.split()), prefix)


def own(value: str, prefix: str) -> str:
    """A value whose `url(#…)` names what is drawn here."""
    return value.replace("url(#", f"url(#{prefix}")


def pointed(spot: Spot) -> ElementTree.Element:
    """The place as an element without a colour, and its words as the title of it."""
    place = {"x": spot.left, "y": spot.top, "width": spot.width, "height": spot.height}
    found = ElementTree.Element("rect", {"class": "spot", **{key: f"{number:.1f}" for key, number in place.items()}})
    ElementTree.SubElement(found, "title").text = visible(spot.words)
    return found


def local(name: str) -> str:
    """A name without its namespace.

    >>> local("{http://www.w3.org/2000/svg}path")
    'path'
    """
    return name.rpartition("}")[2]
