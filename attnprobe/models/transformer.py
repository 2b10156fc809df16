"""A small transformer trained from scratch: an encoder under any attention, and the pooled row as attention and decoder."""

import math
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from attnprobe.errors import UserError
from attnprobe.models.attention import Attention
from attnprobe.models.construction import check_dropout, check_size
from attnprobe.models.decoders import Decoder
from attnprobe.models.encoders import Encoder


def sinusoids(length: int, like: Float[Tensor, "batch tokens hidden"]) -> Float[Tensor, "tokens hidden"]:
    """sin and cos of the position at wavelengths from 2π to 10,000 · 2π (Vaswani et al. 2017, section 3.5)."""
    size = like.shape[-1]
    position = torch.arange(length, device=like.device, dtype=like.dtype)
    rate = torch.exp(torch.arange(0, size, 2, device=like.device, dtype=like.dtype) * (-math.log(10_000.0) / size))
    angle = position.unsqueeze(-1) * rate
    return torch.stack([angle.sin(), angle.cos()], -1).flatten(1)[:, :size]


class TransformerEncoder(Encoder):
    """Layers of self-attention and feed-forward networks, normalised before each (Vaswani et al. 2017; pre-norm: Xiong et al.
    2020), over projected word vectors and sinusoidal positions. The attention that is tested is the classifier's, over the
    last layer's states; `asks`: the state of the start marker is its query (a pooled row).

    Args:
        input_size: features of a word vector.
        hidden_size: features of a state, a multiple of `heads`.
        layers, heads: how many, 1 or more.
        inner_size: of the feed-forward networks; None: four times `hidden_size`.
        dropout: in training, 0 to below 1.
        asks: see above.
    """

    contextual = True

    def __init__(
        self,
        input_size: int,
        hidden_size: int = 128,
        layers: int = 2,
        heads: int = 4,
        inner_size: int | None = None,
        dropout: float = 0.1,
        asks: bool = False,
    ) -> None:
        super().__init__()
        inner = 4 * hidden_size if inner_size is None else inner_size
        for setting, number in {
            "hidden_size": hidden_size, "layers": layers, "heads": heads, "inner_size": inner
        }.items():  # fmt: skip
            check_size(f"model.encoder.{setting}", number)
        check_dropout("model.encoder.dropout", dropout)
        if hidden_size % heads:
            raise UserError(
                f"model.encoder.hidden_size={hidden_size} does not divide into model.encoder.heads={heads} heads: take a "
                f"multiple, such as hidden_size={heads * max(1, hidden_size // heads)}"
            )
        self.projection = nn.Linear(input_size, hidden_size)
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList(Layer(hidden_size, heads, inner, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(hidden_size)
        self.size, self.asks = hidden_size, asks

    def forward(
        self,
        embeddings: Float[Tensor, "batch tokens embed"],
        mask: Bool[Tensor, "batch tokens"],
        content: Bool[Tensor, "batch tokens"],
    ) -> Float[Tensor, "batch tokens hidden"]:
        """Hidden states, zero on padding."""
        states = self.below(embeddings)
        for layer in self.layers:
            states = layer(states, mask)
        return self.norm(states) * mask.unsqueeze(-1)

    def below(self, embeddings: Float[Tensor, "batch tokens embed"]) -> Float[Tensor, "batch tokens hidden"]:
        """What goes into the first layer."""
        states = self.projection(embeddings)
        return self.dropout(states + sinusoids(states.shape[1], states))


class Layer(nn.Module):
    """x + attention(norm(x)), then x + feed-forward(norm(x))."""

    def __init__(self, size: int, heads: int, inner: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.share = heads, dropout
        self.before_attention, self.before_inner = nn.LayerNorm(size), nn.LayerNorm(size)
        self.queries_keys_values, self.mixed = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.inner = nn.Sequential(nn.Linear(size, inner), nn.GELU(), nn.Dropout(dropout), nn.Linear(inner, size))
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, states: Float[Tensor, "batch tokens hidden"], mask: Bool[Tensor, "batch tokens"]
    ) -> Float[Tensor, "batch tokens hidden"]:
        """The states after this layer."""
        parts = self.queries_keys_values(self.before_attention(states)).chunk(3, -1)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        share = self.share if self.training else 0.0
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None], dropout_p=share)
        states = states + self.dropout(self.mixed(mixed.transpose(1, 2).flatten(2)))
        return states + self.dropout(self.inner(self.before_inner(states)))


class PooledRowAttention(Attention):
    """s_t = (W_q q) · (W_k h_t) / √m: where the pooled row, the start marker's state q, looks."""

    positionwise: ClassVar[bool] = True

    def __init__(self, hidden_size: int, query_size: int | None = None) -> None:
        super().__init__()
        if query_size is None:
            raise UserError(
                "model/pooling=cls asks with the start marker's state: it needs model=transformer, whose encoder has "
                "model.encoder.asks=true"
            )
        self.asked, self.keys = nn.Linear(query_size, hidden_size), nn.Linear(hidden_size, hidden_size)
        self.scale = math.sqrt(hidden_size)

    def forward(
        self, hidden: Float[Tensor, "batch seq hidden"], query: Float[Tensor, "batch query"] | None = None
    ) -> Float[Tensor, "batch seq"]:
        """Unmasked scores."""
        return torch.einsum("bsh,bh->bs", self.keys(hidden), self.asked(query)) / self.scale


class PooledRowDecoder(Decoder):
    """The rest of a transformer's last layer for its pooled row, and the classes: x = q + W v, x + feed-forward(norm(x)),
    norm, linear. Not linear in the attended vector v: what needs position logits does not apply."""

    linear = False

    def __init__(self, hidden_size: int, classes: int, query_size: int | None = None, exclusive: bool = True) -> None:
        super().__init__()
        self.values = nn.Linear(hidden_size, hidden_size)
        self.before_inner, self.norm = nn.LayerNorm(hidden_size), nn.LayerNorm(hidden_size)
        inner = 4 * hidden_size
        self.inner = nn.Sequential(nn.Linear(hidden_size, inner), nn.GELU(), nn.Linear(inner, hidden_size))
        self.output = nn.Linear(hidden_size, classes)

    def forward(
        self, attended: Float[Tensor, "*any hidden"], query: Float[Tensor, "batch query"] | None = None
    ) -> Float[Tensor, "*any classes"]:
        """Logits `[..., batch, classes]`."""
        row = query + self.values(attended)
        return self.output(self.norm(row + self.inner(self.before_inner(row))))
