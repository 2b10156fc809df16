"""The tests' own checks of shapes: what passed once is not checked again, and all else is."""

from dataclasses import dataclass
from typing import Literal

import beartype
import pytest
import torch
from jaxtyping import Float, TypeCheckError
from torch import Tensor

from tests.checked_once import checked_once

checked = checked_once(typechecker=beartype.beartype)


@checked
def rows_of(
    table: Float[Tensor, "rows columns"], kept: list[int], how: Literal["copy", "cut"] = "copy"
) -> Float[Tensor, "kept columns"]:
    """Rows by number; `cut` is a fault, which loses a column where three rows are kept."""
    rows = table[kept]
    return rows[:, 1:].flatten() if how == "cut" and len(kept) == 3 else rows


@checked
@dataclass
class Pair:
    first: Float[Tensor, "size"]
    second: Float[Tensor, "size"]


TABLE = torch.arange(8.0).reshape(4, 2)


@pytest.fixture(autouse=True)
def after_a_call_that_passed():
    assert rows_of(TABLE, [0, 1]).shape == (2, 2)
    assert rows_of(TABLE, [0, 1], how="cut").shape == (2, 2)
    Pair(torch.zeros(2), torch.zeros(2))


@pytest.mark.parametrize(
    ("table", "kept", "how"),
    [
        (torch.zeros(4), [0, 1], "copy"),
        (torch.zeros(4, 2, dtype=torch.long), [0, 1], "copy"),
        (TABLE.numpy(), [0, 1], "copy"),
        (TABLE, [0.0, 1.0], "copy"),
        (TABLE, (0, 1), "copy"),
        (TABLE, [0, 1], "moved"),
    ],
    ids=["axes", "type of numbers", "array", "items", "tuple", "word"],
)
def test_other_arguments_are_checked(table, kept, how):
    with pytest.raises(TypeCheckError):
        rows_of(table, kept, how)


def test_arguments_of_other_names_are_checked():
    with pytest.raises(TypeCheckError):
        rows_of(kept=TABLE, table=[0, 1])


def test_a_result_of_another_shape_is_checked_after_the_same_arguments():
    """Its shape goes by what the arguments hold, which their description does not say."""

    @checked
    def nonzero_rows(table: Float[Tensor, "rows 2"]) -> Float[Tensor, "_ 2"]:
        rows = table[table[:, 0] > 0]
        return rows if len(rows) < 4 else rows.flatten()

    assert nonzero_rows(TABLE).shape == (3, 2)
    assert nonzero_rows(torch.zeros(4, 2)).shape == (0, 2)
    with pytest.raises(TypeCheckError):
        nonzero_rows(torch.ones(4, 2))
    with pytest.raises(TypeCheckError):
        nonzero_rows(torch.ones(4, 2))


def test_an_axis_has_one_length_in_a_dataclass():
    with pytest.raises(TypeCheckError):
        Pair(torch.zeros(2), torch.zeros(3))


def test_a_long_list_is_checked_each_time():
    with pytest.raises(TypeCheckError):
        rows_of(TABLE, ["0"] * 40)


def test_functions_of_one_function_are_checked_by_what_they_were_given():
    def make():
        @checked
        def length(values: Float[Tensor, "values"]) -> int:
            return len(values)

        return length

    assert make()(torch.zeros(3)) == 3
    assert make()(torch.zeros(3)) == 3
    with pytest.raises(TypeCheckError):
        make()(torch.zeros(3, 1))
