"""Leave-one-out's short cut for convolutions: a state changes only where its window holds the
removed token."""

from collections.abc import Iterator

import torch
from torch import nn
from torch.nn import functional as F

from attnprobe.importance.leave_one_out.changed_states import (
    Affine,
    ChangedStates,
    EncodedTexts,
    changed_states,
)
from attnprobe.models.encoders import CNNEncoder


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

        states = []
        for convolution, part in zip(convolutions, parts, strict=True):
            half = convolution.kernel_size[0] // 2
            bias = convolution.bias
            total = part.new_zeros(len(owner), part.shape[-1]) if bias is None else bias.detach()
            for place in range(-half, half + 1):
                source = position + place
                # the removed token is stepped over, from whichever side the window comes
                if distance < 0:
                    source = source + (source >= gap).long()
                else:
                    source = source - (source <= gap).long()
                total = total + part[owner, source + margin, place + half]
            states.append(total)

        yield ChangedStates(text, position, F.linear(torch.cat(states, -1).relu(), *layer))
