"""Nothing that a figure shows is cut off: every drawn artist measured against its axes and the
figure."""

import itertools
from functools import cache

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from attnprobe.evidence.reading import Drawing, readings
from attnprobe.importance.base import built_in
from attnprobe.plots.grid import LOWEST, TALLEST
from attnprobe.plots.style import drawable, paper_style
from attnprobe.probes.correlation import PUBLISHED
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
FEW = [
    (1, 2),
    pytest.param(2, 10, marks=pytest.mark.whole),
    pytest.param(7, 6, marks=pytest.mark.whole),
]
"""The smallest layout, the most classes, and rows of panels; all others up to 7 runs and 10
classes: `pytest -m slow`."""
ALL = [
    pair
    for pair in itertools.product(range(1, 8), range(2, 11))
    if pair not in ((1, 2), (2, 10), (7, 6))
]
SLACK = 1.5
"""Pixels, at 100 to the inch: half a line's width."""
MARKER = 5.0
"""Pixels that a point may reach over the frame: it is centred on its value, and not clipped
there."""


@cache
def invented(runs: int, classes: int, count: int = 60) -> pd.DataFrame:
    """The long table of that many runs with all metrics that figures are drawn from."""
    parts = []
    for run in range(runs):
        draw_from = np.random.default_rng([run, classes])
        predicted = draw_from.integers(0, classes, count)
        length = draw_from.integers(1, 40, count)
        # each run's and class's distribution is narrower, so taller, than the one before
        width = 0.5 / (1 + run + predicted)
        optimum = draw_from.beta(8 + 20 * run, 2, count) * np.log(2)
        metrics = {
            ("permutation", "median_tvd"): draw_from.random(count),
            ("adversarial", "found_jsd"): optimum * draw_from.random(count) * (run % 2),
            ("adversarial", "optimum_jsd"): optimum,
            ("adversarial", "upper_bound"): np.minimum(np.log(2), optimum + 0.02 * (classes > 2)),
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
        for pair in (
            *("_".join(pair) for pair in PUBLISHED),
            "shuffled_gradient",
            "shuffled_leave_one_out",
        ):
            tau = np.clip(0.3 + width * draw_from.normal(size=count), -1, 1)
            metrics["correlation", f"tau_{pair}"] = np.where(length > 1, tau, np.nan)
        for place, ranking in enumerate(RANKINGS):
            removed = np.minimum(length, 1 + place)
            metrics["erasure", f"removed_count_{ranking}"] = removed
            metrics["erasure", f"removed_fraction_{ranking}"] = removed / length
            metrics["erasure", f"regret_{ranking}"] = removed - 1
        for metric in OF_IMPORTANCES:
            metrics[metric] = draw_from.random(count)
        low, top, high = np.sort(draw_from.random((3, count)), axis=0)
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
        metrics |= {("identifiable", metric): values for metric, values in ranges.items()}
        identity = {
            "run_id": f"run{run}",
            "experiment": "default",
            "data": f"customer reviews of the year 202{run}",
            "model": "lstm_additive",
            "seed": 0,
            "split": "test",
        }
        for (probe, metric), values in metrics.items():
            rows = {
                "probe": probe,
                "metric": metric,
                "example_id": np.arange(count),
                "step": np.nan,
                "value": values,
            }
            parts.append(pd.DataFrame(identity | rows))
        steps = np.array([0.001, 0.01, 0.05, 0.1, 0.2])
        within = np.outer(optimum, np.linspace(0.2, 1, len(steps))).ravel()
        along = {
            "probe": "adversarial",
            "metric": "optimum_jsd_within",
            "example_id": np.arange(count).repeat(len(steps)),
            "step": np.tile(steps, count),
            "value": within,
        }
        parts.append(pd.DataFrame(identity | along))
    results = named(
        pd.concat(parts, ignore_index=True), [list(map(drawable, NAMES[:classes]))] * runs
    )
    results.attrs[IMPORTANCES] = TOLD
    return results


def tick_labels(axes: Axes) -> list[Text]:
    """Those that are drawn: ticks beyond the limits have labels too, and do not show them."""
    found = []
    for axis in (axes.xaxis, axes.yaxis):
        low, high = sorted(axis.get_view_interval())
        found += [tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
    return [label for label in found if label.get_visible()]


def shown_texts(figure: Figure) -> tuple[list[Text], list[Text]]:
    """All words that are drawn: labels of ticks, and the rest."""
    visible = [axes for axes in figure.axes if axes.get_visible()]
    ticks = [label for axes in visible for label in tick_labels(axes)]
    every = {id(label) for axes in figure.axes for label in axes.findobj(Text)}
    own = {
        id(text)
        for axes in visible
        for text in (
            *axes.texts,
            axes.xaxis.label,
            axes.yaxis.label,
            axes.title,
            axes._left_title,
            axes._right_title,
        )
    }
    rest = [text for text in figure.findobj(Text) if id(text) in own or id(text) not in every]
    shown = [
        [text for text in texts if text.get_visible() and text.get_text().strip()]
        for texts in (ticks, rest)
    ]
    return shown[0], shown[1]


def problems(figure: Figure) -> list[str]:
    """What is cut off, lies on other words or has letters of an odd size; in words."""
    with paper_style():
        FigureCanvasAgg(figure).draw()
    found = []
    room = figure.bbox
    ticks, rest = shown_texts(figure)
    texts = [*ticks, *rest]
    for text in texts:
        box = text.get_window_extent()
        if (
            box.x0 < -SLACK
            or box.y0 < -SLACK
            or box.x1 > room.x1 + SLACK
            or box.y1 > room.y1 + SLACK
        ):
            found.append(
                f"{text.get_text()!r} leaves the figure: {box.extents.round()} of {room.extents.round()}"
            )
        if not 5.5 <= text.get_fontsize() <= 8:
            found.append(f"{text.get_text()!r} has letters of {text.get_fontsize()} points")
    words = [
        (text, text.get_window_extent().padded(-SLACK))
        for text in texts
        if text.get_rotation() in (0, 90)
    ]
    for (one, box), (other, beside) in itertools.combinations(words, 2):
        if box.overlaps(beside):
            found.append(f"{one.get_text()!r} lies on {other.get_text()!r}")
    for axes in figure.axes:
        if not axes.get_visible():
            continue
        frame = axes.bbox.padded(MARKER)
        if axes.bbox.height < 0.5 * LOWEST * figure.dpi and axes.get_subplotspec() is not None:
            found.append(f"{axes.get_title('left')!r} is {axes.bbox.height:.0f} pixels high")
        for artist in (*axes.lines, *axes.patches, *axes.collections, *axes.images):
            box = artist.get_window_extent()
            if not np.isfinite(box.extents).all() or (box.width == 0 and box.height == 0):
                continue
            inside = (
                frame.x0 <= box.x0
                and box.x1 <= frame.x1
                and frame.y0 <= box.y0
                and box.y1 <= frame.y1
            )
            if artist.get_clip_on() and not inside:
                found.append(
                    f"{artist} of {axes.get_title('left')!r}: {box.extents.round()} of {frame.extents.round()}"
                )
    for legend in figure.legends:
        for axes in figure.axes:
            if axes.get_visible() and legend.get_window_extent().padded(-SLACK).overlaps(axes.bbox):
                found.append(f"the legend lies on {axes.get_title('left')!r}")
    return found


@pytest.mark.parametrize(
    "drawing", [one for one in DRAWINGS if one is not OF_SITES], ids=lambda drawing: drawing.name
)
@pytest.mark.parametrize(
    ("runs", "classes"), [*FEW, *(pytest.param(*pair, marks=pytest.mark.slow) for pair in ALL)]
)
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
    found = " ".join(problems(figure))
    for fault in (
        "Rectangle",
        "leaves the figure",
        "lies on 'there'",
        "letters of 9",
        "the legend lies on",
    ):
        assert fault in found, fault


def test_every_ranking_of_a_figure_is_in_its_legend():
    drawing = next(drawing for drawing in DRAWINGS if drawing.name == "erasure_regret")
    figure = draw(drawing, invented(1, 2))
    drawn = {line.get_color() for line in figure.axes[0].lines}
    lines = figure.legends[0].get_lines()
    texts = figure.legends[0].get_texts()
    entries = {line.get_color(): text.get_text() for line, text in zip(lines, texts, strict=True)}
    assert set(entries) == drawn
    assert {"contribution", "weight gradient", "random", "optimal"} < set(entries.values())
    assert len(entries) == len(RANKINGS)


def test_the_hexagons_of_all_panels_have_one_scale_and_a_bar():
    drawing = next(drawing for drawing in DRAWINGS if drawing.name == "single_weight_delta")
    figure = draw(drawing, invented(3, 2))
    hexagons = [panel.collections[0] for panel in figure.axes[:3]]
    assert len({(one.norm.vmin, one.norm.vmax) for one in hexagons}) == 1
    assert hexagons[0].norm.vmin == 1
    assert hexagons[0].norm.vmax == max(one.get_array().max() for one in hexagons)
    assert figure.axes[-1].get_ylabel() == "examples"
