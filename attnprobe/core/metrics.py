"""What a metric is: its unit, its range, and which way speaks for the attention. A run compares
what its probes write with what they declare (`Probe.metrics`), and puts that into its manifest for
the report, W&B and docs/reference.md."""

import math
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

ROUNDING = 1e-6
"""How far outside its range a number may be by rounding; the classifier's own metrics are sums in
float32."""


@dataclass(frozen=True)
class Scale:
    """The unit in which a number is given, and the range of what it can be."""

    unit: str
    low: float = -math.inf
    high: float = math.inf

    @property
    def range(self) -> str:
        """The range in words; empty where the unit says it.

        >>> JSD_DIFFERENCE.range, COUNT.range
        ('−ln 2 to ln 2', '0 or more')
        """
        if self.unit == "0/1":
            return ""
        if math.isinf(self.low):
            return "any number"
        named = {math.log(2): "ln 2", math.sqrt(2): "√2"}
        ends = (self.low, self.high)
        low, high = (
            f"{'−' if end < 0 else ''}{named.get(abs(end), f'{abs(end):g}')}" for end in ends
        )
        return f"{low} or more" if math.isinf(self.high) else f"{low} to {high}"

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
            facts["unit"], -math.inf if low is None else low, math.inf if high is None else high
        )


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
        low, high = (
            end if math.isfinite(end) else None for end in (self.scale.low, self.scale.high)
        )
        told = {"unit": self.scale.unit, "low": low, "high": high, "step": self.step}
        return told | {"higher_is_better": self.higher_is_better}

    @property
    def of_scores(self) -> "Metric":
        """The same of a model that gives a score and no probabilities: what is made of these has
        its unit, and no end."""
        if self.scale.unit not in (TVD.unit, PROBABILITY.unit):
            return self
        low = 0 if self.scale.unit == TVD.unit else -math.inf
        return replace(self, scale=Scale("standard deviations of the score", low))


class UndeclaredNumber(UserWarning):
    """A probe wrote a metric that it does not declare, or a number outside the range that it
    declares."""


def declared(name: str, metrics: Iterable[Metric]) -> Metric | None:
    """The declaration that fits a metric's name best, None where none does: of two, the one with
    more fixed characters.

    >>> declared("tau_words_a_b", [Metric("tau_{pair}", TAU), Metric("tau_words_{pair}", TAU)]).name
    'tau_words_{pair}'
    """
    parts = {one: re.split(r"\{\w+\}", one.name) for one in metrics}
    fitting = [
        one
        for one, fixed in parts.items()
        if re.fullmatch("(.+)".join(map(re.escape, fixed)), name)
    ]
    return max(fitting, key=lambda one: len("".join(parts[one])), default=None)


def warn_of_undeclared(
    probe: str, extremes: Mapping[str, tuple[float, float] | None], metrics: Sequence[Metric]
) -> None:
    """Warn of what a table holds and its probe does not declare, where it declares any metric.
    `extremes`: metric → its smallest and its largest number; None where all are undefined."""
    for name, ends in extremes.items() if metrics else ():
        one = declared(name, metrics)
        message = ""
        if one is None:
            message = f"probe {probe} yields {name}, which its `metrics` do not declare"
        elif ends and (ends[0] < one.scale.low - ROUNDING or ends[1] > one.scale.high + ROUNDING):
            message = (
                f"probe {probe} yields {name} from {ends[0]:g} to {ends[1]:g}, and declares {one.scale.words}: "
                f"the number or its declaration is wrong"
            )
        if message:
            warnings.warn(message, UndeclaredNumber, stacklevel=3)


def sureness(probability: Iterable[float], chosen: float) -> str:
    """How sure a prediction is, in words: the class's probability, or, of a score, whose two
    entries are −z and z, how far it is from the threshold.

    >>> sureness([0.25, 0.75], 0.75), sureness([-1.5, 1.5], 1.5)
    ('p = 0.750', '1.500 units from the threshold')
    """
    return (
        f"p = {chosen:.3f}" if sum(probability) > 0.5 else f"{chosen:.3f} units from the threshold"
    )
