"""Nothing that a figure shows is cut off: every drawn artist measured against its axes and the
figure."""

import itertools
from collections.abc import Iterator
from functools import cache

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import BboxBase

from attnprobe.importance.base import built_in
from attnprobe.plots.grid import LOWEST, TALLEST
from attnprobe.plots.style import drawable, paper_style
from attnprobe.probes.correlation import PUBLISHED
from attnprobe.readings.reading import Drawing
from attnprobe.readings.registry import readings
from attnprobe.results.pivot import named
from attnprobe.results.table import IMPORTANCES
from tests.probes.tables import draw

DRAWINGS = [
    drawing for reading in readings().values() for drawing in reading.drawings if not drawing.words
]
OF_SITES = next(drawing for drawing in DRAWINGS if drawing.name == "sites")
"""What is drawn goes by layers and heads, not by classes: test_bounds_elsewhere.py."""
RANKINGS = (
    "random",
    "ascending",
    "attention",
    "value_norm",
    "gradient",
    "gradient_attention",
    "contribution",
    "optimal",
)
COMPARED = ("attention", "integrated_gradients", "shapley_sampling", "random")
OF_IMPORTANCES = [
    *(
        ("agreement_matrix", f"tau_{first}_and_{second}")
        for first, second in itertools.combinations(COMPARED, 2)
    ),
    *(
        ("agreement_matrix", f"{kind}_{end}_{name}")
        for name in COMPARED
        for end in ("floor", "ceiling")
        for kind in ("tau", "weighted_tau", "rbo", "top_overlap")
    ),
    *(
        ("faithfulness", f"{kind}_{name}_by_{operator}")
        for name in COMPARED
        for operator in ("delete", "attention")
        for kind in ("comprehensiveness", "sufficiency", "deletion_area", "insertion_area")
    ),
    *(
        ("subsets", f"{kind}_{name}")
        for name in COMPARED
        for kind in (
            "aopc",
            "aopc_normalised",
            "shapley_tau",
            "shapley_top",
            "shapley_share_error",
            "shapley_error",
        )
    ),
    *(
        ("plausibility", f"{kind}_rationale_{name}")
        for name in COMPARED
        for kind in ("top_in", "mass_in", "f1", "auprc")
    ),
    *(("plausibility", chance) for chance in ("rationale_share", "auprc_chance")),
    *(
        ("sanity", f"{kind}_similarity_{name}")
        for name in COMPARED
        for kind in ("random_weights", "shuffled_labels", "floor", "ceiling")
    ),
    *(
        ("sanity", f"similarity_{name}_down_to_{part}")
        for name in COMPARED
        for part in ("decoder", "attention", "encoder", "embedding")
    ),
]
TOLD = {
    "erasure": {
        name: built_in({"gradient": "attention_gradient"}.get(name, name)).facts
        for name in RANKINGS[:-1]
    }
}
TOLD |= {
    probe: {name: built_in(name).facts for name in COMPARED}
    for probe in ("agreement_matrix", "faithfulness", "subsets", "plausibility", "sanity")
}
"""What a run's manifest says of its importances."""
NAMES = [
    "hardware and software",
    "WWWWWWWWWWWWWWWWWWWWWW",
    "no",
    "sport",
    "映画と音楽",
    "politics of the world",
    "science",
    "travel",
    "arts",
    "cooking",
]
SMALLEST = (1, 2)
MOST_CLASSES = (2, 10)
ROWS_OF_PANELS = (7, 6)
IN_ROWS = ("permutation",)
"""A figure with a panel for each run that is drawn with rows of them by default; all others up to 7
runs and 10 classes: `pytest -m slow`."""


def cases():
    """Every figure of every number of runs and classes."""
    for drawing in DRAWINGS:
        for pair in itertools.product(range(1, 8), range(2, 11)):
            if drawing is OF_SITES:
                continue
            marks = [pytest.mark.slow]
            if pair == SMALLEST:
                marks = []
            elif pair == MOST_CLASSES or (pair == ROWS_OF_PANELS and drawing.name in IN_ROWS):
                marks = [pytest.mark.whole]
            name = f"{drawing.name}-{pair[0]}-{pair[1]}"
            yield pytest.param(drawing, *pair, marks=marks, id=name)


SLACK = 1.5
"""Pixels, at 100 to the inch: half a line's width."""
MARKER = 5.0
"""Pixels that a point may reach over the frame: it is centred on its value, and not clipped
there."""


STEPS = np.array([0.001, 0.01, 0.05, 0.1, 0.2])
"""How far a prediction may move: the steps of the adversary's curve."""


@cache
def invented(runs: int, classes: int, count: int = 60) -> pd.DataFrame:
    """The long table of that many runs with all metrics that figures are drawn from."""
    tables = [invented_run(run, classes, count) for run in range(runs)]
    names = [drawable(name) for name in NAMES[:classes]]
    results = named(pd.concat(tables, ignore_index=True), [names] * runs)
    results.attrs[IMPORTANCES] = TOLD
    return results


def invented_run(run: int, classes: int, count: int) -> pd.DataFrame:
    """The long table of one run."""
    identity = {
        "run_id": f"run{run}",
        "experiment": "default",
        "data": f"customer reviews of the year 202{run}",
        "model": "lstm_additive",
        "seed": 0,
        "split": "test",
    }
    metrics = invented_metrics(run, classes, count)
    tables = [
        metric_rows(probe, metric, np.arange(count), np.full(count, np.nan), values)
        for (probe, metric), values in metrics.items()
    ]
    optimum = metrics["adversarial", "optimum_jsd"]
    tables.append(
        metric_rows(
            "adversarial",
            "optimum_jsd_within",
            ids=np.arange(count).repeat(len(STEPS)),
            steps=np.tile(STEPS, count),
            values=np.outer(optimum, np.linspace(0.2, 1, len(STEPS))).ravel(),
        )
    )
    return pd.concat(tables, ignore_index=True).assign(**identity)


def metric_rows(
    probe: str, metric: str, ids: np.ndarray, steps: np.ndarray, values: np.ndarray
) -> pd.DataFrame:
    return pd.DataFrame(
        {"probe": probe, "metric": metric, "example_id": ids, "step": steps, "value": values}
    )


def invented_metrics(run: int, classes: int, count: int) -> dict[tuple[str, str], np.ndarray]:
    """Every metric's value per example, by probe and metric."""
    draw_from = np.random.default_rng([run, classes])
    predicted = draw_from.integers(0, classes, count)
    length = draw_from.integers(1, 40, count)
    # each run's and class's distribution is narrower, so taller, than the one before
    width = 0.5 / (1 + run + predicted)
    farthest = np.log(2)
    optimum = farthest * draw_from.beta(8 + 20 * run, 2, count)
    gap = 0.02 * (classes > 2)
    metrics = {
        ("permutation", "median_tvd"): draw_from.random(count),
        ("adversarial", "found_jsd"): optimum * draw_from.random(count) * (run % 2),
        ("adversarial", "optimum_jsd"): optimum,
        ("adversarial", "upper_bound"): np.minimum(farthest, optimum + gap),
        ("adversarial", "is_exact"): np.full(count, float(classes == 2)),
        ("single_weight", "drawn_delta_js_attention"): draw_from.normal(0.1, 0.3, count),
        ("single_weight", "drawn_delta_attention_attention"): draw_from.random(count),
        ("single_weight", "flip_top_attention"): draw_from.integers(0, 2, count),
        ("single_weight", "flip_random_attention"): draw_from.random(count),
        ("erasure", "never_flips"): (draw_from.random(count) < 0.2).astype(float),
    }
    for probe in ("permutation", "adversarial", "correlation", "single_weight", "erasure"):
        metrics[probe, "predicted_class"] = predicted
        metrics[probe, "max_attention"] = draw_from.random(count)
        metrics[probe, "content_length"] = length
    pairs = ["_".join(pair) for pair in PUBLISHED]
    for pair in (*pairs, "shuffled_gradient", "shuffled_leave_one_out"):
        noise = width * draw_from.normal(size=count)
        tau = np.clip(0.3 + noise, -1, 1)
        tau[length == 1] = np.nan
        metrics["correlation", f"tau_{pair}"] = tau
    for place, ranking in enumerate(RANKINGS):
        removed = np.minimum(length, 1 + place)
        metrics["erasure", f"removed_count_{ranking}"] = removed
        metrics["erasure", f"removed_fraction_{ranking}"] = removed / length
        metrics["erasure", f"regret_{ranking}"] = removed - 1
    for metric in OF_IMPORTANCES:
        metrics[metric] = draw_from.random(count)
    return metrics | weight_ranges(length, draw_from)


def weight_ranges(
    length: np.ndarray, draw_from: np.random.Generator
) -> dict[tuple[str, str], np.ndarray]:
    """The numbers of the probe `identifiable`: between what the largest weight may lie."""
    uniform = draw_from.random((3, len(length)))
    low, top, high = np.sort(uniform, axis=0)
    ranges = {
        "unique": (top < 0.5) * 1.0,
        "freedom": length,
        "parts": length,
        "top_low": low,
        "top_weight": top,
        "top_high": high,
        "top_can_vanish": 0 * top,
        "farthest_jsd": high - low,
    }
    return {("identifiable", metric): values for metric, values in ranges.items()}


def tick_labels(axes: Axes) -> list[Text]:
    """Those that are drawn: ticks beyond the limits have labels too, and do not show them."""
    labels = []
    for axis in (axes.xaxis, axes.yaxis):
        low, high = sorted(axis.get_view_interval())
        for tick in axis.get_major_ticks():
            if low <= tick.get_loc() <= high:
                labels.append(tick.label1)
    return labels


def own_texts(axes: Axes) -> list[Text]:
    """The words of a panel but the labels of its ticks."""
    titles = [axes.title, axes._left_title, axes._right_title]
    return [*axes.texts, axes.xaxis.label, axes.yaxis.label, *titles]


def shown_texts(figure: Figure) -> list[Text]:
    """All words that are drawn: those of the figure, and of its visible panels."""
    within_panels = set()
    shown = []
    for axes in figure.axes:
        within_panels |= set(axes.findobj(Text))
        if axes.get_visible():
            shown += tick_labels(axes)
            shown += own_texts(axes)
    shown += [text for text in figure.findobj(Text) if text not in within_panels]
    return [text for text in shown if text.get_visible() and text.get_text().strip()]


def problems(figure: Figure) -> list[str]:
    """What is cut off, lies on other words or has letters of an odd size; in words."""
    with paper_style():
        FigureCanvasAgg(figure).draw()
    texts = shown_texts(figure)
    visible = [axes for axes in figure.axes if axes.get_visible()]
    faults = [*text_faults(figure, texts), *overlaps(texts)]
    for axes in visible:
        faults += axes_faults(figure, axes)
    for legend in figure.legends:
        box = legend.get_window_extent().padded(-SLACK)
        for axes in visible:
            if box.overlaps(axes.bbox):
                faults.append(f"the legend lies on {axes.get_title('left')!r}")
    return faults


def lies_within(box: BboxBase, frame: BboxBase) -> bool:
    is_within_width = frame.x0 <= box.x0 and box.x1 <= frame.x1
    is_within_height = frame.y0 <= box.y0 and box.y1 <= frame.y1
    return is_within_width and is_within_height


def text_faults(figure: Figure, texts: list[Text]) -> Iterator[str]:
    """Words that leave the figure, and letters that are too small or too large."""
    room = figure.bbox
    for text in texts:
        words = text.get_text()
        box = text.get_window_extent()
        if not lies_within(box, room.padded(SLACK)):
            yield f"{words!r} leaves the figure: {box.extents.round()} of {room.extents.round()}"
        if not 5.5 <= text.get_fontsize() <= 8:
            yield f"{words!r} has letters of {text.get_fontsize()} points"


def overlaps(texts: list[Text]) -> Iterator[str]:
    """Words that lie on others; slanted ones aside, whose boxes are larger than they are."""
    boxes = {}
    for text in texts:
        if text.get_rotation() in (0, 90):
            boxes[text] = text.get_window_extent().padded(-SLACK)
    for first, second in itertools.combinations(boxes, 2):
        if boxes[first].overlaps(boxes[second]):
            yield f"{first.get_text()!r} lies on {second.get_text()!r}"


def axes_faults(figure: Figure, axes: Axes) -> Iterator[str]:
    """A panel that is too low, and what is cut off at its frame."""
    frame = axes.bbox.padded(MARKER)
    title = axes.get_title("left")
    lowest = 0.5 * LOWEST * figure.dpi
    is_panel = axes.get_subplotspec() is not None
    if is_panel and axes.bbox.height < lowest:
        yield f"{title!r} is {axes.bbox.height:.0f} pixels high"
    for artist in (*axes.lines, *axes.patches, *axes.collections, *axes.images):
        box = artist.get_window_extent()
        is_drawn = np.isfinite(box.extents).all() and (box.width > 0 or box.height > 0)
        if is_drawn and artist.get_clip_on() and not lies_within(box, frame):
            yield f"{artist} of {title!r}: {box.extents.round()} of {frame.extents.round()}"


@pytest.mark.parametrize(("drawing", "runs", "classes"), [*cases()])
def test_nothing_is_cut_off(drawing: Drawing, runs, classes):
    figure = draw(drawing, invented(runs, classes))
    assert problems(figure) == []
    # a page of paper, the legend and long titles aside
    assert figure.get_figheight() <= TALLEST + 3.5
    if drawing.name.startswith("correlation") and 1 < classes <= 6:
        assert len(figure.legends[0].get_texts()) >= classes


def test_the_measure_finds_what_is_wrong():
    """Every kind of fault, made on purpose."""
    with paper_style():
        figure = Figure(figsize=(3, 2))
        panels = figure.subplots(1, 2, sharey=True)
        panels[0].plot([0, 1], [0, 1])
        panels[0].set_ylim(bottom=0)  # freezes the limits for the next panel
        panels[1].bar([0], [3])
        panels[0].set_title("a title as long as two panels and more")
        panels[1].annotate("here", (0.5, 0.5), fontsize=9)
        panels[1].annotate("there", (0.5, 0.5), fontsize=6)
        figure.legend(
            handles=panels[0].lines,
            labels=["far too many words for a figure of three inches"],
            loc="center",
        )
    faults = " ".join(problems(figure))
    for fault in (
        "Rectangle",
        "leaves the figure",
        "lies on 'there'",
        "letters of 9",
        "the legend lies on",
    ):
        assert fault in faults, fault


def test_every_ranking_of_a_figure_is_in_its_legend():
    drawing = next(drawing for drawing in DRAWINGS if drawing.name == "erasure_regret")
    figure = draw(drawing, invented(1, 2))
    [panel, *_] = figure.axes
    [legend] = figure.legends
    drawn = {(line.get_color(), line.get_linestyle()) for line in panel.lines}
    shown = [(line.get_color(), line.get_linestyle()) for line in legend.get_lines()]
    names = [text.get_text() for text in legend.get_texts()]
    assert set(shown) == drawn
    assert {"contribution", "weight gradient", "random", "optimal"} < set(names)
    colours = {colour for colour, _ in shown}
    assert len(shown) == len(colours) == len(names) == len(RANKINGS)
    line_styles = [line_style for _, line_style in shown]
    assert all(first != second for first, second in itertools.pairwise(line_styles))


@pytest.mark.parametrize("runs", [1, 3])
def test_the_hexagons_of_all_panels_have_one_scale_and_a_bar(runs):
    drawing = next(drawing for drawing in DRAWINGS if drawing.name == "single_weight_delta")
    figure = draw(drawing, invented(runs, 2))
    hexagons = [panel.collections[0] for panel in figure.axes[:runs]]
    largest = max(bins.get_array().max() for bins in hexagons)
    for bins in hexagons:
        assert bins.norm.vmin == 1
        assert bins.norm.vmax == largest
    bar = figure.axes[-1]
    assert bar.get_ylabel() == "examples"
    ticks = [int(label.get_text()) for label in bar.get_yticklabels()]
    assert ticks[0] == 1
    assert ticks[-1] == largest


def test_one_unique_attention_in_many_is_not_rounded_to_none():
    drawing = next(drawing for drawing in DRAWINGS if drawing.name == "identifiable")
    results = invented(1, 2, count=300)
    is_unique = results["metric"] == "unique"
    results.loc[is_unique, "value"] = (results.loc[is_unique, "example_id"] == 7).astype(float)
    [panel] = draw(drawing, results).axes
    assert panel.get_title(loc="left").endswith("unique in 0.3 %")
