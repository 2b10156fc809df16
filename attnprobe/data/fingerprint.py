"""Whether two data sets are the same for whatever reads them."""

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Int

from attnprobe.data.batching import TextSplit
from attnprobe.data.examples import Ragged

SPELLED = ("question", "counterfactual")
"""Columns whose entries number words."""


def data_fingerprint(splits: Mapping[str, TextSplit], names: Sequence[str]) -> str:
    """Ten hexadecimal digits that stand for all that a model or a probe reads of the data.

    That is: the texts, with the words that the vocabulary lacks; every column of the batches; the
    vocabulary and the classes; and the order of all these.

    Args:
        splits: the encoded splits.
        names: the words of the vocabulary and the names of the classes.
    """
    digest = hashlib.sha256("\n".join(names).encode("utf-8", "surrogatepass"))
    for split, part in splits.items():
        flat = [part.words.flat]
        for name in SPELLED:
            column = part.columns.get(name)
            if isinstance(column, Ragged):
                flat.append(column.flat)
        numbers, words = in_order_of_appearance(np.concatenate(flat))
        spelling = "\0".join(part.spelling[word] for word in words)
        digest.update(f"\0{split}\0".encode() + spelling.encode("utf-8", "surrogatepass"))

        arrays = {"id": part.example_id, "texts": part.words.offsets, "words": numbers}
        for name, column in sorted(part.columns.items()):
            if isinstance(column, Ragged):
                arrays[f"{name} offsets"] = column.offsets
            if name not in SPELLED:  # their words follow the texts' words
                arrays[name] = column.flat if isinstance(column, Ragged) else column
        for name, array in arrays.items():
            # a name and a size before each: what one column loses another cannot gain unnoticed
            digest.update(f"\0{name}:{array.dtype.str}:{array.shape}\0".encode())
            digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()[:10]


def in_order_of_appearance(
    numbers: Int[np.ndarray, " tokens"],
) -> tuple[Int[np.ndarray, " tokens"], list[int]]:
    """Renumber words 0, 1, … as they first come.

    Words of rows that were left out must not change the numbers of the others.

    Args:
        numbers: the number of each word.

    Returns:
        The new numbers, and the old number that each new one stands for.

    >>> in_order_of_appearance(np.array([7, 3, 7, 9]))
    (array([0, 1, 0, 2]), [7, 3, 9])
    """
    distinct, first, place = np.unique(numbers, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return rank[place.ravel()], distinct[order].tolist()
