"""A run's directory: the one place that knows the names of its files, and the checks that every reader makes.

.attnprobe            written first: this folder is a run's own, and these are the files that the run may remove
config.yaml           everything that decides the numbers, resolved
vocabulary.json       word → id
pipeline.json         how text becomes tokens; the classes
model.safetensors     the weights of the chosen epoch
training.json         the training is finished; checksums of its files
examples/<split>.parquet  one row per example: text, label, prediction, and its tokens and attention as lists; tables
                      and pages are about those of the test split, runs that learn from this one read them all
playground.parquet    a few texts with what a page can compute predictions from; figures/: drawn from the tables alone
tables/<probe>.parquet  long tables, one row = one number about one example (`attnprobe.results.schema`)
manifest.json         written last; lists the tables, and the SHA-256 of every file. No manifest, not done.
"""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from attnprobe.errors import UserError
from attnprobe.results.checksums import DamagedRun, Record, check, damaged, read_sealed
from attnprobe.results.schema import SCHEMA, SITED
from attnprobe.results.statements import check_statements
from attnprobe.results.untrusted import inside

MANIFEST = "manifest.json"
MARKER = ".attnprobe"
TRAINED = "training.json"
CONFIG = "config.yaml"
WEIGHTS = "model.safetensors"
VOCABULARY = "vocabulary.json"
PIPELINE = "pipeline.json"
CHECKPOINTS = "checkpoints/"
CURVES = "training/"
TRACKING = "wandb/"
PLAYGROUND = "playground.parquet"
UNTESTED = ("train", "validation")
"""Splits that no probe examines: their examples are there for the runs that learn from this one."""
PIECE = 1024
"""Examples that are read at a time."""
PARTS = "parts/"
"""What probes that take long have measured so far."""
WORKSHOP = ".figures.partial/"
"""Where figures are drawn before they are moved to their place."""


def table_file(probe: str) -> str:
    """The name of a probe's table in its run."""
    return f"tables/{probe}.parquet"


def examples_file(split: str) -> str:
    """The name of a split's examples in their run."""
    return f"examples/{split}.parquet"


def splits_among(files: Iterable[str]) -> list[str]:
    """The splits whose examples are among these files.

    >>> splits_among(["examples/test.parquet", "tables/training.parquet"])
    ['test']
    """
    return [name for file in files for name in re.findall(r"^examples/(.+)\.parquet$", file)]


def figure_file(name: str) -> str:
    """The name of a figure in its run."""
    return f"figures/{name}"


class RunDirectory:
    """One run's directory. Whatever is read through it has been compared with the manifest."""

    def __init__(self, path: str | os.PathLike) -> None:
        self.path = Path(path)

    def __repr__(self) -> str:
        return f"RunDirectory({str(self.path)!r})"

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

    def read_manifest(self) -> dict[str, Any] | None:
        """The manifest, None where there is none.

        Raises:
            DamagedRun: it is not as a run wrote it.
        """
        if not self.is_finished:
            return None
        content = read_sealed(self / MANIFEST)
        check_listing(self / MANIFEST, content)
        return content

    def manifest(self) -> dict[str, Any]:
        """The manifest.

        Raises:
            UserError: no finished run is here.
            DamagedRun: the manifest is not as a run wrote it.
        """
        content = self.read_manifest()
        if content is None:
            state = "holds no finished run (no manifest.json)" if self.path.exists() else "does not exist"
            raise UserError(
                f"{self.path} {state}: expected a run directory such as runs/testbed/lstm_additive-seed0-…; start one "
                f"with `python -m attnprobe`, or give the command of one that was interrupted again"
            )
        return content

    def training(self) -> dict[str, Any]:
        """What is known since the training finished: the chosen epoch, the curve, the data; the files are compared.

        Raises:
            DamagedRun: it, or one of the files that the training wrote, is not as it was written.
        """
        content = read_sealed(self / TRAINED)
        check_listing(self / TRAINED, content)
        self._compare(content["files"])
        return content

    def verify(self, names: Iterable[str] | None = None) -> dict[str, Any]:
        """Compare files with the manifest, by name; all that it lists where no names are given.

        Returns:
            the manifest.

        Raises:
            UserError: no finished run is here.
            DamagedRun: the first file that is missing, unlisted or changed.
        """
        manifest = self.manifest()
        listed: dict[str, Record] = manifest["files"]
        names = list(listed) if names is None else list(names)
        if unlisted := [name for name in names if name not in listed]:
            raise damaged(
                self / unlisted[0], "the manifest does not list it (a killed run? Its command again finishes it)"
            )
        self._compare({name: listed[name] for name in names})
        return manifest

    def _compare(self, records: dict[str, Record]) -> None:
        for name, record in records.items():
            check(self / name, record)

    def file(self, name: str) -> Path:
        """The path of one file, after comparing it with the manifest."""
        self.verify([name])
        return self / name

    def probes(self) -> list[str]:
        """The probes whose tables the manifest lists."""
        return list(self.manifest()["tables"])

    def table(self, probe: str, columns: Sequence[str] | None = None, where: pc.Expression | None = None) -> pa.Table:
        """A probe's long table, or only some columns (`COLUMNS`) and rows of it.

        Raises:
            UserError: there is no such table.
            DamagedRun: it is not as it was written.
        """
        tables = self.manifest()["tables"]
        if probe not in tables:
            raise UserError(f"{self.path} has no table of the probe {probe!r}: there are {', '.join(tables)}")
        path = self.file(table_file(probe))
        try:
            schema = pq.read_schema(path)
            if not (schema.equals(SCHEMA) or schema.equals(SITED)):
                raise damaged(path, "its columns are not those of a table")
            return pq.read_table(path, schema=schema, columns=columns, filters=where, page_checksum_verification=True)
        except (pa.ArrowException, OSError) as error:
            raise damaged(path, first_line(error)) from None

    def splits(self) -> list[str]:
        """The splits whose examples the manifest lists."""
        return splits_among(self.manifest()["files"])

    def examples(
        self, split: str, columns: Sequence[str] | None = None, example_ids: Iterable[int] | None = None
    ) -> pa.Table:
        """One row per example of a split, or only some columns and rows of them.

        Raises:
            UserError: the run has no examples of such a split.
            DamagedRun: they are not as they were written.
        """
        path = self._examples(split)
        try:
            if missing := set(columns or ()).difference(pq.read_schema(path).names):
                raise damaged(path, f"it has no column {min(missing)}")
            if example_ids is None:
                return pq.read_table(path, columns=columns, page_checksum_verification=True)
            wanted = pa.array(sorted(set(example_ids)), pa.int64())
            with pq.ParquetFile(path, page_checksum_verification=True) as file:
                batches = file.iter_batches(PIECE, use_threads=False)
                kept = [batch.filter(pc.is_in(batch["example_id"], wanted)) for batch in batches]
                rows = pa.Table.from_batches(kept, file.schema_arrow)
            return rows if columns is None else rows.select(columns)
        except (pa.ArrowException, OSError, KeyError) as error:
            raise damaged(path, first_line(error)) from None

    def example_pieces(self, split: str, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Some columns of `examples`, a few rows at a time, by example.

        Raises:
            UserError: the run has no examples of such a split.
            DamagedRun: they are not as they were written.
        """
        path, last = self._examples(split), -1
        wanted = list(dict.fromkeys(["example_id", *columns]))
        try:
            with pq.ParquetFile(path, page_checksum_verification=True) as file:
                for batch in file.iter_batches(PIECE, columns=wanted, use_threads=False):
                    ids = batch["example_id"].to_numpy()
                    if len(ids) and (ids[0] <= last or (ids[1:] <= ids[:-1]).any()):
                        raise damaged(path, "its examples are not in order")
                    last = ids[-1] if len(ids) else last
                    yield pa.Table.from_batches([batch])
        except (pa.ArrowException, OSError, KeyError) as error:
            raise damaged(path, first_line(error)) from None

    def example_columns(self, split: str) -> pa.Schema:
        """The columns of `examples`, and their types.

        Raises:
            UserError: the run has no examples of such a split.
            DamagedRun: they are not as they were written.
        """
        path = self._examples(split)
        try:
            return pq.read_schema(path)
        except (pa.ArrowException, OSError) as error:
            raise damaged(path, first_line(error)) from None

    def _examples(self, split: str) -> Path:
        if split not in self.splits():
            raise UserError(
                f"{self.path} has no examples of the split {split!r}: there are {', '.join(self.splits()) or 'none'}"
            )
        return self.file(examples_file(split))

    def shown_files(self) -> list[str]:
        """The files that figures and reports are made of, by name."""
        files = self.manifest()["files"].keys() - {examples_file(split) for split in UNTESTED}
        return sorted(name for name in files if name.endswith(".parquet") or name == PIPELINE)


def first_line(error: BaseException) -> str:
    """An error's text in one line."""
    return " ".join(str(error).split())[:200]


def check_listing(path: Path, content: dict[str, Any]) -> None:
    """Whether a manifest lists tables and files as a run does, and none outside the run.

    Raises:
        DamagedRun: it does not.
    """
    files, tables = content.get("files"), content.get("tables", {})
    if not isinstance(files, dict) or not isinstance(tables, dict):
        raise damaged(path, "it does not list the run's files")
    for name, record in files.items():
        try:
            inside(path.parent, name, path)
        except UserError as error:
            raise DamagedRun(str(error)) from None
        if not isinstance(record, dict) or not isinstance(record.get("sha256"), str):
            raise damaged(path, f"it has no checksum of {name}")
        if not isinstance(record.get("bytes"), int):
            raise damaged(path, f"it does not say how many bytes {name} has")
    for probe, entry in tables.items():
        if not isinstance(entry, dict) or table_file(probe) not in files:
            raise damaged(path, f"it lists the table {probe!r} and not its file")
    check_statements(path, content)
