"""What a metric is: its unit, its range, and which direction speaks for the attention.

A run compares what its probes write with what they declare (`Probe.metrics`), and puts that into
its manifest for the report, W&B and docs/reference.md.
"""

import math
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

ROUNDING = 1e-6
"""How far outside its range rounding may take a number; some are sums in float32."""


@dataclass(frozen=True)
class Scale:
    """The unit in which a number is given, and the range of what it can be."""

    unit: str
    low: float = -math.inf
    high: float = math.inf

    @property
    def is_truth(self) -> bool:
        """Whether a number is 1 or 0, for yes or no."""
        return self.unit == "0/1"

    @property
    def range(self) -> str:
        """The range in words; empty where the unit says it.

        >>> JSD_DIFFERENCE.range, COUNT.range
        ('−ln 2 to ln 2', '0 or more')
        """
        if self.is_truth:
            return ""
        if math.isinf(self.low):
            return "any number"
        if math.isinf(self.high):
            return f"{_readable(self.low)} or more"
        return f"{_readable(self.low)} to {_readable(self.high)}"

    @property
    def words(self) -> str:
        """Unit and range: `TVD, 0 to 1`."""
        return ", ".join(part for part in (self.unit, self.range) if part)

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> "Scale":
        """The scale that a manifest's facts of a metric describe."""
        low = facts.get("low")
        high = facts.get("high")
        return cls(
            unit=facts["unit"],
            low=-math.inf if low is None else low,
            high=math.inf if high is None else high,
        )


NAMED_NUMBERS = {math.log(2): "ln 2", math.sqrt(2): "√2"}


def _readable(end: float) -> str:
    """An end of a range as text, by its name where it has one."""
    magnitude = NAMED_NUMBERS.get(abs(end), f"{abs(end):g}")
    return f"−{magnitude}" if end < 0 else magnitude


ANY_NUMBER = Scale("")
TRUTH = Scale("0/1", 0, 1)
SHARE = Scale("share", 0, 1)
WEIGHT = Scale("weight", 0, 1)
PROBABILITY = Scale("probability", 0, 1)
PROBABILITY_DIFFERENCE = Scale("probability", -1, 1)
P_VALUE = Scale("p-value", 0, 1)
TVD = Scale("TVD", 0, 1)
JSD = Scale("nats", 0, math.log(2))
JSD_DIFFERENCE = Scale("nats", -math.log(2), math.log(2))
TAU = Scale("τ-b", -1, 1)
CORRELATION = Scale("correlation", -1, 1)
SCORE = Scale("score", 0, 1)
COUNT = Scale("count", 0)
ITEMS = Scale("items", 1)
CLASS = Scale("class number", 0)


@dataclass(frozen=True)
class Metric:
    """One metric, or a family of them, that a probe yields.

    Attributes:
        name: as in the tables; a part in braces stands for a name, such as that of an importance:
            `tau_{pair}`.
        scale: unit and range.
        about: what it is, in a few words of Markdown.
        step: what its x-coordinate counts (position, class, share, epoch); empty: one number per
            example.
        higher_is_better: whether a higher number speaks for the attention (or for the importance in
            its name); None: it speaks neither way, or is read together with another number.
        source: where it was defined, such as "Jain & Wallace 2019, section 4.2.1".
        only: in which case it is there; empty: always.
    """

    name: str
    scale: Scale
    about: str = ""
    step: str = ""
    higher_is_better: bool | None = None
    source: str = ""
    only: str = ""

    @property
    def facts(self) -> dict[str, Any]:
        """What the manifest says of it; an end of the range that is open is None."""
        scale = self.scale
        return {
            "unit": scale.unit,
            "low": scale.low if math.isfinite(scale.low) else None,
            "high": scale.high if math.isfinite(scale.high) else None,
            "step": self.step,
            "higher_is_better": self.higher_is_better,
        }

    @property
    def of_scores(self) -> "Metric":
        """The same for a model that gives a score and no probabilities.

        What is made of probabilities elsewhere has the score's unit there, and no upper end.
        """
        if self.scale.unit not in (TVD.unit, PROBABILITY.unit):
            return self
        low = 0 if self.scale.unit == TVD.unit else -math.inf
        return replace(self, scale=Scale("standard deviations of the score", low))


class UndeclaredNumber(UserWarning):
    """A probe wrote a metric that it does not declare, or a number outside its declared range."""


def declared(name: str, metrics: Iterable[Metric]) -> Metric | None:
    """The declaration that fits a metric's name, None where none does.

    Of two that fit, the one with more fixed characters.

    >>> declared("tau_words_a_b", [Metric("tau_{pair}", TAU), Metric("tau_words_{pair}", TAU)]).name
    'tau_words_{pair}'
    """
    best = None
    most_fixed = -1
    for metric in metrics:
        fixed_parts = re.split(r"\{\w+\}", metric.name)
        pattern = "(.+)".join(map(re.escape, fixed_parts))
        fixed = len("".join(fixed_parts))
        if fixed > most_fixed and re.fullmatch(pattern, name):
            best = metric
            most_fixed = fixed
    return best


def warn_of_undeclared(
    probe: str, extremes: Mapping[str, tuple[float, float] | None], metrics: Sequence[Metric]
) -> None:
    """Warn of what a table holds and its probe does not declare, where it declares any metric.

    Args:
        probe: its name.
        extremes: each metric's smallest and largest number; None where all are undefined.
        metrics: what the probe declares.
    """
    if not metrics:
        return
    for name, ends in extremes.items():
        message = _undeclared(probe, name, ends, declared(name, metrics))
        if message:
            warnings.warn(message, UndeclaredNumber, stacklevel=3)


def _undeclared(
    probe: str, name: str, ends: tuple[float, float] | None, metric: Metric | None
) -> str:
    """What is wrong with a metric of a table; empty where nothing is."""
    if metric is None:
        return f"probe {probe} yields {name}, which its `metrics` do not declare"
    if ends is None:
        return ""
    smallest, largest = ends
    scale = metric.scale
    if smallest >= scale.low - ROUNDING and largest <= scale.high + ROUNDING:
        return ""
    return (
        f"probe {probe} yields {name} from {smallest:g} to {largest:g}, and declares "
        f"{scale.words}: the number or its declaration is wrong"
    )


def sureness(probability: Iterable[float], chosen: float) -> str:
    """How sure a prediction is, in words.

    The class's probability; of a score, whose two entries are −z and z, how far it is from the
    threshold.

    >>> sureness([0.25, 0.75], 0.75), sureness([-1.5, 1.5], 1.5)
    ('p = 0.750', '1.500 units from the threshold')
    """
    is_score = sum(probability) <= 0.5
    return f"{chosen:.3f} units from the threshold" if is_score else f"p = {chosen:.3f}"
