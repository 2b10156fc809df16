"""Every output of a single-label model: what speaks for each class, against it, and turns it?

Serrano & Smith (2019) ask about the predicted class alone, and name the others as what is left to
ask.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import one_hot

from attnprobe.core.batch import Task
from attnprobe.core.errors import UserError
from attnprobe.core.metrics import ITEMS, JSD, PROBABILITY, SHARE, TRUTH, WEIGHT, Metric, Scale
from attnprobe.core.randomness import Draws
from attnprobe.core.readout import Readout
from attnprobe.core.settings import Whole
from attnprobe.evidence.claims import Claim
from attnprobe.evidence.evidence import Evidence, Measure, by_run, lowest_of, values_of
from attnprobe.evidence.verdicts import Verdict
from attnprobe.exact import attention_shapley, smallest_flipping_set
from attnprobe.exact.checks import LEAST_MASS
from attnprobe.exact.erasure import decision, erase_each, turn_in_order
from attnprobe.measures import LN2, jensen_shannon
from attnprobe.models.base import Model
from attnprobe.probes.base import DESCRIPTION, LINEAR, Measurement, Note, ReadoutProbe, positions
from attnprobe.probes.erasure import ahead_of_midpoint, share_difference, winning_sets
from attnprobe.readings.means import facet_table, mean_in_columns, texts_with
from attnprobe.readings.reading import HeatMap, Reading, Tabulation
from attnprobe.results.pivot import CLASSES, class_of, classes_with, metrics_of_classes
from attnprobe.results.table import scale_of

LOGIT = Scale("logit")
METRICS = (
    Metric("class_probability_{class}", PROBABILITY, "of the class"),
    Metric(
        "turn_size_{class}",
        ITEMS,
        "fewest items whose erasure takes the prediction from this class, or brings it to it where "
        "another one is predicted; NaN: none is known",
        only=LINEAR,
    ),
    Metric(
        "turn_proved_{class}", TRUTH, "that size, or that there is none, is proved", only=LINEAR
    ),
    Metric(
        "never_turns_{class}",
        TRUTH,
        "proved, up to rounding: no set does it; NaN: not known",
        only=LINEAR,
    ),
    Metric(
        "turn_share_optimal_{class}", SHARE, "that size, as a share of the content", only=LINEAR
    ),
    Metric(
        "turn_share_attention_{class}",
        SHARE,
        "erased in attention's order until the answer to the class turns; NaN: it does not",
        only=LINEAR,
    ),
    Metric("turn_share_random_{class}", SHARE, "the same in a random order", only=LINEAR),
    Metric(
        "against_mass_{class}",
        WEIGHT,
        "attention on items that by themselves speak against the class: its logit there is below "
        "the mean of the others, bias left out",
        only=LINEAR,
    ),
    Metric(
        "class_value_{class}",
        LOGIT,
        "exact Shapley value of the item for the class, beside the mean of the others; below 0 it "
        "speaks against the class",
        step="position",
        only=LINEAR,
    ),
    Metric(
        "top_effect_{class}",
        JSD,
        "between the probabilities of this class, and of any other, before and after the most "
        "attended item's weight is erased",
    ),
    Metric("other_effect_{class}", JSD, "the same, mean over all other items"),
    Metric("top_turns_{class}", TRUTH, "the answer to the class is another one afterwards"),
    Metric("other_turns_{class}", SHARE, "other items of which the same holds"),
    *DESCRIPTION,
)


@dataclass
class Classes(ReadoutProbe):
    """What the tests of erasure say where every class counts, and not the predicted one alone.

    A class is a question: is it the prediction? For the predicted one the answer turns where the
    prediction is taken from it, for another one where the prediction is brought to it. With a
    linear decoder the smallest sets that do it are exact (for more than two classes by an integer
    programme), and so is what each item says for a class or against it (Shapley values).

    Attributes:
        nodes: branch-and-bound nodes per class and example before bounds are given instead.
    """

    name = "classes"
    metrics = METRICS
    one_decision = True
    nodes: Whole = 1000

    def refuse(self, classifier: Model) -> None:
        """Refuse a model without classes as well.

        Raises:
            UserError: the model gives a score.
        """
        super().refuse(classifier)
        if classifier.task is Task.SCORE:
            raise UserError(
                "probe classes asks for every class, and this model gives a score: leave it out of "
                "probe=[…]"
            )

    def measure(self, readout: Readout, draws: Draws) -> Iterator[Measurement | Note]:
        """Yield what holds of every class."""
        yield from of_classes("class_probability", readout.prediction())
        yield from single_effects(readout)
        if readout.position_logits is None:
            return

        turns = smallest_turns(readout, self.nodes)
        length = readout.content.sum(-1, keepdim=True)
        yield from of_classes("turn_size", turns.size)
        yield from of_classes("turn_proved", turns.is_proved.double())
        is_known = turns.never | ~turns.size.isnan()
        never = torch.where(is_known, turns.never.double(), torch.nan)
        yield from of_classes("never_turns", never)
        yield from of_classes("turn_share_optimal", turns.size / length)

        noise = draws.uniform(1, readout.content, readout.example_id)
        counts = turn_in_order(readout, torch.cat([readout.attention.unsqueeze(0), noise]))
        shares = torch.where(counts > 0, counts.double(), torch.nan) / length
        yield from of_classes("turn_share_attention", shares[0])
        yield from of_classes("turn_share_random", shares[1])

        margins = margins_over_others(readout)
        is_against = readout.content.unsqueeze(-1) & (margins < 0)
        against = torch.where(is_against, readout.attention.unsqueeze(-1), 0).sum(1)
        yield from of_classes("against_mass", against)
        values = attention_shapley(readout.attention, margins, readout.content).values
        for number, of_class in enumerate(values.unbind(-1)):
            step = positions(readout.content, readout.text)
            yield Measurement(f"class_value_class_{number}", of_class, step)


def of_classes(kind: str, values: Float[Tensor, "batch classes"]) -> Iterator[Measurement]:
    """A metric of each class."""
    for number, of_class in enumerate(values.unbind(-1)):
        yield Measurement(f"{kind}_class_{number}", of_class)


def margins_over_others(readout: Readout) -> Float[Tensor, "batch seq classes"]:
    """By how much each position's logit of a class is above the mean of the others', without bias.

    Linear in the attention, whatever the number of classes; of two it is the logit's difference.
    """
    effects = readout.position_effects
    classes = effects.shape[-1]
    return (effects - effects.mean(-1, keepdim=True)) * classes / (classes - 1)


@dataclass(frozen=True)
class Turns:
    """The smallest sets whose erasure turns the answer to each class.

    Attributes:
        size: items; NaN where none is known.
        is_proved: the size, or that there is none, is proved.
        never: proved, up to rounding, that no set does it.
    """

    size: Float[Tensor, "batch classes"]
    is_proved: Bool[Tensor, "batch classes"]
    never: Bool[Tensor, "batch classes"]


def smallest_turns(readout: Readout, nodes: int) -> Turns:
    """The smallest sets that take the prediction from its class, or bring it to another one.

    Args:
        readout: of a linear decoder.
        nodes: of branch and bound, per class and text.
    """
    assert readout.position_logits is not None
    decided = decision(readout)
    wins = winning_sets(readout, decided, nodes)
    takes = smallest_flipping_set(readout.attention, readout.position_logits, readout.content)
    own_class = decided.unsqueeze(-1)
    own_size = takes.size.double().unsqueeze(-1)
    size = wins.size.scatter(-1, own_class, own_size)
    bound = wins.bound.scatter(-1, own_class, own_size)
    return Turns(
        size=torch.where(size > 0, size, torch.nan), is_proved=size == bound, never=bound < 0
    )


def single_effects(readout: Readout) -> Iterator[Measurement]:
    """What erasing the most attended item does to every class, and what the others do on average.

    NaN for texts of one item, and where next to no weight is left.
    """
    erased = erase_each(readout)
    after = erased.prediction.mT
    yield from top_and_others("effect", binary_divergence(readout.prediction(), after), readout)

    is_decision = one_hot(decision(readout), after.shape[-1]).bool().unsqueeze(1)
    brings = is_ahead_of_all(after).double()
    turns = torch.where(is_decision, erased.flips.unsqueeze(-1), brings)
    yield from top_and_others("turns", turns.masked_fill(after.isnan(), torch.nan), readout)


def binary_divergence(
    before: Float[Tensor, "batch classes"], after: Float[Tensor, "batch seq classes"]
) -> Float[Tensor, "batch seq classes"]:
    """JSD, in nats, of the two outcomes "this class" and "any other", before and after."""
    # of two outcomes rounding may make one less than 0
    outcomes_before = torch.stack([before, 1 - before], -1).clamp(min=0).unsqueeze(1)
    outcomes_after = torch.stack([after, 1 - after], -1).clamp(min=0)
    return jensen_shannon(outcomes_before.expand_as(outcomes_after), outcomes_after)


def is_ahead_of_all(
    probability: Float[Tensor, "batch seq classes"],
) -> Bool[Tensor, "batch seq classes"]:
    """Whether a class is ahead of every other one by more than rounding."""
    highest, second = probability.topk(2, dim=-1).values.unbind(-1)
    is_clear = (highest - second > LEAST_MASS).unsqueeze(-1)
    return is_clear & (probability == highest.unsqueeze(-1))


def top_and_others(
    kind: str, numbers: Float[Tensor, "batch seq classes"], readout: Readout
) -> Iterator[Measurement]:
    """The number of the most attended item, and the mean of all other items, for each class."""
    weights = readout.attention.masked_fill(~readout.content, -torch.inf)
    top = weights.argmax(-1).unsqueeze(-1)
    is_other = readout.content.scatter(-1, top, False).unsqueeze(-1)
    count = is_other.sum(1)

    of_top = numbers.gather(1, top.unsqueeze(-1).expand(-1, 1, numbers.shape[-1])).squeeze(1)
    mean = torch.where(is_other, numbers, 0).sum(1) / torch.where(count > 0, count, torch.nan)
    is_undefined = (of_top + mean).isnan()
    yield from of_classes(f"top_{kind}", of_top.masked_fill(is_undefined, torch.nan))
    yield from of_classes(f"other_{kind}", mean.masked_fill(is_undefined, torch.nan))


# From a table to evidence

FEWEST = 10
"""Texts that a class has numbers of, at least, for it to be the one where a claim holds least."""


@dataclass(frozen=True)
class ClassValues:
    """A number for each text and class.

    Attributes:
        rows: of the texts, as `per_example` gives them.
        values: NaN where undefined.
        classes: numbers of the classes.
        ends: the least and the greatest that a value can be.
    """

    rows: pd.DataFrame
    values: Float[np.ndarray, "texts classes"]
    classes: Sequence[int]
    ends: tuple[float, float]

    def pooled(self) -> Evidence | None:
        """The mean over texts of the mean over classes; None where there is no number.

        The interval is over the texts.
        """
        is_known = ~np.isnan(self.values)
        if not is_known.any():
            return None
        total = np.where(is_known, self.values, 0).sum(1)
        count = is_known.sum(1)
        means = np.where(count > 0, total / np.maximum(count, 1), np.nan)
        return Evidence.of_runs(by_run(self.rows, means)).within(*self.ends)

    def lowest(self, smallest: float) -> Evidence | None:
        """The mean over texts of the class where it is smallest; None where each has too few.

        It is no yes where another class's is not shown to be above 0, in whose place chance may
        have put it.

        Args:
            smallest: difference of interest.
        """
        of_classes = []
        for number, values in zip(self.classes, self.values.T, strict=True):
            evidence = Evidence.of_runs(by_run(self.rows, values)).within(*self.ends)
            if evidence.n >= FEWEST:
                of_classes.append(replace(evidence, part=f"class_{number}"))
        if not of_classes:
            return None
        lowest = lowest_of(of_classes, 0, smallest)
        for evidence in of_classes:
            if evidence.exceeds(0, smallest) is not Verdict.MEETS:
                return replace(lowest, no_yes=f"it is not shown of {evidence.part}")
        return lowest


def class_values(
    table: pd.DataFrame,
    kinds: Sequence[str],
    value: Callable[..., np.ndarray],
    ends: tuple[float, float],
) -> ClassValues | None:
    """A number of each text and class, made of several metrics of the class; None without them."""
    classes = classes_with(table, "classes", *kinds)
    rows = values_of(table, *metrics_of_classes(kinds, classes)) if classes else None
    if rows is None:
        return None
    columns = []
    for number in classes:
        metrics = metrics_of_classes(kinds, [number])
        of_class = [rows[metric].to_numpy(float) for metric in metrics]
        columns.append(value(*of_class))
    return ClassValues(rows, np.stack(columns, 1), classes, ends)


ORDERS = ("turn_share_random", "turn_share_attention", "never_turns")
ORDERS_AND_OPTIMUM = (
    "turn_share_attention",
    "turn_share_random",
    "turn_share_optimal",
    "never_turns",
)
EFFECTS = ("top_effect", "other_effect")
TURNS = ("top_turns", "other_turns")


def _claims(
    name: str,
    statement: str,
    quantity: str,
    *,
    kinds: Sequence[str],
    value: Callable[..., np.ndarray],
    smallest: float = 0.02,
    ends: tuple[float, float] = (-1.0, 1.0),
) -> tuple[Claim, Claim]:
    """A claim over all classes together, and one about the class where it holds least.

    Args:
        name: what both names begin with.
        statement: about a class.
        quantity: of an example and class.
        kinds: of the metrics that it is made of.
        value: the columns of a class, one of each kind → the quantity.
        smallest: difference of interest.
        ends: the least and the greatest that the quantity can be.
    """
    metrics = tuple(f"{kind}_class_*" for kind in kinds)

    def pooled(table: pd.DataFrame) -> Evidence | None:
        values = class_values(table, kinds, value, ends)
        return None if values is None else values.pooled()

    def lowest(table: pd.DataFrame) -> Evidence | None:
        values = class_values(table, kinds, value, ends)
        return None if values is None else values.lowest(smallest)

    source = "Serrano & Smith 2019, sections 4 and 5; every class is attnprobe's"
    together = Claim(
        name=f"{name}_over_classes",
        criterion="erasure",
        level="state",
        source=source,
        statement=f"Over all classes, {statement}",
        measure=Measure(metrics, pooled),
        quantity=f"{quantity}, mean of the classes and examples",
        smallest=smallest,
    )
    return together, replace(
        together,
        name=f"{name}_in_every_class",
        statement=f"In every class, {statement}",
        measure=Measure(metrics, lowest),
        quantity=f"{quantity}, mean of the examples in the class where it is smallest",
    )


CLAIMS = (
    *_claims(
        "attention_beats_random",
        "a random order needs more items than attention's until the answer to the class turns",
        "difference of the shares of the items removed, −1 to 1",
        kinds=ORDERS,
        value=share_difference,
    ),
    *_claims(
        "attention_closer_to_optimal_than_to_random",
        "attention's order is closer to the smallest set than to a random order",
        "the middle of random and optimal minus the share of the items removed by attention",
        kinds=ORDERS_AND_OPTIMUM,
        value=ahead_of_midpoint,
    ),
    *_claims(
        "top_does_more",
        "erasing the most attended item does more to the class than erasing another",
        "difference of the JSD of the class or any other, in nats",
        kinds=EFFECTS,
        value=np.subtract,
        smallest=0.001,
        ends=(-LN2, LN2),
    ),
    *_claims(
        "top_turns_more",
        "erasing the most attended item turns the answer to the class more often than another's",
        "difference of the shares of the examples",
        kinds=TURNS,
        value=np.subtract,
    ),
)

HEADINGS = {
    "turn_size": "smallest set that turns it",
    "never_turns": "never turns",
    "turn_share_attention": "share erased by attention",
    "turn_share_random": "by a random order",
    "turn_share_optimal": "at best",
    "against_mass": "weight against the class",
    "top_effect": "JSD, top item",
    "other_effect": "another item",
}
TABLED = ("class_probability", *HEADINGS)


def class_table(results: pd.DataFrame) -> pd.DataFrame:
    """What was measured of each class where it is predicted, and where another one is."""
    numbers = classes_with(results, "classes", "class_probability")
    names = results.attrs.get(CLASSES, [])
    kinds = [kind for kind in HEADINGS if classes_with(results, "classes", kind)]
    metrics = metrics_of_classes(kinds, numbers)

    def lines(rows: pd.DataFrame) -> Iterator[dict[str, object]]:
        for number in numbers:
            is_predicted = rows["predicted_class"] == number
            for answer, is_asked in (
                ("taken from it", is_predicted),
                ("brought to it", ~is_predicted),
            ):
                asked = rows[is_asked]
                line: dict[str, object] = {
                    "class": class_of(f"class_{number}", names),
                    "the prediction is": answer,
                    "texts": texts_with(asked, asked["predicted_class"]),
                }
                for kind in kinds:
                    metric = f"{kind}_class_{number}"
                    scale = scale_of(results, "classes", metric)
                    line |= mean_in_columns(HEADINGS[kind], asked, asked[metric], scale)
                yield line

    return facet_table(results, "classes", [*metrics, "predicted_class"] if numbers else [], lines)


READING = Reading(
    probe="classes",
    order=55,
    title="Every class: what turns it, and what speaks against it?",
    about=(
        "Erasure asks how many items must go until the predicted class is no longer predicted. "
        "Here every class is asked for: how many must go until the prediction is brought to it? "
        "Items that do nothing for the predicted class may decide about another one. The smallest "
        "sets are exact. What an item says for a class or against it is its Shapley value where "
        "items are erased in any order."
    ),
    claims=CLAIMS,
    maps=(
        HeatMap(
            "class_value_{class}",
            "For {name} and against it",
            "exact Shapley value of the item for the class; orange: it speaks against the class",
            relative=True,
        ),
    ),
    tables=(
        Tabulation(
            "classes",
            "Each class, in texts where it is predicted and where another one is: the fewest items "
            "whose erasure takes the prediction from it, or brings it to it; the shares of the "
            "items that attention's order, a random order and the smallest set need; the weight on "
            "items that speak against it; JSD of the class or any other when the most attended "
            "item, or another one, is erased. Means with 95 % bootstrap intervals over texts and "
            "seeds.",
            class_table,
            ("predicted_class", *(f"{kind}_class_*" for kind in TABLED)),
        ),
    ),
)
