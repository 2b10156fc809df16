"""Audit your own: from a file of labelled texts to the verdict. Is attention needed, is it stable,
what to show instead?"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from omegaconf import DictConfig

from attnprobe.core.errors import UserError
from attnprobe.core.sanitise import duration, quoted
from attnprobe.core.settings import Positive, Seed, Whole
from attnprobe.evidence.claims import Claim
from attnprobe.evidence.evidence import MEETS, Evidence
from attnprobe.evidence.reading import facts_of, readings
from attnprobe.evidence.statistics import in_columns
from attnprobe.findings.quality import quality_of
from attnprobe.findings.studies.base import (
    Compose,
    Costs,
    Done,
    Member,
    Plan,
    Study,
    StudyReading,
    without_learned_attention,
)
from attnprobe.findings.studies.wiegreffe import Members, cite, seeds, uniform
from attnprobe.probes.faithfulness import SOURCE, measured
from attnprobe.results.directory import RunDirectory
from attnprobe.results.pivot import per_example
from attnprobe.results.table import read_results

FEWEST = {"train": 2000, "test": 400}
LEAST = 50
"""No fewer examples than these are taken, if others can be left out, and however short the time no
fewer test texts."""
RELIABLE = ("gradient", "leave_one_out")
"""What attention is compared with: asked of the further seeds too, to see whether it agrees with
itself."""
SLOW = 0.05
LATE = 1.05
"""Share of the time from which on a probe is named; times the minutes from which on a plan is said
to be too long."""
AGAIN = 0.1
"""What these two cost, of all probes: `agreement` takes both again under ten attentions."""
OWN_FIGURES = 4
"""Figures of the study itself, and what a page costs without any, in figures."""


@dataclass(frozen=True)
class Audit(Study):
    """Trains the command line's model, examines it with the core probes, and repeats the training
    with other seeds and with uniform attention (is attention needed, is it stable?).

    Where all this is estimated to take more than `minutes`, rows are left out at random, of the
    test split before the training split, and counted; where that is not enough, the plan names the
    slowest probe. The plan is kept.

    Attributes:
        seeds: further seeds, in addition to the command line's.
        probes: probes of the first run.
        epochs: of a training; 0: the model is trained already, and examined as it is.
        model_class: of a whole model (`without_learned_attention`); None: one of three stages.
    """

    name: ClassVar[str] = "audit"
    seeds: Sequence[Seed] = (1, 2)
    probes: Sequence[str] = ()
    minutes: Positive = 30.0
    epochs: Whole = 1
    model_class: str | None = None

    def __post_init__(self) -> None:
        if not self.probes:
            raise UserError(
                "study.probes is empty: name the probes of the audit, such as [permutation,adversarial]"
            )

    def plan(self, compose: Compose, measure: Callable[[DictConfig], Costs]) -> Plan:
        """As many rows as the time allows, and what that means in words. This planning and the page
        are part of the time."""
        began = perf_counter()
        config = compose([f"probe=[{','.join(self.probes)}]"])
        costs = measure(config)
        epochs = int(config.training.epochs)
        if epochs and "agreement" in self.probes and set(RELIABLE) & set(self.probes):
            costs = replace(costs, probing=costs.probing * (1 + AGAIN * len(self.seeds)))
        trainings = 2 * (1 + len(self.seeds)) if epochs else 0
        figures = sum(
            len(reading.drawings) for name, reading in readings().items() if name in self.probes
        )
        beside = costs.figure * (figures + OWN_FIGURES) + perf_counter() - began
        kept = rows_within(costs, epochs, trainings, self.minutes * 60 - beside)
        most = dict(config.data.most or {}) | kept
        sizes = costs.rows | kept
        estimate = beside + replace(costs, rows=sizes).seconds(epochs, trainings)
        work = (
            f"{trainings} trainings of {epochs} epochs on {sizes['train']:,} texts"
            if epochs
            else "nothing to train"
        )
        probing = f"{len(self.probes)} probes on {sizes['test']:,}"
        each = {name: share * costs.probing * sizes["test"] for name, share in costs.shares.items()}
        slow = sorted(each, key=lambda name: -each[name])
        parts = [f"{name} {duration(each[name])}" for name in slow if each[name] > SLOW * estimate]
        words = f"{work}, {probing}: about {duration(estimate)} on this machine ({costs.device})"
        words += f". Most of it: {', '.join(parts)}" if parts else ""
        if kept:
            full = duration(beside + costs.seconds(epochs, trainings))
            left = " and ".join(
                f"{count:,} of {costs.rows[split]:,} {split} rows" for split, count in kept.items()
            )
            words += f". All rows would take about {full}: taking {left}, at random; study.minutes=… allows more"
        if estimate > LATE * self.minutes * 60:
            words += (
                f". That is {estimate / 60:.1f} minutes, more than study.minutes={self.minutes:g}, "
            )
            words += f"with no fewer than {min(LEAST, sizes['test'])} test rows"
            others = ",".join(name for name in self.probes if name not in slow[:1])
            training = trainings * sizes.get("train", 0) * costs.training
            cures = (
                {f"training.epochs={epochs // 2}": training * (epochs - epochs // 2)}
                if epochs > 1
                else {}
            )
            cures |= (
                {f"without {slow[0]}, probe=[{others}],": each[slow[0]]} if len(slow) > 1 else {}
            )
            cure = max(cures, key=lambda one: cures[one], default=None)
            if cure is not None and cures[cure] > SLOW * estimate:
                words += f": {cure} would take about {(estimate - cures[cure]) / 60:.1f}"
        return Plan(most if kept else {}, words, estimate)

    def stages(self, seed: int, model: str, done: list[Done]) -> Iterator[list[Member]]:
        """The examined run; the same with other seeds, and with uniform attention."""
        further = [other for other in self.seeds if other != seed]
        yield [Member("base", seed, (f"probe=[{','.join(self.probes)}]",))]
        measured = quality_of(done[0].directory)
        if not self.epochs or (measured is not None and not measured.better_than_guessing):
            return  # of a model that may be guessing no other training says more
        base = f"teacher={quoted(str(done[0].directory))}"
        # how far attention moved, and, where agreement is asked, what it is compared with
        again = [one for one in RELIABLE if {one, "agreement"} <= set(self.probes)]
        repeated = f"probe=[{','.join(['teacher', *again])}]"
        even = without_learned_attention(self.model_class)
        members = [Member("base", other, (repeated, base)) for other in further]
        yield members + [Member("uniform", other, (even, "probe=[]")) for other in [seed, *further]]


def rows_within(costs: Costs, epochs: int, trainings: int, seconds: float) -> dict[str, int]:
    """How many rows of which split to take so that the estimate is within `seconds`; splits that
    keep all are left out.

    >>> costs = Costs({"train": 10_000, "validation": 1000, "test": 5000}, training=0.001, probing=0.1, device="cpu")
    >>> rows_within(costs, epochs=8, trainings=6, seconds=3600)
    {}
    >>> rows_within(costs, epochs=8, trainings=6, seconds=600)
    {'test': 1200}
    >>> rows_within(costs, epochs=8, trainings=6, seconds=150), rows_within(costs, epochs=8, trainings=6, seconds=99)
    ({'test': 400, 'train': 2291}, {'test': 50, 'train': 2000})
    """
    if costs.seconds(epochs, trainings) <= seconds:
        return {}
    seconds -= max(1, trainings) * costs.each
    rows = {"test": costs.rows["test"], "train": costs.rows.get("train", 0)}
    price = {"test": costs.probing, "train": trainings * epochs * costs.training}
    for split, fewest in (("test", FEWEST["test"]), ("train", FEWEST["train"]), ("test", LEAST)):
        if price[split]:
            left = seconds - sum(rows[other] * price[other] for other in rows if other != split)
            rows[split] = min(rows[split], max(fewest, int(left / price[split])))
    return {split: count for split, count in rows.items() if count < costs.rows.get(split, 0)}


# What to show instead of attention: the most faithful method on these texts, chosen on one half of
# them and measured on the other, so that it is not called better for having been chosen.


SMALLEST = 0.01
MEANINGLESS = ("random", "position")
"""What nobody would show; random is the null."""
TAKES_OUT = ("leave_one_out", "sufficient_subset", "occlusion")
"""Methods that take words out themselves, as the metric does."""
CAPTION = "What to show instead: fall of the prediction without each method's top words (deleted), and beside attention"

CLAIM = Claim(
    name="another_method_is_more_faithful",
    criterion="erasure",
    statement="Another method's top words cost the prediction more than attention's",
    source=SOURCE,
    measure=lambda rows: None,
    quantity="comprehensiveness (AOPC, words deleted), the method chosen on the other texts minus attention, −2 to 2",
    smallest=SMALLEST,
)


def instead(reading: StudyReading, results: pd.DataFrame) -> None:
    """Add a table of every method beside attention, and what to show; nothing where faithfulness
    was not measured.

    The method that looks best on the texts with even places is measured on the others. It is better
    by every whole interval: than random, than attention by more than `SMALLEST`, and at all where
    words go in another way. Where they went in no other way nothing confirms it: deleting words
    favours what deletes them."""
    pairs = measured(results)
    names = list(dict.fromkeys(name for name, operator in pairs if operator == "delete"))
    if not {"attention", "random"} <= set(names) or len(names) < 3:
        return
    frame = per_example(
        results, "faithfulness", [f"comprehensiveness_{name}_by_{one}" for name, one in pairs]
    )
    reading.tables[CAPTION] = beside_attention(frame, results, names)
    candidates = [name for name in names if name not in ("attention", *MEANINGLESS)]
    if not candidates or len(frame) < 4:
        return
    best, second = chosen(frame, candidates)
    title = facts_of(best, results, "faithfulness").title
    loss = {
        (name, one): second[f"comprehensiveness_{name}_by_{one}"].to_numpy() for name, one in pairs
    }
    own = Evidence.of(loss[best, "delete"], reach=2.0)
    gain, null = (
        Evidence.of(loss[best, "delete"] - loss[name, "delete"], reach=4.0)
        for name in ("attention", "random")
    )
    inputs = [
        one
        for one in dict.fromkeys(operator for _, operator in pairs)
        if one not in ("delete", "attention")
    ]
    both = [
        one for one in inputs if {(best, one), ("attention", one)} <= set(loss)
    ]  # a table may have lost one of the two
    others = [Evidence.of(loss[best, one] - loss["attention", one], reach=4.0) for one in both]
    looks_better = gain.exceeds(0.0, SMALLEST) == MEETS and null.exceeds(0.0) == MEETS
    better = looks_better and bool(others) and all(one.exceeds(0.0) == MEETS for one in others)
    caution = (
        " It takes words out itself, as this test does, which favours it."
        if best in TAKES_OUT
        else ""
    )
    unconfirmed = looks_better and not better
    denied = "words were deleted, and no other way of removing them agrees" if unconfirmed else ""
    if better:
        words = (
            f"Instead of attention, show {title}. Without its top words the predicted class loses {cite(own)} of its "
            f"probability. That is {cite(gain)} more than without attention's, on {gain.n} texts that had no part in "
            f"choosing it.{caution}"
        )
    elif unconfirmed and not others:
        words = (
            f"Nothing better than attention is confirmed. Without the top words of {title} the predicted class loses "
            f"{cite(gain)} more of its probability than without attention's, on {gain.n} texts that had no part in choosing "
            f"it. But words were only deleted. Another way of taking them out has to agree: "
            f"probe.faithfulness.operators=[delete,zeros].{caution}"
        )
    else:
        words = (
            f"Nothing is shown to be better than attention. On half of the texts {title} looked best. On the other {gain.n} "
            f"its top words cost the prediction {cite(gain)} more than attention's do."
        )
    claim = replace(CLAIM, statement=f"Show {title}: its top words cost the prediction more")
    reading.add(claim, replace(gain, unasked=denied), words)


def chosen(frame: pd.DataFrame, candidates: list[str]) -> tuple[str, pd.DataFrame]:
    """The best of the candidates on the texts with even places, and the other texts."""
    rank = pd.factorize(frame["example_id"], sort=True)[0]
    means = {
        name: frame.loc[rank % 2 == 0, f"comprehensiveness_{name}_by_delete"].mean()
        for name in candidates
    }
    return max(means, key=lambda name: (means[name], -candidates.index(name))), frame[rank % 2 == 1]


def beside_attention(frame: pd.DataFrame, results: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    """Each method's comprehensiveness and how far it is from attention's, on all texts."""
    attention = frame["comprehensiveness_attention_by_delete"].to_numpy()
    rows = []
    for name in names:
        values = frame[f"comprehensiveness_{name}_by_delete"].to_numpy()
        apart = np.full(len(values), np.nan) if name == "attention" else values - attention
        own = Evidence.of(values, reach=2.0)
        more = Evidence.of(apart, reach=4.0)
        row: dict[str, object] = {
            "method": facts_of(name, results, "faithfulness").title,
            "texts": own.n,
        }
        row |= in_columns("loss", (own.value, own.low, own.high))
        rows.append(row | in_columns("more than attention", (more.value, more.low, more.high)))
    return pd.DataFrame(rows).sort_values("loss", ascending=False).reset_index(drop=True)


def read(directory: Path, content: dict[str, Any]) -> StudyReading:
    """The questions that need several runs or several methods; the other tests are in the first
    run's tables."""
    members = Members(directory, content)
    reading = members.reading(
        "May this attention be read? {data} · {model}",
        "The same model trained again with other seeds, and with equal weights (Wiegreffe & Pinter 2019, sections 3.2 "
        "and 3.3). F1 is of class 1 on the test split, macro F1 with more than two classes. Its intervals are over texts "
        "and seeds together, those of distances over texts.",
        [f"Planned: {content['plan']}."] if content.get("plan") else [],
    )
    if not members.of("uniform").empty:
        uniform(reading, members, {})
    seeds(reading, members)
    base = members.of("base")["path"].iloc[0]
    if "faithfulness" in RunDirectory(base).manifest()["tables"]:
        instead(reading, read_results(base, probe="faithfulness"))
    return reading
