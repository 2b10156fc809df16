"""Do the seeds of one model attend alike? Every seed is a base in turn, and a shuffled attention is the measure of unlike."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from jaxtyping import Float

from attnprobe.report.claims import Claim
from attnprobe.report.evidence import Evidence
from attnprobe.results.checksums import damaged
from attnprobe.results.directory import RunDirectory, examples_file
from attnprobe.results.statistics import over_pairs

SMALLEST = 0.1
"""Of the way from a shuffled attention to the same one, what is worth a word."""
LEAST = 0.01
"""Nats of JSD that a shuffled attention must be away for the question to be asked: shuffling an even one changes nothing."""

Attentions = Sequence[Float[np.ndarray, " words"]]


def attentions(run: Path) -> list[Float[np.ndarray, " words"]]:
    """The attention of every test text, in the order of their ids.

    Raises:
        DamagedRun: one is no list of weights.
    """
    table = RunDirectory(run).examples("test", columns=["example_id", "attention"])
    kind = table.schema.field("attention").type
    known = pa.types.is_list(kind) and pa.types.is_floating(kind.value_type) and not table["attention"].null_count
    ordered = table.sort_by("example_id")["attention"].to_pylist() if known else [[]]
    weights = [np.array(one, np.float64) for one in ordered]
    if not all(len(one) and (one >= 0).all() and 0 < one.sum() < np.inf for one in weights):
        raise damaged(RunDirectory(run) / examples_file("test"), "an attention in it is no list of weights")
    return [one / one.sum() for one in weights]


def halves(p: Float[np.ndarray, "*any"], q: Float[np.ndarray, "*any"]) -> Float[np.ndarray, "*any"]:
    """½ [p ln(2p/(p+q)) + q ln(2q/(p+q))]: the summands of the Jensen-Shannon divergence, in nats."""
    total = np.where(p + q > 0, p + q, 1)
    p_part, q_part = (x * np.log(np.where(x > 0, 2 * x / total, 1)) for x in (p, q))
    return (p_part + q_part) / 2


def compared(one: Attentions, other: Attentions) -> Float[np.ndarray, "texts 4"]:
    """Per text: JSD of two attentions; the mean JSD of the one and all orders of the other's weights (exactly: a weight
    meets every other one equally often); whether their top word is the same; and how likely that is by chance."""
    rows = []
    for p, q in zip(one, other, strict=True):
        shuffled = halves(p[:, None], q[None]).sum() / len(p)
        rows.append((halves(p, q).sum(), shuffled, float(p.argmax() == q.argmax()), 1 / len(p)))
    return np.array(rows, np.float64).reshape(-1, 4)


def of_pairs(runs: Sequence[Path]) -> Float[np.ndarray, "runs runs texts 4"]:
    """`compared`, for every run as the base of every other one; zeros on the diagonal.

    Args:
        runs: directories of runs on the same texts.

    Raises:
        DamagedRun: an attention is no list of weights, or one for each word of another text.
    """
    weights = [attentions(run) for run in runs]
    for run, own in zip(runs, weights, strict=True):
        if list(map(len, own)) != list(map(len, weights[0])):
            reason = f"its texts do not have as many weights as those of {runs[0]}"
            raise damaged(RunDirectory(run) / examples_file("test"), reason)
    result = np.zeros((len(runs), len(runs), len(weights[0]), 4))
    for base in range(len(runs)):
        for other in range(base):
            result[base, other] = result[other, base] = compared(weights[base], weights[other])
    return result


def nearness(sums: Float[np.ndarray, "*any 4"]) -> Float[np.ndarray, "*any"]:
    """1 − JSD to the other seed / JSD to a shuffle of it: 1 the same attention, 0 no nearer than a shuffle."""
    return 1 - sums[..., 0] / np.where(sums[..., 1] > 0, sums[..., 1], np.nan)


def stability(pairs: Float[np.ndarray, "runs runs texts 4"]) -> Evidence:
    """`nearness` of all pairs with an interval over texts and runs; two runs have none."""
    different = ~np.eye(len(pairs), dtype=bool)
    evidence = Evidence(*over_pairs(pairs, nearness, high=1), n=pairs.shape[2])
    if pairs[different][..., 1].mean() < LEAST:
        return Evidence(
            evidence.value,
            evidence.low,
            evidence.high,
            evidence.n,
            unasked="attention is so even that a shuffle changes nothing",
        )
    return evidence


CLAIM = Claim(
    name="seeds_attend_alike",
    criterion="stability",
    statement="Another seed attends to the same words: its attention is nearer than a shuffle of it",
    source="attnprobe, after Wiegreffe & Pinter 2019, section 3.3",
    measure=lambda rows: None,
    quantity=f"1 − JSD(seeds) / JSD(a shuffled seed): 1 is the same attention, 0 no nearer than a shuffle, every seed a base "
    f"in turn; up to {SMALLEST} is no relevant difference",
    speaks="for",
    smallest=SMALLEST,
    primary=True,
)
