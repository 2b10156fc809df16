"""Is attention stable? The same model from other seeds (Wiegreffe & Pinter 2019, section 3.3)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from attnprobe.core.metrics import JSD
from attnprobe.evidence.claims import Claim
from attnprobe.evidence.evidence import Evidence
from attnprobe.evidence.statistics import in_columns, interval
from attnprobe.findings.members import CLAIM, compare_pairs_of_runs, mean_likeness, stability
from attnprobe.findings.studies.base import StudyReading
from attnprobe.findings.studies.criteria.figures import AttentionDistances
from attnprobe.findings.studies.criteria.members import Members
from attnprobe.findings.studies.criteria.statements import PAPER, Wording, cite, of_several_runs
from attnprobe.results.pivot import MAX_ATTENTION_BINS, max_attention_bin

SEEDS_ATTEND_ALIKE = Wording(
    meets="Seeds attend alike",
    fails="Seeds attend no more alike than a shuffle of their weights",
    undecided="Whether seeds attend alike is open",
)

ADVERSARY_IS_FARTHER = Claim(
    name="seeds_are_nearer_than_adversaries",
    criterion="stability",
    statement="The attention of other seeds is nearer to the base's than an adversary's for one "
    "text",
    source=f"{PAPER}, section 3.3",
    measure=of_several_runs,
    quantity="difference of JSD in nats, adversary found by search − median over seeds",
    smallest=0.01,
)
FARTHER = Wording(
    meets="The adversary is farther out, by {}: seeds do not explain what it finds.",
    fails="The adversary is no farther out ({}): what it finds is within the spread of seeds.",
    undecided="Whether the adversary is farther out is open ({}).",
    no_difference="Whether the adversary is farther out is open ({}).",
)


def add_stability(reading: StudyReading, members: Members) -> None:
    """Add whether the seeds attend to the same words, and how far they are from the base.

    Where adversaries against single predictions of the base were searched for, also whether these
    get farther from it than another seed does.
    """
    seeds = members.compared_with_base("base")
    if seeds.empty:
        reading.notes.append(
            "No other seed was trained: whether attention is stable over seeds is not tested."
        )
        return
    base_runs = list(members.with_role("base")["path"])
    add_likeness_of_seeds(reading, base_runs)

    single = members.single_adversaries
    texts = distances_by_text(seeds, single)
    distances = {"seeds": "median over seeds"}
    beside = ""
    optimum = ""
    if not single.empty:
        distances["found_jsd"] = "adversary (search)"
        distances["optimum_jsd"] = f"adversary ({members.optimum_name})"
        beside = ", and adversaries against single predictions"
        optimum = f"adversary, {members.optimum_name}"
    table_caption = f"JSD of attention to the base's: other seeds{beside}"
    reading.tables[table_caption] = distance_table(texts, distances)

    caption = (
        "How far is attention from the base's, by the base's largest weight? "
        "JSD, the median over seeds per text."
    )
    if single.empty:
        reading.notes.append(
            f"{seeds_in_words(seeds, texts)} Whether an adversary gets farther is not tested: it "
            "needs the probe adversarial."
        )
    else:
        add_reach_of_adversaries(reading, members, seeds, texts)
        caption += (
            " Beside it the adversaries of single predictions "
            f"(search, and {members.optimum_name})."
        )
    figure = AttentionDistances(
        "seeds", caption, data=reading.data, texts=texts, base=base_runs[0], optimum=optimum
    )
    reading.figures.append(figure)


def add_likeness_of_seeds(reading: StudyReading, runs: Sequence[Path]) -> None:
    """Add whether any two of the runs attend to the same words of the same texts."""
    pairs = compare_pairs_of_runs(runs)
    evidence = stability(pairs)
    likeness = mean_likeness(pairs)
    words = (
        f"{SEEDS_ATTEND_ALIKE.of(evidence, CLAIM.smallest)}. Any two of {len(pairs)} are "
        f"{likeness.jsd:.3f} nats of JSD apart, and {likeness.jsd_of_shuffle:.3f} if the one's "
        f"weights are shuffled. On a scale from 0, a shuffle, to 1, the same attention, this is "
        f"{cite(evidence)}. The most attended word is the same in {100 * likeness.same_top:.0f} % "
        f"of the texts ({100 * likeness.same_top_by_chance:.0f} % by chance)."
    )
    reading.add(CLAIM, evidence, words)


def distances_by_text(seeds: pd.DataFrame, single: pd.DataFrame) -> pd.DataFrame:
    """JSD to the base's attention in nats, a row per text.

    Args:
        seeds: the other seeds, compared with the base (`Members.compared_with_base`).
        single: `Members.single_adversaries`; may be empty.

    Returns:
        `seeds` (median), `farthest seed`; of the base `max_attention`, `predicted_class`; and
        `found_jsd`, `optimum_jsd` where there are adversaries.
    """
    by_text = seeds.groupby(level="example_id")
    distances = pd.DataFrame(
        {"seeds": by_text["jsd"].median(), "farthest seed": by_text["jsd"].max()}
    )
    if not single.empty:
        return distances.join(
            single[["found_jsd", "optimum_jsd", "max_attention", "predicted_class"]]
        )
    # the other seeds' tables say it of the base, too
    return distances.assign(
        max_attention=by_text["teacher_max_attention"].first(),
        predicted_class=by_text["teacher_predicted_class"].first(),
    )


def distance_table(texts: pd.DataFrame, distances: Mapping[str, str]) -> pd.DataFrame:
    """Mean distances with their intervals: of all texts, then by the base's largest weight.

    Args:
        texts: see `distances_by_text`.
        distances: column of `texts` → heading.
    """
    bins = max_attention_bin(texts["max_attention"].to_numpy())
    parts = {"all": texts}
    for number, label in enumerate(MAX_ATTENTION_BINS):
        parts[label] = texts[bins == number]

    rows = []
    for label, part in parts.items():
        row: dict[str, Any] = {"largest attention weight": label, "examples": len(part)}
        for column, heading in distances.items():
            row |= in_columns(f"JSD, {heading}", interval(part[column], JSD))
        rows.append(row)
    return pd.DataFrame(rows)


def seeds_in_words(seeds: pd.DataFrame, texts: pd.DataFrame) -> str:
    """How far attention and predictions of the other seeds are from the base's."""
    count = seeds["seed"].nunique()
    plural = "" if count == 1 else "s"
    jsd = Evidence.of(texts["seeds"].to_numpy()).within(JSD.low, JSD.high)
    tvd = seeds.groupby(level="example_id")["tvd"].median().mean()
    return (
        f"Over {count} further seed{plural} attention moves by a median JSD of {cite(jsd)} nats "
        f"(predictions by a TVD of {tvd:.3f})."
    )


def add_reach_of_adversaries(
    reading: StudyReading, members: Members, seeds: pd.DataFrame, texts: pd.DataFrame
) -> None:
    """Add whether adversaries against single predictions get farther than another seed does."""
    lead = (texts["found_jsd"] - texts["seeds"]).to_numpy()
    evidence = Evidence.of(lead, reach=2 * JSD.high).within(-JSD.high, JSD.high)
    verdict = FARTHER.of(evidence, ADVERSARY_IS_FARTHER.smallest).format(f"{cite(evidence)} nats")
    beyond = float((texts["optimum_jsd"] > texts["farthest seed"]).mean())
    words = (
        f"{seeds_in_words(seeds, texts)} {verdict} The farthest attention known "
        f"({members.optimum_name}) is beyond the farthest seed in {100 * beyond:.0f} % of the "
        "examples."
    )
    reading.add(ADVERSARY_IS_FARTHER, evidence, words)
