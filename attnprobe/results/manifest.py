"""What the JSON files of a run say: checked as they are read, before anything is made of them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, NotRequired, Required

from pydantic import Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from attnprobe.results.files import damaged

SECTION = "data_section"
"""The manifest's key of what is said of the data before training: `notes`, what was guessed while reading, one sentence
each; `checks`, see `attnprobe.data.data_warnings.Check`."""


class Record(TypedDict):
    """`sha256` and `bytes` of one file."""

    sha256: str
    bytes: int


class _Importance(TypedDict, total=False):
    title: str
    colour: str
    seconds: float


class _Metric(TypedDict, total=False):
    unit: Required[str]
    step: Required[str]
    low: float | None
    high: float | None
    higher_is_better: bool | None


class _Table(TypedDict, total=False):
    importances: dict[str, _Importance]
    metrics: dict[str, _Metric]
    notes: dict[str, Any]
    seconds: float


class _Check(TypedDict):
    name: str
    sentence: str
    warns: bool
    value: float
    threshold: NotRequired[float | None]


class _Section(TypedDict, total=False):
    notes: list[str]
    checks: list[_Check]


class _Model(TypedDict, total=False):
    encoder: dict[str, Any]
    attention: dict[str, Any]
    heads: list[Any] | None


class _Settings(TypedDict, total=False):
    model: _Model
    data: dict[str, Any]


_Counts = TypedDict(
    "_Counts",
    {
        "loaded": float, "drawn from train": float, "kept": float, "truncated": float, "dropped": dict[str, float],
        "vocabulary": float, "found": float,
    },
    total=False,
)  # fmt: skip
"""Of a split, and of the words that have a vector."""


class Manifest(TypedDict, total=False):
    """Those entries of manifest.json that are read, and their types. Others are left as they are."""

    files: Required[dict[str, Record]]
    tables: dict[str, _Table]
    run_id: str
    experiment: str
    data: str
    model: str
    seed: int
    classes: list[str]
    counts: dict[str, _Counts]
    versions: dict[str, str]
    finished: str
    data_section: _Section
    training: _Settings


class Training(TypedDict, total=False):
    """As `Manifest`, of training.json."""

    files: Required[dict[str, Record]]
    curve: list[dict[str, float]]


class SavedPipeline(TypedDict, total=False):
    """What pipeline.json holds (`attnprobe.data.pipeline.TextPipeline`)."""

    rules: dict[str, Any]
    classes: list[str]
    task: str
    max_tokens: int | None
    question: bool
    candidates_pattern: str | None


class _Member(TypedDict):
    role: str
    seed: int
    parameter: float | None
    run_id: str
    directory: Annotated[str, Field(pattern=r"^[^\x00]+$")]


class _StudySettings(TypedDict, total=False):
    tests: list[str]
    above: float


class SavedStudy(TypedDict, total=False):
    """What study.json holds (`attnprobe.runs.studies.base.carry_out_study`); a member's `directory` is relative to it."""

    study: Required[str]
    data: Required[str]
    model: Required[str]
    settings: Required[_StudySettings]
    plan: str
    asked: str
    inputs: dict[str, dict[str, Any]]
    members: Required[Annotated[list[_Member], Field(min_length=1)]]


_ADAPTERS = {kind: TypeAdapter[Any](kind) for kind in (Manifest, Training, SavedPipeline, SavedStudy)}


def check_types(kind: Any, content: Mapping[str, Any], path: Path) -> None:
    """Raises `DamagedRun` with the first entry of a run's JSON file that lacks the type that `kind` names, and that type."""
    try:
        _ADAPTERS[kind].validate_python(content, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise damaged(path, f"{place}: {first['msg']}") from None
