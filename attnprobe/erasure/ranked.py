"""Erase positions one after the other until the decision flips (Serrano & Smith 2019, section 5)."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from attnprobe.erasure.single import decision, overtaken
from attnprobe.exact.flipping import NEVER
from attnprobe.exact.ties import LEAST_MASS, leads, least_lead
from attnprobe.readout import Readout


@dataclass(frozen=True)
class ErasureCounts:
    """How far an order had to be followed until the decision flipped.

    Attributes:
        count: positions erased at the first flip, 1 or more; −1 where nothing short of erasing everything flips it.
        mass: attention weight erased by then, 0 to 1; NaN where count is −1.
    """

    count: Int[Tensor, "*samples batch"]
    mass: Float[Tensor, "*samples batch"]


def erase_in_order(readout: Readout, scores: Float[Tensor, "*samples batch seq"]) -> ErasureCounts:
    """Erase content positions from the highest score to the lowest, renormalising the rest after each, until some class
    is ahead of the decision; for any number of rankings of the same texts.

    With a linear decoder and d_t = z_t[k] − z_t[c], class k is ahead of the decision c exactly when the sum of α_t d_t
    over what is kept is positive (renormalising does not change its sign): one sum from the far end of the order gives
    every step of every class. Any other decoder is asked once per step. Of tied scores the earlier position goes first.
    A tie up to rounding is not a flip, nor is anything where less than 1e-12 of the attention is kept
    (`attnprobe.exact.ties`).

    Note:
        Erasing everything is not a flip (as in `attnprobe.exact.smallest_flipping_set`): nothing is left to decide by.
        The published code decides by the bias there and counts it as a flip.
    """
    attention, length = readout.attention * readout.content, readout.content.sum(-1)
    chosen = decision(readout)
    advantages = None if readout.position_logits is None else advantage(readout, chosen)
    number = torch.arange(scores.shape[-1], device=length.device)
    counts, masses = [], []
    for order in erasing_order(scores.reshape(-1, *attention.shape), readout.content):
        # the last to go first, so that what is kept is a sum from the start
        backwards = order.flip(-1)
        flips = _flips_by_decoding(readout, chosen, backwards) if advantages is None else _flips(*advantages, backwards)
        # the n-th place from the end holds the position that is removed n-th: what is kept then is summed up one place before
        flips = flips[:, :-1].flip(-1) & (number[1:] < length.unsqueeze(-1))
        # erasing everything is not a flip: that last column also keeps texts of one item from having none at all
        flips = F.pad(flips, (0, 1))
        count = torch.where(flips.any(-1), flips.int().argmax(-1) + 1, NEVER)
        erased = torch.where(number < count.unsqueeze(-1), attention.gather(-1, order), 0).sum(-1)
        counts.append(count)
        masses.append(torch.where(count > 0, erased, torch.nan))
    shape = scores.shape[:-1]
    return ErasureCounts(torch.stack(counts).reshape(shape), torch.stack(masses).reshape(shape))


def erasing_order(
    scores: Float[Tensor, "samples batch seq"], content: Bool[Tensor, "batch seq"]
) -> Int[Tensor, "samples batch seq"]:
    """Positions from the highest score to the lowest, of tied ones the earlier first, those outside content last.

    A stable sort, done on a CPU as a sort of whole numbers that hold a score in their high and its position in their low
    bits: numpy sorts these many times faster than PyTorch finds a stable order. Scores that differ only in the bits that
    the position takes may come out in the wrong order; such a row shows it, and is sorted again.
    """
    scores = scores.double().masked_fill(~content, -torch.inf)
    if scores.device.type != "cpu":
        return scores.sort(dim=-1, descending=True, stable=True).indices
    low = (1 << (scores.shape[-1] - 1).bit_length()) - 1
    # 0 − score and not −score: both zeros become one. The bits of negative numbers count downwards.
    bits = (0 - scores).view(torch.int64)
    bits = bits ^ ((bits >> 63) & torch.iinfo(torch.int64).max)
    keys = (bits & ~low) | torch.arange(scores.shape[-1])
    order = torch.from_numpy(np.sort(keys.numpy(), axis=-1)) & low
    ordered = scores.gather(-1, order)
    # false for undefined scores as well
    wrong = ~(ordered[..., :-1] >= ordered[..., 1:]).all(-1)
    if wrong.any():
        order[wrong] = scores[wrong].sort(dim=-1, descending=True, stable=True).indices
    return order


def advantage(
    readout: Readout, chosen: Int[Tensor, "batch"]
) -> tuple[Float[Tensor, "batch rivals seq"], Float[Tensor, "batch rivals"]]:
    """α_t (z_t[k] − z_t[c]): how much each position does for every class k but the chosen one c (linear decoder), and
    the sum above which k is ahead."""
    assert readout.position_logits is not None
    classes = readout.position_logits.shape[-1]
    rivals = torch.arange(classes - 1, device=chosen.device).expand(len(chosen), -1)
    rivals = rivals + (rivals >= chosen[:, None])
    lead = leads(readout.position_logits, chosen)
    lead = lead.gather(1, rivals[..., None].expand(-1, -1, lead.shape[-1]))
    return lead * (readout.attention * readout.content).unsqueeze(1), least_lead(lead, readout.content)


def _flips(
    advantages: Float[Tensor, "batch rivals seq"],
    least: Float[Tensor, "batch rivals"],
    backwards: Int[Tensor, "batch seq"],
) -> Bool[Tensor, "batch seq"]:
    """Whether another class is ahead where only the first, the first two, … of `backwards` are kept: linear decoder."""
    ordered = advantages.gather(-1, backwards.unsqueeze(1).expand_as(advantages))
    return (ordered.cumsum(-1) > least.unsqueeze(-1)).any(1)


def _flips_by_decoding(
    readout: Readout, chosen: Int[Tensor, "batch"], backwards: Int[Tensor, "batch seq"]
) -> Bool[Tensor, "batch seq"]:
    """As `_flips`, by asking the decoder at every step until every decision has changed."""
    flips = torch.zeros_like(readout.content)
    weights = (readout.attention * readout.content).gather(-1, backwards)
    kept = weights.cumsum(-1)
    place = torch.arange(weights.shape[1], device=weights.device)
    for last in range(weights.shape[1] - 2, -1, -1):
        mass = kept[:, last, None]
        defined = mass >= LEAST_MASS
        left = torch.where((place <= last) & defined, weights / torch.where(defined, mass, 1), 0)
        ahead = overtaken(readout.logits(torch.zeros_like(left).scatter(-1, backwards, left)), chosen)
        flips[:, last] = ahead & defined.squeeze(-1)
        if flips.any(-1).all():
            break
    return flips
