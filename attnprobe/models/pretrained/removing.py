"""Texts without some of their words, as a pretrained model reads them."""

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from attnprobe.batch import Batch
from attnprobe.errors import UserError

if TYPE_CHECKING:
    from attnprobe.models.pretrained.model import PretrainedClassifier


def without_word(
    batch: Batch, example: Int[Tensor, "texts"], position: Int[Tensor, "texts"], mask: int | None
) -> Batch:
    """The texts of `example`, each without the word at `position`.

    Args:
        batch: with pieces.
        mask: the piece that stands in the word's place; None: its pieces are gone, and the others move up.
    """
    many = batch.rows(example)
    assert many.pieces is not None
    assert many.piece_word is not None
    assert many.piece_kind is not None
    of_word = many.piece_word == position.unsqueeze(1)
    if mask is not None:
        # the word stays, so that nothing moves
        return replace(many, pieces=torch.where(of_word, mask, many.pieces))
    shorter = batch.without(example, position)
    # the others move up, in their order, and padding fills the end
    order = of_word.long().argsort(dim=1, stable=True)
    gone = of_word.gather(1, order)
    word = many.piece_word - (many.piece_word > position.unsqueeze(1)).long()
    return replace(
        shorter,
        pieces=many.pieces.gather(1, order).masked_fill(gone, 0),
        piece_word=word.gather(1, order).masked_fill(gone, -2),
        piece_kind=many.piece_kind.gather(1, order).masked_fill(gone, 0),
    )


def masked(model: "PretrainedClassifier", batch: Batch, gone: Bool[Tensor, "batch tokens"]) -> Batch:
    """The texts with the tokenizer's mask token in the place of every piece of these words.

    Raises:
        UserError: it has none.
    """
    if model.mask is None:
        raise UserError(
            f"model.path={model.path}: its tokenizer has no mask token, which training=masked and the operator mask put in a "
            f"word's place: take another training, and operators without mask"
        )
    assert batch.pieces is not None
    assert batch.piece_word is not None
    of_gone = gone.gather(1, batch.piece_word.clamp(min=0)) & (batch.piece_word >= 0)
    return replace(batch, pieces=batch.pieces.masked_fill(of_gone, model.mask))
