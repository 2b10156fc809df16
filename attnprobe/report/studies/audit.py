"""The audit of one's own data: is attention needed, is it stable, and what to show instead?"""

from pathlib import Path
from typing import Any

from attnprobe.report.four_tests.instead import instead
from attnprobe.report.four_tests.members import Members
from attnprobe.report.four_tests.necessity import uniform
from attnprobe.report.four_tests.stability import seeds
from attnprobe.report.studies import StudyReading
from attnprobe.results.directory import RunDirectory
from attnprobe.results.table import read_results


def read(directory: Path, content: dict[str, Any]) -> StudyReading:
    """The questions that need several runs or several methods; the other tests are in the first run's tables."""
    members = Members(directory, content)
    data, model = str(content["data"]), str(content["model"])
    reading = StudyReading(
        title=f"Audit of {data}, {model}: may this attention be read as an explanation?",
        about=(
            "The same model trained again with other seeds, and with attention frozen to uniform (Wiegreffe & Pinter 2019, "
            "sections 3.2 and 3.3). F1 is of class 1 on the test split, macro F1 with more than two classes; its intervals "
            "are over texts and seeds together, those of distances are bootstrapped over examples."
        ),
        data=data,
        model=model,
        directory=directory,
        findings=[],
        runs=list(members.of("base")["path"]),
        notes=[f"Planned: {content['plan']}."] if content.get("plan") else [],
    )
    if not members.of("uniform").empty:
        uniform(reading, members, {})
    seeds(reading, members)
    base = members.of("base")["path"].iloc[0]
    if "faithfulness" in RunDirectory(base).manifest()["tables"]:
        instead(reading, read_results(base, probe="faithfulness"))
    return reading
