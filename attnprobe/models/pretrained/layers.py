"""The attention of all layers at once, and what becomes of the states where a piece says nothing in one of them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from attnprobe.batch import Batch
from attnprobe.models.base import Layers
from attnprobe.models.pretrained.doors import Pass, Seen, during
from attnprobe.models.pretrained.replacing import padded

if TYPE_CHECKING:
    from attnprobe.models.pretrained.model import PretrainedClassifier


def arguments(model: "PretrainedClassifier", batch: Batch) -> dict[str, Tensor]:
    """What the network is given."""
    ids, mask = padded(batch, model.padding)
    kinds = {"token_type_ids": batch.piece_kind} if model.has_kinds and batch.piece_kind is not None else {}
    return {"input_ids": ids, "attention_mask": mask.long(), **kinds}


def word_of(model: "PretrainedClassifier", batch: Batch) -> Tensor:
    """The position of the word that each piece belongs to, −1 for what is no word of the text."""
    assert batch.piece_word is not None
    return batch.piece_word.clamp(min=-1)


def layers_of(model: "PretrainedClassifier", batch: Batch) -> Layers | None:
    """Every attention of a pass; None where one is over something else than the text's pieces (a decoder's, crossing)."""
    kept: list[Seen] = []
    with torch.no_grad():
        model.run(batch, Pass(keep=kept.append))
    assert batch.piece_word is not None
    size = batch.piece_word.shape[1]
    if model.network.config.is_encoder_decoder or any(one.weights.shape[-2:] != (size, size) for one in kept):
        return None
    chosen = model.selection(batch, kept[-1].weights.shape[1])
    return Layers([one.weights.double() for one in kept], chosen.query, chosen.mask, [True] * len(kept))


def states_silencing(model: "PretrainedClassifier", batch: Batch, layer: int | None, part: int) -> Sequence[Tensor]:
    """The network's hidden states. A value of 0 and a weight of 0 that nothing makes up for are the same."""

    def without(own: Tensor) -> Tensor:
        changed = own.clone()
        changed[..., part] = 0
        return changed

    one = Pass() if layer is None else Pass(layer, without)
    with torch.no_grad(), during(one):
        states: Sequence[Tensor] = model.network(**arguments(model, batch), output_hidden_states=True).hidden_states
    return states
