from itertools import pairwise

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg

from attnprobe.plots import heatmap
from attnprobe.plots.style import paper_style
from attnprobe.results.pivot import named, per_example
from attnprobe.results.table import read_examples, read_results
from tests.invented_runs import invented_run

CHOICE = ("max_attention", "optimum_jsd", "predicted_class", "content_length")


def rows(**columns: list[float]) -> pd.DataFrame:
    return pd.DataFrame({"example_id": range(len(columns["max_attention"]))} | columns)


def texts_of(results, examples):
    with paper_style():
        figure = heatmap.heatmaps(results, examples)
    return [text.get_text() for text in figure.findobj(mpl.text.Text)]


def test_peaked_but_movable_examples_of_every_class_and_the_least_movable_ones_are_shown():
    table = rows(
        max_attention=[0.9, 0.8, 0.95, 0.3, 0.9, 0.99],
        optimum_jsd=[0.6, 0.6, 0.5, 0.6, 0.01, 0.69],
        predicted_class=[0, 0, 1, 1, 1, 0],
        content_length=[9, 9, 9, 9, 9, 2],  # the last one is too short
    )
    # products .54 .48 .475 .18 .009: the best of each class; then the smallest JSD of each class
    chosen = heatmap.telling(table)
    assert list(chosen.items()) == [
        (0, heatmap.MOVABLE),
        (2, heatmap.MOVABLE),
        (1, heatmap.MOVABLE),
        (4, heatmap.FIXED),
    ]
    # a short text is shown where there are no others
    table = rows(
        max_attention=[0.9], optimum_jsd=[0.6], predicted_class=[np.nan], content_length=[2]
    )
    assert list(heatmap.telling(table)) == [0]
    assert heatmap.telling(table.assign(optimum_jsd=np.nan)) == {}


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 200), st.integers(9, 60), st.integers(0, 10**6))
def test_windows_hold_the_most_attended_tokens_and_no_more_than_allowed(count, most, seed):
    draw = np.random.default_rng(seed)
    maps = [draw.dirichlet(np.full(count, 0.1)) for _ in range(3)]
    spans = heatmap.windows(maps, most)
    positions = [position for start, stop in spans for position in range(start, stop)]
    assert positions == sorted(set(positions))
    assert len(positions) <= most
    assert {int(weights.argmax()) for weights in maps} <= set(positions)
    assert all(later[0] > earlier[1] for earlier, later in pairwise(spans))
    if count <= most:
        assert spans == [(0, count)]


def test_words_never_leave_their_column():
    widths = list(np.random.default_rng(0).uniform(5, 60, 200))
    places = heatmap.wrap(widths, 140)
    assert all(x + width <= 140 for x, _, width in places)
    lines = [line for _, line, _ in places]
    assert lines == sorted(lines)
    # greedy: the first word of every line would not have fitted on the line above
    for (x, line, width), (_, next_line, next_width) in pairwise(places):
        assert next_line == line or x + width + next_width > 140 - 0.5


def test_measured_width_is_the_drawn_width():
    with paper_style():
        figure = mpl.figure.Figure(figsize=(4, 1), dpi=720)
        canvas = FigureCanvasAgg(figure)
        text = figure.text(0, 0, "moving $5 кино", fontsize=heatmap.FONT_SIZE)
        drawn_width = text.get_window_extent(canvas.get_renderer()).width / 10
        width = heatmap.text_width("moving $5 кино", heatmap.FONT_SIZE)
        assert width == pytest.approx(drawn_width, abs=0.3)


@pytest.fixture(scope="module")
def drawn_long_text(tmp_path_factory):
    """The drawn heat maps of texts of up to 400 words."""
    run = invented_run(tmp_path_factory.mktemp("long"), count=12, longest=400)
    with paper_style():
        figure = heatmap.heatmaps(read_results(run), read_examples(run))
        figure.canvas.draw()
    return figure


def test_all_three_columns_show_the_same_tokens_of_a_long_text_literally(drawn_long_text):
    texts = [text.get_text() for text in drawn_long_text.findobj(mpl.text.Text)]
    assert any("of" in text and "tokens shown" in text for text in texts)
    for word in ("$5", "[red]bold[/red]", "_under_", "кино", "…"):
        assert texts.count(word) % 3 == 0, word
        assert texts.count(word) > 0, word


def test_no_text_leaves_the_figure(drawn_long_text):
    width, height = drawn_long_text.get_size_inches() * drawn_long_text.dpi
    for text in drawn_long_text.findobj(mpl.text.Text):
        if text.get_text():
            extent = text.get_window_extent()
            assert extent.x0 >= 0, text
            assert extent.x1 <= width, text
            assert extent.y0 >= 0, text
            assert extent.y1 <= height, text


def test_an_adversary_that_found_nothing_says_so_and_several_labels_are_spelled_out(make_run):
    run = make_run(count=6)
    results = read_results(run)
    results = results[results["metric"] != "found_attention"]
    examples = read_examples(run).assign(prediction=[[1, 1]] * 6, label=[[0, 1]] * 6)
    texts = texts_of(results, examples)
    assert "none found" in texts
    assert any("label 1 · predicted 0, 1 ·" in text for text in texts)
    assert heatmap.label_text([0, 0], []) == "none"


def test_captions_say_what_is_exact_and_what_is_bounded(make_run):
    run = make_run(count=30, exact=False)
    results = read_results(run)
    captions = texts_of(results, read_examples(run))
    table = per_example(
        results, "adversarial", ("optimum_jsd", "optimum_tvd", "upper_bound", "is_exact")
    )
    for number in heatmap.telling(per_example(results, "adversarial", CHOICE)):
        row = table[table["example_id"] == number].iloc[0]
        end = ", exact" if row["is_exact"] else f"; at most {row['upper_bound']:.3f}"
        assert f"JSD {row['optimum_jsd']:.3f}, TVD {row['optimum_tvd']:.4f}{end}" in captions


def test_classes_have_their_names_and_questions_are_shown(make_run):
    run = make_run(count=12, names=["bad", "good"], questions=True)
    results = named(read_results(run), [["bad", "good"]])
    examples = read_examples(run)
    texts = texts_of(results, examples)
    assert any("predicted good (p =" in text or "predicted bad (p =" in text for text in texts)
    assert not any("predicted 0" in text or "predicted 1" in text for text in texts)
    questions = [
        text.removeprefix("read with: ") for text in texts if text.startswith("read with: ")
    ]
    chosen = heatmap.telling(per_example(results, "adversarial", CHOICE))
    question_words = examples.set_index("example_id")["question"]
    assert questions == [heatmap.drawable(" ".join(question_words[number])) for number in chosen]
