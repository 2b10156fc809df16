"""The attentions that models are trained with on texts of a rule."""

from dataclasses import dataclass
from typing import Literal

from research.grammar.spec import KINDS, RuleSpec
from research.planted import WITHOUT_CONTEXT

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
    def avoids_reason(self) -> bool:
        """Whether it knows nothing of the reason, or is never on it: wrong unless its mass is."""
        return self.standing in ("blind", "avoiding")


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
        encoder: of `research.planted.ENCODERS`, or the folder of a checkpoint.
        attention: of `ATTENTIONS`.
    """
    kind = KINDS[spec.kind]
    has_region = spec.position in ("lead", "middle", "tail", "first", "last")
    if attention == "region" and not has_region:
        return False
    if attention == "overridden" and not kind.has_overridden:
        return False
    is_on_reason = attention in ("learned", "uniform", "right_95", "right_60", "right_40")
    if encoder in WITHOUT_CONTEXT:
        return kind.without_context and is_on_reason
    if encoder == "cnn":
        counts_marks = spec.kind != "parity" or spec.position == "together"
        return counts_marks and (is_on_reason or is_near_reason(spec, attention))
    return True


def is_near_reason(spec: RuleSpec, attention: str) -> bool:
    """Whether an attention off the reason lies within three words of it, as a CNN sees no farther.

    Of 16 models whose attention lay farther off none learnt its rule.
    """
    if attention in ("first", "first_three"):
        return spec.position in ("lead", "first") and spec.length[1] <= 14
    if attention == "last":
        return spec.position in ("tail", "last") and spec.length[1] <= 14
    if attention == "overridden":
        return spec.position not in ("anywhere", "far")
    return attention == "region"
