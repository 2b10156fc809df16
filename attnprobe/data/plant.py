"""Planted shortcuts: words that decide the label of any data, so that the reason for every label is known.

After Bastings et al. 2022, *"Will You Find These Shortcuts?"*, section 3. Every row gets a class at random, and words that
say which: they are the rationale. The text around them is as it was and says nothing about the label, because the label
does not come from it. No text is longer than before by more than the planted words.

Note:
    Bastings et al. plant into a part of the rows and keep the labels of the others; here the shortcut is in every row,
    so that it is all there is to be learnt.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Int

from attnprobe.data.examples import Examples, Lexicon
from attnprobe.data.ragged import Ragged
from attnprobe.errors import UserError

KINDS = ("token", "ordered_pair", "token_in_context")
"""What is planted:

- `token`: one word, another one for each class;
- `ordered_pair`: two words; which of them comes first is the class (two classes). Either word alone says nothing;
- `token_in_context`: one of two words, somewhere after one of two context words: the class is whether the two belong
  together (two classes). No single word says anything."""

WORDS = ("zyxal", "quovim", "brelpa", "drondle", "fimbrak", "glastev", "horpid", "jextrum", "kravole", "lustrem")
CONTEXT = ("nembria", "oskalith")
OWN: dict[str, type] = {"rationale": np.bool_, "counterfactual": np.int32}
"""What planting knows of every word."""


def planted_words(kind: str, label: int, classes: int, draw: np.random.Generator) -> list[str]:
    """The words that say this class, in the order in which they occur in the text."""
    if kind == "token":
        return [WORDS[label]]
    if kind == "ordered_pair":
        return [WORDS[label], WORDS[1 - label]]
    first = int(draw.integers(2))
    return [CONTEXT[first], WORDS[first if label else 1 - first]]


def contradicted(kind: str, words: Sequence[str], classes: int = 2) -> list[str]:
    """The words that say the next class: of two the other one, of more the one after it, and after the last the first.

    >>> contradicted("token", ["brelpa"], classes=3)
    ['zyxal']
    >>> contradicted("ordered_pair", ["zyxal", "quovim"])
    ['quovim', 'zyxal']
    >>> contradicted("token_in_context", ["nembria", "quovim"])
    ['nembria', 'zyxal']
    """
    if kind == "ordered_pair":
        return list(reversed(words))
    return [*words[:-1], WORDS[(WORDS.index(words[-1]) + 1) % classes]]


def check_plant(kind: str, classes: Sequence[str], lexicon: Mapping[str, int]) -> None:
    """Refuse what cannot be planted.

    Raises:
        UserError: too many classes, or a planted word is in the data already.
    """
    most = len(WORDS) if kind == "token" else 2
    if len(classes) > most:
        raise UserError(
            f"data.plant={kind} is for at most {most} classes, these data have {len(classes)}: choose two with data.labels "
            f"and data.unseen_labels=drop, or data.plant=token"
        )
    if there := [word for word in (*WORDS, *CONTEXT) if word in lexicon]:
        raise UserError(f"data.plant={kind}: the word {there[0]} is in the data already, so it cannot be a shortcut")


def plant(
    kind: str, examples: Examples, classes: Sequence[str], lexicon: Lexicon, seed: tuple[int, ...], limit: int | None
) -> Examples:
    """The same examples with other labels and the words that say them, at random places.

    Args:
        kind: one of `KINDS`.
        examples: one split.
        classes: the raw labels that are drawn from, all equally likely.
        lexicon: gets the planted words.
        seed: with the example's id it decides its label, words and places, whatever else is in the split.
        limit: texts are cut so that with the planted words they have no more than this many tokens.

    Returns:
        the examples, with `rationale` in `per_word`, True at the planted words, and `counterfactual`, the same text with
        the words that say the next class.
    """
    words, labels, length = [], [], []
    per_word: dict[str, list[np.ndarray]] = {name: [] for name in (*examples.per_word, *OWN)}
    for row, example_id in enumerate(examples.example_id.tolist()):
        draw = np.random.default_rng((*seed, example_id))
        label = int(draw.integers(len(classes)))
        spoken = planted_words(kind, label, len(classes), draw)
        said = lexicon.numbers(spoken)
        old = examples.words[row][: None if limit is None else max(limit - len(said), 0)]
        places = np.sort(draw.integers(0, len(old) + 1, len(said)))
        words.append(np.insert(old, places, said))
        labels.append([classes[label]])
        length.append(int(examples.length[row]) + len(said))
        for name, values in examples.per_word.items():
            if name not in OWN:
                per_word[name].append(widened(values[row][: len(old)], places, name))
        per_word["rationale"].append(np.insert(np.zeros(len(old), bool), places, True))
        other = lexicon.numbers(contradicted(kind, spoken, len(classes)))
        per_word["counterfactual"].append(np.insert(old, places, other))
    kinds = {name: values.flat.dtype.type for name, values in examples.per_word.items()} | OWN
    return replace(
        examples,
        words=Ragged.of(words, np.int32),
        length=np.array(length, np.int64),
        labels=labels,
        per_word={name: Ragged.of(values, kinds[name]) for name, values in per_word.items()},
    )


def widened(values: np.ndarray, places: Int[np.ndarray, " planted"], name: str) -> np.ndarray:
    """A column over the words with entries for the planted ones: the sentence of a neighbour, and else no number."""
    if not len(values):
        return values
    if name == "sentence":
        return np.insert(values, places, values[np.maximum(places - 1, 0)])
    return np.insert(values, places, np.nan)
