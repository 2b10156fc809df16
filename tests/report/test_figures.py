import base64
import gzip
import itertools
import json
import shutil

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from attnprobe.core.errors import UserError
from attnprobe.findings.groups import grouped, read_runs
from attnprobe.plots.grid import TITLE_WIDTH, title
from attnprobe.plots.style import LETTERS, drawable, new_figure, paper_style, text_width
from attnprobe.readings.registry import readings
from attnprobe.report import figures as draw
from attnprobe.results.directory import RunDirectory
from attnprobe.results.files import DamagedRun
from attnprobe.results.numbers import numbers_of
from attnprobe.results.pivot import CLASSES, facets, per_example, split_by_class
from attnprobe.results.table import read_results
from attnprobe.results.writer import OwnFolder
from tests.probes import tables
from tests.small_runs import seal_again

METRICS = ("median_tvd", "max_attention", "predicted_class")


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.findobj(mpl.text.Text)]


def test_every_figure_is_a_pdf_and_a_png_of_the_same_bytes_twice_and_leaves_no_setting_behind(
    make_run, tmp_path
):
    run = make_run(count=25)
    before = dict(mpl.rcParams)
    first = draw.draw_figures(run, tmp_path / "a")
    second = draw.draw_figures(run, tmp_path / "b")
    assert dict(mpl.rcParams) == before
    stems = {"permutation", "adversarial_jsd", "adversarial_by_attention", "adversarial_heatmaps"}
    assert {path.name for path in first} == {
        f"{stem}.{kind}" for stem in stems for kind in ("pdf", "png")
    }
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    pdf = next(path for path in first if path.suffix == ".pdf").read_bytes()
    assert b"/FontFile2" in pdf  # TrueType, embedded
    assert b"/Type3" not in pdf
    assert b"CreationDate" not in pdf


@pytest.mark.usefixtures("no_pdf")
def test_draws_what_the_tables_allow_and_no_words_when_told_so(make_run, tmp_path):
    run = make_run(probes=("performance", "permutation"))
    assert {path.stem for path in draw.draw_figures(run, tmp_path / "f")} == {"permutation"}
    assert draw.draw_figures(make_run("bare", probes=("performance",)), tmp_path / "g") == []
    stems = {
        path.stem for path in draw.draw_figures(make_run("whole"), tmp_path / "h", words=False)
    }
    assert "adversarial_heatmaps" not in stems
    assert "adversarial_jsd" in stems


@pytest.mark.parametrize("missing", ["max_attention", "median_tvd"])
def test_a_number_that_no_text_has_is_not_drawn(make_run, missing):
    results = read_results(make_run(count=20))
    reading = readings()["permutation"]
    assert len(list(draw.all_figures([reading], [], numbers_of(results), [], words=False))) == 1
    results.loc[results["metric"] == missing, "value"] = np.nan
    assert list(draw.all_figures([reading], [], numbers_of(results), [], words=False)) == []


@pytest.mark.usefixtures("no_pdf")
@pytest.mark.parametrize(
    "shape",
    [
        {"classes": 1, "count": 3},
        {"classes": 4, "exact": False},
        {"classes": 9},
        {"longest": 1},
        {"count": 1},
    ],
)
def test_odd_shapes_are_drawn_without_a_warning(make_run, tmp_path, shape):
    assert len(draw.draw_figures(make_run(**shape), tmp_path / "f")) == 8


@pytest.mark.usefixtures("no_pdf")
def test_several_runs_share_figures_and_have_their_own_heat_maps(make_run, tmp_path):
    runs = [
        make_run("sst 0", count=20),
        make_run("sst-1", count=20, seed=1),
        make_run("imdb", count=20, data="imdb"),
    ]
    stems = {path.stem for path in draw.draw_figures(runs, tmp_path / "f")}
    assert {"permutation", "adversarial_heatmaps-sst-0", "adversarial_heatmaps-sst-1"} <= stems
    (drawing,) = readings()["permutation"].drawings
    words = texts(tables.draw(drawing, read_results(runs)))
    assert {"sst · lstm_additive · 2 seeds", "imdb · lstm_additive"} <= set(words)


def test_the_permutation_figure_counts_every_bin_and_class(make_run):
    results = read_results(make_run(count=200))
    (drawing,) = readings()["permutation"].drawings
    figure = tables.draw(drawing, results)
    wide = per_example(results, "permutation", METRICS)
    bins = pd.cut(wide.max_attention, [0, 0.25, 0.5, 0.75, 1.01], right=False)
    groups = wide.groupby([wide.predicted_class, bins], observed=False)
    expected = [f"n = {count}" for count in groups.size()]
    counts = [text for text in texts(figure) if text.startswith("n = ")]
    assert sorted(counts) == sorted(expected)


def test_the_histogram_holds_every_example_in_forty_bins(make_run):
    results = read_results(make_run(count=80, exact=False))
    drawing = readings()["adversarial"].drawings[0]
    panel = tables.draw(drawing, results).axes[0]
    search, optimum, bound = (patch.get_data() for patch in panel.patches)
    wide = per_example(results, "adversarial", ("found_jsd", "optimum_jsd", "upper_bound"))
    histograms = {"found_jsd": search, "optimum_jsd": optimum, "upper_bound": bound}
    for metric, steps in histograms.items():
        bins = itertools.pairwise(steps.edges)
        assert len(steps.values) == 40
        for (low, high), share in zip(bins, steps.values, strict=True):
            inside = sum(low <= value < high for value in wide[metric])
            assert share == pytest.approx(inside / 80)


def test_runs_that_differ_in_more_than_the_seed_are_not_pooled(make_run):
    wide = per_example(read_results([make_run("a"), make_run("b")]), "permutation", METRICS)
    assert [facet.title for facet in facets(wide)] == [
        "sst · lstm_additive · a",
        "sst · lstm_additive · b",
    ]
    runs = [make_run("c"), make_run("d", experiment="other")]
    wide = per_example(read_results(runs), "permutation", METRICS)
    expected = [
        f"sst · lstm_additive · {experiment}" for experiment in ("jain_adversarial", "other")
    ]
    assert [facet.title for facet in facets(wide)] == expected


def test_one_run_in_two_directories_is_refused(make_run, tmp_path):
    first = make_run("here")
    second = make_run("there")
    shutil.copytree(first / "tables", second / "tables", dirs_exist_ok=True)
    seal_again(second)
    with pytest.raises(UserError, match="run here is there twice"):
        draw.draw_figures([first, second], tmp_path / "f")


def test_titles_of_data_are_not_interpreted(make_run):
    results = read_results(make_run(data="costs $5 or $\\frac{1}{2}$", model="[red]"))
    for drawing in (*readings()["permutation"].drawings, *readings()["adversarial"].drawings[:2]):
        with paper_style():
            figure = drawing.draw(results, None)
            figure.canvas.draw()  # a formula would be parsed here, and fail
        assert any("costs $5 or" in text for text in texts(figure))
        assert not any(
            text.get_parse_math() for text in figure.findobj(mpl.text.Text) if text.get_text()
        )


def test_panel_titles_break_at_dots_and_shorten_long_words():
    panel = new_figure().subplots()
    title(panel, "newsgroups_pair · average_additive · class 0 · " + "x" * 50)
    lines = panel.get_title("left").split("\n")
    assert lines[:2] == ["newsgroups_pair · average_additive", "class 0"]
    assert max(text_width(line, LETTERS) for line in lines) <= TITLE_WIDTH
    assert lines[-1].endswith("…")


def test_characters_that_cannot_be_drawn_are_boxes_and_spaces():
    assert drawable("a\n\tж$\u0007", ["DejaVu Sans"]) == "a  ж$ "
    assert drawable("映x", ["DejaVu Sans"]) == "□x"


@pytest.mark.usefixtures("no_pdf")
def test_classes_are_called_by_name_where_all_runs_have_the_same(make_run, tmp_path, monkeypatch):
    figures = {}

    def keep(figure, directory, stem):
        figures[stem] = figure
        return []

    def entries(*runs, words=True):
        draw.draw_figures(runs, tmp_path / "f", words=words)
        [legend] = figures["permutation"].legends
        return [text.get_text() for text in legend.get_texts()]

    monkeypatch.setattr(draw, "save", keep)
    probes = ("performance", "permutation")
    first, second, other, unnamed = [
        make_run(f"run{seed}", seed=seed, count=20, probes=probes) for seed in range(4)
    ]
    names = ["_bad_", "映画 $5"]
    for run, classes in ((first, names), (second, names), (other, ["no", "yes"])):
        pipeline = json.dumps({"classes": classes})
        (run / "pipeline.json").write_text(pipeline)

    assert entries(first, second) == [drawable(name) for name in names]
    assert entries(first, words=False) == ["class 0", "class 1"]
    assert entries(first, other) == ["class 0", "class 1"]
    assert entries(first, unnamed) == ["class 0", "class 1"]


@pytest.mark.parametrize("names", [["□□", "□□"], ["good", " "]])
def test_classes_are_one_group_where_many_or_unknown_and_keep_their_numbers_where_names_look_alike(
    names,
):
    def groups(rows, most):
        return [name for name, _ in split_by_class(rows, most)]

    rows = pd.DataFrame({"predicted_class": [0.0, 1.0]})
    unknown = pd.DataFrame({"predicted_class": [np.nan]})
    assert groups(rows, 2) == ["class 0", "class 1"]
    assert groups(rows, 1) == ["all 2 classes"]
    assert groups(unknown, 2) == ["all examples"]
    rows.attrs = {CLASSES: names}
    assert groups(rows, 2) == [f"0: {names[0]}", f"1: {names[1]}"]
    rows.attrs = {CLASSES: ["bad", "good"]}
    assert groups(rows, 2) == ["bad", "good"]


@pytest.mark.parametrize(
    ("largest", "kind"), [(draw.LARGEST, "application/gzip"), (100, "image/png")]
)
def test_a_figure_of_the_page_is_an_image_that_no_script_runs_from_and_a_pdf(
    monkeypatch, tmp_path, largest, kind
):
    monkeypatch.setattr(draw, "LARGEST", largest)
    figure = new_figure(2, 1)
    figure.subplots().set_title("<script>")
    picture = draw.picture(figure, "one", "What was lost. More.", tmp_path)
    start, _, content = picture.source.partition(";base64,")
    assert start == f"data:{kind}"
    drawn = base64.b64decode(content)
    assert b"PNG" in drawn if kind == "image/png" else b"<svg" in gzip.decompress(drawn)
    assert picture.alternative == "Figure: What was lost. The table beside it has its numbers."
    assert (picture.width, picture.height) == (240, 120)
    assert (tmp_path / picture.file).read_bytes()[:5] == b"%PDF-"


def test_a_run_that_has_drawn_its_figures_is_not_drawn_again(make_run, tmp_path):
    run = make_run(count=12, probes=("performance", "permutation"))
    (run / "figures").mkdir()
    (run / "figures/permutation.png").write_bytes(b"as it was drawn")
    seal_again(run)

    def read(words=True):
        folder = tmp_path / f"drawn-{len(list(tmp_path.iterdir()))}"
        files = draw.png_figures(RunDirectory(run), folder, words=words)
        return {file.name: file.read_bytes() for file in files}

    assert read() == {"permutation.png": b"as it was drawn"}
    drawn_anew = read(words=False)  # its own may show the names of the classes
    assert drawn_anew["permutation.png"].startswith(b"\x89PNG")
    (run / "figures/permutation.png").write_bytes(b"changed since")
    with pytest.raises(DamagedRun, match=r"permutation\.png is damaged"):
        read()


@pytest.mark.usefixtures("no_pdf")
def test_a_probe_whose_figures_the_run_did_not_draw_is_drawn_beside_its_own(make_run, tmp_path):
    """Its figures were switched off when that probe was added."""
    run = make_run(count=12, probes=("performance", "permutation", "adversarial"))
    (run / "figures").mkdir()
    (run / "figures/permutation.png").write_bytes(b"as it was drawn")
    seal_again(run)
    files = draw.png_figures(RunDirectory(run), tmp_path / "drawn", words=True)
    assert files[0].read_bytes() == b"as it was drawn"
    names = {file.name for file in files[1:]}
    assert "adversarial_heatmaps.png" in names
    assert not any(name.startswith("permutation") for name in names)


def test_a_report_copies_the_figures_of_texts_that_its_runs_have_drawn(make_run, tmp_path):
    run = make_run("a", count=12)
    make_run("b", seed=1, count=12)
    (run / "figures").mkdir()
    (run / "figures/adversarial_heatmaps.pdf").write_bytes(b"as it was drawn")
    seal_again(run)
    folder = OwnFolder(tmp_path / "files")
    reading = readings()["adversarial"]
    files = draw.write_figures_of_texts(reading, grouped(read_runs(tmp_path)), folder)
    content = {file.name: file.read_bytes() for file in files}
    assert content["adversarial_heatmaps-a.pdf"] == b"as it was drawn"
    assert content["adversarial_heatmaps-b.pdf"].startswith(b"%PDF-")
    assert len(content) == len(files) == 2
    (run / "figures/adversarial_heatmaps.pdf").write_bytes(b"changed since")
    draw.write_figures_of_texts(reading, grouped(read_runs(tmp_path)), folder)
    assert files[0].read_bytes().startswith(b"%PDF-")
