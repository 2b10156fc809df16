"""Every published number of a model and a data set, beside what runs measured."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from attnprobe.core.errors import UserError
from attnprobe.core.sanitise import percent
from attnprobe.data.vocabulary import SPECIAL
from attnprobe.evidence.published import FILES, NUMBERS
from attnprobe.evidence.statistics import Interval, student
from attnprobe.findings.headlines import compare, scale_of_headline
from attnprobe.readings.registry import present
from attnprobe.results.directory import RunDirectory, find_runs
from attnprobe.results.manifest import Manifest
from attnprobe.results.numbers import numbers_of
from attnprobe.results.table import read_results

NO_DATA = {
    "amazon": "not at hand",
    "anemia": "hospital records, on application",
    "cnn_qa": "not at hand",
    "diabetes": "hospital records, on application",
    "imdb10": "not at hand",
    "tweets_adr": "tweets, which are not given away",
    "yahoo": "not at hand",
    "yelp": "not at hand",
}
"""Data set of a paper → why no run here has it."""
PAPERS_LOSS = "balanced_positive"
"""Jain & Wallace's weights of two classes in the loss."""
UNTOLD_SPREAD = 2
"""Seeds with which an interval is so wide that it holds nearly any number: Student's quantile of
one degree of freedom is 12.7, of two 4.3."""
FEWER = "fewer_gradient_than_attention"
"""Serrano & Smith's number of every network."""
ROUNDING = 0.0005
"""How far a published number, which has three decimals at most, may be from the true one."""
RANDOM = "random vectors"
ALL_TEXTS = "all texts"


@dataclass(frozen=True, order=True)
class Setup:
    """In what a training may differ from the published one: each field is a cause to be tested.

    Attributes:
        vectors: the word vectors that training begins with.
        epochs: how many it has at most.
        texts: the part of the corpus that it is of.
        loss: how the classes count in it.
    """

    vectors: str = RANDOM
    epochs: int = 0
    texts: str = ALL_TEXTS
    loss: str = "equal"

    @classmethod
    def of(cls, manifest: Manifest) -> "Setup":
        """The setup of a run, by its manifest."""
        training = manifest["training"]
        data = training.get("data", {})
        source = data.get("source") or {}
        folder = source.get("folder", data.get("name"))
        parts = []
        if str(folder).startswith(f"{data.get('name')}_"):
            parts.append(f"the part {folder}")
        if data.get("most"):
            parts.append(f"at most {texts_by_split(data['most'])}")
        return cls(
            vectors=vectors_of(manifest),
            epochs=training.get("training", {}).get("epochs", 0),
            texts="; ".join(parts) or ALL_TEXTS,
            loss=str(data.get("class_weight") or "equal"),
        )

    def differences(self, other: "Setup") -> list[str]:
        """The fields in which two setups differ."""
        values = asdict(other)
        return [name for name, value in asdict(self).items() if value != values[name]]

    def cause_in(self, other: "Setup") -> str:
        """The field in which another setup is nearer to the paper's, if it differs in nothing else.

        The papers start from pretrained vectors, train for as many epochs as here or more, on the
        whole corpus, and weigh two classes in the loss: what is changed away from that explains no
        difference.

        Returns:
            Empty where the other differs in several fields, in none, or away from the paper's.
        """
        differences = self.differences(other)
        if len(differences) != 1:
            return ""
        (name,) = differences
        is_nearer = {
            "vectors": self.vectors == RANDOM,
            "epochs": other.epochs > self.epochs,
            "texts": other.texts == ALL_TEXTS,
            "loss": other.loss == PAPERS_LOSS,
        }
        return name if is_nearer[name] else ""


def vectors_of(manifest: Manifest) -> str:
    """The word vectors that a training begins with: their file's name.

    A file of other words, such as one that was made for another corpus, is not the same: the share
    of the vocabulary that has a vector is named where some words have none.
    """
    file = manifest["training"].get("data", {}).get("vectors")
    if file is None:
        return RANDOM
    name = Path(file).stem
    counts = manifest.get("counts", {}).get("vectors")
    if counts is None:
        return name
    found = counts["found"] / (counts["vocabulary"] - len(SPECIAL))
    return name if found >= 1 else f"{name} for {percent(found)} of the words"


def texts_by_split(most: Mapping[str, int]) -> str:
    """How many texts each split has, such as `train 4,000, test 400`."""
    return ", ".join(f"{split} {count:,}" for split, count in most.items())


WORDS = {"vectors": "{}", "epochs": "{} epochs", "texts": "{}", "loss": "loss: {}"}
"""Field of a setup → how a heading says it."""


def headings(setups: Sequence[Setup]) -> dict[Setup, str]:
    """Setup → its word vectors, its part of a corpus, and what else tells it from the others."""
    varying = {"vectors"}
    if any(setup.texts != ALL_TEXTS for setup in setups):
        varying.add("texts")
    for setup in setups:
        varying.update(setup.differences(setups[0]))
    return {
        setup: ", ".join(
            words.format(getattr(setup, name)) for name, words in WORDS.items() if name in varying
        )
        for setup in setups
    }


class CellName(NamedTuple):
    """Which number of which model: as a paper's table has it.

    Attributes:
        data: the data set.
        model: as `attnprobe.findings` calls it, such as `lstm_additive`.
        metric: of the published numbers.
        group: `overall`, or the predicted class that the number is of.
    """

    data: str
    model: str
    metric: str
    group: str


@dataclass(frozen=True)
class Measured:
    """A number of one model over its seeds.

    Attributes:
        setup: of its trainings.
        seeds: how many.
        number: the mean with Student's interval over seeds; of one seed the run's own interval,
            over texts.
    """

    setup: Setup
    seeds: int
    number: Interval

    @property
    def has_interval(self) -> bool:
        """Whether the number has one."""
        return not np.isnan(self.number.low)

    @property
    def tells_spread(self) -> bool:
        """Whether a number in its interval is worth counting."""
        return self.has_interval and self.seeds != UNTOLD_SPREAD

    def holds(self, value: float) -> bool:
        """Whether a published value, which is rounded, may be in the interval."""
        return self.number.low - ROUNDING <= value <= self.number.high + ROUNDING

    def __str__(self) -> str:
        value, low, high = self.number
        ends = f" [{low:.3f}, {high:.3f}]" if self.has_interval else ""
        plural = "seed" if self.seeds == 1 else "seeds"
        return f"{value:.3f}{ends} ({self.seeds} {plural})"


@dataclass(frozen=True)
class Cell:
    """A number that a paper reports, and what runs here say of it."""

    paper: str
    data: str
    model: str
    metric: str
    group: str
    published: float
    measured: list[Measured] = field(default_factory=list)

    @property
    def is_possible(self) -> bool:
        """Whether its data can be had."""
        return self.data not in NO_DATA

    def in_setup(self, setup: Setup) -> Measured | None:
        """What runs of one setup measured."""
        return next((each for each in self.measured if each.setup == setup), None)

    def beyond(self, setup: Setup) -> bool | None:
        """Whether the published number is outside of the interval; None: there is none."""
        measured = self.in_setup(setup)
        if measured is None or not measured.has_interval:
            return None
        return not measured.holds(self.published)


def cells_of(numbers: Mapping[CellName, list[Measured]]) -> list[Cell]:
    """Every published number of the two papers that report theirs per model, in their order.

    Args:
        numbers: of `measured_numbers`, of a record, or of both.
    """
    cells = []
    for paper, file in FILES.items():
        table = pd.read_csv(NUMBERS / file, comment="#")
        for row in table.to_dict("records"):
            name = CellName(row["data"], row["model"], row["metric"], row["group"])
            cells.append(Cell(paper, *name, row["value"], numbers.get(name, [])))
    return cells


def headline_rows(places: Sequence[str]) -> pd.DataFrame:
    """Every run's headline numbers that a paper might report.

    A training that several runs share counts once.

    Args:
        places: run directories, or folders above them.

    Returns:
        The rows of `compare` with the columns `reported`, the published metric, `scale` and
        `setup`.
    """
    if not places:
        return pd.DataFrame(columns=["data", "model", "reported", "group", "setup", "published"])
    setups = {}
    trainings = {}
    for path in find_runs(list(places)):
        manifest = RunDirectory(path).manifest()
        run_id = manifest["run_id"]
        setups[run_id] = Setup.of(manifest)
        trainings[run_id] = manifest.get("training_fingerprint", run_id)

    results = numbers_of(read_results(list(places)))
    reported = {}
    scales = {}
    for reading in present(results):
        outline = results.outline(reading.probe)
        for headline in reading.headlines_of(outline):
            reported[reading.probe, headline.key] = headline.published
            scales[reading.probe, headline.key] = scale_of_headline(
                outline, reading.probe, headline
            )
    rows = compare(results)
    metrics = pd.MultiIndex.from_frame(rows[["probe", "metric"]])
    rows = rows.assign(
        reported=metrics.map(reported),
        scale=metrics.map(scales),
        setup=rows["run_id"].map(setups),
        training=rows["run_id"].map(trainings),
    )
    rows = rows[rows["reported"].notna()]
    return rows.drop_duplicates(["training", "reported", "group"])


def measured_numbers(rows: pd.DataFrame) -> dict[CellName, list[Measured]]:
    """What runs measured: a published number of a model → one for each setup.

    Runs of other models, such as a study's guided ones, may be there as well. Serrano & Smith's
    networks are there whatever their data, of which the paper's cannot be had.

    Args:
        rows: of `headline_rows`.
    """
    rows = rows[rows["published"].notna() | (rows["reported"] == FEWER)]
    numbers: dict[CellName, list[Measured]] = {}
    columns = ["data", "model", "reported", "group"]
    for names, of_cell in rows.groupby(columns, observed=True):
        cell = CellName(*map(str, names))
        numbers[cell] = [
            over_seeds(setup, of_cell[of_cell["setup"] == setup])
            for setup in sorted(set(of_cell["setup"]))
        ]
    return numbers


def over_seeds(setup: Setup, runs: pd.DataFrame) -> Measured:
    """The mean of several runs; of one its own number and interval.

    Args:
        setup: of the runs.
        runs: rows of `headline_rows`. The interval ends where their scale does.

    Raises:
        UserError: two runs have one seed, so that they are no sample of seeds.
    """
    repeated = runs["seed"][runs["seed"].duplicated()].unique()
    if len(repeated):
        name = f"{runs['data'].iloc[0]}, {runs['model'].iloc[0]}, {setup.vectors}"
        raise UserError(
            f"{name}: several runs with seed {repeated[0]}, which differ in other settings: name "
            f"the directories of those that belong together"
        )
    if len(runs) == 1:
        (row,) = runs.to_dict("records")
        return Measured(setup, 1, Interval(row["mean"], row["low"], row["high"]))
    scale = runs["scale"].iloc[0]
    means = runs["mean"].to_numpy()
    return Measured(setup, len(runs), student(means, low=scale.low, high=scale.high))
