"""Planted shortcuts: words that decide the label of any data, so that its reason is known.

After Bastings et al. 2022, "Will You Find These Shortcuts?", section 3. Every row gets a class at
random, and words that say which: they are the rationale. The text around them is as it was and says
nothing about the label, because the label does not come from it.

Note:
    Bastings et al. plant into a part of the rows and keep the labels of the others; here the
    shortcut is in every row, so that it is all there is to be learnt.
"""

from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Int

from attnprobe.core.errors import UserError
from attnprobe.data.classes import class_numbers
from attnprobe.data.examples import Examples, Lexicon
from attnprobe.data.local_files import SPLITS
from attnprobe.data.passages import Passage, Passages
from attnprobe.data.settings import DataSettings

KINDS = ("token", "ordered_pair", "token_in_context")
"""What is planted:

- `token`: one word, another one for each class.
- `ordered_pair`: two words; which of them comes first is the class (two classes). Neither word says
  anything by itself.
- `token_in_context`: one of two words, somewhere after one of two context words; whether the two
  belong together is the class (two classes). No single word says anything.
"""

WORDS = (
    "zyxal",
    "quovim",
    "brelpa",
    "drondle",
    "fimbrak",
    "glastev",
    "horpid",
    "jextrum",
    "kravole",
    "lustrem",
)
CONTEXT = ("nembria", "oskalith")
PLANTED: dict[str, type] = {"rationale": np.bool_, "counterfactual": np.int32}
"""The columns over the words that planting replaces."""


def plant_shortcut(examples: dict[str, Examples], lexicon: Lexicon, settings: DataSettings) -> None:
    """Give every row a label at random, and put the words that say it into its text, in place.

    `rationale` becomes True at these words, and `counterfactual` the text with the words that say
    the next class.

    Args:
        examples: the rows by split; the splits are replaced.
        lexicon: numbers the words, and gets the planted ones.
        settings: `plant` says what is planted, `split_seed` decides labels and places.

    Raises:
        UserError: there are too many classes, or a planted word is in the data already.
    """
    kind = str(settings.plant)
    numbers, _ = class_numbers(examples, list(lexicon), settings)
    raw_labels: dict[int, str] = {}  # of each class the first
    for raw, number in numbers.items():
        raw_labels.setdefault(number, raw)
    classes = [raw_labels[number] for number in sorted(raw_labels)]
    _check_plant(kind, len(classes), lexicon)

    for split, part in examples.items():
        rows = []
        for example_id, row in zip(part.index.tolist(), part.to_dict("records"), strict=True):
            # a row's label, words and places do not depend on what else is in the split
            seed = (settings.split_seed, 10 + SPLITS.index(split), example_id)
            draw = np.random.default_rng(seed)
            label = int(draw.integers(len(classes)))
            words, next_words = planted_words(kind, label, len(classes), draw)
            planted = _planted_row(
                row, lexicon.numbers(words), lexicon.numbers(next_words), draw, settings.max_tokens
            )
            rows.append(planted | {"labels": [classes[label]]})
        if settings.verbatim:
            spelling = list(lexicon)
            for row in rows:
                row["passages"] = _planted_passages(row, spelling)
        examples[split] = pd.DataFrame(rows, index=part.index)


def _check_plant(kind: str, classes: int, lexicon: Lexicon) -> None:
    most = len(WORDS) if kind == "token" else 2
    if classes > most:
        raise UserError(
            f"data.plant={kind} is for at most {most} classes, these data have {classes}: choose "
            f"two with data.labels and data.unseen_labels=drop, or data.plant=token"
        )
    for word in (*WORDS, *CONTEXT):
        if word in lexicon:
            raise UserError(
                f"data.plant={kind}: the word {word} is in the data already, so it cannot be a "
                f"shortcut"
            )


def _planted_row(
    row: dict[Any, Any],
    words: Int[np.ndarray, " planted"],
    next_words: Int[np.ndarray, " planted"],
    draw: np.random.Generator,
    limit: int | None,
) -> dict[Any, Any]:
    """A row with words put into its text, at random places but in their order.

    Args:
        row: the row.
        words: numbers of the words.
        next_words: numbers of the words that stand in their places in the counterfactual.
        draw: decides the places.
        limit: the text is cut so that with the planted words it has no more tokens than this.
    """
    room = None if limit is None else max(limit - len(words), 0)
    text = row["words"][:room]
    places = np.sort(draw.integers(0, len(text) + 1, len(words)))
    per_word = {
        "rationale": np.insert(np.zeros(len(text), bool), places, True),
        "counterfactual": np.insert(text, places, next_words),
    }
    for name, values in row["per_word"].items():
        if name in PLANTED:
            continue
        entries: Any = np.nan  # a planted word has no number
        if name in ("sentence", "segment"):  # it belongs to its neighbour's sentence or text
            entries = values[np.maximum(places - 1, 0)]
        per_word[name] = np.insert(values[: len(text)], places, entries)
    return row | {
        "words": np.insert(text, places, words),
        "length": row["length"] + len(words),
        "per_word": per_word,
    }


def _planted_passages(row: dict[Any, Any], spelling: list[str]) -> Passages:
    """The texts of a row with what was planted, their words joined by spaces."""
    passages: Passages = row["passages"]
    segment = row["per_word"].get("segment", np.zeros(len(row["words"])))
    texts = list(passages.texts)
    for number in passages.attended:
        words = [spelling[word] for word in row["words"][segment == number].tolist()]
        texts[number] = Passage.of_words(words)
    return Passages(tuple(texts), passages.attended)


def planted_words(
    kind: str, label: int, classes: int, draw: np.random.Generator
) -> tuple[list[str], list[str]]:
    """The words that say a class.

    Args:
        kind: one of `KINDS`.
        label: number of the class.
        classes: number of classes.
        draw: chooses the context word.

    Returns:
        The words that say the class, in the order of the text; and those that say the next class,
        which after the last one is the first.
    """
    word = WORDS[label]
    next_word = WORDS[(label + 1) % classes]
    if kind == "token":
        return [word], [next_word]
    if kind == "ordered_pair":
        return [word, next_word], [next_word, word]
    first = int(draw.integers(2))
    context = CONTEXT[first]
    partner = WORDS[first]
    stranger = WORDS[1 - first]
    if label:
        return [context, partner], [context, stranger]
    return [context, stranger], [context, partner]
