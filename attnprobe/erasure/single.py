"""Erase one position at a time: what does each one do to the prediction? (Serrano & Smith 2019, section 4)"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnprobe.exact.ties import LEAST_MASS, decide, leads, least_lead
from attnprobe.measures import jensen_shannon
from attnprobe.readout import Readout

CHUNK = 4_000_000
"""Attention weights at a time where the decoder is not linear: keeps memory small."""


@dataclass(frozen=True)
class SingleErasures:
    """The effect of erasing each position alone; NaN outside content and where less than 1e-12 of the attention is left.

    Attributes:
        divergence: Jensen-Shannon divergence of the predictions before and after, in nats, 0 to ln 2.
        flips: 1 where another class is ahead of the decision afterwards (a tie up to rounding is not a flip), else 0.
    """

    divergence: Float[Tensor, "batch seq"]
    flips: Float[Tensor, "batch seq"]


def decision(readout: Readout) -> Int[Tensor, "batch"]:
    """The class predicted under the model's own attention, the first of tied ones."""
    if readout.position_logits is None:
        return readout.logits(readout.attention).argmax(-1)
    # the exact solvers' own rule, so that a tie is decided as they decide it
    return decide(readout.attention, readout.position_logits)


def decision_margin(readout: Readout) -> Float[Tensor, "batch seq"]:
    """z_t[decision] − z_t[runner-up]: what each position says for the decision against the next likely class.

    With two classes, α_t times this is the order in which the smallest flipping set is found.
    """
    logits = readout.position_logits
    assert logits is not None
    chosen = decision(readout).unsqueeze(-1)
    whole = readout.logits(readout.attention)
    runner_up = whole.scatter(-1, chosen, -torch.inf).argmax(-1, keepdim=True)
    pair = torch.cat([chosen, runner_up], -1).unsqueeze(1).expand(-1, logits.shape[1], -1)
    of_chosen, of_other = logits.gather(-1, pair).unbind(-1)
    return of_chosen - of_other


def erase_each(readout: Readout) -> SingleErasures:
    """Set one weight to 0, renormalise the others to sum to 1, predict; for every content position.

    With a linear decoder this is one sum over the positions before and one over those after, for all positions at
    once; nothing is subtracted, so that erasing a weight of almost 1 costs no precision.

    Note:
        In float64. In float32, as published, up to a quarter of the tiny divergences come out negative.
    """
    after, flips = _after(readout) if readout.position_logits is not None else _after_decoding(readout)
    changed = after.softmax(1)
    original = readout.prediction().unsqueeze(-1).expand_as(changed).contiguous()
    divergence = jensen_shannon(original.mT, changed.mT)
    defined = readout.content & (without(readout.attention) >= LEAST_MASS)
    return SingleErasures(
        torch.where(defined, divergence, torch.nan),
        torch.where(defined, flips.double(), torch.nan),
    )


def without(values: Float[Tensor, "*batch seq"]) -> Float[Tensor, "*batch seq"]:
    """For every position, the sum over all the others.

    >>> without(torch.tensor([1.0, 2.0, 4.0]))
    tensor([6., 5., 3.])
    """
    others = torch.zeros_like(values)
    others[..., 1:] = values[..., :-1].cumsum(-1)
    others[..., :-1] += values[..., 1:].flip(-1).cumsum(-1).flip(-1)
    return others


def overtaken(
    logits: Float[Tensor, "batch *steps classes"], chosen: Int[Tensor, "batch"]
) -> Bool[Tensor, "batch *steps"]:
    """Where some class is ahead of the chosen one by more than rounding: 1e-12, or that share of the largest logit."""
    index = chosen.view(-1, *[1] * (logits.ndim - 1)).expand(*logits.shape[:-1], 1)
    lead = logits.amax(-1) - logits.gather(-1, index).squeeze(-1)
    return lead > LEAST_MASS * logits.abs().amax(-1).clamp(min=1)


def _after(readout: Readout) -> tuple[Float[Tensor, "batch classes seq"], Bool[Tensor, "batch seq"]]:
    """Logits relative to the decision's without each position, and whether another class is ahead."""
    assert readout.position_logits is not None
    lead = leads(readout.position_logits, decision(readout))
    kept, mass = without(readout.attention.unsqueeze(1) * lead), without(readout.attention)
    flips = (kept > least_lead(lead, readout.attention > 0).unsqueeze(-1)).any(1)
    return kept / torch.where(mass > 0, mass, 1).unsqueeze(1), flips


def _after_decoding(readout: Readout) -> tuple[Float[Tensor, "batch classes seq"], Bool[Tensor, "batch seq"]]:
    attention = readout.attention
    size = max(1, CHUNK // attention.numel())
    parts = []
    for position in torch.arange(attention.shape[1], device=attention.device).split(size):
        others = attention.expand(len(position), -1, -1).clone()
        others[torch.arange(len(position)), :, position] = 0
        mass = others.sum(-1, keepdim=True)
        # where nothing is left the result is not used
        parts.append(readout.logits(torch.where(mass > 0, others / torch.where(mass > 0, mass, 1), attention)))
    after = torch.cat(parts).transpose(0, 1)
    # the few classes as the middle axis in memory, the many positions as the last: several times faster
    return after.mT.contiguous(), overtaken(after, decision(readout))
