"""The seam of a pretrained classifier: what it predicts under another attention per word."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnprobe.batch import Batch, Outputs
from attnprobe.errors import UserError
from attnprobe.models.base import Summed
from attnprobe.models.pretrained.doors import Pass, Seen
from attnprobe.models.pretrained.rows import Lifting, membership
from attnprobe.models.pretrained.short_way import ShortWay
from attnprobe.models.pretrained.site import Selection, Site
from attnprobe.models.pretrained.upper import UpperLayers
from attnprobe.readout import Readout

if TYPE_CHECKING:
    from attnprobe.models.pretrained.model import PretrainedClassifier


def readout_of(model: "PretrainedClassifier", batch: Batch, outputs: Outputs, tail: ShortWay | None) -> Readout:
    """The map "attention per word → probabilities" of a batch, at the model's own site.

    Args:
        tail: what follows the last attention, where that is enough; None: whole passes.
    """
    states: list[Tensor] = []
    with torch.no_grad():
        if tail is None:
            one = model.recorded(batch)
        else:
            with tail.state_in(keep=states):
                one = model.recorded(batch)
    assert one.recorded is not None
    assert one.module is not None
    seen = Seen(one.recorded, one.values, one.module)
    return readout_at(model, batch, outputs, model.site, seen, tail=tail, state=states[-1] if states else None)


def readout_at(
    model: "PretrainedClassifier",
    batch: Batch,
    outputs: Outputs,
    site: Site,
    seen: Seen,
    *,
    tail: ShortWay | None = None,
    upper: UpperLayers | None = None,
    state: Float[Tensor, "batch pieces hidden"] | None = None,
) -> Readout:
    """The map "attention per word → probabilities" of a batch, at any site.

    Args:
        site: whose rows are replaced.
        seen: that attention, as recorded.
        tail: what follows the last attention, where that is enough.
        upper: the layers above, where these are enough; neither: whole passes.
        state: what went into the site's layer, for either.
    """
    assert batch.piece_word is not None
    assert model.found is not None
    chosen = model.selection(batch, seen.weights.shape[1], site)
    lifting = Lifting(chosen.of(seen.weights), membership(batch.piece_word, batch.content), chosen.valid)
    call = site.call(model.found.calls)
    replacing = Replacing(model, batch, call, chosen, lifting, seen.weights, seen.values, upper, state)
    attention = outputs.attention.detach().double()
    decode: Callable[[Tensor], Tensor] = replacing.by_passes
    if tail is not None:
        assert state is not None
        decode = replacing.by_the_tail(tail, state)
    return Readout(
        attention=attention / attention.sum(-1, keepdim=True),
        content=outputs.content,
        example_id=batch.example_id,
        task=model.task,
        decode=decode,
        recorded=outputs.logits.detach().double(),
        activations=replacing.activations(whole=tail is None),
    )


def summed_of(model: "PretrainedClassifier", batch: Batch) -> Summed:
    """What the model's site sums up: of each of its heads the values, at the pooled row."""
    with torch.no_grad():
        one = model.recorded(batch)
    assert one.recorded is not None
    assert one.values is not None
    assert batch.piece_word is not None
    chosen = model.selection(batch, one.recorded.shape[1])
    values = one.values[:, chosen.heads]
    return Summed(chosen.of(one.recorded), values, batch.piece_word.clamp_min(-1), chosen.mask)


@dataclass(frozen=True)
class Replacing:
    """The rows of one batch, to be replaced.

    Attributes:
        call: the number of the attention in a pass.
        chosen: where the site's rows are in the attention's weights.
        lifting: from a weight per word to the site's rows.
        weights, values: as recorded: all of that attention, and what it sums up.
        upper, state: the layers from the site's on, and what went into it, where these are enough.
    """

    model: "PretrainedClassifier"
    batch: Batch
    call: int
    chosen: Selection
    lifting: Lifting
    weights: Float[Tensor, "batch heads queries pieces"]
    values: Float[Tensor, "batch heads pieces size"] | None
    upper: UpperLayers | None = None
    state: Float[Tensor, "batch pieces hidden"] | None = None

    def by_passes(self, attention: Float[Tensor, "*samples batch seq"]) -> Float[Tensor, "*samples batch classes"]:
        """Logits of the network with these rows at the site: whole passes, or those of the layers from the site's on."""
        rows = self.lifting(attention)
        shape, count = rows.shape[:-3], len(self.batch)
        rows = rows.flatten(0, -3)
        times = len(rows) // count
        many = self.batch.rows(torch.arange(count, device=rows.device).repeat(times))
        site = self.chosen.repeated(times)

        def put(own: Tensor) -> Tensor:
            return site.put(own, rows)

        if self.upper is None:
            logits = self.model.run(many, Pass(self.call, put))
        else:
            assert self.state is not None
            with self.upper.starting(self.call, self.state.repeat(times, 1, 1)):
                logits = self.model.run(many, Pass(0, put, first=self.call))
        return logits.double().unflatten(0, (*shape, count))

    def by_the_tail(self, tail: ShortWay, states: Float[Tensor, "batch pieces hidden"]) -> Callable[[Tensor], Tensor]:
        """The same from what follows the last attention: `states` went into its layer."""
        assert self.values is not None
        assert self.chosen.query is not None
        text = torch.arange(len(self.batch), device=states.device)
        own, values = self.weights[text, :, self.chosen.query], self.values
        state = states[text, self.chosen.query]
        piece = padded(self.batch, self.model.padding)[0][:, 0]

        def decode(attention: Tensor) -> Tensor:
            rows = self.lifting(attention).to(values.dtype)
            every = own.expand(*rows.shape[:-3], -1, -1, -1).clone()
            every[..., self.chosen.heads, :] = rows
            attended = torch.einsum("...bhk,bhkd->...bhd", every, values)
            shape = attended.shape[:-2]
            logits = tail(
                attended.flatten(0, -3),
                state.expand(*shape, -1).flatten(0, -2),
                piece.expand(shape).flatten(),
            )
            return logits[:, self.model.order].double().unflatten(0, shape)

        return decode

    def activations(self, *, whole: bool) -> int:
        """How many numbers are held for one attention of every text, about."""
        count, heads, _, pieces = self.weights.shape
        width = int(getattr(self.model.network.config, "hidden_size", 768))
        lifting = 4 * count * self.lifting.rows.shape[1] * (pieces + self.batch.ids.shape[1])
        passing = count * pieces * (8 * width + 4 * heads * pieces) if whole else 12 * count * width
        return lifting + passing


def padded(batch: Batch, padding: int) -> tuple[Int[Tensor, "batch pieces"], Bool[Tensor, "batch pieces"]]:
    """The pieces with this one as padding, and which are none.

    Raises:
        UserError: the batch has no pieces.
    """
    if batch.pieces is None or batch.piece_word is None:
        raise UserError(
            "this model reads pieces of words, and the batch has none: its data have to be read by it first"
        )
    mask = batch.piece_word != -2
    return torch.where(mask, batch.pieces, padding), mask
