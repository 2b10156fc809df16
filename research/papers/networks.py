"""Serrano & Smith's networks: flips by one weight, and which conclusions remain under nulls."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np
import pandas as pd

from attnprobe.core.errors import UserError
from attnprobe.evidence.verdicts import Answer
from attnprobe.findings.groups import read_run
from attnprobe.findings.stored import card_of_run
from attnprobe.probes.single_weight import CELLS, flip_table
from attnprobe.results.directory import RunDirectory, find_runs
from attnprobe.results.table import read_results
from research.markdown import markdown
from research.papers.cells import ALL_TEXTS, texts_by_split
from research.papers.record import write_rows

PROBE = "single_weight"
"""The probe that every one of the paper's networks is examined with."""


@dataclass(frozen=True)
class Conclusion:
    """A conclusion of the paper, and the claim that asks it against a null.

    Attributes:
        words: what the paper concludes.
        published: the claim as the paper tests it.
        under_null: the claim that compares with an attention without meaning.
        null: what that attention is.
    """

    words: str
    published: str
    under_null: str
    null: str


SHUFFLED = "own weights in random order"
CONCLUSIONS = (
    Conclusion(
        "the top item flips the decision more often than a random one",
        "top_flips_more_than_random",
        "top_state_flips",
        SHUFFLED,
    ),
    Conclusion(
        "the top item moves the prediction farther than a random one",
        "delta_js_is_positive",
        "top_state_decides",
        SHUFFLED,
    ),
    Conclusion(
        "the same of words that are deleted from the text: flips",
        "top_flips_more_than_random",
        "top_word_flips",
        "a random word",
    ),
    Conclusion(
        "the same of words that are deleted from the text: distance",
        "delta_js_is_positive",
        "top_word_decides",
        "a random word",
    ),
    Conclusion(
        "the order of the weights is the order of what erasing does; of words: of deleting them",
        "effects_follow_attention",
        "weights_follow_words",
        "all words alike",
    ),
    Conclusion(
        "attention's order beats a random one; is its weight on the words that decide?",
        "attention_beats_random",
        "weight_is_on_deciding_words",
        "even weights, words swapped",
    ),
)


CLAIMS = list(
    dict.fromkeys(claim for each in CONCLUSIONS for claim in (each.published, each.under_null))
)
FLIPS = [*CELLS, "n"]
"""The paper's 2 × 2 table: shares of the texts of two items or more, and how many these are."""


@dataclass(frozen=True)
class Setup:
    """Which network it is, and what it was trained and asked on.

    Attributes:
        data: name of the data set.
        model: name of the network.
        texts: of each split, such as `train 6,000, test 500`, or that it is all of them.
        epochs: of the training at most.
    """

    data: str
    model: str
    texts: str
    epochs: int

    @property
    def name(self) -> tuple[str, str]:
        """What tells a network from the others: a data set and a model."""
        return self.data, self.model


@dataclass(frozen=True)
class Said:
    """What is said of a claim: the answer, and its number with the 95 % interval, or NaN."""

    answer: Answer
    value: float = np.nan
    low: float = np.nan
    high: float = np.nan

    def __str__(self) -> str:
        if np.isnan(self.value):
            return self.answer.value
        ends = "" if np.isnan(self.low) else f" [{self.low:.2f}, {self.high:.2f}]"
        return f"{self.answer.value} {self.value:.2f}{ends}"


@dataclass(frozen=True)
class Network:
    """One trained network, with what was decided of it.

    Attributes:
        setup: which one.
        said: claim → what is said of it; of those in `CLAIMS` that were asked.
        flips: of `FLIPS`.
    """

    setup: Setup
    said: Mapping[str, Said]
    flips: Mapping[str, float]

    def answer(self, claim: str) -> Answer:
        """Yes, no, open or untested: what is said of a claim."""
        return self.said[claim].answer if claim in self.said else Answer.UNTESTED

    def text(self, claim: str) -> str:
        """The answer with its number and interval; a dash where nothing was asked."""
        return str(self.said.get(claim, "–"))


def runs_of_networks(places: Sequence[str]) -> list[RunDirectory]:
    """The runs that were examined with the paper's probe."""
    if not places:
        return []
    runs = [RunDirectory(path) for path in find_runs(list(places))]
    return [run for run in runs if PROBE in run.manifest()["tables"]]


def read_networks(places: Sequence[str]) -> list[Network]:
    """The networks of runs.

    Args:
        places: run directories, or folders above them.

    Raises:
        UserError: two runs are of one network.
    """
    networks = [network_of(run) for run in runs_of_networks(places)]
    names = [network.setup.name for network in networks]
    for name in names:
        if names.count(name) > 1:
            raise UserError(
                f"{' '.join(name)}: {names.count(name)} runs: name the directories of one seed"
            )
    return networks


def network_of(run: RunDirectory) -> Network:
    """The network of one run, with what its card says."""
    manifest = run.manifest()
    training = manifest["training"]
    texts = texts_by_split(training["data"].get("most") or {}) or ALL_TEXTS
    setup = Setup(manifest["data"], manifest["model"], texts, training["training"]["epochs"])
    said = {
        judgement.claim: Said(judgement.answer, judgement.value, judgement.low, judgement.high)
        for judgement in card_of_run(read_run(run.path)).judgements
        if judgement.claim in CLAIMS and judgement.is_tested
    }
    (flips,) = flip_table(read_results(run.path, PROBE), "attention")[FLIPS].to_dict("records")
    return Network(setup, said, {str(name): float(share) for name, share in flips.items()})


# What earlier runs said

SETUP = [field.name for field in fields(Setup)]
SAID = [field.name for field in fields(Said)]
RECORD = [*SETUP, "about", *SAID]
"""Columns of the record: a line per claim, and per number of the 2 × 2 table (`about`)."""


def read_record(path: Path) -> list[Network]:
    """The networks of a record.

    Args:
        path: of a CSV file with the columns `RECORD`; without a file there are none.

    Raises:
        UserError: the file has other columns.
    """
    if not path.exists():
        return []
    table = pd.read_csv(path)
    if list(table) != RECORD:
        raise UserError(f"{path}: expected the columns {', '.join(RECORD)}, as this command writes")
    networks = []
    for _, rows in table.groupby(SETUP, sort=False):
        setup = Setup(**{name: rows[name].iloc[0] for name in SETUP})
        said = {}
        flips = {}
        for about, answer, value, low, high in rows[["about", *SAID]].to_numpy().tolist():
            if about in CLAIMS:
                said[about] = Said(Answer[answer.upper()], value, low, high)
            else:
                flips[about] = value
        networks.append(Network(setup, said, flips))
    return networks


def with_record(measured: Sequence[Network], record: Sequence[Network]) -> list[Network]:
    """The networks that were run now, and of a record those that were not, in the page's order."""
    networks = {network.setup.name: network for network in (*record, *measured)}
    return [networks[name] for name in sorted(networks)]


def write_record(networks: Sequence[Network], path: Path) -> None:
    """Write networks as a record."""
    write_rows(pd.DataFrame(_record_rows(networks), columns=RECORD), path)


def _record_rows(networks: Sequence[Network]) -> Iterator[dict[str, object]]:
    for network in networks:
        for claim, said in network.said.items():
            yield {**asdict(network.setup), "about": claim, **asdict(said)}
        for name, share in network.flips.items():
            yield {**asdict(network.setup), "about": name, "value": share}


# The page


def flips(networks: Sequence[Network]) -> pd.DataFrame:
    """The paper's 2 × 2 table of every network, in percent of the texts of two items or more."""
    rows = []
    for network in networks:
        row = {"data and model": " · ".join(network.setup.name)}
        row |= {cell: f"{100 * network.flips[cell]:.1f}" for cell in CELLS}
        rows.append(row | {"n": f"{network.flips['n']:.0f}"})
    return pd.DataFrame(rows)


def conclusions(networks: Sequence[Network]) -> pd.DataFrame:
    """A row per conclusion: how many networks say yes as published, and under the null."""
    rows = []
    for conclusion in CONCLUSIONS:
        asked = [
            network
            for network in networks
            if network.answer(conclusion.under_null) is not Answer.UNTESTED
        ]
        rows.append(
            {
                "conclusion": conclusion.words,
                "networks": len(asked),
                "as published": _counted(asked, conclusion.published),
                "null": conclusion.null,
                "under the null": _counted(asked, conclusion.under_null),
                "remains": _remains(asked, conclusion),
            }
        )
    return pd.DataFrame(rows)


def _counted(networks: Sequence[Network], claim: str) -> str:
    answers = [network.answer(claim) for network in networks]
    counts = {answer: answers.count(answer) for answer in (Answer.YES, Answer.NO, Answer.OPEN)}
    return ", ".join(f"{count} {answer.value}" for answer, count in counts.items() if count) or "–"


def _remains(networks: Sequence[Network], conclusion: Conclusion) -> str:
    """In how many of the networks that say yes as published the null leaves the yes."""
    published = [
        network for network in networks if network.answer(conclusion.published) is Answer.YES
    ]
    remaining = [
        network for network in published if network.answer(conclusion.under_null) is Answer.YES
    ]
    return f"{len(remaining)} of {len(published)}"


def by_network(networks: Sequence[Network]) -> pd.DataFrame:
    """A row per network: the answers under the nulls, with their numbers."""
    claims = list(dict.fromkeys(conclusion.under_null for conclusion in CONCLUSIONS))
    rows = []
    for network in networks:
        row = {"data": network.setup.data, "model": network.setup.model}
        row |= {claim.replace("_", " "): network.text(claim) for claim in claims}
        rows.append(row)
    return pd.DataFrame(rows)


def sizes(networks: Sequence[Network]) -> str:
    """How many texts the networks were trained and asked on, in a sentence."""
    parts = []
    for network in networks:
        setup = network.setup
        parts.append(f"{setup.data}: {setup.texts}, at most {setup.epochs} epochs")
    return "; ".join(dict.fromkeys(parts))


def networks_part(networks: Sequence[Network]) -> str:
    """The generated part of the networks' page."""
    if not networks:
        return "No network was run."
    return "\n\n".join(
        [
            f"{len(networks)} networks ({sizes(networks)}).",
            f"**Conclusions**\n\n{markdown(conclusions(networks))}",
            f"**Under the nulls, network by network**\n\n{markdown(by_network(networks))}",
            f"**Flips by one weight, in percent of the texts**\n\n{markdown(flips(networks))}",
        ]
    )
