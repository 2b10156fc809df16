"""A small transformer trained from scratch.

An encoder under any attention, and the pooled row as attention and decoder.
"""

import math
from typing import Annotated, Any, ClassVar

import torch
from annotated_types import Ge, Le
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
    Stage,
    affine_of,
    norm_of,
    ratio,
)


class TransformerEncoder(Encoder):
    """Layers of self-attention and feed-forward networks over projected word vectors and positions.

    Each is normalised before (Vaswani et al. 2017; pre-norm: Xiong et al. 2020). The attention that
    is tested is the classifier's, over the states of the last layer.

    Args:
        input_size: features of a word vector.
        hidden_size: features of a state, a multiple of `heads`.
        layers: number of layers.
        heads: attention heads of each layer.
        inner_size: features inside the feed-forward networks; None: four times `hidden_size`.
        dropout: after the positions, in the attention and in both halves of a layer.
        asks: the state of the start marker is the query of the classifier's attention (a pooled
            row).

    Raises:
        UserError: `hidden_size` does not divide into `heads`.
    """

    def __init__(  # noqa: PLR0917 -- settings, which are given by name
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
            multiple = heads * max(1, hidden_size // heads)
            raise UserError(
                f"model.encoder.hidden_size={hidden_size} does not divide into "
                f"model.encoder.heads={heads} heads: take a multiple, such as "
                f"hidden_size={multiple}"
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
        """The normalised states of the last layer, zero on padding."""
        states = self.below(embeddings)
        for layer in self.layers:
            states = layer(states, mask)
        return self.norm(states) * mask.unsqueeze(-1)

    def below(self, embeddings: Embedded) -> States:
        """What goes into the first layer: projected word vectors plus positions.

        Positions are sin and cos at wavelengths from 2π to 10,000 · 2π (Vaswani et al. 2017,
        section 3.5).
        """
        states = self.projection(embeddings)
        kind: dict[str, Any] = {"device": states.device, "dtype": states.dtype}

        rate = torch.exp(torch.arange(0, self.size, 2, **kind) * (-math.log(10_000.0) / self.size))
        angle = torch.arange(states.shape[1], **kind).unsqueeze(-1) * rate
        waves = torch.stack([angle.sin(), angle.cos()], -1).flatten(1)
        return self.dropout(states + waves[:, : self.size])

    def trace(
        self,
        embeddings: Embedded,
        mask: Tokens,
        silenced_layer: int | None = None,
        silenced_part: int = 0,
    ) -> tuple[list[Block], list[States]]:
        """Run the layers one by one, writing down what each does.

        Args:
            embeddings: word vectors.
            mask: the parts that are not padding.
            silenced_layer: the layer in which the value of `silenced_part` is 0; None: in none.
            silenced_part: a position of the text.

        Returns:
            The layers, linearised, and the states before the first layer and after each; the last
            are normalised, and zero on padding.
        """
        blocks: list[Block] = []
        states = [self.below(embeddings)]
        for number, layer in enumerate(self.layers):
            assert isinstance(layer, Layer)
            silent_part = silenced_part if number == silenced_layer else None
            block, after = layer.linearised(states[-1], mask, silent_part)
            blocks.append(block)
            states.append(after)

        # the encoder's own normalisation belongs to the last layer
        block = blocks[-1]
        assert block.inner is not None
        norm = norm_of(self.norm, states[-1])
        blocks[-1] = block._replace(inner=block.inner._replace(after=norm))
        states[-1] = self.norm(states[-1]) * mask.unsqueeze(-1)
        return blocks, states


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
            nn.Linear(size, inner),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(inner, size),
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, states: States, mask: Tokens) -> States:
        """The states after this layer."""
        q, k, v = self._queries_keys_values(states)
        share = self.share if self.training else 0.0
        mixed = F.scaled_dot_product_attention(
            q,
            k,
            v,
            attn_mask=mask[:, None, None],
            dropout_p=share,
        )
        states = states + self.dropout(self.mixed(mixed.transpose(1, 2).flatten(2)))
        return states + self.dropout(self.inner(self.before_inner(states)))

    def _queries_keys_values(self, states: States) -> Tensor:
        """Queries, keys and values, each `[batch, heads, parts, size]`."""
        projected = self.queries_keys_values(self.before_attention(states))
        return projected.unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)

    def linearised(
        self,
        states: States,
        mask: Tokens,
        silent_part: int | None = None,
    ) -> tuple[Block, States]:
        """Linearise what this layer does to these states.

        Args:
            states: what goes into the layer.
            mask: the parts that are not padding.
            silent_part: the part whose value is 0; None: none.

        Returns:
            The layer, and the states after it.
        """
        q, k, v = self._queries_keys_values(states)
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        weights = scores.masked_fill(~mask[:, None, None], -torch.inf).softmax(-1)
        if silent_part is not None:
            v = v.index_fill(2, torch.tensor([silent_part], device=v.device), 0)
        total = states + self.mixed((weights @ v).transpose(1, 2).flatten(2))

        projection = affine_of(self.queries_keys_values)
        mixing = Mixing(
            state=states.double(),
            before=norm_of(self.before_attention, states),
            value=Affine(projection.weight.chunk(3)[2], projection.bias.chunk(3)[2]),
            weights=weights.double(),
            values=v.double(),
            output=affine_of(self.mixed),
            after=None,
            adds_input=True,
            result=total.double(),
        )
        inner, after = linearised_inner(self.before_inner, self.inner[0], self.inner[3], total)
        return Block(mixing, inner), after


def linearised_inner(
    before: nn.LayerNorm,
    first: nn.Module,
    second: nn.Module,
    state: States,
) -> tuple[Inner, States]:
    """Linearise x + second(gelu(first(before(x)))) at these states.

    Returns:
        The feed-forward network, and the states after it.
    """
    hidden = first(before(state))
    active = F.gelu(hidden)
    inner = Inner(
        before=norm_of(before, state),
        first=affine_of(first),
        ratio=ratio(hidden, active),
        second=affine_of(second),
        after=None,
    )
    return inner, state + second(active)


class PooledRowAttention(Attention):
    """s_t = (W_q q) · (W_k h_t) / √m: how much the pooled row, whose state is q, attends to h_t."""

    positionwise: ClassVar[bool] = True

    def __init__(self, hidden_size: int, query_size: int | None = None) -> None:
        super().__init__(hidden_size, query_size)
        if query_size is None:
            raise UserError(
                "model/pooling=cls asks with the start marker's state: it needs model=transformer, "
                "whose encoder has model.encoder.asks=true"
            )
        self.asked = nn.Linear(query_size, hidden_size)
        self.keys = nn.Linear(hidden_size, hidden_size)
        self.scale = math.sqrt(hidden_size)

    def forward(self, hidden: States, query: Query | None = None) -> Scores:
        """(W_q q) · (W_k h_t) / √m of every position t; the query is required."""
        return torch.einsum("bsh,bh->bs", self.keys(hidden), self.asked(query)) / self.scale


class PooledRowDecoder(Decoder):
    """The rest of a transformer's last layer for its pooled row q, and the classes.

    x = q + W v, x + feed-forward(norm(x)), norm, linear. Not linear in the attended vector v: tests
    that need position logits do not apply.
    """

    linear = False

    def __init__(
        self,
        hidden_size: int,
        classes: int,
        query_size: int | None = None,
        exclusive: bool = True,
    ) -> None:
        super().__init__()
        self.values = nn.Linear(hidden_size, hidden_size)
        self.before_inner = nn.LayerNorm(hidden_size)
        self.norm = nn.LayerNorm(hidden_size)
        inner = 4 * hidden_size
        self.inner = nn.Sequential(
            nn.Linear(hidden_size, inner),
            nn.GELU(),
            nn.Linear(inner, hidden_size),
        )
        self.output = nn.Linear(hidden_size, classes)

    def forward(self, attended: Attended, query: Query | None = None) -> Logits:
        """The logits of the attended vector; the query, the pooled row's state, is required."""
        row = query + self.values(attended)
        return self.output(self.norm(row + self.inner(self.before_inner(row))))

    def linearised(self, pooled: Mixing, attended: States) -> tuple[Block, list[Stage], States]:
        """Linearise the pooled row's layer at these attended vectors.

        Args:
            pooled: the attention over the states, which this decoder maps and adds to them.
            attended: the attended vector, at every part.

        Returns:
            The layer, what follows it, and the states after it.
        """
        state = pooled.state.to(attended.dtype)
        total = state + self.values(attended)
        mixing = pooled._replace(output=affine_of(self.values), result=total.double())

        inner, after = linearised_inner(self.before_inner, self.inner[0], self.inner[2], total)
        inner = inner._replace(after=norm_of(self.norm, after))
        return Block(mixing, inner), [affine_of(self.output)], self.norm(after)
