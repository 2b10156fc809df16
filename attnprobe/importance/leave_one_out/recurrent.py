"""Leave-one-out's short cut for the LSTM.

Removing the token at t leaves each network's states before t (in its reading direction) as they are, and the projections
of all inputs are the same in every shortened text. All shortened texts of all examples are advanced together.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from attnprobe.importance.leave_one_out.changed import ChangedStates, EncodedTexts, Projection, changed_states
from attnprobe.importance.leave_one_out.gates import Gates
from attnprobe.importance.leave_one_out.product import Product
from attnprobe.importance.leave_one_out.side_by_side import SideBySide
from attnprobe.models.encoders import LSTMEncoder, reversed_positions

CHECK_EVERY = 4
"""Steps of a text between two looks at which shortened texts are back at the unchanged one: looking costs about as much
as a third of a step."""
FIRST_LOOK = 16
"""Steps of a text before the first such check: hardly any text is back sooner."""


@changed_states.register
def _lstm_changes(encoder: LSTMEncoder, texts: EncodedTexts, projection: Projection) -> Iterator[ChangedStates]:
    """After a removed token the states of the forward network, before it those of the backward one."""
    half = encoder.size // 2
    position = torch.arange(texts.mask.shape[1], device=texts.mask.device).expand_as(texts.mask)
    first, second = projection.layer.weight[:, :half], projection.layer.weight[:, half:]
    left, right = texts.hidden[..., :half], texts.hidden[..., half:]
    for rnn, order, weight, other_direction in (
        (encoder.forwards, position, first, F.linear(right, second, projection.layer.bias)),
        (encoder.backwards, reversed_positions(texts.mask), second, F.linear(left, first, projection.layer.bias)),
    ):
        read = RecurrentPass.of(texts, order, other_direction)
        yield from recurrent_changes(rnn, texts.words, read, weight, projection.tolerance)


@dataclass(frozen=True)
class RecurrentPass:
    """Texts as one recurrent network reads them: step by step in its own order, padding last; first the text that it reads
    longest, so that those still being read stay side by side.

    Attributes:
        which: of the distinct inputs is read.
        position: in the text.
        content: steps that are removed in turn.
        number: of the shortened text without this step.
        other_direction: what the layer after the encoder sees of the other network's states.
        last: content step of each text; −1 where there is none.
    """

    which: Int[Tensor, "steps batch"]
    position: Int[Tensor, "steps batch"]
    content: Bool[Tensor, "steps batch"]
    number: Int[Tensor, "steps batch"]
    other_direction: Float[Tensor, "steps batch out"]
    last: Int[Tensor, "batch"]

    @classmethod
    def of(
        cls, texts: EncodedTexts, order: Int[Tensor, "batch tokens"], other_direction: Float[Tensor, "batch tokens out"]
    ) -> "RecurrentPass":
        """`order`: the position that each step reads."""
        width = order.shape[1]
        steps = torch.arange(width, device=order.device)
        last = torch.where(texts.content.gather(1, order), steps, -1).amax(1)
        longest = last.argsort(descending=True, stable=True)
        rows = (order.index_select(0, longest) + width * longest.unsqueeze(1)).t().flatten()

        def read(values: Tensor) -> Tensor:
            return values.flatten(0, 1).index_select(0, rows).unflatten(0, (width, -1))

        number = (texts.content.flatten().cumsum(0) - 1).view_as(texts.content)
        position = rows.remainder(width).view(width, -1)
        return cls(read(texts.which), position, read(texts.content), read(number), read(other_direction), last[longest])


def recurrent_changes(
    rnn: nn.LSTM,
    words: Float[Tensor, "distinct embed"],
    texts: RecurrentPass,
    weight: Float[Tensor, "out half"],
    tolerance: float,
) -> Iterator[ChangedStates]:
    """An LSTM's states after each removed token.

    The shortened text without step t starts at step t + 1 from the unchanged state before t. It ends after the last content
    step, or where it rejoins the unchanged text: hidden state and cell are both within `tolerance` of the unchanged
    text's. Most LSTMs forget, and a difference this small only shrinks. That is no law: a network can be built that makes
    it large again, hence the check in `removal`. Every fourth step from the 16th is looked at, each text by itself, so
    that no other text in the batch changes a number.

    Args:
        words: the distinct inputs.
        weight: how the layer after the encoder sees this network's states.
        tolerance: 0 never lets a text rejoin; in float32 it is at least 2e-6.
    """
    # below some units in the last place float32 states never meet again
    near = max(tolerance, 16 * torch.finfo(words.dtype).eps) if tolerance else 0.0
    gates, seeing = Gates(rnn), Product((2 * weight).t())
    inputs = gates.inputs.of(words.detach()).add_(gates.bias)
    steps = torch.arange(len(texts.which), device=texts.last.device).unsqueeze(1)
    going_on = (texts.last > steps).sum(1).tolist()
    starting = (texts.content & (texts.last > steps)).sum(1).tolist()
    removals = sum(count > 0 for count in starting)
    read = SideBySide(gates, inputs, texts.which.shape[1], removals)
    for step in range(len(going_on)):
        columns = read.columns
        before = read.unchanged()
        read.advance(texts.which[step, :columns])
        rejoined = skipped = None
        if read.slots > 1:
            seen = seeing.of(read.changed())[: (read.slots - 1) * columns]
            seen.view(-1, columns, len(weight)).add_(texts.other_direction[step, :columns])
            text, position, seen = read.there(texts.position[step, :columns], seen)
            if near and step >= FIRST_LOOK and step % CHECK_EVERY == 0:
                rejoined, skipped = read.rejoin(near, going_on[step])
            yield ChangedStates(text, position, seen, rejoined, skipped)
        if not going_on[step]:
            return
        read.narrow(going_on[step])
        if starting[step]:
            read.start(before, texts.number[step], texts.content[step], starting[step])
