"""The attentions that models are trained with on texts of a rule."""

from dataclasses import dataclass
from typing import Literal

from research.calibration.study import WITHOUT_CONTEXT
from research.grammar.spec import KINDS, RuleSpec

Standing = Literal["learned", "right", "partly right", "blind", "avoiding"]
"""What an attention is by construction: it knows no label, rule or reason (`blind`), or is never on
the reason (`avoiding`)."""


@dataclass(frozen=True)
class BuiltAttention:
    """An attention by construction.

    Attributes:
        overrides: of a run's settings.
        standing: what it is by construction.
    """

    overrides: tuple[str, ...]
    standing: Standing

    @property
    def blind(self) -> bool:
        """Whether it knows nothing of label, rule or reason: wrong unless its mass says other."""
        return self.standing == "blind"


def placed(where: str) -> tuple[str, ...]:
    """The overrides of a `PlacedAttention`."""
    return (
        "model/attention=first",
        "model.attention._target_=research.attentions.PlacedAttention",
        f"+model.attention.where={where}",
    )


def right(mass: float) -> tuple[str, ...]:
    """The overrides of an attention with this mass on the words that decide."""
    return ("model/attention=rationale", f"model.attention.mass={mass}")


ATTENTIONS: dict[str, BuiltAttention] = {
    "learned": BuiltAttention((), "learned"),
    "right_95": BuiltAttention(right(0.95), "right"),
    "right_60": BuiltAttention(right(0.6), "partly right"),
    "right_40": BuiltAttention(right(0.4), "partly right"),
    "right_in_half": BuiltAttention(placed("half"), "partly right"),
    "first": BuiltAttention(("model/attention=first",), "blind"),
    "last": BuiltAttention(placed("last"), "blind"),
    "common": BuiltAttention(("model/attention=common_word",), "blind"),
    "random_place": BuiltAttention(placed("random"), "blind"),
    "uniform": BuiltAttention(("model/attention=uniform",), "blind"),
    "first_three": BuiltAttention(placed("first_three"), "avoiding"),
    "region": BuiltAttention(placed("region"), "avoiding"),
    "overridden": BuiltAttention(placed("overridden"), "avoiding"),
}
"""Name → the attention. Where texts have no words of a `region` or no `overridden` ones, these are
on the first word that does not decide."""


def is_learnable(spec: RuleSpec, encoder: str, attention: str) -> bool:
    """Whether an encoder can learn a rule under this attention, and the attention means something.

    Args:
        spec: the rule.
        encoder: of `research.calibration.study.ENCODERS`, or the folder of a checkpoint.
        attention: of `ATTENTIONS`.
    """
    kind = KINDS[spec.kind]
    if attention == "region" and spec.position in ("anywhere", "far", "together"):
        return False
    if attention == "overridden" and not kind.has_overridden:
        return False
    if encoder in WITHOUT_CONTEXT:
        sees_reason = ATTENTIONS[attention].standing in ("learned", "right", "partly right")
        is_seen = sees_reason and attention != "right_in_half"
        return kind.without_context and (is_seen or attention == "uniform")
    return True
