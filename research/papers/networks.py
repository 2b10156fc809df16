"""Serrano & Smith's networks: flips by one weight, and which conclusions remain under nulls."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from attnprobe.core.errors import UserError
from attnprobe.evidence.verdicts import Answer
from attnprobe.findings.groups import read_runs
from attnprobe.findings.judgement import Judgement
from attnprobe.findings.stored import card_of_run
from attnprobe.probes.single_weight import flip_table
from attnprobe.results.directory import RunDirectory, find_runs
from attnprobe.results.table import read_results
from research.markdown import markdown
from research.papers.cells import ALL_TEXTS, texts_by_split

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


@dataclass(frozen=True)
class Network:
    """One trained network, with what was decided of it."""

    data: str
    model: str
    judgements: dict[str, Judgement]

    def answer(self, claim: str) -> Answer:
        """Yes, no, open or untested: what is said of a claim."""
        judgement = self.judgements.get(claim)
        return Answer.UNTESTED if judgement is None else judgement.answer

    def text(self, claim: str) -> str:
        """The answer with its number and interval; a dash where nothing was asked."""
        judgement = self.judgements.get(claim)
        if judgement is None or not judgement.is_tested:
            return "–"
        answer = judgement.answer.value
        if np.isnan(judgement.value):
            return answer
        ends = ""
        if not np.isnan(judgement.low):
            ends = f" [{judgement.low:.2f}, {judgement.high:.2f}]"
        return f"{answer} {judgement.value:.2f}{ends}"


def runs_of_networks(places: Sequence[str]) -> list[str]:
    """The runs that were examined with the paper's probe, by data set and model."""
    if not places:
        return []
    runs = []
    for path in find_runs(list(places)):
        manifest = RunDirectory(path).manifest()
        if PROBE in manifest["tables"]:
            runs.append((manifest["data"], manifest["model"], manifest["seed"], str(path)))
    return [path for *_, path in sorted(runs)]


def read_networks(paths: Sequence[str]) -> list[Network]:
    """The networks with their judgements.

    Raises:
        UserError: two runs are of one network.
    """
    networks = []
    for run in read_runs([*paths]) if paths else []:
        judgements = {
            judgement.claim: judgement
            for judgement in card_of_run(run).judgements
            if judgement.claim
        }
        networks.append(Network(str(run.data), str(run.model), judgements))
    names = [(network.data, network.model) for network in networks]
    for name in names:
        if names.count(name) > 1:
            raise UserError(
                f"{' '.join(name)}: {names.count(name)} runs: name the directories of one seed"
            )
    return networks


def flips(paths: Sequence[str]) -> pd.DataFrame:
    """The paper's 2 × 2 table of every network, in percent of the texts of two items or more."""
    results = pd.concat([read_results(path, PROBE) for path in paths])
    table = flip_table(results, "attention")
    shares = table.drop(columns=["top by", "n"]).select_dtypes("number")
    percents = shares.map(lambda share: f"{100 * share:.1f}")
    return table.assign(**percents)[[*table.columns.drop("top by")]]


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
        row = {"data": network.data, "model": network.model}
        row |= {claim.replace("_", " "): network.text(claim) for claim in claims}
        rows.append(row)
    return pd.DataFrame(rows)


def sizes(paths: Sequence[str]) -> str:
    """How many texts the networks were trained and asked on, in a sentence."""
    parts = []
    for path in paths:
        manifest = RunDirectory(path).manifest()
        most = manifest["training"]["data"].get("most") or {}
        counts = texts_by_split(most) or ALL_TEXTS
        epochs = manifest["training"]["training"]["epochs"]
        parts.append(f"{manifest['data']}: {counts}, at most {epochs} epochs")
    return "; ".join(dict.fromkeys(parts))


def networks_part(places: Sequence[str]) -> str:
    """The generated part of the networks' page."""
    paths = runs_of_networks(places)
    if not paths:
        return "No network was run."
    networks = read_networks(paths)
    return "\n\n".join(
        [
            f"{len(networks)} networks ({sizes(paths)}).",
            f"**Conclusions**\n\n{markdown(conclusions(networks))}",
            f"**Under the nulls, network by network**\n\n{markdown(by_network(networks))}",
            f"**Flips by one weight, in percent of the texts**\n\n{markdown(flips(paths))}",
        ]
    )
