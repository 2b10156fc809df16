"""One page out of finished runs: everything is read, drawn and put to the test here, and shown by the templates."""

import base64
import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import pandas as pd

from attnprobe.errors import answering_disk
from attnprobe.report.claims import CRITERIA, LEVELS, Finding
from attnprobe.report.comparisons import compare_models
from attnprobe.report.figures.style import paper_style
from attnprobe.report.page.browser.browse import MEGABYTES, browse
from attnprobe.report.page.formats import capital, count, number, p_value, short, signed
from attnprobe.report.page.glance import glances
from attnprobe.report.page.pictures import pictures
from attnprobe.report.page.runs import DOT, Group, Run, grouped, read_sound_runs, together
from attnprobe.report.page.sections import section
from attnprobe.report.page.studies import by_claim, of_studies, show_study
from attnprobe.report.page.verdicts import KINDS, MARKS, SAID, cards, examine, in_words, verdict_table
from attnprobe.report.published import compare
from attnprobe.report.quality import quality_of
from attnprobe.report.reading import present
from attnprobe.report.studies import find_studies
from attnprobe.report.tables import all_tables
from attnprobe.report.terminal import data_notes
from attnprobe.results.files import write_atomically
from attnprobe.results.statements import SECTION

HERE = Path(__file__).parent
SCRIPT = ("tables", "blocks", "examples", "search", "browser", "heatmaps")
"""The parts of the script, each of which may use what stands before it. Every word from data goes through textContent."""
TITLE = "May this attention be read as an explanation?"


@dataclass(frozen=True)
class RunRow:
    """A line of the table of runs: one group. `span` is accuracy's interval, or its range over the seeds."""

    data: str
    model: str
    note: str
    seeds: str
    examples: int
    accuracy: float
    span: str
    probes: list[str]
    finished: str


@answering_disk()
def write_report(
    places: Any,
    output: Path,
    *,
    title: str = TITLE,
    words: bool = True,
    megabytes: float = MEGABYTES,
    tell: Callable[[str], None] = lambda _: None,
) -> Path:
    """Write the page, and beside it a folder with the figures and the tables.

    Args:
        places: run directories, directories above runs, or glob patterns.
        output: the page's file; the folder is called `<its stem>_files`.
        title: heads the page.
        words: False leaves the texts out, and the figures that show them. Names of classes stay.
        megabytes: about what the page may weigh; see `attnprobe.report.page.browser.choosing.browse`.
        tell: is told what is being done.

    Returns:
        The page's path.

    Raises:
        UserError: no finished run there, or one run twice.
    """
    tell("reading runs")
    runs, skipped = read_sound_runs(places)
    with paper_style():
        studies = find_studies(places)
    groups = grouped(runs)
    numbers = together(runs)
    folder = output.with_name(f"{output.stem}_files")
    folder.mkdir(parents=True, exist_ok=True)
    tell("numbers and their intervals")
    compared = compare(numbers)
    readings = present(numbers)
    outcomes = examine(groups, readings, tell=tell)
    outcomes += of_studies(studies, groups)
    across = comparisons(groups)
    sections, figures = [], []
    said: set[str] = set()
    for reading in readings:
        tell(f"figures of {reading.probe}")
        drawn = pictures(reading, groups, folder, words=words)
        figures += [one.file for one in drawn]
        own = [outcome for outcome in outcomes if outcome.section == f"test-{reading.probe}"]
        made = section(reading, groups, compared, [one for one in drawn if one.uri], own, in_words(own))
        if made.noted in said:  # several probes use the same numbers
            made = replace(made, noted="")
        said.add(made.noted)
        if made.rows or made.pictures or made.outcomes:
            sections.append(made)
    shown = [show_study(study, place, folder, groups) for place, study in enumerate(studies, start=1)]
    figures += [one.file for study in shown for one in study.pictures]
    tell("tables")
    tested = [group for group in groups if any(one.group is group for one in outcomes)]
    findings = [(outcome.group.title, outcome.finding) for outcome in outcomes]
    findings += [(f"{finding.data}{DOT}{finding.model}", finding) for finding in across]
    shown_cards = cards(tested, outcomes)
    written = [*all_tables(numbers, compared, findings), *verdict_table(shown_cards)]
    tables = [path.name for table in written for path in table.write(folder)]
    browser = browse(groups, words=words, megabytes=megabytes, tell=tell)
    tell("page")
    page = rendered(
        title=title,
        lead=lead(tested or groups),
        sections=sections,
        comparisons=by_claim([(f"{finding.data}{DOT}{finding.model}", finding) for finding in across]),
        studies=shown,
        warnings=[(group.title, warning) for group in groups for warning in warnings_of(group)],
        cards=shown_cards,
        glances=glances(shown_cards, words=words),
        data_checks=data_checks(runs),
        untested=[group.title for group in groups if not any(one is group for one in tested)],
        runs=[run_row(group, compared) for group in groups],
        run_count=len(runs),
        run_ids=[run.run_id for run in runs],
        versions=versions(runs),
        data_notes=notes_of_data(runs),
        skipped=[str(error) for error in skipped],
        browser=browser,
        folder=folder.name,
        written=[(kind, names) for kind, names in (("Figures", figures), ("Tables", tables)) if names],
    )
    # the examples are most of it, and stay on the disk until they are written
    write_atomically(output, lambda path: page.dump(str(path), encoding="utf-8", errors="replace"))
    return output


def comparisons(groups: Sequence[Group]) -> list[Finding]:
    """Models against each other on one data set, among the runs of the same settings."""
    found = []
    for note in dict.fromkeys(group.note for group in groups):
        alike = together([run for group in groups if group.note == note for run in group.runs])
        found += [
            replace(finding, model=DOT.join([finding.model, note]) if note else finding.model)
            for finding in compare_models(alike)
        ]
    return found


def rendered(**parts: Any) -> jinja2.environment.TemplateStream:
    """The page's text, a piece at a time; every string of `parts` is escaped."""
    loader = jinja2.FileSystemLoader(HERE / "templates")
    environment = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"number": number, "signed": signed, "count": count, "short": short, "capital": capital}
    environment.filters["p_value"] = p_value
    style = "".join((HERE / name).read_text(encoding="utf-8") for name in ("style.css", "glance.css"))
    script = script_text()
    environment.globals |= {"claim_words": SAID, "level_words": {level: f"{level}s" for level in LEVELS}}
    environment.globals |= {"kinds": KINDS, "marks": MARKS, "files": jinja2.filters.do_urlencode(parts["folder"])}
    return environment.get_template("page.html").stream(
        **parts,
        criteria=CRITERIA,
        version=own_version(),
        made=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        style=style,
        script=script,
        style_hash=digest(style),
        script_hash=digest(script),
    )


def script_text() -> str:
    """The page's script: its parts in one function of their own, so that they share names and the page gets none."""
    parts = [(HERE / "script" / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPT]
    return "\n".join(['"use strict";', "(() => {", *parts, "})();", ""])


def digest(text: str) -> str:
    """How a content security policy names a text that may run."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def lead(groups: Sequence[Group]) -> str:
    """What the page is about, in two sentences.

    Args:
        groups: those whose attention was tested; what they were only compared with, such as uniform attention, is no model
            of which anything is asked.
    """
    data = list(dict.fromkeys(group.data for group in groups))
    models = list(dict.fromkeys(group.model for group in groups))
    where = (
        f"{groups[0].title}"
        if len(groups) == 1
        else f"{len(models)} model{_s(models)} on {len(data)} data set{_s(data)}"
    )
    return (
        f"Published tests of that question, run on {where}. Each asks one thing, and is answered with a number, its 95 % "
        f"interval, and a verdict that goes no further than the interval does."
    )


def _s(things: Sequence[object]) -> str:
    return "" if len(things) == 1 else "s"


def run_row(group: Group, compared: pd.DataFrame) -> RunRow:
    """One line of the table of runs."""
    ids = [run.run_id for run in group.runs]
    accuracy = compared["metric"].isin(["accuracy", "exact_match"]) & (compared["group"] == "overall")
    own = compared[compared["run_id"].isin(ids) & accuracy]
    values = own["mean"].to_numpy(float)
    span = ""
    if len(own) > 1:
        span = f"({number(values.min())} to {number(values.max())})"
    elif len(own) == 1 and not np.isnan(own["low"].iloc[0]):
        span = f"[{number(own['low'].iloc[0])}, {number(own['high'].iloc[0])}]"
    finished = sorted(str(run.manifest.get("finished", ""))[:10] for run in group.runs)
    probes = dict.fromkeys(probe for run in group.runs for probe in run.probes)
    return RunRow(
        data=group.data,
        model=group.model,
        note=group.note,
        seeds=", ".join(map(str, group.seeds)),
        examples=int(own["n"].max()) if len(own) else 0,
        accuracy=float(values.mean()) if len(values) else float("nan"),
        span=span,
        probes=[probe for probe in probes if probe not in ("performance", "training")],
        finished=finished[-1],
    )


def warnings_of(group: Group) -> list[str]:
    """What a reader must know of a group's classifiers before any verdict; each seed's once."""
    found = []
    for run in group.runs:
        measured = quality_of(run.directory, run.split)
        if measured is not None and measured.warning:
            seed = f" (seed {run.seed})" if len(group.runs) > 1 else ""
            found.append(measured.warning + seed)
    return found


def versions(runs: Sequence[Run]) -> list[str]:
    """Every library with the version that the runs were made with, several where they differ."""
    found: dict[str, list[str]] = {}
    for run in runs:
        for library, used in run.manifest.get("versions", {}).items():
            if used not in found.setdefault(str(library), []):
                found[str(library)].append(str(used))
    return [f"{library} {' or '.join(used)}" for library, used in found.items()]


def notes_of_data(runs: Sequence[Run]) -> list[tuple[str, list[str]]]:
    """For each data set what was left out of it or cut; the runs of one data set that differ are told apart."""
    found: dict[str, dict[tuple[str, ...], list[str]]] = {}
    for run in runs:
        notes = tuple(data_notes(run.manifest.get("counts", {})))
        found.setdefault(run.data, {}).setdefault(notes, []).append(run.model)
    return [
        (data if len(kinds) == 1 else f"{data} ({', '.join(dict.fromkeys(models))})", list(notes))
        for data, kinds in found.items()
        for notes, models in kinds.items()
    ]


def data_checks(runs: Sequence[Run]) -> list[tuple[str, list[str], list[dict[str, Any]]]]:
    """For each data set what was guessed while reading and looked at before training, by the first run that says so."""
    found: dict[str, tuple[str, list[str], list[dict[str, Any]]]] = {}
    for run in runs:
        section = run.manifest.get(SECTION, {})
        if section.get("checks"):
            found.setdefault(run.data, (run.data, list(section.get("notes", [])), list(section["checks"])))
    return list(found.values())


def own_version() -> str:
    """attnprobe's version; nothing where it is not installed."""
    try:
        return version("attnprobe")
    except PackageNotFoundError:
        return ""
