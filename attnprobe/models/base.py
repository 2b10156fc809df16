"""What a model is to all that examines it: probes, importances and the run ask for nothing else."""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from functools import partial
from itertools import chain
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
    """The sums by which an attention enters the prediction.

    They are Σ_t weight_rt · value_rt of each of its rows r, and the attention enters by nothing
    else.

    Attributes:
        weights: the attention.
        values: the vectors that it weights.
        word: the position of the word that a part belongs to, −1 for none.
        attendable: the parts that may have weight.
    """

    weights: Float[Tensor, "batch rows parts"]
    values: Float[Tensor, "batch rows parts size"]
    word: Int[Tensor, "batch parts"]
    attendable: Bool[Tensor, "batch parts"]


class Layers(NamedTuple):
    """The self-attention of every layer on a batch, first layer first, all over the same parts.

    Attributes:
        weights: of each layer.
        row: the part of each text whose state decides; None: the mean of all.
        mask: the parts that are not padding.
        adds_input: of each layer, whether it adds its own input to what it attends to.
    """

    weights: Sequence[Float[Tensor, "batch heads parts parts"]]
    row: Int[Tensor, "batch"] | None
    mask: Bool[Tensor, "batch parts"]
    adds_input: Sequence[bool]


def membership(batch: Batch) -> Float[Tensor, "batch pieces seq"]:
    """1 where a piece belongs to a word of the text, else 0."""
    assert batch.piece_word is not None
    position = torch.arange(batch.content.shape[1], device=batch.content.device)
    belongs = batch.piece_word.unsqueeze(-1) == position
    return (belongs & batch.content.unsqueeze(1)).double()


class Model(nn.Module, metaclass=Checked):
    """A text classifier whose attention can be replaced.

    Attributes:
        task: one class per text, or any subset of the labels.
        classes: their number, 2 or more.
        precision: what it is examined in: float64, unless the model is too large for that.
        unit: what a position of its attention is.
        gathers_words: it attends to words, and its attention is looked at over their sentences.
        sites: names of the attentions that can be examined, as tables call them; one unnamed where
            there is only one.
        has_layers: whether it is a stack of layers of self-attention, as far as is known before it
            has read a text.
        is_summed: whether `summed` is known, after `prepare`.
        tags: it labels every word, and predicts the class of one queried word per text.
        removal: how `without` takes a word away: `delete`, or `mask` where a mask is put in its
            place.
        mask: the number of the word, or of the piece where it reads pieces, that stands for a
            masked one; None: its tokenizer has none.
        halving: what splits a batch that does not fit into memory.
    """

    settings_place: ClassVar[str] = "model"

    task: Task
    classes: int
    precision: torch.dtype = torch.float64
    unit: Unit = Unit.WORD
    gathers_words: bool = False
    sites: Sequence[str] = ("",)
    has_layers: bool = False
    is_summed: bool = False
    tags: bool = False
    removal: str = "delete"
    mask: int | None = UNKNOWN
    halving: Halving

    at_sites: Callable[[Batch], Iterator[AtSite]]
    """The attention at each of several `sites` on this batch, all from one pass of the model."""
    summed: Callable[[Batch, Outputs], Summed]
    """The sums by which the attention enters the prediction; only where `is_summed`."""
    states_silencing: Callable[
        [Batch, int | None, int], Sequence[Float[Tensor, "batch parts hidden"]]
    ]
    """States before the first layer and after each, where in one layer (None: in none) the value of
    one part counts as 0; only of a model with `layers`."""

    def layers(self, batch: Batch) -> Layers | None:
        """The attention of all layers; None of a model that is no stack of self-attention."""
        linearised = self.linearised(batch)
        if isinstance(linearised, str):
            return None
        mixings = [block.mixing for block in linearised.blocks]
        return Layers(
            weights=[mixing.weights for mixing in mixings],
            row=linearised.row,
            mask=linearised.mask,
            adds_input=[mixing.adds_input for mixing in mixings],
        )

    def linearised(self, batch: Batch) -> Linearised | str:
        """What its layers do to their vectors on this batch; else why that is not known."""
        return "it has no layers of self-attention"

    @contextmanager
    def precisely(self) -> Iterator[None]:
        """Hold the weights in the precision that the model is examined in; then they are as before.

        Float32 sums depend on an example's batch in their last digits, and a search of 500 steps
        turns these into first digits. No autocast and no inference mode of a trainer counts inside,
        and no gradient is recorded unless it is asked for.
        """
        dtypes = {
            name: tensor.dtype for name, tensor in self._weights() if tensor.is_floating_point()
        }
        device = next((tensor.device.type for _, tensor in self._weights()), "cpu")
        changes = any(dtype is not self.precision for dtype in dtypes.values())
        with (
            torch.inference_mode(False),
            torch.no_grad(),
            torch.autocast(device, enabled=False),
        ):
            try:
                if changes:
                    self.to(self.precision)
                yield
            finally:
                if changes and len(set(dtypes.values())) == 1:
                    self.to(next(iter(dtypes.values())))
                elif changes:
                    for name, tensor in self._weights():
                        if name in dtypes:
                            tensor.data = tensor.data.to(dtypes[name])

    def _weights(self) -> Iterator[tuple[str, Tensor]]:
        """Parameters and buffers by name."""
        return chain(self.named_parameters(), self.named_buffers())

    def predict(self, batch: Batch) -> Outputs:
        """Run the model on as many examples at a time as fit into memory."""
        parts = self.halving("prediction", batch, lambda rows: self(batch.rows(rows)))
        return Outputs.joined(parts)

    def forward(self, batch: Batch) -> Outputs:
        """Logits, attention and what else one pass leaves."""
        return self.outputs_from(batch)

    def outputs_of_repeated_words(self, batch: Batch) -> Outputs:
        """As `forward`, of a batch in which few words stand in many places.

        Only without gradients.
        """
        return self(batch)

    @abstractmethod
    def readout(self, batch: Batch, outputs: Outputs) -> Readout:
        """The frozen map "attention → probabilities" of this batch."""

    @abstractmethod
    def inputs(self, batch: Batch) -> Float[Tensor, "batch parts embed"]:
        """The vectors that gradients are taken at: one per word, or per piece of a word."""

    def per_position(
        self,
        batch: Batch,
        values: Float[Tensor, "batch parts"],
    ) -> Float[Tensor, "batch seq"]:
        """Sum numbers of the parts that `inputs` has for each position of the attention.

        Parts are words, or pieces of words; a position is a word, or a sentence.
        """
        if batch.piece_word is not None:
            values = torch.einsum("bp,bps->bs", values, membership(batch).to(values.dtype))
        if self.unit is Unit.WORD:
            return values
        position = self.position_of(batch)
        sums = values.new_zeros(len(batch), int(position.max()) + 2)
        # what is in no sentence (−1) has a column of its own, which is left out
        return sums.scatter_add(1, position + 1, values)[:, 1:]

    def position_of_part(self, batch: Batch) -> Int[Tensor, "batch parts"]:
        """The position of its attention that each part of `inputs` belongs to, −1 for none."""
        word = self.word_of(batch)
        position = self.position_of(batch).gather(1, word.clamp(min=0))
        return torch.where(word >= 0, position, -1)

    def word_of(self, batch: Batch) -> Int[Tensor, "batch parts"]:
        """The position of the word that each part of `inputs` belongs to, −1 for none."""
        if batch.piece_word is not None:
            return batch.piece_word.clamp(min=-1)
        return Model.position_of(self, batch)

    def position_of(self, batch: Batch) -> Int[Tensor, "batch tokens"]:
        """The position of its attention that each word is part of, −1 for none.

        Of a model that is looked at over words it is the word's own, else that of its sentence.
        """
        position = torch.arange(batch.ids.shape[1], device=batch.ids.device)
        return torch.where(batch.content, position, -1)

    @abstractmethod
    def outputs_from(
        self,
        batch: Batch,
        inputs: Float[Tensor, "batch parts embed"] | None = None,
        attention: Float[Tensor, "batch seq"] | None = None,
    ) -> Outputs:
        """Run the model, if asked for with parts of the computation replaced.

        Args:
            batch: the texts.
            inputs: vectors in place of the texts' own; None: the texts' own.
            attention: an attention in place of the model's; None: the model's.
        """

    def scaled(self, batch: Batch) -> tuple[Float[Tensor, "batch parts"], Outputs]:
        """Run the model on inputs each of which is multiplied by a factor of 1.

        Only to be differentiated by the factors, and by states on the way: the derivative by a
        factor is input · ∂/∂input.

        Returns:
            The factors, and the outputs.
        """
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
        """Run the model as `scaled` does, under another attention.

        Args:
            batch: the texts.
            scale: the factors that `scaled` returned.
            outputs: the outputs that `scaled` returned. A model that need not compute again what
                comes before its attention takes it from there.
            attention: the other attention.
        """
        inputs = self.inputs(batch).detach() * scale.unsqueeze(-1)
        return self.outputs_from(batch, inputs, attention)

    def without(
        self,
        batch: Batch,
        example: Int[Tensor, "texts"],
        position: Int[Tensor, "texts"],
    ) -> Batch:
        """The texts of `example`, each without its token at `position`, and that token's pieces."""
        return batch.without(example, position)

    def reread(self, batch: Batch) -> Batch:
        """A batch from which words were removed, as the model reads what is left of its texts.

        It reads them as they are, unless it has a tokenizer that is to read them again.
        """
        return batch

    def masked(self, batch: Batch, words: Bool[Tensor, "batch tokens"]) -> Batch:
        """Put the model's mask in place of these words, or of each of their pieces.

        Raises:
            UserError: the model's tokenizer has no mask token.
        """
        if self.mask is None:
            raise UserError(
                "this model's tokenizer has no mask token, which training=masked and the operator "
                "mask put in a word's place: take another training, and operators without mask"
            )
        if batch.pieces is None:
            return replace(batch, ids=batch.ids.masked_fill(words, self.mask))
        pieces = batch.pieces.masked_fill(batch.parts_of(words), self.mask)
        return replace(batch, pieces=pieces)

    def stages(self) -> dict[str, list[str]]:
        """Names of parameters by the part that they belong to, parts from the output down."""
        stages: dict[str, list[str]] = {}
        for name, _ in reversed(list(self.named_parameters())):
            stages.setdefault(name.partition(".")[0], []).append(name)
        return stages


Built = TypeVar("Built")


def build(place: str, part: Callable[..., Built], *arguments: Any, **facts: Any) -> Built:
    """Construct a configured part of a model or of its training.

    Args:
        place: where the part stands in the settings, such as `model.encoder`.
        part: its class, or what Hydra makes of `_partial_: true`.
        *arguments: what follows from the data or the model.
        **facts: the same, by name.

    Raises:
        UserError: a configured class refuses its settings. What a class that is passed in Python
            raises is raised as it is.
    """
    try:
        return part(*arguments, **facts)
    except (TypeError, ValueError, RuntimeError, AssertionError) as error:
        if isinstance(error, UserError) or not isinstance(part, partial):
            raise
        settings: dict[str, Any] = part.keywords
        named = [key for key in settings if key in str(error)] or list(settings)
        setting = ", ".join(f"{place}.{key}={settings[key]!r}" for key in named) or place

        name = f"{part.func.__module__}.{part.func.__qualname__}"
        keywords = ", ".join([*settings, *facts]) or "these arguments"
        reason = " ".join(str(error).split())[:400] or "no reason given"
        raise UserError(
            f"{setting}: {name} cannot be constructed with {keywords} "
            f"({type(error).__name__}: {reason}). HYDRA_FULL_ERROR=1 shows where"
        ) from error
