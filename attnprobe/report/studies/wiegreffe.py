"""Is attention needed, stable, of use to another model, and can a trained adversary escape it? (Wiegreffe & Pinter 2019)"""

from pathlib import Path
from typing import Any

from attnprobe.report import published
from attnprobe.report.four_tests.exclusivity import adversary
from attnprobe.report.four_tests.members import Members
from attnprobe.report.four_tests.necessity import uniform
from attnprobe.report.four_tests.stability import seeds
from attnprobe.report.four_tests.transfer import guide
from attnprobe.report.studies import StudyReading


def read(directory: Path, content: dict[str, Any]) -> StudyReading:
    """The four tests, as far as the study made them."""
    members = Members(directory, content)
    data, model = str(content["data"]), str(content["model"])
    reading = StudyReading(
        title=f"{data}, {model}: is attention needed, stable, transferable, and can it be escaped?",
        about=(
            "Wiegreffe & Pinter's four tests. F1 is of class 1 on the test split (macro F1 with more than two classes), "
            "intervals of F1 are over texts and seeds together, paired where two models are compared; intervals of "
            "distances are bootstrapped over examples. JSD in nats, 0 to 0.693; TVD 0 to 1. Published values are quoted from "
            "memory and not verified; they are of models with pretrained word vectors."
        ),
        data=data,
        model=model,
        directory=directory,
        findings=[],
        runs=list(members.of("base")["path"]),
        notes=[
            "The released code chooses the best epoch on the test split; here the validation split alone chooses, the "
            "guiding adversary included.",
            "The published TVD of table 4 is in the released code's unit, which is half of this one for two classes.",
        ],
    )
    papers = published.of_study("wiegreffe_pinter.csv", data)
    if members.has("uniform"):
        uniform(reading, members, papers)
    if members.has("seeds"):
        seeds(reading, members)
    if members.has("guide"):
        guide(reading, members, papers)
    if members.has("guide") or members.has("adversary"):
        adversary(reading, members, papers)
    return reading
