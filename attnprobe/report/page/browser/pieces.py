"""The pieces of words that a pretrained model reads, and their weights, for the browser: shown on demand, below the words."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Bool, Float, Int, UInt

from attnprobe.report.page.browser.packing import Blocks, Part, quantised
from attnprobe.report.page.browser.texts import Vocabulary, lengths_of, starts
from attnprobe.results.checksums import damaged
from attnprobe.results.directory import RunDirectory, examples_file

COLUMNS = {
    "pieces": pa.list_(pa.string()),
    "piece_word": pa.list_(pa.int32()),
    "piece_attention": pa.list_(pa.float32()),
}
"""Of the examples' table, where a model reads pieces."""
PER_PIECE = 3
"""Numbers that a piece takes in the page: which it is, the word that it belongs to, and its weight."""


@dataclass(frozen=True)
class Pieces:
    """The pieces of all texts in a row, special tokens included.

    Attributes:
        lengths: of each text.
        piece: their numbers in `vocabulary`.
        word: the word of the text that each belongs to, from 0; −1: it belongs to none.
        weight: what the model's attention gives to each, 0 to 1; of a text they sum to 1.
        vocabulary: the pieces, as the tokenizer writes them.
    """

    lengths: UInt[np.ndarray, " examples"]
    piece: UInt[np.ndarray, " pieces"]
    word: Int[np.ndarray, " pieces"]
    weight: Float[np.ndarray, " pieces"]
    vocabulary: list[str]

    def add(
        self,
        blocks: Blocks,
        number: int,
        kept: Bool[np.ndarray, " examples"],
        stretches: Sequence[tuple[int, int]],
        bits: int,
    ) -> dict[str, str]:
        """Pack them, the names of the pieces by themselves; returns what the index says of them.

        Args:
            blocks: of the page.
            number: of the run.
            kept: which examples have their weights in the page.
            stretches: `[first, stop)` of the kept ones, for a block each.
            bits: of a weight, 8 or 16.
        """
        names, name = f"pieces-{number}", f"maps-{number}-pieces"
        blocks.add(names, [], {"vocabulary": self.vocabulary})
        rows, begin = np.flatnonzero(kept), starts(self.lengths)
        kind = "u2" if len(self.vocabulary) < 2**16 else "u4"
        for place, (first, stop) in enumerate(stretches):
            own = rows[first:stop]
            there = np.concatenate([np.arange(begin[row], begin[row] + self.lengths[row]) for row in own])
            blocks.add(
                f"{name}-{place}",
                [
                    Part.of("lengths", self.lengths[own]),
                    Part.of("piece", self.piece[there].astype(kind)),
                    Part.of("word", self.word[there]),
                    Part.of("weights", quantised(self.weight[there], bits)),
                ],
            )
        return {"names": names, "block": name}


def read_pieces_of(run: RunDirectory, split: str, items: UInt[np.ndarray, " examples"]) -> Pieces | None:
    """The pieces of a run's texts; None where its model reads whole words, or it is older than they are.

    Args:
        run: the run.
        split: whose examples.
        items: words of each text.

    Raises:
        DamagedRun: the columns do not belong together, or name a word that the text does not have.
    """
    schema = run.example_columns(split)
    if "piece_attention" not in schema.names:
        return None
    path = run.file(examples_file(split))
    if any(name not in schema.names or schema.field(name).type != kind for name, kind in COLUMNS.items()):
        raise damaged(path, "its columns of pieces are not those of a run")
    vocabulary = Vocabulary()
    lengths, piece = [np.zeros(0, np.uint32)], [np.zeros(0, np.uint32)]
    word, weight = [np.zeros(0, np.int32)], [np.zeros(0)]
    for some in run.example_pieces(split, list(COLUMNS)):
        counts = [lengths_of(some[name]) for name in COLUMNS]
        flat = [pc.list_flatten(some[name]) for name in COLUMNS]
        if any((one != counts[0]).any() for one in counts) or any(values.null_count for values in flat):
            raise damaged(path, "a text's pieces, their words and their weights are not equally many")
        lengths.append(counts[0])
        piece.append(vocabulary.encoded(flat[0]))
        word.append(flat[1].to_numpy())
        weight.append(flat[2].to_numpy().astype(np.float64))
    found = Pieces(
        np.concatenate(lengths),
        np.concatenate(piece),
        np.concatenate(word),
        np.concatenate(weight),
        list(vocabulary.numbers),
    )
    words = np.repeat(items.astype(np.int64), found.lengths)
    if (found.word < -1).any() or (found.word >= words).any():
        raise damaged(path, "a piece belongs to a word that its text does not have")
    if not ((found.weight >= 0) & (found.weight <= 1 + 1e-5)).all():
        raise damaged(path, "a piece's weight is not within 0 and 1")
    return found
