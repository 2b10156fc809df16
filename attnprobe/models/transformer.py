"""A small transformer trained from scratch: an encoder under any attention, and the pooled row as
attention and decoder."""

import math
from typing import Annotated, Any, ClassVar

import torch
from annotated_types import Ge, Le
from jaxtyping import Int
from torch import Tensor, nn
from torch.nn import functional as F

from attnprobe.core.errors import UserError
from attnprobe.core.settings import Dropout, Size
from attnprobe.models.attention import Attention, Query, Scores
from attnprobe.models.decoders import Attended, Decoder, Logits
from attnprobe.models.encoders import Embedded, Encoder, States, Tokens
from attnprobe.models.linearised_layers import (
    Affine,
    Block,
    Inner,
    Mixing,
    affine_of,
    norm_of,
    ratio,
)


class TransformerEncoder(Encoder):
    """Layers of self-attention and feed-forward networks, normalised before each (Vaswani et al.
    2017; pre-norm: Xiong et al. 2020), over projected word vectors and sinusoidal positions. The
    attention that is tested is the classifier's, over the last layer's states; `asks`: the state of
    the start marker is its query (a pooled row). `hidden_size` is a multiple of `heads`, and the
    `inner_size` of the feed-forward networks four times that where none is given."""

    def __init__(
        self,
        input_size: int,
        hidden_size: Size = 128,
        layers: Annotated[int, Ge(1), Le(1000)] = 2,
        heads: Annotated[int, Ge(1), Le(10_000)] = 4,
        inner_size: Size | None = None,
        dropout: Dropout = 0.1,
        asks: bool = False,
    ) -> None:
        super().__init__()
        inner = 4 * hidden_size if inner_size is None else inner_size
        if hidden_size % heads:
            raise UserError(
                f"model.encoder.hidden_size={hidden_size} does not divide into model.encoder.heads={heads} heads: take a "
                f"multiple, such as hidden_size={heads * max(1, hidden_size // heads)}"
            )
        self.projection = nn.Linear(input_size, hidden_size)
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList(
            Layer(hidden_size, heads, inner, dropout) for _ in range(layers)
        )
        self.norm = nn.LayerNorm(hidden_size)
        self.size = hidden_size
        self.asks = asks

    def forward(self, embeddings: Embedded, mask: Tokens, content: Tokens) -> States:
        states = self.below(embeddings)
        for layer in self.layers:
            states = layer(states, mask)
        return self.norm(states) * mask.unsqueeze(-1)

    def below(self, embeddings: Embedded) -> States:
        """What goes into the first layer: projected vectors, and sin and cos of the position at
        wavelengths from 2π to 10,000 · 2π (Vaswani et al. 2017, section 3.5)."""
        states = self.projection(embeddings)
        kind: dict[str, Any] = {"device": states.device, "dtype": states.dtype}
        rate = torch.exp(torch.arange(0, self.size, 2, **kind) * (-math.log(10_000.0) / self.size))
        angle = torch.arange(states.shape[1], **kind).unsqueeze(-1) * rate
        return self.dropout(
            states + torch.stack([angle.sin(), angle.cos()], -1).flatten(1)[:, : self.size]
        )


class Layer(nn.Module):
    """x + attention(norm(x)), then x + feed-forward(norm(x))."""

    def __init__(self, size: int, heads: int, inner: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.share = dropout
        self.before_attention = nn.LayerNorm(size)
        self.before_inner = nn.LayerNorm(size)
        self.queries_keys_values = nn.Linear(size, 3 * size)
        self.mixed = nn.Linear(size, size)
        self.inner = nn.Sequential(
            nn.Linear(size, inner), nn.GELU(), nn.Dropout(dropout), nn.Linear(inner, size)
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, states: States, mask: Tokens) -> States:
        of_heads = self.queries_keys_values(self.before_attention(states)).unflatten(
            -1, (3, self.heads, -1)
        )
        q, k, v = of_heads.permute(2, 0, 3, 1, 4)
        share = self.share if self.training else 0.0
        mixed = F.scaled_dot_product_attention(
            q, k, v, attn_mask=mask[:, None, None], dropout_p=share
        )
        states = states + self.dropout(self.mixed(mixed.transpose(1, 2).flatten(2)))
        return states + self.dropout(self.inner(self.before_inner(states)))

    def linearised(
        self, states: States, mask: Tokens, silent: Int[Tensor, "parts"]
    ) -> tuple[Block, States]:
        """What this layer does to these states, and the states after it; the values of the parts
        that are `silent` are 0."""
        of_heads = self.queries_keys_values(self.before_attention(states)).unflatten(
            -1, (3, self.heads, -1)
        )
        q, k, v = of_heads.permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        weights = scores.masked_fill(~mask[:, None, None], -torch.inf).softmax(-1)
        v = v.index_fill(2, silent, 0)
        total = states + self.mixed((weights @ v).transpose(1, 2).flatten(2))
        value = Affine(*(part.chunk(3)[2] for part in affine_of(self.queries_keys_values)))
        mixing = Mixing(
            states.double(),
            norm_of(self.before_attention, states),
            value,
            weights.double(),
            v.double(),
            affine_of(self.mixed),
            None,
            True,
            total.double(),
        )
        inner, after = fed_forward(self.before_inner, self.inner[0], self.inner[3], total)
        return Block(mixing, inner), after


def fed_forward(
    before: nn.LayerNorm, first: nn.Module, second: nn.Module, state: States
) -> tuple[Inner, States]:
    """What a feed-forward network does to these states, and the states after it."""
    given = first(before(state))
    active = F.gelu(given)
    inner = Inner(
        norm_of(before, state), affine_of(first), ratio(given, active), affine_of(second), None
    )
    return inner, state + second(active)


class PooledRowAttention(Attention):
    """s_t = (W_q q) · (W_k h_t) / √m: where the pooled row, the start marker's state q, looks."""

    positionwise: ClassVar[bool] = True

    def __init__(self, hidden_size: int, query_size: int | None = None) -> None:
        super().__init__(hidden_size, query_size)
        if query_size is None:
            raise UserError(
                "model/pooling=cls asks with the start marker's state: it needs model=transformer, whose encoder has "
                "model.encoder.asks=true"
            )
        self.asked = nn.Linear(query_size, hidden_size)
        self.keys = nn.Linear(hidden_size, hidden_size)
        self.scale = math.sqrt(hidden_size)

    def forward(self, hidden: States, query: Query | None = None) -> Scores:
        return torch.einsum("bsh,bh->bs", self.keys(hidden), self.asked(query)) / self.scale


class PooledRowDecoder(Decoder):
    """The rest of a transformer's last layer for its pooled row, and the classes: x = q + W v, x +
    feed-forward(norm(x)), norm, linear. Not linear in the attended vector v: what needs position
    logits does not apply."""

    linear = False

    def __init__(
        self, hidden_size: int, classes: int, query_size: int | None = None, exclusive: bool = True
    ) -> None:
        super().__init__()
        self.values = nn.Linear(hidden_size, hidden_size)
        self.before_inner = nn.LayerNorm(hidden_size)
        self.norm = nn.LayerNorm(hidden_size)
        inner = 4 * hidden_size
        self.inner = nn.Sequential(
            nn.Linear(hidden_size, inner), nn.GELU(), nn.Linear(inner, hidden_size)
        )
        self.output = nn.Linear(hidden_size, classes)

    def forward(self, attended: Attended, query: Query | None = None) -> Logits:
        row = query + self.values(attended)
        return self.output(self.norm(row + self.inner(self.before_inner(row))))
