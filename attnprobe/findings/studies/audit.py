"""Audit your own: from a file of labelled texts to the verdict.

Is attention needed, is it stable, what to show instead?
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any, ClassVar

from omegaconf import DictConfig

from attnprobe.core.clock import CLOCK, TimeIsUp
from attnprobe.core.errors import UserError
from attnprobe.core.sanitise import duration, percent, quoted
from attnprobe.core.settings import Positive, Seed, Whole
from attnprobe.findings.quality import quality_of
from attnprobe.findings.studies.base import (
    ANSWERING,
    Compose,
    Costs,
    Done,
    Member,
    Plan,
    Study,
    StudyReading,
    without_learned_attention,
)
from attnprobe.findings.studies.criteria.alternative import add_alternative
from attnprobe.findings.studies.criteria.members import Members
from attnprobe.findings.studies.criteria.necessity import add_necessity
from attnprobe.findings.studies.criteria.stability import add_stability
from attnprobe.readings.registry import readings
from attnprobe.results.directory import RunDirectory
from attnprobe.results.table import read_results

FEWEST = {"train": 2000, "test": 400}
"""Split → rows of which none are left out, however short the time; of the test split some are,
where training rows can be left out no longer."""
LEAST_TRAINED = 200
"""Training rows of which none are left out in any case."""
PLANNING_SHARE = 0.25
"""Share of the time that planning may take."""
PAGE_SHARE = 0.2
"""Share of the time that is kept for the page at most, and where planning ended before the page
was timed."""
FIRST_SHARE = 0.6
"""Share of the time that the first run may take: without it there is no answer at all."""
TRAINING_SHARE = 0.4
"""Share of the time after planning that the first training may take where the tests could not be
timed: the rest is for the test that the answer goes by."""
LEAST = 50
"""Test rows of which none are left out in any case."""
RELIABLE = ("gradient", "leave_one_out")
"""Probes that attention is compared with: the further seeds are examined by them, too, to see
whether each agrees with itself."""
ANSWER_SHARE = 0.5
"""Share of the time after the first training that the test may take that the answer goes by, where
the other tests could not be timed."""
MORE_PASSES = 4
"""Times as long as of the untrained model that is timed this test may take of a trained one, whose
effects are measured until they are reliable."""
FIRST = ("skill", *ANSWERING, "permutation", "adversarial")
"""Probes that come before further trainings: what the chip and the first sentence go by."""
LATER = ("erasure", "faithfulness")
"""Probes that come last: they take long, and no line of the card waits for them alone."""
AGAIN = 0.1
"""What these two cost per further seed, as a share of all probes: `agreement` takes both again
under ten attentions."""
SLOW = 0.05
"""Share of the whole time from which on a probe, or a remedy, is named."""
LATE = 1.05
"""Times the minutes asked for, from which on a plan is said to be too long."""
OWN_FIGURES = 4
"""Figures of the study itself, and what a page costs without any, in figures."""


@dataclass(frozen=True)
class Audit(Study):
    """Trains and examines the command line's model, and trains it again.

    The first run is examined with the core probes. The training is repeated with other seeds and
    with uniform attention: is attention needed, is it stable?

    Where all this is estimated to take more than `minutes`, rows are left out at random, of the
    test split before the training split, and counted; where that is not enough, the plan names the
    slowest probe. The plan is kept. `minutes` are of the wall clock and end the audit: the tests
    come in order of worth (`ANSWERING`, `FIRST`, the further trainings, all others, `LATER`), and
    what is finished by then is the answer. Where the machine is too slow for the tests to be timed,
    so few rows are taken that one model can be trained and have the test that the answer goes by.
    Without a limit (`minutes=null`) nothing is estimated.

    Attributes:
        seeds: further seeds, in addition to the command line's.
        probes: probes of the first run.
        epochs: of a training; 0: the model is trained already, and examined as it is.
        model_class: of a whole model (`without_learned_attention`); None: one of three stages.
    """

    name: ClassVar[str] = "audit"
    seeds: Sequence[Seed] = (1, 2)
    probes: Sequence[str] = ()
    minutes: Positive | None = 30.0
    epochs: Whole = 1
    model_class: str | None = None

    def __post_init__(self) -> None:
        if not self.probes:
            raise UserError(
                "study.probes is empty: name the probes of the audit, such as "
                "[permutation,adversarial]"
            )

    @property
    def limit(self) -> float | None:
        """See `Study.limit`."""
        return None if self.minutes is None else 60 * self.minutes

    @property
    def probes_in_order(self) -> list[list[str]]:
        """The probes of the first run, those of most worth first; each list holds those before it.

        What a run has been examined with is not measured again.
        """
        answering = [probe for probe in self.probes if probe in ANSWERING]
        first = [probe for probe in self.probes if probe in FIRST]
        without_later = [probe for probe in self.probes if probe not in LATER]
        lists = []
        for probes in (answering, first, without_later, list(self.probes)):
            if probes and probes not in lists:
                lists.append(probes)
        return lists

    @property
    def repeated_probes(self) -> list[str]:
        """The probes of the first run that the further seeds repeat: what `agreement` asks of."""
        if "agreement" not in self.probes:
            return []
        return [probe for probe in RELIABLE if probe in self.probes]

    def plan(self, compose: Compose, measure: Callable[[DictConfig], Costs]) -> Plan:
        """As many rows as the time allows, and what that means in words.

        This planning and the page are part of the time. Where the tests cannot be timed within
        `PLANNING_SHARE` of it, few rows are taken.
        """
        if self.minutes is None or self.limit is None:
            return Plan()
        before = CLOCK.elapsed
        began = perf_counter()
        config = compose([_override(self.probes)])
        costs = None
        with suppress(TimeIsUp), CLOCK.limited(before + PLANNING_SHARE * (self.limit - before)):
            costs = measure(config)
        if costs is None or math.isinf(costs.probing):
            return self._plan_with_untimed_tests(config, costs)
        epochs = int(config.training.epochs)
        trainings = self.trainings(int(config.seed)) if epochs else 0
        if epochs and self.repeated_probes:
            costs = replace(costs, probing=costs.probing * (1 + AGAIN * len(self.seeds)))

        page = self._page_seconds(costs)
        beside_runs = page + perf_counter() - began
        left = self.limit - beside_runs - before
        rows = rows_within(costs, epochs, trainings, left)
        forecast = AuditForecast(costs, rows, epochs, trainings, beside_runs)
        forecast = forecast.with_first_run_within(FIRST_SHARE * left, self.probes_in_order)
        rows = forecast.rows
        limits = dict(config.data.most or {}) | rows if rows else {}
        return Plan(
            rows=limits,
            words=forecast.in_words(self.probes, self.minutes),
            seconds=forecast.seconds,
            members=forecast.members(self.probes_in_order),
            page=page,
        )

    def _plan_with_untimed_tests(self, config: DictConfig, costs: Costs | None) -> Plan:
        """Few rows, so that a model is trained and has its first test on a slow machine.

        Args:
            config: of the first run.
            costs: all but those of the tests; None: nothing could be timed.
        """
        assert self.minutes is not None
        assert self.limit is not None
        page = PAGE_SHARE * self.limit if costs is None else self._page_seconds(costs)
        left = self.limit - CLOCK.elapsed - page
        most = rows_with_untimed_tests(costs, int(config.training.epochs), left)
        rows = dict(config.data.most or {})
        for split, count in most.items():
            rows[split] = min(count, rows.get(split, count))
        taken = " and ".join(f"{rows[split]:,} {split} rows" for split in most)
        words = (
            f"{len(self.probes)} probes, too slow on this machine to be timed within "
            f"{percent(PLANNING_SHARE)} of study.minutes={self.minutes:g}: taking at most {taken}, "
            f"at random, for one model and the test that the answer goes by, and then the rest as "
            f"far as the time allows; study.minutes=… allows more"
        )
        return Plan(rows=rows, words=words, page=page)

    def _page_seconds(self, costs: Costs) -> float:
        assert self.limit is not None
        drawings = [
            drawing
            for probe, reading in readings().items()
            if probe in self.probes
            for drawing in reading.drawings
        ]
        figures = costs.figure * (len(drawings) + OWN_FIGURES)
        return min(costs.page + figures, PAGE_SHARE * self.limit)

    def trainings(self, seed: int) -> int:
        """Every seed with learned and with uniform attention."""
        return 2 * len({seed, *self.seeds})

    def stages(self, seed: int, model: str, done: list[Done]) -> Iterator[list[Member]]:
        """The examined run; the same with other seeds, and with uniform attention."""
        before_trainings, after_trainings = around_trainings(self.probes_in_order)
        for probes in before_trainings:
            yield [Member("base", seed, (_override(probes),))]

        quality = quality_of(done[0].directory)
        is_guessing = quality is not None and not quality.better_than_guessing
        # of a model that may be guessing no other training says more
        if self.epochs and not is_guessing:
            yield self._further_trainings(seed, done)
        for probes in after_trainings:
            yield [Member("base", seed, (_override(probes),))]

    def _further_trainings(self, seed: int, done: list[Done]) -> list[Member]:
        """The trainings with other seeds and with equal weights, a seed's own first."""
        base = f"teacher={quoted(str(done[0].directory))}"
        # how far attention moved, and, where agreement is asked, what it is compared with
        probes = f"probe=[{','.join(['teacher', *self.repeated_probes])}]"
        uniform = without_learned_attention(self.model_class)
        further_seeds = [further for further in self.seeds if further != seed]
        repeated = [Member("base", further, (probes, base)) for further in further_seeds]
        without = [
            Member("uniform", each, (uniform, "probe=[]")) for each in [seed, *further_seeds]
        ]
        return repeated + without


def around_trainings(
    probes_in_order: Sequence[Sequence[str]],
) -> tuple[Sequence[Sequence[str]], Sequence[Sequence[str]]]:
    """The lists of probes that come before the further trainings, at least one, and after them.

    >>> around_trainings([["swaps"], ["skill", "swaps"], ["skill", "swaps", "gradient"]])
    ([['swaps'], ['skill', 'swaps']], [['skill', 'swaps', 'gradient']])
    >>> around_trainings([["gradient"], ["gradient", "erasure"]])
    ([['gradient']], [['gradient', 'erasure']])
    """
    count = sum(set(probes) <= set(FIRST) for probes in probes_in_order)
    count = max(1, count)
    return probes_in_order[:count], probes_in_order[count:]


def _override(probes: Sequence[str]) -> str:
    """The override for a run that is examined with these probes."""
    return f"probe=[{','.join(probes)}]"


@dataclass(frozen=True)
class AuditForecast:
    """What an audit does, and what it is expected to take.

    Attributes:
        costs: of its parts; `rows` are all that there are.
        rows: split → rows that are taken, of splits of which some are left out.
        epochs: of each training.
        trainings: 0 where nothing is trained.
        beside_runs: seconds for the page and the planning.
    """

    costs: Costs
    rows: dict[str, int]
    epochs: int
    trainings: int
    beside_runs: float

    @property
    def sizes(self) -> dict[str, int]:
        """Split → rows that are used."""
        return self.costs.rows | self.rows

    @property
    def seconds(self) -> float:
        """The whole audit."""
        costs = replace(self.costs, rows=self.sizes)
        return self.beside_runs + costs.seconds(self.epochs, self.trainings)

    @property
    def probe_seconds(self) -> dict[str, float]:
        """Probe → seconds on all test rows that are used, slowest first."""
        seconds = {
            probe: share * self.costs.probing * self.sizes["test"]
            for probe, share in self.costs.shares.items()
        }
        return dict(sorted(seconds.items(), key=lambda probe: -probe[1]))

    def members(self, probes_in_order: Sequence[Sequence[str]]) -> list[float]:
        """Seconds of each member, in the order of the stages.

        Args:
            probes_in_order: of the first run, each list with those before it.
        """
        training = self.epochs * self.sizes.get("train", 0) * self.costs.training
        seconds = []
        measured: set[str] = set()
        for probes in probes_in_order:
            added = [self.probe_seconds.get(probe, 0.0) for probe in set(probes) - measured]
            seconds.append(self.costs.each + sum(added))
            measured.update(probes)
        seconds[0] += training
        further = [self.costs.each + training] * max(0, self.trainings - 1)
        count = len(around_trainings(probes_in_order)[0])
        return [*seconds[:count], *further, *seconds[count:]]

    def with_first_run_within(
        self, seconds: float, probes_in_order: Sequence[Sequence[str]]
    ) -> "AuditForecast":
        """The same with fewer training rows, where the first run would take longer than that.

        No fewer than `LEAST_TRAINED` are taken.
        """
        before_trainings, _ = around_trainings(probes_in_order)
        first = sum(self.members(before_trainings)[: len(before_trainings)])
        per_row = self.epochs * self.costs.training
        if first <= seconds or not per_row:
            return self
        train = self.sizes["train"]
        affordable = int(train - (first - seconds) / per_row)
        rows = self.rows | {"train": min(train, max(LEAST_TRAINED, affordable))}
        return replace(self, rows=rows)

    def in_words(self, probes: Sequence[str], minutes: float) -> str:
        """What is done, how long it takes, what takes most of it, and what is left out."""
        sentences = [self.work(probes)]
        slow = {
            probe: seconds
            for probe, seconds in self.probe_seconds.items()
            if seconds > SLOW * self.seconds
        }
        if slow:
            times = ", ".join(f"{probe} {duration(seconds)}" for probe, seconds in slow.items())
            sentences.append(f"Most of it: {times}")
        if self.rows:
            all_rows = duration(self.beside_runs + self.costs.seconds(self.epochs, self.trainings))
            taken = " and ".join(
                f"{count:,} of {self.costs.rows[split]:,} {split} rows"
                for split, count in self.rows.items()
            )
            sentences.append(
                f"All rows would take about {all_rows}: taking {taken}, at random; study.minutes=… "
                "allows more"
            )
        if self.seconds > LATE * minutes * 60:
            sentences.append(
                f"That is {self.seconds / 60:.1f} minutes, more than study.minutes={minutes:g}, "
                f"with no fewer than {min(LEAST, self.sizes['test'])} test rows, so that the last "
                f"tests are left out{self.remedy(probes)}"
            )
        return ". ".join(sentences)

    def work(self, probes: Sequence[str]) -> str:
        """The first sentence: trainings, probes, and the time for all."""
        training = "nothing to train"
        if self.epochs:
            training = (
                f"{self.trainings} trainings of {self.epochs} epochs on {self.sizes['train']:,} "
                "texts"
            )
        return (
            f"{training}, {len(probes)} probes on {self.sizes['test']:,}: about "
            f"{duration(self.seconds)} on this machine ({self.costs.device})"
        )

    def remedy(self, probes: Sequence[str]) -> str:
        """What saves most, half the epochs or the slowest probe, and how long it would take then.

        Empty where neither saves much.
        """
        savings = {}
        if self.epochs > 1:
            half = self.epochs // 2
            epoch = self.trainings * self.sizes.get("train", 0) * self.costs.training
            savings[f"training.epochs={half}"] = epoch * (self.epochs - half)
        if len(self.probe_seconds) > 1:
            slowest, seconds = next(iter(self.probe_seconds.items()))
            faster = ",".join(probe for probe in probes if probe != slowest)
            savings[f"without {slowest}, probe=[{faster}],"] = seconds

        best = max(savings, key=lambda remedy: savings[remedy], default=None)
        if best is None or savings[best] <= SLOW * self.seconds:
            return ""
        return f": {best} would take about {(self.seconds - savings[best]) / 60:.1f}"


def rows_within(costs: Costs, epochs: int, trainings: int, seconds: float) -> dict[str, int]:
    """How many rows to take so that the estimate is within `seconds`.

    Returns:
        Split → rows; splits that keep all are left out.

    >>> costs = Costs(
    ...     {"train": 10_000, "validation": 1000, "test": 5000},
    ...     training=0.001,
    ...     probing=0.1,
    ...     device="cpu",
    ... )
    >>> rows_within(costs, epochs=8, trainings=6, seconds=3600)
    {}
    >>> rows_within(costs, epochs=8, trainings=6, seconds=600)
    {'test': 1200}
    >>> rows_within(costs, epochs=8, trainings=6, seconds=150)
    {'test': 400, 'train': 2291}
    >>> rows_within(costs, epochs=8, trainings=6, seconds=99)
    {'test': 50, 'train': 2000}
    """
    if costs.seconds(epochs, trainings) <= seconds:
        return {}
    seconds -= max(1, trainings) * costs.each
    rows = {"test": costs.rows["test"], "train": costs.rows.get("train", 0)}
    price = {"test": costs.probing, "train": trainings * epochs * costs.training}

    def cut(split: str, fewest: int) -> None:
        if not price[split]:
            return
        other = "train" if split == "test" else "test"
        affordable = int((seconds - rows[other] * price[other]) / price[split])
        rows[split] = min(rows[split], max(fewest, affordable))

    cut("test", FEWEST["test"])
    cut("train", FEWEST["train"])
    cut("test", LEAST)
    return {split: count for split, count in rows.items() if count < costs.rows.get(split, 0)}


def rows_with_untimed_tests(costs: Costs | None, epochs: int, seconds: float) -> dict[str, int]:
    """How many rows to take at most where nobody knows what all tests cost.

    Args:
        costs: of a training, and of the test that the answer goes by; None: not known either.
        epochs: of a training; 0: nothing is trained.
        seconds: for one training and the tests.

    Returns:
        Split → rows.

    >>> costs = Costs({"train": 4000, "validation": 400}, 0.01, probing=math.inf, device="cpu")
    >>> rows_with_untimed_tests(costs, epochs=8, seconds=200)
    {'test': 50, 'train': 1000, 'validation': 100}
    >>> rows_with_untimed_tests(replace(costs, answering=0.08), epochs=8, seconds=200)
    {'test': 187, 'train': 1000, 'validation': 100}
    """
    if costs is None:
        return {"test": LEAST, "train": FEWEST["train"]} if epochs else {"test": LEAST}
    training = TRAINING_SHARE * (seconds - costs.each) if epochs else 0.0
    for_answer = ANSWER_SHARE * (seconds - costs.each - training)
    answered = int(for_answer / (MORE_PASSES * costs.answering))
    test = min(max(answered, LEAST), FEWEST["test"])
    if not epochs:
        return {"test": test}
    affordable = int(training / (epochs * costs.training))
    train = min(max(affordable, LEAST_TRAINED), FEWEST["train"])
    # in proportion, as a training row's cost includes its share of the validation
    share = min(1.0, train / costs.rows["train"])
    validation = max(LEAST, round(share * costs.rows["validation"]))
    return {"test": test, "train": train, "validation": validation}


def _notes(content: Mapping[str, Any]) -> list[str]:
    """What was planned, and what its time did not suffice for."""
    notes = []
    if content.get("plan"):
        notes.append(f"Planned: {content['plan']}.")
    if content.get("left_out"):
        notes.append(f"Time was up; left out: {'; '.join(content['left_out'])}.")
    return notes


def read(directory: Path, content: dict[str, Any]) -> StudyReading:
    """The questions that need several runs or several methods.

    The other tests are in the first run's tables.

    Args:
        directory: of the study.
        content: of its study.json.
    """
    members = Members(directory, content)
    reading = members.empty_reading(
        title="May this attention be read? {data} · {model}",
        about="The same model trained again with other seeds, and with equal weights (Wiegreffe & "
        "Pinter 2019, sections 3.2 and 3.3). F1 is of class 1 on the test split, macro F1 with "
        "more than two classes. Its intervals are over texts and seeds together, those of "
        "distances over texts.",
        notes=_notes(content),
    )
    if not members.with_role("uniform").empty:
        add_necessity(reading, members, published={})
    add_stability(reading, members)
    base = members.with_role("base")["path"].iloc[0]
    if "faithfulness" in RunDirectory(base).manifest()["tables"]:
        add_alternative(reading, read_results(base, probe="faithfulness"))
    return reading
