"""Which rows of which attention are meant."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnprobe.errors import UserError


class Queries(StrEnum):
    """Whose rows reach the prediction."""

    FIRST = "first"  # the first piece's, [CLS]
    LAST = "last"  # the last piece's
    ALL = "all"  # those of all pieces: the model averages them


@dataclass(frozen=True)
class Site:
    """Rows of attention.

    Attributes:
        layer: which of a pass's attentions, from 0, or from −1, the last, backwards. An encoder–decoder has, in order, its
            encoder's, and of each decoder layer that over the decoder's own text and that over the encoder's.
        heads: numbers of heads from 0; None: all.
        rows: `pooled`, the row that the prediction is read from, or `all`.
    """

    layer: int = -1
    heads: Sequence[int] | None = None
    rows: str = "pooled"

    def __post_init__(self) -> None:
        if self.rows not in ("pooled", "all"):
            raise UserError(f"model.rows={self.rows}: expected pooled or all")
        if self.heads is not None and (not self.heads or len(set(self.heads)) < len(self.heads)):
            raise UserError(f"model.heads={list(self.heads)}: expected one or more numbers from 0, each once, or null")

    @property
    def name(self) -> str:
        """As tables call it: `layer 3`, `layer 3, head 7`; layers and heads count from 0."""
        if self.heads is None:
            return f"layer {self.layer}"
        return f"layer {self.layer}, head{'s' if len(self.heads) > 1 else ''} {'+'.join(map(str, self.heads))}"

    def call(self, count: int) -> int:
        """The number of the attention among `count`.

        Raises:
            UserError: there are fewer.
        """
        if not -count <= self.layer < count:
            raise UserError(
                f"model.layer={self.layer}: this model has {count} attentions, 0 to {count - 1} (or −1, the last)"
            )
        return self.layer % count

    def chosen_heads(self, count: int) -> list[int]:
        """The numbers of the heads.

        Raises:
            UserError: one is not there.
        """
        heads = list(range(count)) if self.heads is None else list(self.heads)
        if wrong := [head for head in heads if not 0 <= head < count]:
            raise UserError(f"model.heads names {wrong[0]}: this layer has {count} heads, 0 to {count - 1}")
        return heads


@dataclass(frozen=True)
class Selection:
    """The rows of a site in the weights of one attention.

    Attributes:
        heads: their numbers.
        query: of every text, the piece whose row is meant; None: all.
        mask: the pieces of each text that are not padding.
    """

    heads: list[int]
    query: Int[Tensor, "batch"] | None
    mask: Bool[Tensor, "batch pieces"]

    @property
    def valid(self) -> Bool[Tensor, "batch rows"]:
        """Which rows are of a piece, and not of padding."""
        if self.query is not None:
            return self.mask.new_ones(len(self.mask), len(self.heads))
        return self.mask.repeat(1, len(self.heads))

    def of(self, weights: Float[Tensor, "batch heads queries keys"]) -> Float[Tensor, "batch rows keys"]:
        """The rows in these weights."""
        chosen = weights[:, self.heads]
        if self.query is None:
            return chosen.flatten(1, 2)
        return chosen[torch.arange(len(chosen), device=chosen.device), :, self.query]

    def put(
        self, weights: Float[Tensor, "batch heads queries keys"], rows: Float[Tensor, "batch rows keys"]
    ) -> Float[Tensor, "batch heads queries keys"]:
        """The weights with other rows at the site; those of heads and queries that are not meant stay."""
        result, rows = weights.clone(), rows.to(weights.dtype)
        if self.query is None:
            result[:, self.heads] = rows.unflatten(1, (len(self.heads), -1))
            return result
        text = torch.arange(len(weights), device=weights.device)
        result[text[:, None], torch.tensor(self.heads, device=weights.device), self.query[:, None]] = rows
        return result

    def repeated(self, times: int) -> "Selection":
        """The same for the batch `times` times, one after the other."""
        query = None if self.query is None else self.query.repeat(times)
        return Selection(self.heads, query, self.mask.repeat(times, 1))


def part_of(name: str, names: Sequence[str]) -> str:
    """What a parameter belongs to: `layer_N`; `embeddings`, before the first layer; or `head`, after it.

    >>> names = ["network.bert.embeddings.weight", "network.bert.layer.0.bias", "network.classifier.bias"]
    >>> [part_of(name, names) for name in names]
    ['embeddings', 'layer_0', 'head']
    """
    layers = [next((word for word in one.split(".") if word.isdigit()), None) for one in names]
    place = list(names).index(name)
    if layers[place] is not None:
        return f"layer_{layers[place]}"
    return "head" if any(one is not None for one in layers[:place]) else "embeddings"
