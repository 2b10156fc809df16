"""Whether two data sets are the same for whatever reads them."""

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Int

from attnprobe.data.batching import TextSplit
from attnprobe.data.ragged import Ragged

SPELLED = ("question", "counterfactual")
"""Columns whose entries are words."""


def data_fingerprint(splits: Mapping[str, TextSplit], names: Sequence[str]) -> str:
    """Ten hexadecimal digits that stand for all that a model or a probe reads of the data: the texts with the words that
    the vocabulary lacks, every column of the batches, and the order of all these.

    Args:
        splits: the examples.
        names: the vocabulary and the classes, in order.
    """
    digest = hashlib.sha256("\n".join(names).encode("utf-8", "surrogatepass"))
    for split, part in splits.items():
        spelled_columns = [part.columns.get(name) for name in SPELLED]
        flat = [part.words.flat, *(column.flat for column in spelled_columns if isinstance(column, Ragged))]
        numbers, spelled = in_order_of_appearance(np.concatenate(flat))
        spelling = "\0".join(part.spelling[number] for number in spelled)
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
    """The numbers renamed 0, 1, … as they first come, and which number each new name stands for: words of rows that were
    left out must not change what the others are called.

    >>> in_order_of_appearance(np.array([7, 3, 7, 9]))
    (array([0, 1, 0, 2]), [7, 3, 9])
    """
    distinct, first, place = np.unique(numbers, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return rank[place.ravel()], distinct[order].tolist()
