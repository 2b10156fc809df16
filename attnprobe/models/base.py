"""What a model is to everything that examines it: probes, importances and the run ask for nothing
else."""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from enum import StrEnum
from functools import partial
from typing import Any, ClassVar, NamedTuple, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attnprobe.core.batch import Batch, Outputs, Task
from attnprobe.core.errors import UserError
from attnprobe.core.oom_retry import Halving
from attnprobe.core.readout import Readout
from attnprobe.core.settings import Checked
from attnprobe.data.vocabulary import UNKNOWN
from attnprobe.models.linearised_layers import Linearised


class Unit(StrEnum):
    """What attention is spread over."""

    WORD = "word"
    SENTENCE = "sentence"


class AtSite(NamedTuple):
    """One of a model's attentions on one batch."""

    name: str
    outputs: Outputs
    readout: Readout


class Summed(NamedTuple):
    """What an attention does to a batch: it enters the prediction through Σ_t weight_rt · value_rt
    of each of its rows alone. `word` is the position of the word that a part belongs to, −1 for
    none; `attendable` says which parts may have weight."""

    weights: Float[Tensor, "batch rows parts"]
    values: Float[Tensor, "batch rows parts size"]
    word: Int[Tensor, "batch parts"]
    attendable: Bool[Tensor, "batch parts"]


class Layers(NamedTuple):
    """The self-attention of every layer on a batch, first layer first, all over the same parts.
    `row` is the part of each text whose state decides; None: the mean of all. `mask` says which
    parts are no padding, `adds_input` of each layer whether it adds its own input to what it
    attends to."""

    weights: Sequence[Float[Tensor, "batch heads parts parts"]]
    row: Int[Tensor, "batch"] | None
    mask: Bool[Tensor, "batch parts"]
    adds_input: Sequence[bool]


def membership(batch: Batch) -> Float[Tensor, "batch pieces seq"]:
    """1 where a piece belongs to a word of the text, else 0."""
    assert batch.piece_word is not None
    position = torch.arange(batch.content.shape[1], device=batch.content.device)
    return ((batch.piece_word.unsqueeze(-1) == position) & batch.content.unsqueeze(1)).double()


class Model(nn.Module, metaclass=Checked):
    """A text classifier whose attention can be replaced.

    Attributes:
        task: one class per text, or any subset of the labels.
        classes: their number, 2 or more.
        precision: what it is examined in: float64, unless the model is too large for that.
        unit: what a position of its attention is.
        sites: names of the attentions that can be meant, as tables call them; one unnamed where
            there is only one.
        tags: whether it gives a class to every word, of which a text comes with one that is asked
            about.
        has_layers: whether it is a stack of layers of self-attention, as far as is known before it
            has read a text.
        is_summed: whether `summed` is known, after `prepare`.
        halving: what splits a batch that does not fit into memory.
    """

    settings_place: ClassVar[str] = "model"

    task: Task
    classes: int
    precision: torch.dtype = torch.float64
    unit: Unit = Unit.WORD
    sites: Sequence[str] = ("",)
    has_layers: bool = False
    is_summed: bool = False
    tags: bool = False
    halving: Halving

    at_sites: Callable[[Batch], Iterator[AtSite]]
    """Of several `sites` each of these attentions on this batch, all of them seen in one pass of
    the model."""
    summed: Callable[[Batch, Outputs], Summed]
    """What the attention sums up, where `is_summed`."""
    states_silencing: Callable[
        [Batch, int | None, int], Sequence[Float[Tensor, "batch parts hidden"]]
    ]
    """Of a model with `layers` the states before the first layer and after each, where in one layer
    (None: in none) the value of one part counts as 0."""

    def layers(self, batch: Batch) -> Layers | None:
        """The attention of all layers; None for what is no stack of layers of self-attention."""
        linearised = self.linearised(batch)
        if isinstance(linearised, str):
            return None
        mixings = [one.mixing for one in linearised.blocks]
        return Layers(
            [one.weights for one in mixings],
            linearised.row,
            linearised.mask,
            [one.adds_input for one in mixings],
        )

    def linearised(self, batch: Batch) -> Linearised | str:
        """What its layers do to their vectors; else why that is not known."""
        return "it has no layers of self-attention"

    def forward(self, batch: Batch) -> Outputs:
        """Logits, attention and what else one pass leaves."""
        return self.outputs_from(batch)

    @abstractmethod
    def readout(self, batch: Batch, outputs: Outputs) -> Readout:
        """The frozen map "attention → probabilities" of this batch."""

    @abstractmethod
    def inputs(self, batch: Batch) -> Float[Tensor, "batch parts embed"]:
        """The vectors that gradients are taken at: one per word, or per piece of a word."""

    def per_position(
        self, batch: Batch, values: Float[Tensor, "batch parts"]
    ) -> Float[Tensor, "batch seq"]:
        """What belongs to the parts that `inputs` has, words or pieces of words, summed for each
        word."""
        if batch.piece_word is None:
            return values
        return torch.einsum("bp,bps->bs", values, membership(batch).to(values.dtype))

    def word_of(self, batch: Batch) -> Int[Tensor, "batch parts"]:
        """The position of the word that each part of `inputs` belongs to, −1 for what is no word of
        the text."""
        if batch.piece_word is not None:
            return batch.piece_word.clamp(min=-1)
        place = torch.arange(batch.ids.shape[1], device=batch.ids.device)
        return torch.where(batch.content, place, -1)

    @abstractmethod
    def outputs_from(
        self,
        batch: Batch,
        inputs: Float[Tensor, "batch parts embed"] | None = None,
        attention: Float[Tensor, "batch seq"] | None = None,
    ) -> Outputs:
        """As `forward`, on request with other vectors in the place of the text's own, and under
        another attention."""

    def scaled(self, batch: Batch) -> tuple[Float[Tensor, "batch parts"], Outputs]:
        """A factor of 1 for each of the `inputs`, and what `forward` gives where each is multiplied
        by its factor. Only to be differentiated by the factors, and by states on the way: the
        derivative is input · ∂/∂input."""
        inputs = self.inputs(batch).detach()
        scale = torch.ones_like(inputs[..., 0]).requires_grad_()
        return scale, self.outputs_from(batch, inputs * scale.unsqueeze(-1))

    def under(
        self,
        batch: Batch,
        scale: Float[Tensor, "batch parts"],
        outputs: Outputs,
        attention: Float[Tensor, "batch seq"],
    ) -> Outputs:
        """As `scaled`, under another attention; `outputs` are those that came with the factors: a
        model that need not compute again what lies before its attention takes it from there."""
        return self.outputs_from(
            batch, self.inputs(batch).detach() * scale.unsqueeze(-1), attention
        )

    def without(
        self, batch: Batch, example: Int[Tensor, "texts"], position: Int[Tensor, "texts"]
    ) -> Batch:
        """The texts of `example`, each without its token at `position`."""
        return batch.without(example, position)

    def masked(self, batch: Batch, gone: Bool[Tensor, "batch tokens"]) -> Batch:
        """The texts with the model's mask in the place of these words: the unknown word, or a
        tokenizer's mask token."""
        return replace(batch, ids=batch.ids.masked_fill(gone, UNKNOWN))

    def stages(self) -> dict[str, list[str]]:
        """The names of the parameters by the part that they belong to, parts from the output
        down."""
        found: dict[str, list[str]] = {}
        for name, _ in reversed(list(self.named_parameters())):
            found.setdefault(name.partition(".")[0], []).append(name)
        return found


Built = TypeVar("Built")


def build(place: str, part: Callable[..., Built], *given: Any, **facts: Any) -> Built:
    """Construct a configured part, called `place` in the settings (`model.encoder`): its class, or
    what Hydra makes of `_partial_: true`; `given` and `facts` follow from the data or the model.

    Raises:
        UserError: a configured class refuses its settings; what one that is passed in Python raises
            is raised as it is.
    """
    try:
        return part(*given, **facts)
    except (TypeError, ValueError, RuntimeError, AssertionError) as error:
        if isinstance(error, UserError) or not isinstance(part, partial):
            raise
        settings: dict[str, Any] = part.keywords
        named = [key for key in settings if key in str(error)] or list(settings)
        where = ", ".join(f"{place}.{key}={settings[key]!r}" for key in named) or place
        name = f"{part.func.__module__}.{part.func.__qualname__}"
        reason = " ".join(str(error).split()) or "no reason given"
        raise UserError(
            f"{where}: {name} cannot be constructed with {', '.join([*settings, *facts]) or 'these arguments'} "
            f"({type(error).__name__}: {reason[:400]}). HYDRA_FULL_ERROR=1 shows where"
        ) from error
