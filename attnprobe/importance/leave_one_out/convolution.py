"""Leave-one-out's short cut for convolutions: a state changes only where its window holds the removed token."""

from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from attnprobe.importance.leave_one_out.changed import (
    Affine,
    ChangedStates,
    EncodedTexts,
    Projection,
    changed_states,
)
from attnprobe.models.encoders import CNNEncoder


@changed_states.register
def _cnn_changes(encoder: CNNEncoder, texts: EncodedTexts, projection: Projection) -> Iterator[ChangedStates]:
    convolutions = [module for module in encoder.convolutions if isinstance(module, nn.Conv1d)]
    embeddings = texts.words[texts.which] * texts.mask.unsqueeze(-1)
    return convolution_changes(convolutions, embeddings, texts.content, projection.layer)


def convolution_changes(
    convolutions: Sequence[nn.Conv1d],
    embeddings: Float[Tensor, "batch tokens embed"],
    content: Bool[Tensor, "batch tokens"],
    layer: Affine,
) -> Iterator[ChangedStates]:
    """States (after the ReLU) of the content tokens around each removed one, whose neighbours move up.

    What a token adds to a filter at each place of its window is computed once for all shortened texts.

    Args:
        convolutions: of odd widths, stride 1, padded to keep the length, side by side in the hidden state.
        embeddings: zero on padding.
        content: positions that are removed in turn.
        layer: how the states are seen.
    """
    reach = max(convolution.kernel_size[0] // 2 for convolution in convolutions)
    # zeros around the text, as the convolution's own padding, so that windows may reach over its edge
    margin = reach + 1
    padded = F.pad(embeddings, (0, 0, margin, margin))
    parts = [torch.einsum("bse,fek->bskf", padded, convolution.weight.detach()) for convolution in convolutions]
    example, removed = content.nonzero(as_tuple=True)
    around = F.pad(content, (margin, margin))
    for distance in (*range(-reach, 0), *range(1, reach + 1)):
        there = around[example, removed + distance + margin]
        text = there.nonzero().squeeze(-1)
        owner, gap = example[text], removed[text]
        position = gap + distance
        states = []
        for convolution, part in zip(convolutions, parts, strict=True):
            half = convolution.kernel_size[0] // 2
            bias = convolution.bias
            total = part.new_zeros(len(owner), part.shape[-1]) if bias is None else bias.detach()
            for place in range(-half, half + 1):
                source = position + place
                # the removed token is stepped over, from whichever side the window comes
                over = source >= gap if distance < 0 else source <= gap
                source = source + over.long() * (1 if distance < 0 else -1)
                total = total + part[owner, source + margin, place + half]
            states.append(total)
        yield ChangedStates(text, position, F.linear(torch.cat(states, -1).relu(), *layer))
