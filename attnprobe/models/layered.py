"""The transformer that is trained from scratch, layer by layer: its attentions, the vectors that they move, and what becomes
of the states where a part says nothing. Its last layer is the classifier's own attention over the encoder's states."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from attnprobe.batch import Batch
from attnprobe.models.anatomy import Affine, Anatomy, Block, Inner, Mixing, Stage, affine_of, norm_of, ratio
from attnprobe.models.attention import Attention
from attnprobe.models.base import Layers
from attnprobe.models.decoders import Decoder, LinearDecoder
from attnprobe.models.encoders import TextEncoder
from attnprobe.models.trained import TrainedModel
from attnprobe.models.transformer import Layer, PooledRowDecoder, TransformerEncoder


class LayeredModel(TrainedModel):
    """A classifier of word vectors whose encoder may be a stack of layers of self-attention; see `AttentionClassifier`."""

    encoder: TextEncoder
    attention: Attention
    decoder: Decoder

    @property
    def has_layers(self) -> bool:
        """A transformer has."""
        return isinstance(self.encoder, TransformerEncoder)

    @abstractmethod
    def encode_question(self, batch: Batch) -> Float[Tensor, "batch query"] | None:
        """The question's last state."""

    @abstractmethod
    def attend(
        self, hidden: Tensor, content: Tensor, query: Tensor | None = None, given: Tensor | None = None
    ) -> tuple[Float[Tensor, "batch seq"], Float[Tensor, "batch seq"]]:
        """Scores and attention."""

    def layers(self, batch: Batch) -> Layers | None:
        """The encoder's attentions and the classifier's; None for another encoder."""
        anatomy = self.anatomy(batch)
        if isinstance(anatomy, str):
            return None
        mixings = [one.mixing for one in anatomy.blocks]
        return Layers([one.weights for one in mixings], anatomy.row, anatomy.mask, [one.own for one in mixings])

    def anatomy(self, batch: Batch) -> Anatomy | str:
        """What its layers do to their vectors; else why that is not known."""
        encoder = self.encoder
        if not isinstance(encoder, TransformerEncoder):
            return super().anatomy(batch)
        blocks: list[Block] = []
        with torch.no_grad():
            states = encoder.below(self.inputs(batch))
            for layer in encoder.layers:
                assert isinstance(layer, Layer)
                block, states = block_of(layer, states, batch)
                blocks.append(block)
            assert blocks[-1].inner is not None
            blocks[-1] = blocks[-1]._replace(inner=blocks[-1].inner._replace(after=norm_of(encoder.norm, states)))
            last = pooled(self, batch, encoder.norm(states) * batch.mask.unsqueeze(-1))
        first = torch.zeros(len(batch), dtype=torch.long, device=batch.ids.device)
        return Anatomy([*blocks, last.block], first, batch.mask, last.head, last.unknown)

    def states_silencing(
        self, batch: Batch, layer: int | None, part: int
    ) -> Sequence[Float[Tensor, "batch parts hidden"]]:
        """The states before the first layer and after each, where the value of one part counts as 0 in one layer; None: in
        none."""
        encoder = self.encoder
        if not isinstance(encoder, TransformerEncoder):
            return super().states_silencing(batch, layer, part)
        with torch.no_grad():
            states = [encoder.below(self.inputs(batch))]
            for number, one in enumerate(encoder.layers):
                assert isinstance(one, Layer)
                states.append(block_of(one, states[-1], batch, part if number == layer else None)[1])
            states[-1] = encoder.norm(states[-1]) * batch.mask.unsqueeze(-1)
            silent = part if layer == len(encoder.layers) else None
            return [*states, pooled(self, batch, states[-1], silent).after]


def block_of(
    layer: Layer, states: Float[Tensor, "batch parts hidden"], batch: Batch, silent: int | None = None
) -> tuple[Block, Float[Tensor, "batch parts hidden"]]:
    """A layer of the encoder, and the states after it; the values of the part that is `silent` are 0."""
    normed = layer.before_attention(states)
    q, k, v = (
        part.unflatten(-1, (layer.heads, -1)).transpose(1, 2) for part in layer.queries_keys_values(normed).chunk(3, -1)
    )
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    weights = scores.masked_fill(~batch.mask[:, None, None], -torch.inf).softmax(-1)
    if silent is not None:
        v = v.index_fill(2, torch.tensor([silent], device=v.device), 0)
    total = states + layer.mixed((weights @ v).transpose(1, 2).flatten(2))
    first, second = layer.inner[0], layer.inner[3]
    given = first(layer.before_inner(total))
    active = F.gelu(given)
    whole = affine_of(layer.queries_keys_values)
    value = Affine(*(part.chunk(3)[2] for part in whole))
    mixing = Mixing(
        states.double(), norm_of(layer.before_attention, states), value, weights.double(), v.double(),
        affine_of(layer.mixed), None, True, total.double(),
    )  # fmt: skip
    inner = Inner(norm_of(layer.before_inner, total), affine_of(first), ratio(given, active), affine_of(second), None)
    return Block(mixing, inner), total + second(active)


class Pooled(NamedTuple):
    """The classifier's attention as the last layer, every row of which is the one that decides; the head; what is not known
    of it (empty: nothing); and the states after it."""

    block: Block
    head: Sequence[Stage]
    unknown: str
    after: Float[Tensor, "batch parts hidden"]


def pooled(
    model: LayeredModel,
    batch: Batch,
    hidden: Float[Tensor, "batch parts hidden"],
    silent: int | None = None,
) -> Pooled:
    """The last layer; a pooled row adds its own state, no other attention does. The value of the part that is `silent` is
    0."""
    content, asks = model.encoder.positions(batch), model.encoder.asks
    query = hidden[:, 0] if asks else model.encode_question(batch)
    attention = model.attend(hidden, content, query, model.attention.given(batch))[1]
    weights = attention.double()[:, None, None].expand(-1, 1, hidden.shape[1], -1)
    size = hidden.shape[-1]
    same = Affine(torch.eye(size, dtype=torch.float64, device=hidden.device), hidden.new_zeros(size).double())
    decoder, values = model.decoder, hidden.double().unsqueeze(1)
    moved = attention.unsqueeze(-1) * hidden
    if silent is not None:
        moved = moved.index_fill(1, torch.tensor([silent], device=hidden.device), 0)
    attended = moved.sum(1, keepdim=True).expand_as(hidden)
    mixing = Mixing(hidden.double(), None, same, weights, values, same, None, asks, attended.double())
    if isinstance(decoder, PooledRowDecoder) and asks:
        total = hidden + decoder.values(attended)
        given = decoder.inner[0](decoder.before_inner(total))
        active = F.gelu(given)
        after = total + decoder.inner[2](active)
        inner = Inner(
            norm_of(decoder.before_inner, total), affine_of(decoder.inner[0]), ratio(given, active),
            affine_of(decoder.inner[2]), norm_of(decoder.norm, after),
        )  # fmt: skip
        mixing = mixing._replace(output=affine_of(decoder.values), result=total.double())
        return Pooled(Block(mixing, inner), [affine_of(decoder.output)], "", decoder.norm(after))
    if type(decoder) is LinearDecoder and batch.candidates is None:
        weight, bias = affine_of(decoder.output)
        if decoder.single_logit:
            weight, bias = F.pad(weight, (0, 0, 1, 0)), F.pad(bias, (1, 0))
        return Pooled(Block(mixing, None), [Affine(weight, bias)], "", attended)
    return Pooled(Block(mixing, None), [], f"{type(decoder).__name__} is not taken apart", attended)
