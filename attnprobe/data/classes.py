"""Which class each raw answer is, wherever the classes come from."""

from collections.abc import Sequence

from attnprobe.data import rows
from attnprobe.data.examples import Examples
from attnprobe.data.settings import DataSettings
from attnprobe.data.vocabulary import SPECIAL, Vocabulary, build_vocabulary, document_frequency
from attnprobe.errors import UserError


def vocabulary_of(training: Examples, spelling: Sequence[str], settings: DataSettings) -> Vocabulary:
    """The words that are frequent enough in the training texts; a question counts as a text of its own."""
    frequency = document_frequency(training.words.flat, training.words.offsets, len(spelling))
    if training.question is not None:
        frequency += document_frequency(training.question.flat, training.question.offsets, len(spelling))
    return build_vocabulary(spelling, frequency, settings.words.min_df, settings.words.max_vocabulary)


def class_numbers(
    examples: dict[str, Examples], spelling: Sequence[str], settings: DataSettings
) -> tuple[dict[str, int], list[str]]:
    """Raw answer → class number for every answer that may occur, and the classes' names.

    Raises:
        UserError: the training rows have too few classes, or lack one that is named.
    """
    training = examples["train"]
    if settings.labels.classes_from == "labels":
        return label_numbers(training, settings)
    if settings.labels.classes_from == "candidates":
        candidates = [names for names in training.candidates or [] if names is not None]
        return rows.class_map(None, [*candidates, *training.labels])
    classes = vocabulary_of(training, spelling, settings).words[len(SPECIAL) :]
    place = {word: number for number, word in enumerate(classes)}
    given = [names for part in examples.values() for names in (*part.labels, *(part.candidates or [])) if names]
    numbers = {}
    for raw in {name for names in given for name in names}:
        tokens = settings.rules.words(raw)  # an answer is read as the text is: "Kitchen" is the word "kitchen"
        if len(tokens) == 1 and tokens[0] in place:
            numbers[raw] = place[tokens[0]]
    return numbers, classes


def label_numbers(training: Examples, settings: DataSettings) -> tuple[dict[str, int], list[str]]:
    """Raw label → class number, and the classes' names."""
    labels, column = settings.labels.labels, settings.columns.label
    numbers, classes = rows.class_map(labels, training.labels)
    seen = rows.count_labels(training.labels)
    trained = {numbers[label] for label in seen if label in numbers}
    least = 1 if settings.columns.multi_label else 2
    if len(trained) < least:
        there = ", ".join(f"{label}: {number}" for label, number in seen.most_common(8)) or "no label at all"
        expected = "" if labels is None else f" among data.labels ({', '.join(classes)})"
        raise UserError(
            f"the training rows have fewer than {least} classes{expected} in the column data.label={column} "
            f"({there}): choose another column, or other data.filters or data.labels"
        )
    if empty := [name for number, name in enumerate(classes) if number not in trained]:
        raise UserError(
            f"data.labels: no training row has the class {', '.join(empty)}; the column {column} has "
            f"{', '.join(seen)}. Leave the class out of data.labels"
        )
    return numbers, classes
