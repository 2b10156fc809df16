"""Where rows come from: local files, the Hugging Face hub, or the built-in testbed. All give `datasets.Dataset`s."""

import gzip
import itertools
import json
import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import datasets
import huggingface_hub
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError

from attnprobe.data import rows
from attnprobe.data.files import BUILDERS, DATA_DIR, ENDINGS, SPLITS, check_ending, ending_of, files_of
from attnprobe.data.testbed import generate_reviews, generate_stories
from attnprobe.errors import UserError

# `datasets` reports every load, also of local files, to a server: reading a file must not need a network
datasets.config.HF_UPDATE_DOWNLOAD_COUNTS = False

Splits = dict[str, datasets.Dataset]


class Source(ABC):
    """Somewhere rows come from."""

    @abstractmethod
    def load(self) -> Splits:
        """The rows by split; keys among `train`, `validation` and `test`.

        Raises:
            UserError: there is nothing to load, or it cannot be read.
        """

    def files(self) -> dict[str, Path]:
        """The local file of each split, for a source that reads such: a run notices when they change."""
        return {}


class FileSource(Source):
    """Local `.jsonl`, `.csv`, `.tsv` (plain or `.gz`) or `.parquet` files.

    Args:
        path: one file (its rows are divided as `data.test_share` and `data.validation_share` say); or a folder that
            holds `train.*` and perhaps `validation.*` and `test.*`; or `{train: file, validation: file, test: file}`.
            Relative paths are looked up in the working directory, then in `ATTNPROBE_DATA_DIR`.
    """

    def __init__(self, path: str | os.PathLike | Mapping[str, str] | None):
        self.path = path

    def files(self) -> dict[str, Path]:
        """The file of each split."""
        return files_of(self.path)

    def load(self) -> Splits:
        """Read the files, always afresh."""
        return {split: read_file(path) for split, path in self.files().items()}


def read_file(path: Path) -> datasets.Dataset:
    """Read one file into memory with the `datasets` builder of its ending.

    Columns of CSV and TSV files are read as text, so that a column's type cannot change half-way; only an empty
    cell is null, the words "NA" and "null" are not. Nothing is cached: a changed file is a changed data set.

    Raises:
        UserError: unknown ending, missing, empty or malformed file; names the line where that can be found out.
    """
    ending = check_ending(path)
    options: dict = {"chunksize": 1 << 30} if BUILDERS[ending] == "json" else {}  # one block: types are seen as a whole
    try:
        if BUILDERS[ending] == "csv":
            separator = "\t" if ending == ".tsv" else ","
            head = pd.read_csv(path, sep=separator, nrows=1, encoding="utf-8-sig")
            if not isinstance(head.index, pd.RangeIndex):  # pandas would take the first column for an index
                raise ValueError("line 2 has more cells than the header line")
            options = {"sep": separator, "keep_default_na": False, "na_values": [""], "encoding": "utf-8-sig"}
            options["features"] = datasets.Features({name: datasets.Value("string") for name in head.columns})
        if BUILDERS[ending] == "parquet" and pq.read_metadata(path).num_rows == 0:
            raise UserError(f"{path} has no row: expected at least one")
        rows = load_afresh(BUILDERS[ending], path, options)
        rows.data.table.validate(full=True)  # pyarrow reads text that is no UTF-8 from JSON without a word
        return rows
    except UserError:
        raise
    except (
        datasets.exceptions.DatasetGenerationError,
        pa.ArrowException,
        ValueError,
        OSError,
        EOFError,
        StopIteration,
    ) as error:
        if isinstance(error, StopIteration) or "corresponds to no data" in str(error):  # how `datasets` says it
            raise UserError(f"{path} has no row: expected at least one") from None
        raise UserError(f"{path} cannot be read: {reason_of(error, path)}") from None


def load_afresh(builder: str, path: Path, options: dict) -> datasets.Dataset:
    """`datasets.load_dataset` of one file, without its cache and without its progress bars."""
    bars = datasets.is_progress_bar_enabled()
    level = datasets.logging.get_verbosity()
    datasets.disable_progress_bars()
    datasets.logging.set_verbosity(datasets.logging.CRITICAL)  # failures are reported by us, once
    try:
        with tempfile.TemporaryDirectory(prefix="attnprobe-") as scratch:
            # a link of a plain name: the file's own name could hold *, ? or [, which would be read as patterns
            link = Path(scratch) / ("rows" + "".join(s for s in (ending_of(path), ".gz") if path.name.endswith(s)))
            link.symlink_to(path.resolve())
            return datasets.load_dataset(
                builder, data_files=str(link), split="train", cache_dir=scratch, keep_in_memory=True, **options
            )
    finally:
        datasets.logging.set_verbosity(level)
        if bars:
            datasets.enable_progress_bars()


def reason_of(error: BaseException, path: Path) -> str:
    """Why a file could not be read, in words: the first malformed JSON line, or the innermost error's text."""
    if ending_of(path) in (".jsonl", ".json") and (line := malformed_line(path)):
        return line
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{str(error).strip() or type(error).__name__}. Expected {ENDINGS}, as the file's name says"


def malformed_line(path: Path) -> str | None:
    """The first line of a JSON-lines file that is no JSON object, in words."""
    open_text = gzip.open if path.name.lower().endswith(".gz") else open
    try:
        with open_text(path, "rt", encoding="utf-8-sig") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    if line.strip() and not isinstance(json.loads(line), dict):
                        return f"line {number} is not a JSON object: {line.strip()[:60]!r}"
                except ValueError as error:
                    return f"line {number} is not JSON ({error}): {line.strip()[:60]!r}"
    except (OSError, EOFError, UnicodeDecodeError) as error:
        return str(error)
    return None


class HubSource(Source):
    """A data set of the Hugging Face hub (or of the server that `HF_ENDPOINT` names).

    Args:
        name: such as `stanfordnlp/imdb`.
        config: the data set's configuration, where it has several.
        revision: commit or tag; None takes the newest.
        rename: hub's column name → ours.
        join: our column → hub's columns whose texts it holds, one after the other; null cells are left out.
        only: column → allowed value(s), for a data set of which we are after a part.
        timeout: seconds to wait for the hub's first answer.
    """

    def __init__(
        self,
        name: str,
        config: str | None = None,
        revision: str | None = None,
        rename: Mapping[str, str] | None = None,
        join: Mapping[str, Sequence[str]] | None = None,
        only: Mapping[str, Any] | None = None,
        timeout: float = 10.0,
    ):
        self.name, self.config, self.revision, self.timeout = name, config, revision, timeout
        self.rename, self.join, self.only = dict(rename or {}), dict(join or {}), dict(only or {})

    def load(self) -> Splits:
        """Download, or take what was downloaded before."""
        try:
            if not huggingface_hub.constants.HF_HUB_OFFLINE:
                # asked first, with a short time-out: `datasets` itself would wait and retry for minutes
                huggingface_hub.HfApi().dataset_info(self.name, revision=self.revision, timeout=self.timeout)
            loaded = datasets.load_dataset(
                self.name, self.config, revision=self.revision, download_config=datasets.DownloadConfig(max_retries=1)
            )
        except (RepositoryNotFoundError, RevisionNotFoundError) as error:
            version = f" at revision {self.revision}" if self.revision else ""
            raise UserError(
                f"the Hugging Face hub has no public data set {self.name!r}{version} ({type(error).__name__}): "
                f"check the name, or use local files instead (data=files data.path=FILE)"
            ) from None
        except Exception as error:  # connection, proxy, time-out, offline mode: each has its own type in each version
            raise UserError(
                f"the data set {self.name!r} cannot be had from the Hugging Face hub ({type(error).__name__}: "
                f"{str(error).splitlines()[0][:200] if str(error) else 'no answer'}). Use local files instead: "
                f"data=files data.path=FILE data.text=COLUMN data.label=COLUMN, or the built-in data=testbed, which "
                f"needs no network. What was downloaded before is found with HF_HUB_OFFLINE=1"
            ) from None
        splits = {split: loaded[split] for split in SPLITS if split in loaded}
        return {split: self.prepared(table) for split, table in splits.items()}

    def prepared(self, table: datasets.Dataset) -> datasets.Dataset:
        """The rows that are wanted, under our names."""
        if self.only:
            table = table.select(np.flatnonzero(rows.passes(table, self.only)))
        for name, parts in self.join.items():
            columns = [rows.column(table, part, f"a column of {self.name}") for part in parts]
            texts = [" ".join(cell for cell in cells if cell) for cells in zip(*columns, strict=True)]
            table = table.remove_columns([name] if name in table.column_names else []).add_column(name, texts)
        return renamed(table, self.rename)


def renamed(table: datasets.Dataset, names: Mapping[str, str]) -> datasets.Dataset:
    """Rename the columns that are there; a column in the way of a new name gives way."""
    names = {old: new for old, new in names.items() if old in table.column_names and old != new}
    return table.remove_columns([name for name in names.values() if name in table.column_names]).rename_columns(names)


class FirstAvailable(Source):
    """A named data set: `$ATTNPROBE_DATA_DIR/<folder>` where there is one, else the hub.

    Args:
        folder: the folder's name below `ATTNPROBE_DATA_DIR`, laid out as `FileSource` says.
        hub: where to get it otherwise; None if it may not be on a hub (clinical notes, tweets).
        obtain: what a person has to obtain and put where, for the error message.
    """

    def __init__(self, folder: str, hub: Source | None = None, obtain: str | None = None):
        self.folder, self.hub, self.obtain = folder, hub, obtain

    def local(self) -> FileSource | None:
        """The local folder, where there is one."""
        base = os.environ.get(DATA_DIR)
        return FileSource(Path(base) / self.folder) if base and (Path(base) / self.folder).exists() else None

    def files(self) -> dict[str, Path]:
        """Those of the local folder."""
        local = self.local()
        return {} if local is None else local.files()

    def load(self) -> Splits:
        """Local files before the hub."""
        local = self.local()
        if local is not None:
            return local.load()
        base = os.environ.get(DATA_DIR)
        here = f"{base}/{self.folder}" if base else f"${DATA_DIR}/{self.folder}"
        unset = "" if base else f" ({DATA_DIR} is not set)"
        files = f"no local files at {here}{unset}: put train.jsonl, validation.jsonl and test.jsonl there"
        if self.hub is None:
            obtain = f" {self.obtain}" if self.obtain else ""
            raise UserError(f"{files}.{obtain} This data set is on no hub; data=testbed needs neither")
        try:
            return self.hub.load()
        except UserError as error:
            raise UserError(f"{files}, or make the hub reachable; {error}") from None


class TestbedSource(Source):
    """Short texts made by a grammar, with known reasons for the label; see `attnprobe.data.testbed`.

    Args:
        kind: `reviews` (columns `text`, `label` 0/1 and `rationale`, one bool per token) or `stories` (columns
            `document`, `question`, `label`, `candidates`, `sentences` and `support`, numbers of sentences).
        train_size: examples to train on (10 to 10^6), likewise `validation_size` and `test_size`.
        seed: every split has its own seed derived from this one. It is apart from the run's seed, so that all runs
            of a sweep see the same texts.
        hops: facts that a story's question needs: 1, 2 or 3.
    """

    __test__ = False  # the name is no test case for pytest

    def __init__(
        self,
        kind: str = "reviews",
        train_size: int = 4000,
        validation_size: int = 500,
        test_size: int = 1000,
        seed: int = 0,
        hops: int = 1,
    ):
        if kind not in TESTBED:
            raise UserError(f"data.source.kind={kind}: expected {' or '.join(TESTBED)}")
        self.sizes = {"train": train_size, "validation": validation_size, "test": test_size}
        for split, size in self.sizes.items():
            if size < 1:
                raise UserError(f"data.source.{split}_size={size}: expected at least 1")
        self.kind, self.seed, self.hops = kind, seed, hops

    def load(self) -> Splits:
        """Generate the rows."""
        return {split: self.generate(split) for split in SPLITS}

    def generate(self, split: str) -> datasets.Dataset:
        """One split."""
        derived = int(np.random.SeedSequence((self.seed, SPLITS.index(split))).generate_state(1)[0])
        made = (
            generate_stories(self.sizes[split], derived, self.hops)
            if self.kind == "stories"
            else generate_reviews(self.sizes[split], derived)
        )
        schema = TESTBED[self.kind]
        parts = [
            pa.Table.from_pylist([{name: row[name] for name in schema.names} for row in part], schema=schema)
            for part in in_parts(made, 10_000)
        ]
        return datasets.Dataset(pa.concat_tables(parts))


TESTBED = {
    "reviews": pa.schema({"text": pa.string(), "label": pa.int64(), "rationale": pa.list_(pa.bool_())}),
    "stories": pa.schema(
        {
            "document": pa.string(),
            "question": pa.string(),
            "label": pa.string(),
            "candidates": pa.list_(pa.string()),
            "sentences": pa.list_(pa.string()),
            "support": pa.list_(pa.int64()),
        }
    ),
}
"""The columns of each kind."""


def in_parts(made: Iterator[dict], size: int) -> Iterator[list[dict]]:
    """Lists of up to `size` rows."""
    while part := list(itertools.islice(made, size)):
        yield part
