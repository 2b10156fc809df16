"""All figures that the tables of some finished runs allow, as PDF for a paper and PNG for a page."""

import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from attnprobe.report.facets import named
from attnprobe.report.heatmap import shorten
from attnprobe.report.reading import Drawing, present
from attnprobe.report.style import drawable, paper_style, save
from attnprobe.results.directory import find_runs
from attnprobe.results.table import read_examples, read_results


def draw_figures(
    run_dirs: str | os.PathLike | Iterable[str | os.PathLike], directory: str | os.PathLike, *, words: bool = True
) -> list[Path]:
    """Draw every figure whose numbers are in the tables.

    Figures of several runs show a panel per data set and model, with seeds pooled. Those that show texts are drawn
    once per run, with the run's id in the file's name where there are several.

    Args:
        run_dirs: a run directory, a directory above several runs, a glob pattern, or a list of these.
        directory: where the figures go; made if it is not there.
        words: False leaves out the figures that show texts, and the names of the classes.

    Returns:
        The files written, `<figure>.pdf` and `<figure>.png`, in the order of the probes.

    Raises:
        UserError: no finished run there.
    """
    return draw_tables({run: read_results(run) for run in find_runs(run_dirs)}, directory, words=words)


def draw_tables(tables: Mapping[Path, pd.DataFrame], directory: str | os.PathLike, *, words: bool = True) -> list[Path]:
    """As `draw_figures`, from each run directory's tables as they are in memory."""
    directory = Path(directory)
    together = pd.concat(tables.values()) if len(tables) > 1 else next(iter(tables.values()))
    together = named(together, [class_names(run) if words else [] for run in tables])
    written: list[Path] = []
    for reading in present(together):
        for drawing in reading.drawings:
            if not drawing.words:
                if drawable_from(drawing, together):
                    written += save(draw(drawing, together, None), directory, drawing.name)
                continue
            for run, own in tables.items() if words else []:
                results = own[own["probe"].isin(drawing.probes)]
                if drawable_from(drawing, results):
                    stem = drawing.name if len(tables) == 1 else f"{drawing.name}-{file_name(run.name)}"
                    examples = read_examples(run, split=str(results["split"].iloc[0]))
                    written += save(draw(drawing, results, examples), directory, stem)
    return written


def class_names(run_dir: Path) -> list[str]:
    """The names of a run's classes, fit for a figure; none where it does not say."""
    try:
        names = json.loads((run_dir / "pipeline.json").read_text(encoding="utf-8"))["classes"]
    except FileNotFoundError:
        return []
    return [drawable(shorten(str(name))) for name in names]


def draw(drawing: Drawing, results: pd.DataFrame, examples: pd.DataFrame | None) -> Figure:
    """One figure in the house style."""
    with paper_style():
        return drawing.draw(results, examples)


def drawable_from(drawing: Drawing, results: pd.DataFrame) -> bool:
    """Whether the table holds every metric that the figure cannot do without."""
    there = set(results[["probe", "metric"]].drop_duplicates().itertuples(index=False, name=None))
    return set(drawing.metrics) <= there


def file_name(text: str) -> str:
    """The text with everything but letters, digits, dots, dashes and underscores made a dash.

    >>> file_name("lr=0.1,seed=3 (b)")
    'lr-0.1-seed-3-b'
    """
    return re.sub(r"[^\w.-]+", "-", text).strip("-.")
