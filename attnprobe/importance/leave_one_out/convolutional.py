"""Leave-one-out's short cut for convolutions.

A state changes only where its window holds the removed token.
"""

from collections.abc import Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from attnprobe.importance.leave_one_out.changed_states import (
    ChangedStates,
    EncodedTexts,
    changed_states,
)
from attnprobe.models.encoders import CNNEncoder
from attnprobe.models.linearised_layers import Affine


@changed_states.register
def _cnn_changes(
    encoder: CNNEncoder, texts: EncodedTexts, layer: Affine, tolerance: float
) -> Iterator[ChangedStates]:
    """States (after the ReLU) of the content tokens around each removed one.

    The neighbours of a removed token move up. What a token adds to a filter at each place of its
    window is computed once for all shortened texts.
    """
    convolutions = [module for module in encoder.convolutions if isinstance(module, nn.Conv1d)]
    reach = max(convolution.kernel_size[0] // 2 for convolution in convolutions)
    # zeros around the text, as the convolution's own padding, so that windows may reach over its
    # edge
    margin = reach + 1
    padded = F.pad(texts.words[texts.which] * texts.mask.unsqueeze(-1), (0, 0, margin, margin))
    parts = [
        torch.einsum("bse,fek->bskf", padded, convolution.weight.detach())
        for convolution in convolutions
    ]

    example, removed = texts.content.nonzero(as_tuple=True)
    around = F.pad(texts.content, (margin, margin))
    for distance in (*range(-reach, 0), *range(1, reach + 1)):
        text = around[example, removed + distance + margin].nonzero().squeeze(-1)
        owner = example[text]
        gap = removed[text]
        position = gap + distance

        states = [
            _without(convolution, part, owner, gap, position, margin)
            for convolution, part in zip(convolutions, parts, strict=True)
        ]
        yield ChangedStates(text, position, F.linear(torch.cat(states, -1).relu(), *layer))


def _without(
    convolution: nn.Conv1d,
    part: Float[Tensor, "batch padded places filters"],
    owner: Int[Tensor, "changed"],
    gap: Int[Tensor, "changed"],
    position: Int[Tensor, "changed"],
    margin: int,
) -> Float[Tensor, "changed filters"]:
    """A convolution's sums at some positions, the tokens at `gap` removed.

    Args:
        convolution: of odd width.
        part: what each token of the padded texts adds to a filter at each place of its window.
        owner: the text.
        gap: its removed token, which all positions lie before, or all after.
        position: counted in the unchanged text.
        margin: of padding before the text.
    """
    half = convolution.kernel_size[0] // 2
    total = part.new_zeros(len(owner), part.shape[-1])
    if convolution.bias is not None:
        total = convolution.bias.detach()
    for place in range(-half, half + 1):
        source = position + place
        # the removed token is stepped over, from whichever side the window comes
        after = (position < gap) & (source >= gap)
        before = (position > gap) & (source <= gap)
        source = source + after.long() - before.long()
        total = total + part[owner, source + margin, place + half]
    return total
