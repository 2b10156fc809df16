"""One page out of finished runs: read, decided and drawn here, shown by the templates."""

import base64
import hashlib
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd

from attnprobe import __version__
from attnprobe.core.errors import answering_disk
from attnprobe.core.sanitise import visible
from attnprobe.evidence.claims import CRITERIA, LEVELS
from attnprobe.evidence.verdicts import Answer, Chip
from attnprobe.findings.groups import Group, grouped, read_sound_runs
from attnprobe.findings.headlines import compare
from attnprobe.findings.judgement import Findings
from attnprobe.findings.lines import LINES
from attnprobe.findings.sheet import UNPROVEN, Sheet, gauge_title, sheet_of, title_of
from attnprobe.findings.slices import Slices, slices_of
from attnprobe.findings.stored import kept_findings
from attnprobe.findings.studies.base import StudyReading, find_studies
from attnprobe.readings.registry import present
from attnprobe.report.figures import Picture, pictures, write_figures_of_texts
from attnprobe.report.page import MEGABYTES
from attnprobe.report.page.browser import browse, playgrounds
from attnprobe.report.page.glossary import MEANS, TERMS, explained
from attnprobe.report.page.sections import (
    FILTERS,
    ShownCard,
    about_runs,
    by_claim,
    overview_of,
    sections,
    show_study,
    shown_card,
)
from attnprobe.report.tables import all_tables, word_tables, write_paper
from attnprobe.results.directory import Places, unfinished
from attnprobe.results.lock import held
from attnprobe.results.numbers import Numbers
from attnprobe.results.writer import OwnFolder, own_target, write_page

HERE = Path(__file__).parent
SCRIPT = (
    "tables",
    "blocks",
    "examples",
    "search",
    "links",
    "browser",
    "pieces",
    "playground",
    "heatmaps",
)
"""The parts of the script, each of which may use what comes before it. Every word from data goes
through textContent."""
STYLE = ("style", "sheet", "playground")
MOST_SHEETS = 3
"""Models whose sheets stand on the first screen; of more it has the table of all answers alone."""


def page_text(**parts: Any) -> str:
    """The page; every string of `parts` is escaped."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=with_hidden_shown,
    )
    environment.filters |= FILTERS | {"explained": lambda text: explained(text, with_hidden_shown)}
    style = "".join((HERE / f"{name}.css").read_text(encoding="utf-8") for name in STYLE)
    scripts = [(HERE / "script" / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPT]
    # in one function of their own, so that they share names and the page gets none
    script = "\n".join(['"use strict";', "(() => {", *scripts, "})();", ""])
    return environment.get_template("page.html").render(
        **parts,
        criteria=CRITERIA,
        terms=TERMS,
        means=MEANS,
        says={place: line.yes for place, line in LINES.items()},
        answer_words=tuple(Answer),
        unproven=UNPROVEN,
        gauge_title=gauge_title,
        level_words={level: f"{level}s" for level in LEVELS},
        files=jinja2.filters.do_urlencode(parts["folder"]),
        version=__version__,
        made=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        style=style,
        script=script,
        style_hash=_policy_hash(style),
        script_hash=_policy_hash(script),
    )


def _policy_hash(text: str) -> str:
    """How a content security policy names a text that may run."""
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"sha256-{digest}"


def with_hidden_shown(value: Any) -> Any:
    """A string with its control and format characters as escapes; anything else stays."""
    if type(value) is not str:  # a `Markup` is a string that is safe already
        return value
    return "\n".join(map(visible, value.split("\n")))


@answering_disk()
def write_report(
    places: Places,
    output: Path,
    *,
    title: str = "",
    words: bool = True,
    megabytes: float = MEGABYTES,
    again: bool = False,
    tell: Callable[[str], None] = lambda _: None,
) -> Path:
    """Write the page, and beside it a folder `<its stem>_files` with the figures and the tables.

    Args:
        places: run directories, directories above runs, or glob patterns.
        output: the page.
        title: heads it; empty: `attnprobe.findings.sheet.title_of` the models.
        words: False leaves the texts out, and the figures that show them. Names of classes stay.
        megabytes: about what the page may weigh (`attnprobe.report.page.browser.browse`).
        again: decide anew, whatever findings are stored.
        tell: called with a line about every step.

    Returns:
        The page's path.

    Raises:
        UserError: no finished run there, or one run twice; or attnprobe did not write what is in
            the place of a file, or the disk refuses one.
    """
    own_target(output)
    files = OwnFolder(output.with_name(f"{output.stem}_files")).path
    # of two reports into one page, the second begins after the first
    with answering_disk(output), held(files):
        folder = OwnFolder(files)
        page = _page(
            places, folder, title=title, words=words, megabytes=megabytes, again=again, tell=tell
        )
        folder.close()
        write_page(page, output)
    return output


def _page(
    places: Places,
    folder: OwnFolder,
    *,
    title: str,
    words: bool,
    megabytes: float,
    again: bool,
    tell: Callable[[str], None],
) -> str:
    """Write figures and tables into a folder, and make the page; arguments as `write_report`'s."""
    tell("reading runs")
    runs, damaged = read_sound_runs(places)
    studies, unread = find_studies(places)
    begun = unfinished(places)
    for sentence in begun:
        print(f"attnprobe: left out: {sentence}", file=sys.stderr, flush=True)
    tell("numbers and their intervals")
    numbers = Numbers.together(run.numbers for run in runs)
    material = Material(
        groups=grouped(runs),
        numbers=numbers,
        compared=compare(numbers),
        findings=kept_findings(runs, folder, studies, again=again, tell=tell),
        studies=studies,
        words=words,
    )
    tell("figures")
    drawn = material.draw(folder)
    shown_studies = material.show_studies(folder)
    figures = [picture.file for several in drawn.values() for picture in several]
    figures += [picture.file for study in shown_studies for picture in study["pictures"]]
    figures += material.write_figures_of_texts(folder)
    tell("tables")
    tables = material.write_tables(folder)
    browser = browse(material.groups, words=words, megabytes=megabytes, tell=tell)
    browser.index["playgrounds"] = playgrounds(material.shown_groups, browser, words=words)
    browser.index["instead"] = [method for card in material.cards for method in card.answer.instead]

    tell("page")
    written = {"Figures": figures, "Tables": tables}
    return page_text(
        title=title or title_of(material.shown_groups),
        sections=sections(
            present(numbers), material.groups, material.compared, drawn, material.findings
        ),
        studies=shown_studies,
        **material.answers(),
        parts=material.parts(),
        **material.facts(),
        **about_runs(material.groups, runs, material.compared),
        run_count=len(runs),
        run_ids=[run.run_id for run in runs],
        skipped=[*map(str, (*damaged, *unread)), *begun],
        browser=browser,
        folder=folder.path.name,
        written=[(kind, names) for kind, names in written.items() if names],
    )


def first_sheets(
    sheets: Sequence[Sheet], cards: Sequence[ShownCard], *, has_answer: bool
) -> Sequence[Sheet]:
    """The sheets on the first screen; what the others say stands on the models' cards.

    Args:
        sheets: of all models.
        cards: of the same models; none where nothing was tested.
        has_answer: a study's answer stands before them, and one model is an example of it.
    """
    if has_answer:
        return sheets[:1]
    return [] if len(cards) > MOST_SHEETS else sheets[:MOST_SHEETS]


@dataclass(frozen=True)
class Material:
    """What a page is made of.

    Attributes:
        groups: of runs; those of a group differ in their seed alone.
        numbers: of all runs.
        compared: headline numbers beside the published ones.
        findings: what was decided.
        studies: what each found.
        words: whether texts may be shown.
    """

    groups: Sequence[Group]
    numbers: Numbers
    compared: pd.DataFrame
    findings: Findings
    studies: Sequence[StudyReading]
    words: bool

    @property
    def examined(self) -> list[Group]:
        """Groups with a claim that was tested."""
        tested = {card.group for card in self.findings.cards if card.is_tested}
        return [group for group in self.groups if group.title in tested]

    @property
    def shown_groups(self) -> Sequence[Group]:
        """Groups that have a first screen: the examined ones, or all where none was."""
        return self.examined or self.groups

    @cached_property
    def cards(self) -> list[ShownCard]:
        """The cards of these groups."""
        return [
            shown_card(group, self.findings.card_of(group.title)) for group in self.shown_groups
        ]

    def sheets(self) -> list[Sheet]:
        """What the page begins with, for each of these groups."""
        return [sheet_of(group, self.findings.card_of(group.title)) for group in self.shown_groups]

    def answers(self) -> dict[str, Any]:
        """Parts of the page that say what was decided: of all models together, and of each."""
        cards = self.cards if self.examined else []
        sheets = self.sheets()
        answers_of_studies = [study.answer for study in self.studies if study.answer]
        return {
            "answers": answers_of_studies,
            "cards": cards,
            "overview": overview_of(cards, self.compared),
            "sheets": sheets,
            "first_sheets": first_sheets(sheets, cards, has_answer=bool(answers_of_studies)),
        }

    def parts(self) -> list[tuple[str, list[Slices]]]:
        """The answer by parts of the texts, for each of these groups that has an answer."""
        parts = []
        for group in self.shown_groups:
            may_guess = self.findings.card_of(group.title).chip is Chip.POOR
            slices = [] if may_guess else slices_of(group)
            if slices:
                parts.append((group.title, slices))
        return parts

    def facts(self) -> dict[str, Any]:
        """Parts of the page that are lists of sentences and names."""
        examined = self.examined
        return {
            "comparisons": by_claim(self.findings.across),
            "untested": [group.title for group in self.groups if group not in examined],
            "warnings": _warnings(self.groups),
        }

    def draw(self, folder: OwnFolder) -> dict[str, list[Picture]]:
        """Every figure without texts by its probe, written as PDF too."""
        return {
            reading.probe: pictures(reading, self.groups, folder)
            for reading in present(self.numbers)
        }

    def write_figures_of_texts(self, folder: OwnFolder) -> list[str]:
        """Write every figure that shows texts, where these may be shown; the names of the files."""
        files: list[Path] = []
        for reading in present(self.numbers) if self.words else ():
            files += write_figures_of_texts(reading, self.groups, folder)
        return [file.name for file in files]

    def show_studies(self, folder: OwnFolder) -> list[dict[str, Any]]:
        """Each study's part of the page, its figures written as PDF too."""
        return [
            show_study(study, place, folder, self.groups, self.findings)
            for place, study in enumerate(self.studies, start=1)
        ]

    def write_tables(self, folder: OwnFolder) -> list[str]:
        """Write every table that the runs allow; the names of the files."""
        tables = [*all_tables(self.numbers, self.compared, self.findings)]
        if self.words:
            tables += word_tables(run for group in self.groups for run in group.runs)
        names = [path.name for table in tables for path in table.write(folder)]
        return names + [path.name for path in write_paper(self.compared, folder)]


def _warnings(groups: Sequence[Group]) -> list[tuple[str, str]]:
    """Each group's warnings, with the seed where it has several runs."""
    warnings = []
    for group in groups:
        for run in group.runs:
            if run.warning:
                seed = f" (seed {run.seed})" if len(group.runs) > 1 else ""
                warnings.append((group.title, run.warning + seed))
    return warnings
