"""Where rows come from: local files, the Hugging Face hub, or the built-in testbed.

All of them give `datasets.Dataset`s.
"""

import itertools
import os
from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import datasets
import huggingface_hub
import numpy as np
import pyarrow as pa
from annotated_types import Ge, Le
from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError

from attnprobe.core.errors import UserError
from attnprobe.core.settings import Checked, Count, Positive, Seed, Size
from attnprobe.data import rows
from attnprobe.data.delimited import Quoting
from attnprobe.data.dialect import FileFormat
from attnprobe.data.local_files import DATA_DIR, SPLITS, files_of, read_file
from attnprobe.data.naming import HUB_NAME
from attnprobe.data.testbed import (
    RULES,
    TRANSDUCTIONS,
    generate_reviews,
    generate_stories,
    generate_transductions,
)

# `datasets` reports every load, also of local files, to a server: reading a file must not need a
# network
datasets.config.HF_UPDATE_DOWNLOAD_COUNTS = False

Splits = dict[str, datasets.Dataset]


class Source(metaclass=Checked):
    """Somewhere rows come from.

    Attributes:
        notes: what `load` had to guess, one sentence each.
        columns: those that are asked for, or the paths of values in them; a source need not read
            others. None: all. Whoever loads says so.
    """

    settings_place: ClassVar[str] = "data.source"

    notes: tuple[str, ...] = ()
    columns: Collection[str] | None = None

    @abstractmethod
    def load(self) -> Splits:
        """The rows by split; keys among `train`, `validation` and `test`.

        Raises:
            UserError: there is nothing to load, or it cannot be read.
        """

    def files(self) -> dict[str, Path]:
        """The local file of each split, where there are such: a run notices when they change."""
        return {}


class FileSource(Source):
    """Local `.jsonl`, `.csv`, `.tsv` (plain or `.gz`), `.parquet` or `.xlsx` files.

    Args:
        path: one file (its rows are divided as `data.test_share` and `data.validation_share` say);
            or a folder that holds `train.*` and perhaps `validation.*` and `test.*`; or `{train:
            file, validation: file, test: file}`. Relative paths are looked up in the working
            directory, then in `ATTNPROBE_DATA_DIR`.
        separator: the character between cells (`attnprobe.data.dialect.FileFormat`).
        encoding: the encoding of a .csv or .tsv file.
        decimal: the decimal mark of a .csv or .tsv file.
        sheet: the sheet of an .xlsx file.
        quoting: what quotation marks and backslashes are in a .csv or .tsv file.
    """

    def __init__(
        self,
        path: str | os.PathLike | Mapping[Literal[SPLITS], str] | None,
        separator: str | None = None,
        encoding: str | None = None,
        decimal: Literal[",", "."] | None = None,
        sheet: str | None = None,
        quoting: Quoting | None = None,
    ):
        self.path = path
        self.how = FileFormat(separator, encoding, decimal, sheet, quoting)

    def files(self) -> dict[str, Path]:
        """The file of each split."""
        return files_of(self.path)

    def load(self) -> Splits:
        """Read the files again every time."""
        notes: list[str] = []
        splits = {
            split: read_file(path, self.how, notes.append, self.columns)
            for split, path in self.files().items()
        }
        self.notes = tuple(notes)
        return splits


class DatasetSource(Source):
    """Rows that are in memory, as a data set of the library `datasets`.

    Args:
        dataset: of splits `train`, `validation` and `test`, or rows without splits.
    """

    def __init__(self, dataset: datasets.Dataset | datasets.DatasetDict):
        self.dataset = dataset

    def load(self) -> Splits:
        """The splits that there are."""
        if isinstance(self.dataset, datasets.Dataset):
            return {"train": self.dataset}
        splits = {split: self.dataset[split] for split in SPLITS if split in self.dataset}
        if not splits:
            raise UserError(
                f"the data set has the splits {', '.join(self.dataset) or 'none'}: expected "
                f"{', '.join(SPLITS)}"
            )
        return splits


class HubSource(Source):
    """A data set of the Hugging Face hub (or of the server that `HF_ENDPOINT` names).

    Args:
        name: such as `stanfordnlp/imdb`.
        config: the data set's configuration, where it has several.
        revision: commit or tag; None takes the newest.
        rename: hub's column name → ours.
        join: our column → hub's columns whose texts it holds, one after the other; null cells are
            left out.
        only: column → allowed value(s), for a data set of which we are after a part.
        timeout: seconds to wait for the hub's first answer.
    """

    def __init__(
        self,
        name: str,
        config: str | None = None,
        revision: str | None = None,
        *,
        rename: Mapping[str, str] | None = None,
        join: Mapping[str, Sequence[str]] | None = None,
        only: Mapping[str, Any] | None = None,
        timeout: Positive = 10.0,
    ):
        self.name = name
        self.config = config
        self.revision = revision
        self.timeout = timeout
        self.rename = dict(rename or {})
        self.join = dict(join or {})
        self.only = dict(only or {})

    def load(self) -> Splits:
        """Download, or take what was downloaded before."""
        self._check_name()
        try:
            if not huggingface_hub.constants.HF_HUB_OFFLINE:
                # asked first, with a short time-out: `datasets` itself would wait and retry for
                # minutes
                huggingface_hub.HfApi().dataset_info(
                    self.name, revision=self.revision, timeout=self.timeout
                )
            loaded = datasets.load_dataset(
                self.name,
                self.config,
                revision=self.revision,
                download_config=datasets.DownloadConfig(max_retries=1),
            )
        except (RepositoryNotFoundError, RevisionNotFoundError) as error:
            version = f" at revision {self.revision}" if self.revision else ""
            raise UserError(
                f"the Hugging Face hub has no public data set {self.name!r}{version} "
                f"({type(error).__name__}): check the name, or use local files instead (data=files "
                f"data.path=FILE)"
            ) from None
        except Exception as error:
            # connection, proxy, time-out, offline mode: each has its own type in each version
            reason = str(error).splitlines()[0][:200] if str(error) else "no answer"
            raise UserError(
                f"the data set {self.name!r} could not be loaded from the Hugging Face hub "
                f"({type(error).__name__}: {reason}). Use local files instead: data=files "
                f"data.path=FILE data.text=COLUMN data.label=COLUMN, or the built-in data=testbed, "
                f"which needs no network. What was downloaded before is found with HF_HUB_OFFLINE=1"
            ) from None
        return {split: self.prepared(loaded[split]) for split in SPLITS if split in loaded}

    def _check_name(self) -> None:
        """Refuse a name that `datasets` would take for files of this machine.

        Settings from elsewhere could otherwise read such files.
        """
        if not HUB_NAME.fullmatch(self.name):
            raise UserError(
                f"data.source.name={self.name}: expected OWNER/NAME of a data set of the Hugging "
                f"Face hub, such as stanfordnlp/imdb; local files are read with data=files "
                f"data.path=FILE"
            )
        if os.path.lexists(self.name):
            raise UserError(
                f"data.source.name={self.name}: there is a file or folder of this name here, "
                f"{Path(self.name).absolute()}, which would be read in place of the Hugging Face "
                f"hub's. Give the command in another folder, or read it with data=files"
            )

    def prepared(self, table: datasets.Dataset) -> datasets.Dataset:
        """The rows that are wanted, under our names."""
        if self.only:
            table = table.select(np.flatnonzero(rows.passes(table, self.only)))

        for name, parts in self.join.items():
            columns = [rows.column(table, part, f"a column of {self.name}") for part in parts]
            texts = [" ".join(filter(None, cells)) for cells in zip(*columns, strict=True)]
            if name in table.column_names:
                table = table.remove_columns([name])
            table = rows.with_column(table, name, texts)

        names = {
            old: new for old, new in self.rename.items() if old in table.column_names and old != new
        }
        replaced = [name for name in names.values() if name in table.column_names]
        return table.remove_columns(replaced).rename_columns(names)


class FirstAvailable(Source):
    """A named data set: the local folder where there is one, else the hub.

    The folder is `$ATTNPROBE_DATA_DIR/<folder>`, laid out as `FileSource` says.

    Args:
        folder: the folder's name below `ATTNPROBE_DATA_DIR`.
        hub: where to get it otherwise; None if it may not be on a hub (clinical notes, tweets).
        obtain: what a person has to obtain and put where, for the error message.
    """

    def __init__(self, folder: str, hub: Source | None = None, obtain: str | None = None):
        self.folder = folder
        self.hub = hub
        self.obtain = obtain

    def files(self) -> dict[str, Path]:
        """The files of the local folder; none where there is no such folder."""
        base = os.environ.get(DATA_DIR)
        if not base or not (Path(base) / self.folder).exists():
            return {}
        return files_of(Path(base) / self.folder)

    def load(self) -> Splits:
        """Local files before the hub."""
        files = self.files()
        if files:
            local = FileSource({split: str(path) for split, path in files.items()})
            local.columns = self.columns
            splits = local.load()
            self.notes = local.notes
            return splits

        absent = self.absence()
        if self.hub is None:
            obtain = f" {self.obtain}" if self.obtain else ""
            raise UserError(
                f"{absent}.{obtain} This data set is on no hub; data=testbed needs neither"
            )
        try:
            return self.hub.load()
        except UserError as error:
            raise UserError(f"{absent}, or make the hub reachable; {error}") from None

    def absence(self) -> str:
        """That the local folder is not there, and what to do: part of an error's line."""
        base = os.environ.get(DATA_DIR)
        folder = f"${DATA_DIR}/{self.folder} ({DATA_DIR} is not set)"
        remedy = "put train.jsonl, validation.jsonl and test.jsonl there"
        if base:
            folder = f"{base}/{self.folder}"
            parts = sorted(path.name for path in Path(base).glob(f"{self.folder}_*"))
            if parts:
                remedy += f", or take data.source.folder={parts[0]}, which is there"
        return f"no local files at {folder}: {remedy}"


class TestbedSource(Source):
    """Short texts made by a grammar, with known reasons for the label (`attnprobe.data.testbed`).

    Args:
        kind: `reviews` (columns `text`, `label` 0/1, `rationale`, one bool per token, and
            `counterfactual`, the text with the other label) or `stories` (`document`, `question`,
            `label`, `candidates`, `sentences` and `support`).
        train_size: training examples.
        validation_size: validation examples.
        test_size: test examples.
        seed: apart from the run's seed, so that all runs of a sweep see the same texts; each split
            has a seed derived from it.
        hops: facts that a story's question needs: 1, 2 or 3.
        rule: what a reader of reviews has to know (`attnprobe.data.testbed.RULES`).
    """

    __test__ = False  # the name is no test case for pytest

    def __init__(
        self,
        kind: Literal["reviews", "stories"] = "reviews",
        train_size: Size = 4000,
        validation_size: Size = 500,
        test_size: Size = 1000,
        *,
        seed: Seed = 0,
        hops: Annotated[int, Ge(1), Le(3)] = 1,
        rule: Literal[tuple(RULES)] = "mixed",
    ):
        self.sizes = {"train": train_size, "validation": validation_size, "test": test_size}
        self.kind = kind
        self.seed = seed
        self.hops = hops
        self.rule = rule

    def load(self) -> Splits:
        """Generate the rows."""
        splits = {}
        for number, (split, size) in enumerate(self.sizes.items()):
            seed = int(np.random.SeedSequence((self.seed, number)).generate_state(1)[0])
            if self.kind == "stories":
                splits[split] = _table(generate_stories(size, seed, self.hops))
            else:
                reviews = _table(generate_reviews(size, seed, **RULES[self.rule]))
                splits[split] = reviews.remove_columns("tokens")
        return splits


def _table(generated: Iterator[dict[str, Any]]) -> datasets.Dataset:
    """Collect generated rows, 10,000 at a time: a million as Python's objects take gigabytes."""
    parts = iter(lambda: list(itertools.islice(generated, 10_000)), [])
    return datasets.Dataset(pa.concat_tables(pa.Table.from_pylist(part) for part in parts))


class TransductionSource(Source):
    """Sequence to sequence with known alignment, for the question task.

    A row is a teacher-forced step (`generate_transductions`): the source is the text, the target so
    far the question, the next symbol the label. A source gives as many rows as its target has
    symbols, and is in one split only.

    Args:
        kind: `copy`, `reverse`, `lookup`, `reordering`, `sort` or `scan`.
        train_size: sources to train on.
        validation_size: sources to validate on.
        test_size: sources to test on.
        seed: of the sources, apart from the run's seed.
        shortest: words of a source, at least.
        longest: words of a source (and symbols of a target of `scan`), at most.
    """

    def __init__(
        self,
        kind: Literal[tuple(TRANSDUCTIONS)] = "copy",
        train_size: Size = 1000,
        validation_size: Size = 100,
        test_size: Size = 150,
        *,
        seed: Seed = 0,
        shortest: Count = 4,
        longest: Count = 8,
    ):
        if longest < shortest:
            raise UserError(
                f"data.source.longest={longest}: expected {shortest} or more, as "
                f"data.source.shortest says"
            )
        self.sizes = {"train": train_size, "validation": validation_size, "test": test_size}
        self.kind = kind
        self.seed = seed
        self.shortest = shortest
        self.longest = longest

    def load(self) -> Splits:
        """Generate the rows; one stream of distinct sources, cut into splits."""
        rows_of_sources = generate_transductions(
            self.kind, sum(self.sizes.values()), self.seed, self.shortest, self.longest
        )
        splits = {}
        for split, size in self.sizes.items():
            sources = itertools.islice(rows_of_sources, size)
            splits[split] = _table(itertools.chain.from_iterable(sources))
        return splits
