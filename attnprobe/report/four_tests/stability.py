"""Is attention stable? The same model from other seeds (Wiegreffe & Pinter 2019, section 3.3)"""

from typing import Any

import numpy as np
import pandas as pd

from attnprobe.report.evidence import FAILS, HOLDS, NEGLIGIBLE, Evidence
from attnprobe.report.figures.studies import spread
from attnprobe.report.four_tests.findings import add, shown, statement
from attnprobe.report.four_tests.members import Members
from attnprobe.report.stability import CLAIM, of_pairs, stability
from attnprobe.report.studies import StudyReading
from attnprobe.report.wide import MAX_ATTENTION_BINS, max_attention_bin, named
from attnprobe.results.statistics import interval

LN2 = float(np.log(2))


def seeds(reading: StudyReading, members: Members) -> None:
    """How far the attention of other seeds is from the base's, and how far adversaries get, where these were searched for."""
    others = members.others
    if others.empty:
        reading.notes.append("No other seed was trained: whether attention is stable over seeds is not tested.")
        return
    alike(reading, members)
    frame = named(by_seeds(members), [members.classes])
    searched = not members.single.empty
    names = {"seeds": "median over seeds"}
    if searched:
        names |= {"found_jsd": "adversary (search)", "optimum_jsd": f"adversary ({members.best})"}
    lines = []
    bins = max_attention_bin(frame["max_attention"].to_numpy())
    for label, part in [("all", frame), *((MAX_ATTENTION_BINS[b], frame[bins == b]) for b in range(4))]:
        line: dict[str, Any] = {"largest attention weight": label, "examples": len(part)}
        for column, name in names.items():
            mean, low, high = interval(part[column])
            line |= {f"JSD, {name}": mean, f"JSD, {name} low": low, f"JSD, {name} high": high}
        lines.append(line)
    beside = ", and adversaries against single predictions" if searched else ""
    reading.tables[f"JSD of attention to the base's: other seeds{beside}"] = pd.DataFrame(lines)
    count = others["seed"].nunique()
    spread_of_seeds = Evidence.of(frame["seeds"].to_numpy())
    words = (
        f"Over {count} further seed{'' if count == 1 else 's'} attention moves by a median JSD of {shown(spread_of_seeds)} "
        f"nats (predictions by a TVD of {others.groupby(level='example_id')['tvd'].median().mean():.3f})."
    )
    if searched:
        beyond_seeds(reading, frame, words, members.best)
    else:
        reading.notes.append(
            f"{words} Whether an adversary gets farther is not tested: it needs the probe adversarial."
        )
    caption = "JSD to the base's attention by the base's largest weight: median over seeds per example"
    caption += f", and the adversaries against single predictions (search, and {members.best})." if searched else "."
    best = f"adversary, {members.best}" if searched else ""
    reading.figures.append(("seeds", caption, spread(frame, reading.data, best)))


def alike(reading: StudyReading, members: Members) -> None:
    """The finding that the seeds attend to the same words, or do not."""
    pairs = of_pairs(list(members.of("base")["path"]))
    evidence = stability(pairs)
    jsd, shuffled, same, chance = pairs[~np.eye(len(pairs), dtype=bool)].mean((0, 1))
    verdict = {
        HOLDS: "Seeds attend alike", FAILS: "Seeds attend no more alike than a shuffle of their weights",
        NEGLIGIBLE: "Seeds attend no more alike than a shuffle of their weights",
    }.get(evidence.exceeds(0, CLAIM.smallest), "Whether seeds attend alike is open")  # fmt: skip
    words = (
        f"{verdict}: any two of {len(pairs)} are {jsd:.3f} nats of JSD apart, and {shuffled:.3f} if the one's weights are "
        f"shuffled; on a scale from 0, a shuffle, to 1, the same attention, this is {shown(evidence)}. The most attended "
        f"word is the same in {100 * same:.0f} % of the texts ({100 * chance:.0f} % by chance)."
    )
    add(reading, CLAIM, evidence, words)


def by_seeds(members: Members) -> pd.DataFrame:
    """The base's examples: `seeds` and `farthest seed`, the median and the largest JSD of other seeds' attention to the
    base's; `max_attention`, `predicted_class`; and `found_jsd`, `optimum_jsd` where the base was searched."""
    examples = members.others.groupby(level="example_id")
    frame = pd.DataFrame({"seeds": examples["jsd"].median(), "farthest seed": examples["jsd"].max()})
    if not members.single.empty:
        return frame.join(members.single[["found_jsd", "optimum_jsd", "max_attention", "predicted_class"]])
    # what the other seeds' tables say of the base
    of_base = {"max_attention": "teacher_max_attention", "predicted_class": "teacher_predicted_class"}
    return frame.assign(**{name: examples[column].first() for name, column in of_base.items()})


def beyond_seeds(reading: StudyReading, frame: pd.DataFrame, words: str, best: str) -> None:
    """The finding that adversaries of single predictions are farther out than other seeds, or are not."""
    beyond = Evidence.of((frame["found_jsd"] - frame["seeds"]).to_numpy(), reach=2 * LN2)
    claim = statement(
        "seeds_are_nearer_than_adversaries", "stability",
        "Other seeds' attention is nearer to the base's than a single-prediction adversary's",
        "section 3.3", "difference of JSD in nats, adversary found by search − median over seeds", "for",
        smallest=0.01,
    )  # fmt: skip
    outside = float((frame["optimum_jsd"] > frame["farthest seed"]).mean())
    verdict = {
        HOLDS: "The adversary is farther out, by {}: seeds do not explain what it finds.",
        FAILS: "The adversary is no farther out ({}): what it finds is within the spread of seeds.",
    }.get(beyond.exceeds(0, 0.01), "Whether the adversary is farther out is open ({}).")
    words += (
        f" {verdict.format(shown(beyond) + ' nats')} The farthest attention known ({best}) is beyond the farthest seed "
        f"in {100 * outside:.0f} % of the examples."
    )
    add(reading, claim, beyond, words)
