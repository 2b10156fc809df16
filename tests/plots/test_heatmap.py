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
    """What examples are chosen by."""
    table = pd.DataFrame(columns)
    return table.assign(example_id=range(len(table)))


def texts_of(figure):
    """The words in a figure."""
    return [text.get_text() for text in figure.findobj(mpl.text.Text)]


def drawn_texts(results, examples):
    """The words in the heat maps of a run."""
    with paper_style():
        return texts_of(heatmap.heatmaps(results, examples))


def test_peaked_but_movable_examples_of_every_class_and_the_least_movable_ones_are_shown():
    """Products of both are .54 .48 .475 .18 .009: the best of each class comes first, then the
    smallest JSD."""
    table = rows(
        max_attention=[0.9, 0.8, 0.95, 0.3, 0.9, 0.99],
        optimum_jsd=[0.6, 0.6, 0.5, 0.6, 0.01, 0.69],
        predicted_class=[0, 0, 1, 1, 1, 0],
        content_length=[9, 9, 9, 9, 9, 2],  # the last one is too short
    )
    chosen = heatmap.telling(table)
    assert list(chosen.items()) == [
        (0, heatmap.MOVABLE),
        (2, heatmap.MOVABLE),
        (1, heatmap.MOVABLE),
        (4, heatmap.FIXED),
    ]


def test_a_short_text_is_shown_where_there_are_no_others():
    table = rows(
        max_attention=[0.9],
        optimum_jsd=[0.6],
        predicted_class=[np.nan],
        content_length=[2],
    )
    undefined = table.assign(optimum_jsd=np.nan)
    assert list(heatmap.telling(table)) == [0]
    assert heatmap.telling(undefined) == {}


@settings(max_examples=60, deadline=None)
@given(
    count=st.integers(1, 200),
    most=st.integers(9, 60),
    seed=st.integers(0, 10**6),
)
def test_windows_hold_the_most_attended_tokens_and_no_more_than_allowed(count, most, seed):
    draw = np.random.default_rng(seed)
    maps = draw.dirichlet(np.full(count, 0.1), size=3)

    spans = heatmap.windows(list(maps), most)

    positions = []
    for start, stop in spans:
        positions += range(start, stop)
    most_attended = set(maps.argmax(axis=1))
    assert positions == sorted(set(positions))
    assert len(positions) <= most
    assert most_attended <= set(positions)
    for (_, stop), (start, _) in pairwise(spans):
        assert start > stop
    if count <= most:
        assert spans == [(0, count)]


def test_words_never_leave_their_column():
    draw = np.random.default_rng(0)
    places = heatmap.wrap(list(draw.uniform(5, 60, 200)), 140)
    lines = [line for _, line, _ in places]
    assert lines == sorted(lines)
    assert all(x + width <= 140 for x, _, width in places)


def test_the_first_word_of_a_line_would_not_have_fitted_on_the_line_above():
    draw = np.random.default_rng(0)
    places = heatmap.wrap(list(draw.uniform(5, 60, 200)), 140)
    breaks = 0
    for (x, line, width), (_, next_line, next_width) in pairwise(places):
        if next_line != line:
            assert x + width + next_width > 140 - 0.5
            breaks += 1
    assert breaks > 10


def test_measured_width_is_the_drawn_width():
    words = "moving $5 кино"
    with paper_style():
        figure = mpl.figure.Figure(figsize=(4, 1), dpi=720)
        renderer = FigureCanvasAgg(figure).get_renderer()
        text = figure.text(0, 0, words, fontsize=heatmap.FONT_SIZE)
        pixels = text.get_window_extent(renderer).width
        width = heatmap.text_width(words, heatmap.FONT_SIZE)
    assert width == pytest.approx(pixels / 10, abs=0.3)  # of 72 points to the inch


@pytest.fixture(scope="module")
def drawn_long_text(tmp_path_factory):
    """The drawn heat maps of texts of up to 400 words."""
    run = invented_run(tmp_path_factory.mktemp("long"), count=12, longest=400)
    with paper_style():
        figure = heatmap.heatmaps(read_results(run), read_examples(run))
        figure.canvas.draw()
    return figure


def test_all_three_columns_show_the_same_tokens_of_a_long_text_literally(drawn_long_text):
    texts = texts_of(drawn_long_text)
    assert any("of" in text and "tokens shown" in text for text in texts)
    for word in ("$5", "[red]bold[/red]", "_under_", "кино", "…"):
        count = texts.count(word)
        assert count > 0, word
        assert count % 3 == 0, word


def test_no_text_leaves_the_figure(drawn_long_text):
    width, height = drawn_long_text.get_size_inches() * drawn_long_text.dpi
    for text in drawn_long_text.findobj(mpl.text.Text):
        if text.get_text():
            extent = text.get_window_extent()
            assert extent.x0 >= 0, text
            assert extent.x1 <= width, text
            assert extent.y0 >= 0, text
            assert extent.y1 <= height, text


def test_an_adversary_that_found_nothing_says_so(make_run):
    run = make_run(count=6)
    results = read_results(run)
    without = results[results["metric"] != "found_attention"]
    assert "none found" in drawn_texts(without, read_examples(run))


def test_several_labels_are_spelled_out(make_run):
    run = make_run(count=6)
    examples = read_examples(run).assign(
        prediction=[[1, 1]] * 6,
        label=[[0, 1]] * 6,
    )
    texts = drawn_texts(read_results(run), examples)
    assert any("label 1 · predicted 0, 1 ·" in text for text in texts)
    assert heatmap.label_text([0, 0], []) == "none"


def test_captions_say_what_is_exact_and_what_is_bounded(make_run):
    run = make_run(count=30, exact=False)
    results = read_results(run)
    metrics = ("optimum_jsd", "optimum_tvd", "upper_bound", "is_exact")
    table = per_example(results, "adversarial", metrics).set_index("example_id")
    chosen = heatmap.telling(per_example(results, "adversarial", CHOICE))

    captions = drawn_texts(results, read_examples(run))

    assert chosen
    for number in chosen:
        row = table.loc[number]
        end = ", exact" if row["is_exact"] else f"; at most {row['upper_bound']:.3f}"
        caption = f"JSD {row['optimum_jsd']:.3f}, TVD {row['optimum_tvd']:.4f}{end}"
        assert caption in captions


def test_classes_have_their_names(make_run):
    run = make_run(count=12, names=["bad", "good"], questions=True)
    results = named(read_results(run), [["bad", "good"]])
    words = " ".join(drawn_texts(results, read_examples(run)))
    assert "predicted good (p =" in words
    assert "predicted bad (p =" in words
    assert "predicted 0" not in words
    assert "predicted 1" not in words


def test_questions_are_shown(make_run):
    run = make_run(count=12, questions=True)
    results = read_results(run)
    examples = read_examples(run).set_index("example_id", drop=False)
    chosen = heatmap.telling(per_example(results, "adversarial", CHOICE))
    expected = []
    for question in examples.loc[list(chosen), "question"]:
        words = heatmap.drawable(" ".join(question))
        expected.append(f"read with: {words}")

    texts = drawn_texts(results, examples)

    assert expected
    assert [text for text in texts if text.startswith("read with: ")] == expected
