import subprocess
import sys

import numpy as np
import pytest

from attnprobe.core.errors import UserError
from attnprobe.data.columns import Columns
from attnprobe.data.pipeline import check_texts
from attnprobe.data.reader import Reader
from attnprobe.data.text import TextRules
from attnprobe.evidence.statistics import interval


@pytest.mark.parametrize(
    "texts",
    [
        [None],
        [3],
        [float("nan")],
        [b"good"],
        (text for text in ["a"]),
        None,
        {"a": 1},
        {"a"},
        3,
        "a film",
        [],
        [["a", 3]],
        ["\ud800"],
    ],
)
def test_texts_that_are_none_are_named(texts):
    with pytest.raises(UserError, match="text") as raised:
        check_texts(texts)
    assert str(raised.value).isprintable()


@pytest.mark.parametrize(
    "texts", [["a film"], ("a", "b"), [["one sentence", "two"]], np.array(["a", "b"])]
)
def test_texts_as_they_should_be_pass(texts):
    check_texts(texts)


@pytest.mark.parametrize(
    ("kind", "cell"),
    [
        ("mask", 1),
        ("mask", [[1], [0]]),
        ("mask", "10"),
        ("spans", [1]),
        ("spans", [[1]]),
        ("spans", [[0, "a"]]),
        ("sentences", 0),
        ("sentences", [[0]]),
        ("mask", {"a": 1}),
        ("characters", [1]),
        ("characters", [[0.5, 2]]),
    ],
)
def test_a_rationale_of_another_form_is_named(kind, cell):
    reader = Reader(Columns(rationale="why", rationale_kind=kind), TextRules())
    with pytest.raises(
        UserError, match=rf"data.rationale=why: data.rationale_kind={kind} expects a list of"
    ):
        reader.marks({"text": "a b", "rationale": cell}, 2, [0, 0])


def test_an_infinite_value_has_no_interval():
    with pytest.raises(ValueError, match="values hold 1 infinite number"):
        interval([1.0, float("inf")])


# the functions below are called without the shape checks of the tests, as a user calls them
UNCHECKED = """
import torch
from attnprobe import exact, measures
one, row = torch.tensor(0.5), torch.tensor([0.5, 0.5])
odd = [one, torch.tensor([True, False]), torch.tensor([1, 2])]
pairs = [
    measures.jensen_shannon, measures.kullback_leibler, measures.total_variation,
    measures.kendall_tau, measures.kendall_tau_test, measures.spearman,
]
for function in pairs:
    for bad in odd:
        for arguments in ((bad, row), (row, bad)):
            try:
                function(*arguments)
            except ValueError as error:
                assert "expected" in str(error), error
            else:
                raise AssertionError((function, bad))
empty = torch.zeros(2, 0)
assert measures.kendall_tau_test(empty, empty)[1].isnan().all()
wide = torch.tensor([[0.1, 0.2, 0.7]], dtype=torch.bfloat16)
assert measures.kendall_tau_test(wide, wide)[0].item() == 1
a, z, c = torch.full((1, 2), 0.5), torch.zeros(1, 2, 2), torch.ones(1, 2, dtype=torch.bool)
mistakes = [(a[:, :0], z[:, :0], c[:, :0]), (a, z, c.long()), (a.long(), z, c), (a, z.long(), c)]
for arguments in mistakes:
    try:
        exact.smallest_flipping_set(*arguments)
    except ValueError as error:
        assert "expected" in str(error), error
    else:
        raise AssertionError(arguments)
assert len(exact.smallest_flipping_set(a[:0], z[:0], c[:0]).size) == 0  # no text is no mistake
"""


def test_arithmetic_answers_odd_tensors():
    done = subprocess.run([sys.executable, "-c", UNCHECKED], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
