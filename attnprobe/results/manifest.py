"""What a run's manifest holds: one declared shape, by which one of somebody else is checked."""

from functools import cache
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

from attnprobe import __version__
from attnprobe.core.sanitise import visible
from attnprobe.results.files import DamagedRun, NamedRecord, Record, damaged

Number = int | float
STRICT = with_config(ConfigDict(strict=True, extra="allow"))


@STRICT
class MetricFacts(TypedDict):
    """A metric's unit and range; an end that is open is None."""

    unit: str
    low: Number | None
    high: Number | None
    step: str
    higher_is_better: bool | None


@STRICT
class ImportanceFacts(TypedDict, total=False):
    """What is shown of an importance, how it was set and what it read."""

    name: str
    title: str
    colour: str
    signed: bool
    settings: dict[str, Any] | None
    files: dict[str, Record]
    seconds: Number


@STRICT
class TableFacts(TypedDict, total=False):
    """One table of measurements.

    Attributes:
        rows: of the table.
        undefined: values that were left out since they are not defined.
        metrics: by name.
        settings: of the probe; None: it has none.
        seconds: that the probe took.
        notes: its diagnostics, by name.
        importances: that it used, by its own name for each.
    """

    rows: int
    undefined: int
    metrics: dict[str, MetricFacts]
    settings: dict[str, Any] | None
    seconds: Number
    notes: dict[str, Any]
    importances: dict[str, ImportanceFacts]


@STRICT
class TrainingSettings(TypedDict, total=False):
    """What decides which model a training gives; of one's own trainer there may be less."""

    model: dict[str, Any]
    training: dict[str, Any]
    data: dict[str, Any]
    seed: int
    precision: str


@STRICT
class CheckFacts(TypedDict):
    """`attnprobe.data.data_warnings.Check`."""

    name: str
    value: Number | None
    threshold: Number | None
    warns: bool
    sentence: str


@STRICT
class DataSection(TypedDict, total=False):
    """What was read, and what is to be said of it."""

    notes: list[str]
    checks: list[CheckFacts]
    files: dict[str, NamedRecord]


@STRICT
class Manifest(TypedDict, total=False):
    """The manifest of a finished run; one of another version may lack an entry.

    Attributes:
        run_id: names the run among all others.
        experiment: under which the tables are filed.
        data: the data set's name.
        model: the model's name.
        seed: of the run.
        tables: by name.
        files: every file of the run.
        training: see `TrainingSettings`.
        training_fingerprint: of these settings.
        classes: names, in the order of the logits.
        counts: of each split, what was read, dropped and kept.
        data_section: see `DataSection`.
        chosen_epoch: whose weights were kept.
        teacher: the run that this one learned from; None: it has none.
        halved_batches: how often memory sufficed for a part of a batch only.
        model_facts: what the model says of itself, such as its family.
        attention_on: shares of the attention (`attnprobe.findings.attention_mass`).
        seconds: that it took until it was trained, and in all.
        versions: of attnprobe, of Python and of libraries.
        finished: when, in UTC.
    """

    run_id: str
    experiment: str
    data: str
    model: str
    seed: int
    tables: dict[str, TableFacts]
    files: dict[str, Record]
    training: TrainingSettings
    training_fingerprint: str
    classes: list[str]
    counts: dict[str, dict[str, Any]]
    data_section: DataSection
    chosen_epoch: int | None
    teacher: dict[str, Any] | None
    halved_batches: int
    model_facts: dict[str, Any]
    attention_on: dict[str, Any]
    seconds: dict[str, Number]
    versions: dict[str, str]
    finished: str


def checked_manifest(content: dict[str, Any], path: Path) -> Manifest:
    """What was read as a manifest, if it is one.

    Args:
        content: as it was read.
        path: of the file, for the message.

    Raises:
        DamagedRun: one line with the first entry that is of another type, or that another version
            of attnprobe did not write.
    """
    try:
        return _adapter().validate_python(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        place = visible(".".join(map(str, first["loc"])))
        if first["type"] == "missing":  # and its checksum says that nothing was taken out of it
            raise of_another_version(content, path, place) from None
        found = visible(str(first["input"]))[:80]
        raise damaged(path, f"{place}: {first['msg'].lower()}, and it is {found}") from None


def of_another_version(content: dict[str, Any], path: Path, place: str) -> DamagedRun:
    """The answer to a manifest that lacks an entry which this version writes.

    Args:
        content: of the manifest.
        path: of the file.
        place: of the entry.
    """
    versions = content.get("versions")
    version = versions.get("attnprobe", "unknown") if isinstance(versions, dict) else "unknown"
    if version == __version__:
        writer = f"an earlier state of attnprobe {version}"
    else:
        writer = f"another attnprobe ({visible(str(version))}; this is {__version__})"
    return DamagedRun(
        f"{path} was written by {writer}, which wrote no {place}",
        "Read the run with that version, or give its command again with on_finished=replace to "
        "train and measure it again",
    )


@cache
def _adapter() -> TypeAdapter[Manifest]:
    return TypeAdapter(Manifest)
