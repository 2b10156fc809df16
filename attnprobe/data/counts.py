"""What is counted in a split's texts, word by word."""

import numpy as np
from jaxtyping import Bool, Float, Int

from attnprobe.data.batching import TextSplit


def document_counts(
    part: TextSplit, words: int, of: Bool[np.ndarray, " rows"] | None = None
) -> Int[np.ndarray, " vocabulary"]:
    """In how many texts of a split each word of the vocabulary is; `of`: only in these texts."""
    counts = np.zeros(words, np.int64)
    for row in range(len(part)) if of is None else np.flatnonzero(of).tolist():
        counts[np.unique(part.vocabulary_id[part.words[row]])] += 1
    return counts


def log_odds_ratios(part: TextSplit, words: int, classes: int) -> Float[np.ndarray, "vocabulary classes"]:
    """Of each word of the vocabulary and each class (or label), ln of the odds that a text of the class has the word over the
    odds that a text of another class has it, each count with ½ added (Haldane 1956)."""
    columns = []
    for number in range(classes):
        of_class = part.labels[:, number] > 0.5 if part.labels.ndim == 2 else part.labels == number
        logits = []
        for chosen in (of_class, ~of_class):
            there = document_counts(part, words, chosen)
            logits.append(np.log((there + 0.5) / (chosen.sum() - there + 0.5)))
        columns.append(logits[0] - logits[1])
    return np.stack(columns, -1)
