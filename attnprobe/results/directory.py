"""A run's directory: the names of its files, and the checks that every reader makes.

Nothing else knows these names.

    .attnprobe                written first: this folder is a run's own
    .attnprobe.new/           what is being added and not true yet (`attnprobe.results.writer`)
    config.yaml               everything that decides the numbers, resolved
    vocabulary.json           word → id
    pipeline.json             how text becomes tokens; the classes
    model.safetensors         the weights of the chosen epoch
    training.json             the training is finished; checksums of its files
    examples/<split>.parquet  one row per example: text, label, prediction, and its tokens and
                              attention as lists; tables and pages are about those of the test
                              split, runs that learn from this one read them all
    tables/<probe>.parquet    long tables, one row = one number about one example
    playground.parquet        a few texts with what a page can compute predictions from
    figures/                  drawn from the tables alone
    manifest.json             written last; lists the tables, and the SHA-256 of every file. No
                              manifest, not done.
"""

import os
import re
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from glob import glob
from pathlib import Path, PurePosixPath
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from attnprobe.core.errors import UserError
from attnprobe.results.files import DamagedRun, Record, damaged, is_record, read_sealed, record_of
from attnprobe.results.manifest import Manifest, checked_manifest

Places = str | os.PathLike | Iterable[str | os.PathLike]
"""Where finished runs are: a run's directory, one above several runs, a glob pattern, or a list of
these."""

WHOLE_SPLIT = -1
"""`example_id` of a number that is about the whole split (accuracy, a count) and not about one
example."""

IDENTITY = ("run_id", "experiment", "data", "model", "seed", "split", "probe")
COLUMNS = (*IDENTITY, "metric", "example_id", "step", "value")
CATEGORY = pa.dictionary(pa.int32(), pa.string())
SCHEMA = pa.schema(
    {
        "run_id": CATEGORY,
        "experiment": CATEGORY,
        "data": CATEGORY,
        "model": CATEGORY,
        "seed": pa.int64(),
        "split": CATEGORY,
        "probe": CATEGORY,
        "metric": CATEGORY,
        "example_id": pa.int64(),
        "step": pa.float64(),
        "value": pa.float64(),
    }
)
SITE = "site"
SITED = SCHEMA.append(pa.field(SITE, CATEGORY))
"""With a last column that says which of a model's attentions a number is about
(`attnprobe.models.base.Model.sites`): only tables of several sites are written with it, and where
it is absent every number is about the model's own."""

MANIFEST = "manifest.json"
MARKER = ".attnprobe"
TRAINED = "training.json"
CONFIG = "config.yaml"
WEIGHTS = "model.safetensors"
VOCABULARY = "vocabulary.json"
PIPELINE = "pipeline.json"
PLAYGROUND = "playground.parquet"
FINDINGS = "findings.parquet"
"""Made of the tables, by whoever reads them where it is missing or of another version: no part of
the run."""
CURVES = "training/"
TRACKING = "wandb/"
STAGING = f"{MARKER}.new/"
"""Where what is added to a run is prepared, and where readers find it that a commit has listed and
not moved yet."""
UNTESTED = ("train", "validation")
"""Splits that no probe examines: their examples are there for the runs that learn from this one."""
SECTION: Final = "data_section"
"""The manifest's key of what is said of the data before training: `notes`, what was guessed while
reading, one sentence each; `checks`, see `attnprobe.data.data_warnings.Check`; and `files`, the
name and digest of each split's file."""
NAMES = re.compile(
    r"manifest\.json|training\.json|config\.yaml|model\.safetensors|vocabulary\.json|pipeline\.json|playground\.parquet"
    r"|findings\.parquet"
    r"|(tables|examples)/[^/\\:\0-\x1f]+\.parquet|figures/[^/\\:\0-\x1f]+\.(pdf|png|svg)"
    r"|training/(metrics\.csv|hparams\.yaml|events\.out\.tfevents\.[^/\\:\0-\x1f]+)"
)

NUMBERS = ("numbers", "whole numbers")
LISTS_OF_NUMBERS = ("lists of numbers", "lists of whole numbers")
ANSWERS = ("whole numbers", "lists of whole numbers", "lists of numbers")
"""A class, or a number per label where a text has any number of them."""
EXPECTED_COLUMNS: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "tables/": {
        **dict.fromkeys((*IDENTITY, "metric"), ("texts",)),
        **dict.fromkeys(("seed", "example_id"), ("whole numbers",)),
        **dict.fromkeys(("step", "value"), NUMBERS),
    },
    "examples/": {
        "example_id": ("whole numbers",),
        **dict.fromkeys(("label", "prediction"), ANSWERS),
        **dict.fromkeys(("probability", "attention"), LISTS_OF_NUMBERS),
        "tokens": ("lists of texts",),
    },
    PLAYGROUND: {
        "example_id": ("whole numbers",),
        **dict.fromkeys(("attention", "position_logits"), LISTS_OF_NUMBERS),
        "epsilon": NUMBERS,
    },
}
"""How a table's name begins → its columns that every reader asks for → what they may hold."""


def _kind(column: pa.DataType) -> str:
    """What a column of a type holds, of whatever width.

    >>> _kind(pa.list_(pa.float32())), _kind(pa.dictionary(pa.int32(), pa.string()))
    ('lists of numbers', 'texts')
    """
    if pa.types.is_dictionary(column):
        return _kind(column.value_type)
    if pa.types.is_list(column) or pa.types.is_large_list(column):
        return f"lists of {_kind(column.value_type)}"
    if pa.types.is_integer(column):
        return "whole numbers"
    if pa.types.is_floating(column):
        return "numbers"
    if pa.types.is_string(column) or pa.types.is_large_string(column):
        return "texts"
    return str(column)


def _check_columns(path: Path, expected: Mapping[str, Collection[str]]) -> None:
    """Compare a table's columns with those that its readers ask for."""
    try:
        schema = pq.read_schema(path)
    except (OSError, pa.ArrowException):
        raise damaged(path, "it is no parquet file, or not all of it") from None
    for column, kinds in expected.items():
        if column not in schema.names:
            raise damaged(path, f"it has no column {column}")
        kind = _kind(schema.field(column).type)
        if kind not in kinds:
            raise damaged(path, f"its column {column} holds {kind}, expected {next(iter(kinds))}")


def is_run_name(name: str) -> bool:
    """Whether a run may have a file of this name: no other is ever written or removed.

    >>> is_run_name("tables/a.parquet"), is_run_name("tables/../a.parquet")
    (True, False)
    >>> is_run_name("../a"), is_run_name("thesis.docx")
    (False, False)
    """
    return NAMES.fullmatch(name) is not None


def refuse_other_names(names: Iterable[str], source: Path) -> None:
    """Check the names of files that a file of a run lists, before any is read, moved or removed.

    Args:
        names: as they were read.
        source: the file that lists them.

    Raises:
        DamagedRun: for a name that no file of a run has: an absolute path, `..`, another's file.
    """
    for name in names:
        if not is_run_name(name):
            raise DamagedRun(
                f"{source} names the file {name[:200]!r}, which no run has: it was changed"
            )


table_file = "tables/{}.parquet".format
"""The name of a probe's table in its run."""
examples_file = "examples/{}.parquet".format
"""The name of a split's examples in their run."""


class RunDirectory:
    """One run's directory. Whatever is read through it has been compared with the manifest.

    Attributes:
        path: of the directory.
        written: files that this process has prepared and that no list names yet.
    """

    def __init__(self, path: str | os.PathLike) -> None:
        self.path = Path(path)
        self.written = set[str]()
        try:
            str(self.path).encode()
        except UnicodeEncodeError:  # no parquet file can be opened there
            raise UserError(
                f"{self.path}: the name of a run's folder is not UTF-8: rename it"
            ) from None

    def __truediv__(self, name: str) -> Path:
        return self.path.joinpath(*PurePosixPath(name).parts)

    @property
    def is_finished(self) -> bool:
        """There is a manifest; whether it and the files are sound, only reading shows."""
        return os.path.lexists(self / MANIFEST)

    @property
    def is_trained(self) -> bool:
        """The training is finished: from here on the run may be resumed without it."""
        return os.path.lexists(self / TRAINED)

    def read_manifest(self) -> Manifest | None:
        """The manifest, None where there is none.

        Raises:
            DamagedRun: if it is not as a run writes it.
        """
        if not self.is_finished:
            return None
        return checked_manifest(self.read_listing(MANIFEST), self / MANIFEST)

    def manifest(self) -> Manifest:
        """The manifest of a finished run.

        Raises:
            UserError: if there is no finished run.
            DamagedRun: if the manifest is not as a run wrote it.
        """
        content = self.read_manifest()
        if content is not None:
            return {"tables": {}, **content}
        state = "does not exist"
        if self.path.exists():
            state = "holds no finished run (no manifest.json)"
        raise UserError(
            f"{self.path} {state}: expected a run directory such as "
            f"runs/testbed/lstm_additive-seed0-…; start one with `python -m attnprobe`, or give "
            f"the command of one that was interrupted again"
        )

    def training(self) -> dict[str, Any]:
        """What is known since the training finished: the chosen epoch, the curve, the data.

        Raises:
            DamagedRun: if a file that the training wrote does not have its checksum.
        """
        content = self.read_listing(TRAINED)
        for name, record in content["files"].items():
            if name != CONFIG:  # replaced by every command that adds to the run
                self.located(name, record)
        return content

    def read_listing(self, file: str) -> dict[str, Any]:
        """Read the manifest or training.json, whose `files` lists others of the run.

        Raises:
            DamagedRun: if the file is not as it was written, lists a name that no file of a run
                has, or something else than records.
        """
        content = read_sealed(self / file)
        files = content.get("files")
        if not (isinstance(files, dict) and all(is_record(record) for record in files.values())):
            raise damaged(self / file, f"files is {str(files)[:80]}, expected a record by name")
        refuse_other_names(files, self / file)
        return content

    def verify(self, names: Iterable[str] | None = None) -> Manifest:
        """Compare files with the manifest, and return it.

        Args:
            names: of the files; None: all that it lists.

        Raises:
            UserError: if there is no finished run.
            DamagedRun: for the first file that is missing, unlisted or changed.
        """
        manifest = self.manifest()
        for name in manifest["files"] if names is None else names:
            if name not in manifest["files"]:
                raise damaged(self / name, "the manifest does not list it")
            self.located(name, manifest["files"][name])
        return manifest

    def located(self, name: str, record: Record) -> Path:
        """The path of a file as its record says, in its place or still where it was prepared.

        Raises:
            DamagedRun: if it is missing, or is not as its record says.
        """
        # whoever commits may have moved it between two looks
        for path in (self / name, self / f"{STAGING}{name}", self / name):
            try:
                current = record_of(path)
            except DamagedRun as error:
                damage = error
                continue
            if current == record:
                return path
            reason = "its SHA-256 is not the one in the manifest"
            if current["bytes"] != record["bytes"]:
                reason = f"it has {current['bytes']:,} bytes, the manifest says {record['bytes']:,}"
            damage = damaged(path, reason)
        raise damage

    def verify_tables(self, probes: Collection[str] | None = None) -> list[str]:
        """Compare tables, and the examples that probes were run on, with the manifest.

        Args:
            probes: whose tables; None: all.

        Returns:
            The names of the tables.

        Raises:
            UserError: as `verify`.
            DamagedRun: for a table without the columns that its readers ask for.
        """
        tables = [table_file(name) for name in self.probes() if probes is None or name in probes]
        examples = [examples_file(split) for split in self.splits() if split not in UNTESTED]
        self.verify([*tables, *examples])
        self.check_columns(tables)
        return tables

    def check_columns(self, names: Iterable[str]) -> None:
        """Compare the columns of files with those that their readers ask for.

        A checksum does not do so: whoever edits a table may renew it as well.

        Args:
            names: of files that the manifest lists.

        Raises:
            DamagedRun: for the first one of which a column is missing or holds something else.
        """
        for name in names:
            for beginning, columns in EXPECTED_COLUMNS.items():
                if name.startswith(beginning):
                    _check_columns(self.file(name), columns)

    def file(self, name: str) -> Path:
        """The path of one file, compared with the manifest unless this process prepared it."""
        if name in self.written:
            return self / f"{STAGING}{name}"
        return self.located(name, self.verify([name])["files"][name])

    def probes(self) -> list[str]:
        """The probes whose tables the manifest lists."""
        return list(self.manifest()["tables"])

    def splits(self) -> list[str]:
        """The splits whose examples the manifest lists, or this process prepared, each once."""
        listed = self.manifest()["files"] if self.is_finished or not self.written else {}
        names = dict.fromkeys([*self.written, *listed])
        return [Path(name).stem for name in names if name.startswith("examples/")]

    def examples(
        self,
        split: str,
        columns: Sequence[str] | None = None,
        example_ids: Iterable[int] | None = None,
    ) -> pa.Table:
        """One row per example of a split, by `example_id`, which ascends from 0 or more.

        Args:
            split: its name.
            columns: only these; None: all.
            example_ids: only these rows; None: all.

        Raises:
            UserError: if the run has no such split.
            DamagedRun: if its examples are not as they were written.
        """
        splits = self.splits()
        if split not in splits:
            raise UserError(
                f"{self.path} has no examples of the split {split!r}: "
                f"there are {', '.join(splits) or 'none'}"
            )
        rows = None
        if example_ids is not None:
            ids = pa.array([int(example_id) for example_id in example_ids], pa.int64())
            rows = pc.field("example_id").isin(ids)
        return pq.read_table(self.file(examples_file(split)), columns=columns, filters=rows)

    def example_columns(self, split: str) -> pa.Schema:
        """The columns of `examples`, and their types.

        Raises:
            DamagedRun: if the examples are not as they were written.
        """
        return pq.read_schema(self.file(examples_file(split)))

    def shown_files(self) -> list[str]:
        """The files that figures and reports are made of, by name."""
        files = self.manifest()["files"].keys() - {examples_file(split) for split in UNTESTED}
        return sorted(name for name in files if name.endswith(".parquet") or name == PIPELINE)


class DamagedRunWarning(UserWarning):
    """Some of several runs were left out, because they are damaged."""


def find_runs(
    places: Places,
    check: Callable[[RunDirectory], Any] = RunDirectory.verify,
) -> list[Path]:
    """As `sound_runs`; what is left out is named in a `DamagedRunWarning`."""
    sound, skipped = sound_runs(places, check)
    warn_of(skipped)
    return sound


def sound_runs(
    places: Places,
    check: Callable[[RunDirectory], Any] = RunDirectory.verify,
) -> tuple[list[Path], list[DamagedRun]]:
    """All sound finished runs at or below some places.

    Args:
        places: directories or glob patterns.
        check: raises a `UserError` for a run to leave out.

    Returns:
        Their directories, sorted; and what is wrong with the others: damaged runs, or another
        program's manifest.json.

    Raises:
        UserError: nothing there, nothing finished, or nothing sound.
    """
    names = [os.fspath(place) for place in _listed(places)]
    directories = directories_with(MANIFEST, names)
    if not directories:
        begun = unfinished(names)
        if begun:
            more = f" ({len(begun) - 1:,} more are like it)" if begun[1:] else ""
            raise UserError(f"no finished run at {', '.join(names)}: {begun[0]}{more}")
        missing = _missing(names)
        reason = f"{', '.join(missing)} does not exist" if missing else "no manifest.json there"
        raise _no_run(names, reason)
    sound = []
    skipped = []
    for directory in directories:
        try:
            check(RunDirectory(directory))
            sound.append(directory)
        except UserError as error:
            skipped.append(error if isinstance(error, DamagedRun) else DamagedRun(str(error)))
    if not sound:
        raise skipped[0]
    return sound, skipped


def refuse_missing(places: Places) -> None:
    """Refuse a place that is not there, for commands that import much before they look.

    Raises:
        UserError: a directory does not exist, or a pattern matches nothing.
    """
    missing = _missing([os.fspath(place) for place in _listed(places)])
    if missing:
        raise _no_run(missing, f"{', '.join(missing)} does not exist")


def _missing(places: Sequence[str]) -> list[str]:
    """The directories that do not exist, and the patterns that match nothing."""
    return [place for place in places if not glob(place) and not Path(place).exists()]


def _no_run(places: Sequence[str], reason: str) -> UserError:
    """The answer to places without a finished run."""
    return UserError(
        f"no finished run at {', '.join(places)}: {reason}. A run is finished once its manifest "
        f"is written; start one with `python -m attnprobe +experiment=jain_adversarial`, or "
        f"name another directory."
    )


def unfinished(places: Places) -> list[str]:
    """A sentence about each run at or below some places that was begun and is not finished.

    Args:
        places: directories or glob patterns.
    """
    sentences = []
    for directory in directories_with(MARKER, places):
        run = RunDirectory(directory)
        if not run.is_finished:
            state = "is trained, and not examined" if run.is_trained else "has not been trained"
            sentences.append(
                f"{directory} {state}: its command, given again, finishes it (no {MANIFEST} yet)"
            )
    return sentences


def warn_of(skipped: Sequence[DamagedRun]) -> None:
    """Name the runs that were left out."""
    if skipped:
        count = "a run was" if len(skipped) == 1 else f"{len(skipped)} runs were"
        lines = "".join(f"\n- {error}" for error in skipped)
        warnings.warn(f"{count} left out:{lines}", DamagedRunWarning, stacklevel=3)


def directories_with(file: str, places: Places) -> list[Path]:
    """Every directory at or below some places that holds a file of this name, sorted.

    Args:
        file: its name.
        places: directories or glob patterns.
    """
    directories: set[Path] = set()
    for place in _listed(places):
        # a directory may be named like a pattern
        starts = [place] if Path(place).exists() else glob(os.fspath(place), recursive=True)
        for start in starts:
            directories.update(path.parent for path in Path(start).rglob(file))
    return sorted(directories)


def _listed(
    places: Places,
) -> list[str | os.PathLike]:
    """One place or several, as a list."""
    return [places] if isinstance(places, (str, os.PathLike)) else list(places)
