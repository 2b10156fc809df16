"""The sanity checks of a model: its own tables say it all."""

from pathlib import Path
from typing import Any

from attnprobe.report.studies import StudyReading


def read(directory: Path, content: dict[str, Any]) -> StudyReading:
    """What was done; the numbers are in the examined run's tables."""
    base = next(directory / one["directory"] for one in content["members"] if one["role"] == "base")
    data, model = str(content["data"]), str(content["model"])
    return StudyReading(
        title=f"Sanity checks on {data}, {model}: does an importance depend on what the model has learnt?",
        about=(
            "The model was trained twice, on its labels and on labels by a coin. Every importance of the first is compared "
            "with itself in the second, and in the first with weights made random from the output down (Adebayo et al. 2018)."
        ),
        data=data,
        model=model,
        directory=directory,
        findings=[],
        runs=[base],
    )
