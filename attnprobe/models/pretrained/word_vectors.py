"""Word vectors of a pretrained encoder: a start for models that read one word after another."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.core.errors import UserError, reason_of
from attnprobe.models.pretrained.checkpoint import open_encoder
from attnprobe.results.files import write_atomically

BATCH = 256
"""Words that are encoded at a time."""
LONGEST = 32
"""Pieces of a word that are read; what is longer is no word but a number, a link or a row of marks.
"""


@dataclass(frozen=True)
class WordVectors:
    """Words and their vectors, as a file of vectors has them.

    Attributes:
        words: those of which the encoder's tokenizer knows a piece.
        vectors: float32, a row per word.
    """

    words: list[str]
    vectors: Float[Tensor, "words size"]

    def save(self, path: Path) -> None:
        """Write `word value value …`, a word a line, after fastText's line `count size`.

        The file is there whole or not at all.
        """

        def write(target: Path) -> None:
            with target.open("w", encoding="utf-8", newline="\n") as file:
                file.write(f"{len(self.words)} {self.vectors.shape[1]}\n")
                for word, vector in zip(self.words, self.vectors.tolist(), strict=True):
                    file.write(" ".join([word, *(f"{value:.6g}" for value in vector)]) + "\n")

        write_atomically(path, write)


def word_vectors(
    words: Sequence[str], encoder: str, *, size: int | None = None, offline: bool = False
) -> WordVectors:
    """Encode every word by itself: the mean of the encoder's last states over the word's pieces.

    Args:
        words: each a text of its own.
        encoder: a folder as `save_pretrained` writes it, or a name on the hub.
        size: take the first so many principal components; None: the states as they are.
        offline: never use the network.

    Raises:
        UserError: the encoder cannot be opened or does not encode words, knows none of them, or has
            fewer states than `size`.
    """
    tokenizer, network = open_encoder(encoder, offline=offline)
    starts = range(0, len(words), BATCH)
    try:
        batches = [
            _mean_states(words[start : start + BATCH], tokenizer, network) for start in starts
        ]
    except Exception as error:  # no padding piece; a network that needs more than a text
        reason = reason_of(error)
        raise UserError(
            f"--encoder {encoder}: its states of words cannot be computed ({reason}): expected an "
            f"encoder of texts, such as sentence-transformers/all-MiniLM-L6-v2"
        ) from error
    states = torch.cat(batches)
    is_known = ~states.isnan().any(1)
    known_words = [word for word, known in zip(words, is_known.tolist(), strict=True) if known]
    if not known_words:
        raise UserError(f"--encoder {encoder}: it knows none of the {len(words):,} words")
    states = states[is_known]

    if size is None:
        return WordVectors(known_words, states)
    if not 1 <= size <= min(states.shape):
        raise UserError(
            f"--size {size}: expected 1 to {min(states.shape)}, as {encoder} has "
            f"{states.shape[1]} numbers a word and knows {len(known_words):,} words"
        )
    return WordVectors(known_words, principal_components(states, size))


@torch.no_grad()
def _mean_states(
    words: Sequence[str], tokenizer: Any, network: Any
) -> Float[Tensor, "words states"]:
    """The words' mean states, special pieces left out; NaN where nothing else is left."""
    pieces = tokenizer(
        list(words),
        padding=True,
        truncation=True,
        max_length=LONGEST,
        return_tensors="pt",
    )
    is_own = ~torch.isin(pieces["input_ids"], torch.tensor(tokenizer.all_special_ids))
    states: Tensor = network(**pieces).last_hidden_state
    total = (states * is_own[..., None]).sum(1)
    return total / is_own.sum(1, keepdim=True)


def principal_components(
    states: Float[Tensor, "words states"], size: int
) -> Float[Tensor, "words size"]:
    """The coordinates along the directions of largest variance, about the mean, largest first.

    Their scale is that of the states, so that distances between words are kept as well as `size`
    numbers can.
    """
    centred = (states - states.mean(0)).double()
    directions = torch.linalg.eigh(centred.T @ centred).eigenvectors.flip(1)
    return (centred @ directions[:, :size]).to(states.dtype)
