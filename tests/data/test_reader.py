"""Rows are read some at a time: where one lot ends does not show, and few of them are objects at once."""

from dataclasses import fields

import datasets
import numpy as np
import pytest

from attnprobe.data import reader
from attnprobe.data.columns import Columns
from attnprobe.data.examples import Example, Lexicon
from attnprobe.data.ragged import Ragged
from attnprobe.data.reader import Reader
from attnprobe.data.text import TextRules

EVERYTHING = {
    "text": [["One two.", "Three."], ["Four"], None, [], ["Five six", "Seven eight."], ["Nine."], ["Ten eleven."]],
    "label": ["a", "b", "a", "b", "b", "a;b", "a"],
    "question": ["who", "what", "who", "who", "where to", "why", None],
    "answers": [["a"], None, ["a"], ["b"], ["a", "b"], ["b"], ["a"]],
    "why": [[0], [0], [0], [0], [7], [0], [0]],
    "other": [["Two one.", "Three."], ["Four"], None, None, ["Five"], ["Ten."], ["Ten"]],
    "score": [[0.5, 1, 2, 3, 4], [1.0], [2.0], [], [1.0, 2, 3, 4, 5], [float("nan")], [1.0]],
    "kind": ["x", "x", "x", "x", "x", "x", "y"],
}
COLUMNS = Columns(
    question="question", candidates="answers", rationale="why", rationale_kind="sentences", counterfactual="other",
    per_word={"score": "score"}, group="kind", filters={"kind": "x"},
)  # fmt: skip
RULES = TextRules(sentences="column")


def read(columns, rules, table):
    count = {"dropped": {}}
    lexicon = Lexicon()
    return Reader(columns, rules, 3).read("train", datasets.Dataset.from_dict(table), lexicon, count), count, lexicon


def plain(value):
    if isinstance(value, Ragged):
        return [value.flat.dtype, *(value[row].tolist() for row in range(len(value)))]
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    return [value.dtype, value.tolist()] if isinstance(value, np.ndarray) else value


@pytest.mark.parametrize("at_once", [1, 2, 3])
def test_where_one_lot_ends_does_not_show(monkeypatch, at_once):
    whole, count, lexicon = read(COLUMNS, RULES, EVERYTHING)
    assert whole.example_id.tolist() == [0, 1, 4, 5]
    assert count["rationale does not fit"] == 1
    monkeypatch.setattr(reader, "AT_ONCE", at_once)
    parts, counted, words = read(COLUMNS, RULES, EVERYTHING)
    assert (list(counted), counted, list(words)) == (list(count), count, list(lexicon))
    for one in fields(whole):
        assert plain(getattr(parts, one.name)) == plain(getattr(whole, one.name)), one.name


def test_few_rows_are_objects_at_a_time(monkeypatch):
    """Of 100 rows no more than 16 cells of a column, and 16 tokenised texts, are in memory at once."""
    monkeypatch.setattr(reader, "AT_ONCE", 16)
    living, most, cells = set(), [], []

    class Counted(Example):
        def __init__(self, **values):
            super().__init__(**values)
            living.add(id(self))
            most.append(len(living))

        def __del__(self):
            living.discard(id(self))

    def column(table, *names):
        values = inner(table, *names)
        cells.append(len(values))
        return values

    inner = reader.rows.column
    monkeypatch.setattr(reader, "Example", Counted)
    monkeypatch.setattr(reader.rows, "column", column)
    table = {"text": [f"w{row}" for row in range(100)], "label": [row % 2 for row in range(100)]}
    found, _, _ = read(Columns(), TextRules(tokenizer="whitespace"), table)
    assert len(found) == len(most) == 100
    assert max(most) == max(cells) == 16
    # of all rows of a class the label is one object
    assert len({id(labels) for labels in found.labels}) == 2
