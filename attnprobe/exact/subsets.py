"""What follows exactly from the table of all subsets of a short text's words.

A table holds one number for each of the 2^n subsets of n words, in the order of their bit masks:
entry Σ_{i∈S} 2^i is that of S, so word i is in every entry whose bit i is set. Whether a set holds
the words *removed* or the words *kept* is the caller's: `complement` turns one table into the
other.
"""

from dataclasses import dataclass
from math import factorial

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from attnprobe.core.errors import UserError
from attnprobe.exact.checks import refuse_integers

MOST_WORDS = 24
"""2^24 numbers in float64 are 128 MiB per text, and as much again while they are worked on."""
NONE = -1
"""Size of a set that does not exist."""


@dataclass(frozen=True)
class PrefixLimits:
    """The least and the greatest area that any order of removal can reach.

    The area over the perturbation curve (AOPC) is the mean drop over an order's n prefixes: one
    word removed, two, …, all.

    Attributes:
        lower: the least area.
        upper: the greatest area.
        lower_order: an order that reaches the least, as words, first removed first; of equally good
            ones the first in the dictionary.
        upper_order: likewise, the greatest.
    """

    lower: Float[Tensor, "batch"]
    upper: Float[Tensor, "batch"]
    lower_order: Int[Tensor, "batch words"]
    upper_order: Int[Tensor, "batch words"]


@dataclass(frozen=True)
class SmallestSet:
    """The fewest words for which something holds.

    Attributes:
        size: 0 or more; −1 where it holds for no set.
        members: the words; all False where it holds for no set.
    """

    size: Int[Tensor, "batch"]
    members: Bool[Tensor, "batch words"]


def prefix_limits(drop: Shaped[Tensor, "..."]) -> PrefixLimits:
    """AOPC between its true limits, by a path in the lattice of subsets (Edin et al. 2025).

    An order of removal is a path from the empty set to the full one. The best value-to-go of a set
    S is V(S) = max_{i∉S} drop(S ∪ i) + V(S ∪ i), so 2^n · n steps find what trying all n! orders
    finds.

    Args:
        drop: fall of the target (its probability, say) when the words of the bit mask are removed,
            `[batch, 2**n]`, `drop[:, 0] = 0`; a rise is negative.

    Raises:
        UserError: not two axes, a length that is not a power of 2 (or above 2^24), values that are
            not finite, or a drop without removal.

    >>> drop = torch.tensor([[0.0, 0.1, 0.6, 0.7]])  # nothing, word 0, word 1, both removed
    >>> limits = prefix_limits(drop)
    >>> limits.upper_order.tolist(), round(limits.upper.item(), 3)
    ([[1, 0]], 0.65)
    """
    drop, _ = _checked(drop, "drop")
    is_wrong = drop[:, 0] != 0
    if is_wrong.any():
        row = int(is_wrong.nonzero()[0, 0])
        raise UserError(
            f"drop[{row}, 0] is {drop[row, 0].item():.6g}: "
            f"expected 0, since nothing is removed there"
        )
    upper, upper_order = _longest_path(drop)
    lower, lower_order = _longest_path(-drop)
    return PrefixLimits(-lower, upper, lower_order, upper_order)


def shapley_values(value: Shaped[Tensor, "..."]) -> Float[Tensor, "batch words"]:
    """Each word's Shapley value: its mean contribution over all orders of adding words.

    φ_i = Σ_{S∌i} |S|! (n − |S| − 1)! / n! · (v(S ∪ i) − v(S)); their sum is v(all) − v(none)
    (Shapley 1953).

    Args:
        value: of every subset by bit mask, `[batch, 2**n]`. A table of *drops by words removed*
            gives the same values as the table of the target by words kept: the dual of a game has
            its Shapley values.

    Raises:
        UserError: as `prefix_limits`, whatever `value[:, 0]` is.

    >>> shapley_values(torch.tensor([[0.0, 1.0, 2.0, 5.0]])).tolist()
    [[2.0, 3.0]]
    """
    value, words = _checked(value, "value")
    weight_by_size = [
        factorial(size) * factorial(words - size - 1) / factorial(words) for size in range(words)
    ]
    sizes = _sizes(words - 1, value.device)
    return _expected_gain(value, value.new_tensor(weight_by_size)[sizes])


def banzhaf_values(value: Shaped[Tensor, "..."]) -> Float[Tensor, "batch words"]:
    """Each word's Banzhaf value: its mean contribution over all 2^(n−1) sets of the other words.

    Banzhaf 1965. The values need not add up to v(all) − v(none).

    Args:
        value: as for `shapley_values`.

    Raises:
        UserError: as `shapley_values`.
    """
    value, _ = _checked(value, "value")
    return _expected_gain(value, value.new_full((value.shape[1] // 2,), 2 / value.shape[1]))


def shapley_interactions(value: Shaped[Tensor, "..."]) -> Float[Tensor, "batch words words"]:
    """The Shapley interaction index of every pair (Grabisch and Roubens 1999).

    Symmetric, 0 on the diagonal.

    I_ij = Σ_{S∌i,j} |S|! (n − |S| − 2)! / (n − 1)! · (v(S ∪ ij) − v(S ∪ i) − v(S ∪ j) + v(S)):
    above 0 where two words do more together than each alone.

    Args:
        value: as for `shapley_values`. A table by words *removed* gives the same indices with the
            opposite sign.

    Raises:
        UserError: as `shapley_values`.
    """
    value, words = _checked(value, "value")
    index = value.new_zeros(len(value), words, words)
    if words < 2:
        return index
    weight_by_size = [
        factorial(size) * factorial(words - size - 2) / factorial(words - 1)
        for size in range(words - 1)
    ]
    weight = value.new_tensor(weight_by_size)[_sizes(words - 2, value.device)]
    for second in range(1, words):
        without_second, with_second = _split(value, second)
        gain = (with_second - without_second).flatten(1)
        for first in range(second):
            gain_without_first, gain_with_first = _split(gain, first)
            interaction = (gain_with_first - gain_without_first).flatten(1) @ weight
            index[:, first, second] = interaction
            index[:, second, first] = interaction
    return index


def complement(table: Tensor) -> Tensor:
    """The same table by the words that are *not* in the set.

    By words removed instead of kept, or the reverse.
    """
    return table.flip(-1)  # the complement of mask m is 2^n − 1 − m


def minimal_sets(holds: Shaped[Tensor, "..."]) -> Bool[Tensor, "batch subsets"]:
    """The subsets for which something holds that holds for none of their proper subsets.

    With `holds` = "the decision differs once these words are removed" they are the minimal
    necessary sets (Carter et al. 2019 search for one); with "the decision stands when only these
    are kept", the minimal sufficient sets.

    Args:
        holds: by bit mask, `[batch, 2**n]`, bool. It need not be monotone.

    Raises:
        UserError: not two axes of torch.bool, or a length that is not a power of 2.
    """
    holds, words = _checked(holds, "holds", boolean=True)
    holds_within = holds.clone()  # for the set, or for some subset of it
    for word in range(words):
        without_word, with_word = _split(holds_within, word)
        with_word |= without_word
    holds_for_smaller = torch.zeros_like(holds)
    for word in range(words):
        _, with_word = _split(holds_for_smaller, word)
        without_word, _ = _split(holds_within, word)
        with_word |= without_word
    return holds & ~holds_for_smaller


def smallest_set(holds: Shaped[Tensor, "..."]) -> SmallestSet:
    """The fewest words for which something holds; of equally few, those with the smallest bit mask.

    With "the decision differs once these words are removed" this is the smallest flipping set of
    words *at the input*, which no linear decoder is needed for.

    Args:
        holds: as for `minimal_sets`.

    Raises:
        UserError: as `minimal_sets`.
    """
    holds, words = _checked(holds, "holds", boolean=True)
    # one number orders sets by size first, by mask second
    masks = torch.arange(holds.shape[1], device=holds.device)
    rank = _sizes(words, holds.device) * holds.shape[1] + masks
    mask = torch.where(holds, rank, torch.iinfo(torch.long).max).argmin(-1)
    exists = holds.any(-1)
    members = (mask[:, None] >> torch.arange(words, device=holds.device)) & 1 == 1
    members &= exists[:, None]
    return SmallestSet(torch.where(exists, members.sum(-1), NONE), members)


def _checked(table: Tensor, name: str, *, boolean: bool = False) -> tuple[Tensor, int]:
    """Numbers in float64 and detached, truths as they came; and the number of words."""
    shape = tuple(table.shape)
    if table.ndim != 2 or shape[1] < 2 or shape[1] & (shape[1] - 1):
        raise UserError(
            f"{name} has shape {shape}: expected [batch, 2**n], "
            f"one entry for each subset of n ≥ 1 words by its bit mask"
        )
    words = shape[1].bit_length() - 1
    if words > MOST_WORDS:
        raise UserError(f"{name} has the subsets of {words} words: expected {MOST_WORDS} or fewer")
    if boolean:
        if table.dtype != torch.bool:
            raise UserError(
                f"{name} is of {table.dtype}: "
                f"expected torch.bool, True where it holds for the subset"
            )
        return table.detach(), words
    refuse_integers(**{name: table})
    is_broken = ~table.isfinite().all(-1)
    if is_broken.any():
        row = int(is_broken.nonzero()[0, 0])
        raise UserError(f"{name} is not finite in row {row}: check the model for NaN or infinity")
    return table.detach().double(), words


def _sizes(words: int, device: torch.device) -> Int[Tensor, "subsets"]:
    """How many words each subset has, by bit mask."""
    sizes = torch.zeros(1, dtype=torch.long, device=device)
    for _ in range(words):
        sizes = torch.cat([sizes, sizes + 1])
    return sizes


def _split(table: Tensor, word: int) -> tuple[Tensor, Tensor]:
    """Two views of a table: the subsets without a word, and the same subsets with it."""
    halves = table.view(len(table), -1, 2, 2**word)
    return halves[:, :, 0], halves[:, :, 1]


def _expected_gain(
    value: Float[Tensor, "batch subsets"], weight: Float[Tensor, "half"]
) -> Float[Tensor, "batch words"]:
    """Σ_{S∌i} weight(S) · (v(S ∪ i) − v(S)) of every word i.

    Args:
        value: of every subset by bit mask.
        weight: by the bit mask of S among the other words.
    """
    gains = []
    for word in range(value.shape[1].bit_length() - 1):
        without_word, with_word = _split(value, word)
        gains.append((with_word - without_word).flatten(1) @ weight)
    return torch.stack(gains, 1)


def _longest_path(
    gain: Float[Tensor, "batch subsets"],
) -> tuple[Float[Tensor, "batch"], Int[Tensor, "batch words"]]:
    """The greatest mean of `gain` over the prefixes of an order, and the first such order."""
    words = gain.shape[1].bit_length() - 1
    # of each set: the most that the words still to come can add, and which of them comes next
    value_to_go = torch.zeros_like(gain)
    next_word = torch.zeros_like(gain, dtype=torch.uint8)
    masks = torch.arange(gain.shape[1], device=gain.device)
    sizes = _sizes(words, gain.device)
    for size in range(words - 1, -1, -1):
        sets = masks[sizes == size]
        # the words that are not in each of these sets, ascending: argmax takes the first of equals
        is_absent = (sets[:, None] >> masks[:words]) & 1 == 0
        absent = is_absent.nonzero()[:, 1].view(len(sets), words - size)
        larger = sets[:, None] | (1 << absent)
        value_to_go[:, sets], choice = (gain[:, larger] + value_to_go[:, larger]).max(-1)
        chosen = absent.expand(len(gain), -1, -1).gather(-1, choice[..., None])[..., 0]
        next_word[:, sets] = chosen.byte()

    order = torch.zeros(len(gain), words, dtype=torch.long, device=gain.device)
    mask = torch.zeros(len(gain), 1, dtype=torch.long, device=gain.device)
    for step in range(words):
        word = next_word.gather(1, mask).long()
        order[:, step] = word[:, 0]
        mask |= 1 << word
    return value_to_go[:, 0] / words, order
