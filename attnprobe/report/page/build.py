"""One page out of finished runs: everything is read, drawn and put to the test here, and shown by
the templates."""

import base64
import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jinja2

from attnprobe import __version__
from attnprobe.core.errors import answering_disk
from attnprobe.core.sanitise import visible
from attnprobe.evidence.claims import CRITERIA, LEVELS
from attnprobe.evidence.reading import present
from attnprobe.evidence.verdicts import Answer
from attnprobe.findings.groups import grouped, read_sound_runs
from attnprobe.findings.headlines import compare
from attnprobe.findings.lines import LINES
from attnprobe.findings.stored import kept_findings
from attnprobe.findings.studies.base import find_studies
from attnprobe.report.figures import pictures
from attnprobe.report.page.browser import MEGABYTES, browse, playgrounds
from attnprobe.report.page.glossary import MEANS, TERMS, explained
from attnprobe.report.page.sections import (
    FILTERS,
    about_runs,
    by_claim,
    glance,
    sections,
    show_study,
    shown_card,
)
from attnprobe.report.tables import all_tables, word_tables, write_paper
from attnprobe.results.files import write_text
from attnprobe.results.numbers import Numbers
from attnprobe.results.writer import OwnFolder, own_target

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
STYLE = ("style", "glance", "playground")


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
    # how a content security policy names a text that may run
    digests = [
        base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        for text in (style, script)
    ]
    return environment.get_template("page.html").render(
        **parts,
        criteria=CRITERIA,
        terms=TERMS,
        means=MEANS,
        says={place: line.yes for place, line in LINES.items()},
        answer_words=tuple(Answer),
        level_words={level: f"{level}s" for level in LEVELS},
        files=jinja2.filters.do_urlencode(parts["folder"]),
        version=__version__,
        made=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        style=style,
        script=script,
        style_hash=f"sha256-{digests[0]}",
        script_hash=f"sha256-{digests[1]}",
    )


def with_hidden_shown(value: Any) -> Any:
    """A string of the data with its control and format characters as escapes; what is no plain
    string stays."""
    return "\n".join(map(visible, value.split("\n"))) if type(value) is str else value


TITLE = "May this attention be read?"


@answering_disk()
def write_report(
    places: Any,
    output: Path,
    *,
    title: str = TITLE,
    words: bool = True,
    megabytes: float = MEGABYTES,
    again: bool = False,
    tell: Callable[[str], None] = lambda _: None,
) -> Path:
    """Write the page, and beside it a folder `<its stem>_files` with the figures and the tables;
    returns the page's path.

    Args:
        places: run directories, directories above runs, or glob patterns.
        words: False leaves the texts out, and the figures that show them. Names of classes stay.
        megabytes: about what the page may weigh (`attnprobe.report.page.browser.browse`).
        again: decide anew, whatever findings are stored.
        tell: called with a line about every step.

    Raises:
        UserError: no finished run there, or one run twice; or attnprobe did not write what is in
            the place of a file.
    """
    own_target(output)
    folder = OwnFolder(output.with_name(f"{output.stem}_files"))
    tell("reading runs")
    runs, skipped = read_sound_runs(places)
    studies, unread = find_studies(places)
    tell("numbers and their intervals")
    groups = grouped(runs)
    numbers = Numbers.together(run.numbers for run in runs)
    probes = present(numbers)
    compared = compare(numbers)
    findings = kept_findings(runs, folder, studies, again=again, tell=tell)
    known = {card.group for card in findings.cards if card.is_tested}
    examined = [group for group in groups if group.title in known]
    tell("figures")
    drawn = {reading.probe: pictures(reading, groups, folder, words=words) for reading in probes}
    shown: list[dict[str, Any]] = [
        show_study(study, place, folder, groups, findings)
        for place, study in enumerate(studies, start=1)
    ]
    figures = [
        one.file
        for some in [*drawn.values(), *(study["pictures"] for study in shown)]
        for one in some
    ]
    tell("tables")
    written = [*all_tables(numbers, compared, findings)]
    if words:
        written += word_tables(run for group in groups for run in group.runs)
    tables = [path.name for one in written for path in one.write(folder)]
    tables += [path.name for path in write_paper(compared, folder)]
    browser = browse(groups, words=words, megabytes=megabytes, tell=tell)
    browser.index["playgrounds"] = playgrounds(examined or groups, browser, words=words)
    made = [shown_card(group, findings.card_of(group.title)) for group in examined or groups]
    browser.index["instead"] = [better for one in made for better in one.answer.instead]
    tell("page")
    page = page_text(
        title=title,
        sections=sections(probes, groups, compared, drawn, findings),
        comparisons=by_claim(findings.across),
        studies=shown,
        answers=[study.answer for study in studies if study.answer],
        cards=made if examined else [],
        glances=[glance(one) for one in made],
        untested=[group.title for group in groups if group not in examined],
        warnings=[
            (group.title, run.warning + (f" (seed {run.seed})" if len(group.runs) > 1 else ""))
            for group in groups
            for run in group.runs
            if run.warning
        ],
        run_count=len(runs),
        run_ids=[run.run_id for run in runs],
        **about_runs(groups, runs, compared),
        skipped=[str(error) for error in (*skipped, *unread)],
        browser=browser,
        folder=folder.path.name,
        written=[
            (kind, names) for kind, names in (("Figures", figures), ("Tables", tables)) if names
        ],
    )
    folder.close()
    write_text(page.encode(errors="replace").decode(), own_target(output))
    return output
