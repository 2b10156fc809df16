"""Rows are read some at a time: where one lot ends does not show."""

from dataclasses import fields

import datasets
import numpy as np
import pytest

from attnprobe.data import reader
from attnprobe.data.columns import Columns
from attnprobe.data.examples import Lexicon, Ragged
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
