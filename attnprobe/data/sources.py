"""Where rows come from: local files, the Hugging Face hub, or the built-in testbed. All give
`datasets.Dataset`s."""

import itertools
import os
import re
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
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
from attnprobe.data.local_files import DATA_DIR, SPLITS, Reading, files_of, read_file
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
    """

    settings_place: ClassVar[str] = "data.source"

    notes: tuple[str, ...] = ()

    @abstractmethod
    def load(self) -> Splits:
        """The rows by split; keys among `train`, `validation` and `test`.

        Raises:
            UserError: there is nothing to load, or it cannot be read.
        """

    def files(self) -> dict[str, Path]:
        """The local file of each split, for a source that reads such: a run notices when they
        change."""
        return {}


class FileSource(Source):
    """Local `.jsonl`, `.csv`, `.tsv` (plain or `.gz`), `.parquet` or `.xlsx` files.

    Args:
        path: one file (its rows are divided as `data.test_share` and `data.validation_share` say);
            or a folder that holds `train.*` and perhaps `validation.*` and `test.*`; or `{train:
            file, validation: file, test: file}`. Relative paths are looked up in the working
            directory, then in `ATTNPROBE_DATA_DIR`.
        separator, encoding, decimal, sheet: see `attnprobe.data.local_files.Reading`.
    """

    def __init__(
        self,
        path: str | os.PathLike | Mapping[Literal[SPLITS], str] | None,
        separator: str | None = None,
        encoding: str | None = None,
        decimal: Literal[",", "."] | None = None,
        sheet: str | None = None,
    ):
        self.path = path
        self.how = Reading(separator, encoding, decimal, sheet)

    def files(self) -> dict[str, Path]:
        """The file of each split."""
        return files_of(self.path)

    def load(self) -> Splits:
        """Read the files again every time."""
        notes: list[str] = []
        splits = {
            split: read_file(path, self.how, notes.append) for split, path in self.files().items()
        }
        self.notes = tuple(notes)
        return splits


HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)


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
        # `datasets` takes any other name, and a folder that is called so, for files of this
        # machine, which settings from elsewhere could so read
        if not HUB_NAME.fullmatch(self.name):
            raise UserError(
                f"data.source.name={self.name}: expected OWNER/NAME of a data set of the Hugging Face hub, such as "
                f"stanfordnlp/imdb; local files are read with data=files data.path=FILE"
            )
        if os.path.lexists(self.name):
            raise UserError(
                f"data.source.name={self.name}: there is a file or folder of this name here, {Path(self.name).absolute()}, "
                f"which would be read in place of the Hugging Face hub's. Give the command in another folder, or read it "
                f"with data=files"
            )
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
                f"the Hugging Face hub has no public data set {self.name!r}{version} ({type(error).__name__}): "
                f"check the name, or use local files instead (data=files data.path=FILE)"
            ) from None
        except Exception as error:  # connection, proxy, time-out, offline mode: each has its own type in each version
            raise UserError(
                f"the data set {self.name!r} could not be loaded from the Hugging Face hub ({type(error).__name__}: "
                f"{str(error).splitlines()[0][:200] if str(error) else 'no answer'}). Use local files instead: "
                f"data=files data.path=FILE data.text=COLUMN data.label=COLUMN, or the built-in data=testbed, which "
                f"needs no network. What was downloaded before is found with HF_HUB_OFFLINE=1"
            ) from None
        return {split: self.prepared(loaded[split]) for split in SPLITS if split in loaded}

    def prepared(self, table: datasets.Dataset) -> datasets.Dataset:
        """The rows that are wanted, under our names."""
        if self.only:
            table = table.select(np.flatnonzero(rows.passes(table, self.only)))
        for name, parts in self.join.items():
            columns = [rows.column(table, part, f"a column of {self.name}") for part in parts]
            texts = [
                " ".join(cell for cell in cells if cell) for cells in zip(*columns, strict=True)
            ]
            table = table.remove_columns([name] if name in table.column_names else []).add_column(
                name, texts
            )
        names = {
            old: new for old, new in self.rename.items() if old in table.column_names and old != new
        }
        # a column in the way of a new name gives way
        in_the_way = [name for name in names.values() if name in table.column_names]
        return table.remove_columns(in_the_way).rename_columns(names)


class FirstAvailable(Source):
    """A named data set: `$ATTNPROBE_DATA_DIR/<folder>`, laid out as `FileSource` says, where there
    is one, else the hub.

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
        """Those of the local folder."""
        base = os.environ.get(DATA_DIR)
        return (
            files_of(Path(base) / self.folder)
            if base and (Path(base) / self.folder).exists()
            else {}
        )

    def load(self) -> Splits:
        """Local files before the hub."""
        if files := self.files():
            local = FileSource({split: str(path) for split, path in files.items()})
            splits = local.load()
            self.notes = local.notes
            return splits
        base = os.environ.get(DATA_DIR)
        here = (
            f"{base}/{self.folder}"
            if base
            else f"${DATA_DIR}/{self.folder} ({DATA_DIR} is not set)"
        )
        absent = f"no local files at {here}: put train.jsonl, validation.jsonl and test.jsonl there"
        if self.hub is None:
            obtain = f" {self.obtain}" if self.obtain else ""
            raise UserError(
                f"{absent}.{obtain} This data set is on no hub; data=testbed needs neither"
            )
        try:
            return self.hub.load()
        except UserError as error:
            raise UserError(f"{absent}, or make the hub reachable; {error}") from None


class TestbedSource(Source):
    """Short texts made by a grammar, with known reasons for the label; see
    `attnprobe.data.testbed`.

    Args:
        kind: `reviews` (columns `text`, `label` 0/1, `rationale`, one bool per token, and
            `counterfactual`, the text with the other label) or `stories` (`document`, `question`,
            `label`, `candidates`, `sentences` and `support`).
        train_size, validation_size, test_size: examples. seed: apart from the run's seed, so that
        all runs of a sweep see the same texts; each split has one derived from it. hops: facts that
        a story's question needs: 1, 2 or 3. rule: what a reader of reviews has to know
        (`attnprobe.data.testbed.RULES`).
    """

    __test__ = False  # the name is no test case for pytest

    def __init__(
        self,
        kind: Literal["reviews", "stories"] = "reviews",
        train_size: Size = 4000,
        validation_size: Size = 500,
        test_size: Size = 1000,
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
            derived = int(np.random.SeedSequence((self.seed, number)).generate_state(1)[0])
            if self.kind == "stories":
                splits[split] = _table(generate_stories(size, derived, self.hops))
            else:
                splits[split] = _table(
                    generate_reviews(size, derived, **RULES[self.rule])
                ).remove_columns("tokens")
        return splits


def _table(made: Iterator[dict[str, Any]]) -> datasets.Dataset:
    # Python's objects of a million rows would take gigabytes
    parts = iter(lambda: list(itertools.islice(made, 10_000)), [])
    return datasets.Dataset(pa.concat_tables(pa.Table.from_pylist(part) for part in parts))


class TransductionSource(Source):
    """Sequence to sequence with known alignment: a row is a teacher-forced step
    (`generate_transductions`), for the question task: the source is the text, the target so far the
    question, the next symbol the label.

    Args:
        kind: `copy`, `reverse`, `lookup`, `reordering`, `sort` or `scan`. train_size,
        validation_size, test_size: sources; each gives as many rows as its target has symbols, and
        is in one split only.
        seed: of the sources, apart from the run's seed.
        shortest, longest: words of a source (and symbols of a target of `scan`).
    """

    def __init__(
        self,
        kind: Literal[tuple(TRANSDUCTIONS)] = "copy",
        train_size: Size = 1000,
        validation_size: Size = 100,
        test_size: Size = 150,
        seed: Seed = 0,
        shortest: Count = 4,
        longest: Count = 8,
    ):
        if longest < shortest:
            raise UserError(
                f"data.source.longest={longest}: expected {shortest} or more, as data.source.shortest says"
            )
        self.sizes = {"train": train_size, "validation": validation_size, "test": test_size}
        self.kind = kind
        self.seed = seed
        self.shortest = shortest
        self.longest = longest

    def load(self) -> Splits:
        """Generate the rows; one stream of distinct sources, cut into splits."""
        made = generate_transductions(
            self.kind, sum(self.sizes.values()), self.seed, self.shortest, self.longest
        )
        return {
            split: _table(itertools.chain.from_iterable(itertools.islice(made, size)))
            for split, size in self.sizes.items()
        }
