"""A run directory's settings read as plain data: no reference in them is followed, and no class looked up."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Required

from pydantic import Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from attnprobe.errors import UserError
from attnprobe.results.checksums import LARGEST_JSON, damaged, is_signed, read_sealed
from attnprobe.results.directory import CONFIG, PIPELINE, RunDirectory
from attnprobe.results.untrusted import MAX_YAML, read_bytes, read_json, read_yaml


class SavedPipeline(TypedDict, total=False):
    """What pipeline.json holds (`attnprobe.data.pipeline.TextPipeline`)."""

    rules: dict[str, Any]
    classes: list[str]
    task: str
    max_tokens: int | None
    question: bool
    candidates_pattern: str | None


class SavedMember(TypedDict):
    """One run of a study: `directory` is relative to the study's own."""

    role: str
    seed: int
    parameter: float | None
    run_id: str
    directory: Annotated[str, Field(pattern=r"^[^\x00]+$")]


class SavedSettings(TypedDict, total=False):
    """Those of a study's settings that its reading goes by."""

    tests: list[str]
    above: float


class SavedStudy(TypedDict, total=False):
    """What study.json holds (`attnprobe.studies.base.carry_out_study`)."""

    study: Required[str]
    data: Required[str]
    model: Required[str]
    settings: Required[SavedSettings]
    plan: str
    members: Required[Annotated[list[SavedMember], Field(min_length=1)]]


PIPELINES = TypeAdapter(SavedPipeline)
STUDIES = TypeAdapter(SavedStudy)


def read_pipeline(directory: Path) -> SavedPipeline:
    """A run directory's pipeline.json, every entry of its type.

    Raises:
        FileNotFoundError, NotADirectoryError: there is none.
        UserError: it is damaged, or an entry is of another type.
    """
    path = Path(directory) / PIPELINE
    content = read_json(path, limit=LARGEST_JSON)
    try:
        return PIPELINES.validate_python(content, strict=True)
    except ValidationError as error:
        raise UserError(f"{path} is not the pipeline.json of a run: {first_fault(error)}") from None


def read_members(path: Path) -> dict[str, Any]:
    """A study.json, every entry that is read of its type.

    Raises:
        DamagedRun: it is missing or changed, or an entry is of another type.
    """
    content = read_sealed(path)
    try:
        STUDIES.validate_python(content, strict=True)
    except ValidationError as error:
        raise damaged(path, f"it is not as a study writes it: {first_fault(error)}") from None
    return content


def first_fault(error: ValidationError) -> str:
    """The first entry of another type, and what was expected there."""
    first = error.errors()[0]
    return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"


def read_settings(directory: Path) -> dict[str, Any]:
    """A run directory's config.yaml as plain data, compared with the manifest where the run is finished: nothing in it is
    resolved, and nothing constructed.

    Raises:
        FileNotFoundError, NotADirectoryError: there is none.
        UserError: it is damaged, or refers to other values or to the environment (`${…}`).
    """
    run = RunDirectory(directory)
    path = run.file(CONFIG) if run.is_finished else run / CONFIG
    content = read_yaml(path)
    refuse_references(content, path)
    return content


def check_unfinished(directory: Path) -> None:
    """Whether the settings of a run that has no manifest yet are as they were written.

    Raises:
        UserError: they were changed since.
    """
    path = RunDirectory(directory) / CONFIG
    if not RunDirectory(directory).is_finished and not is_signed(read_bytes(path, limit=MAX_YAML)):
        raise UserError(
            f"{path} has changed since the run wrote it, or is of an older version, and the run is not finished: give the "
            f"run's own command again, which writes it again; settings are changed on the command line"
        )


def refuse_references(content: Any, path: Path, place: tuple[str, ...] = ()) -> None:
    """Raise a `UserError` that names the first setting whose key or value holds `${`."""
    for key, value in entries(content):
        here = (*place, str(key))
        if "${" in str(key) or (isinstance(value, str) and "${" in value):
            raise UserError(
                f"{path}: {shown(here)} holds ${{…}}. A run writes values, never references, so that this one was "
                f"changed; what such a reference asks for (a variable of the environment, say) is not looked up"
            )
        refuse_references(value, path, here)


def entries(content: Any) -> list[tuple[Any, Any]]:
    """What is directly within a mapping or a list, with its key or number."""
    if isinstance(content, Mapping):
        return list(content.items())
    return list(enumerate(content)) if isinstance(content, (list, tuple)) else []


def shown(place: tuple[str, ...]) -> str:
    """A place in the settings as text, without anything that a terminal would obey."""
    return ascii(".".join(place)[:200])[1:-1]
