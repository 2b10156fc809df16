"""The states of many shortened texts, advanced as one block of rows."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnprobe.importance.leave_one_out.gates import Gates
from attnprobe.importance.leave_one_out.product import Product

NONE = -1
"""The number of no shortened text."""


class SideBySide:
    """An LSTM's states of texts and of what is left of them without one token, step by step.

    A column for each text, in slot 0 the unchanged text, in the others shortened ones: rows side by side, which one matrix
    product advances, and to which each column's input is added where they lie. A shortened text that is back at the
    unchanged one, or has no removed token at this step, leaves an empty place until the column is closed up.

    Attributes:
        columns: texts that are still being read.
        slots: in use, that of the unchanged texts included.
    """

    def __init__(self, gates: Gates, inputs: Float[Tensor, "distinct gates"], columns: int, removals: int) -> None:
        """`removals`: of one text at most."""
        self.gates, self.inputs = gates, inputs
        self.columns, self.slots, self.most = columns, 1, removals + 1
        self.number = torch.full((self.most, columns), NONE, device=inputs.device)
        self.state, self.cell = self._empty(), self._empty()
        self.full = True

    def _empty(self) -> Float[Tensor, "rows hidden"]:
        """Rows for all slots, and some more, so that any number of them can be rounded up."""
        return self.inputs.new_zeros(self.most * self.columns + Product.IMAGES, self.inputs.shape[1] // 4)

    def unchanged(self) -> tuple[Float[Tensor, "columns hidden"], Float[Tensor, "columns hidden"]]:
        """Copies of the unchanged texts' h/2 and 2c."""
        return self.state[: self.columns].clone(), self.cell[: self.columns].clone()

    def changed(self) -> Float[Tensor, "rows hidden"]:
        """h/2 of the shortened texts, slot by slot, and of up to 15 rows without meaning."""
        return self.state[self.columns :][: _rounded((self.slots - 1) * self.columns)]

    def advance(self, which: Int[Tensor, "columns"]) -> None:
        """Read one more input in each column."""
        rows = self.slots * self.columns
        gates = self.gates.recurrent.of(self.state[: _rounded(rows)])[:rows]
        gates.view(self.slots, self.columns, -1).add_(self.inputs.index_select(0, which))
        self.gates.advance(gates, self.state[:rows], self.cell[:rows])

    def there(
        self, position: Int[Tensor, "columns"], seen: Float[Tensor, "rows out"]
    ) -> tuple[Int[Tensor, "there"], Int[Tensor, "there"], Float[Tensor, "there out"]]:
        """Numbers, positions and what is seen of the shortened texts, without the empty places."""
        text = self.number[1 : self.slots].flatten()
        position = position.expand(self.slots - 1, -1).flatten()
        if self.full:
            return text.clone(), position, seen
        some = (text != NONE).nonzero().squeeze(-1)
        return text.index_select(0, some), position.index_select(0, some), seen.index_select(0, some)

    def rejoin(self, near: float, going_on: int) -> tuple[Int[Tensor, "rejoined"], Float[Tensor, "rejoined"]]:
        """Take leave of the shortened texts whose state is this near to the unchanged one's, in the first `going_on` columns.

        Returns:
            their numbers, and how far they were by the hidden state or the cell.
        """
        # `Gates` keeps half of the one and twice the other
        apart = torch.maximum(self._apart(self.state) * 2, self._apart(self.cell) / 2)
        number = self.number[1 : self.slots]
        back = ~(apart > near) & (number != NONE)
        back[:, going_on:] = False
        rejoined, skipped = number[back], apart[back]
        if rejoined.numel():
            number[back] = NONE
            self._close_up()
        return rejoined, skipped

    def _apart(self, values: Float[Tensor, "rows hidden"]) -> Float[Tensor, "shortened columns"]:
        blocks = values[: self.slots * self.columns].view(self.slots, self.columns, -1)
        return (blocks[1:] - blocks[0]).abs_().amax(-1)

    def _close_up(self) -> None:
        """Move what there is of each column to its first slots, in the order in which it is."""
        empty = self.number[: self.slots] == NONE
        empty[0] = False
        taken = self.slots - empty.sum(0)
        slots = int(taken.max())
        order = empty.byte().argsort(dim=0, stable=True)[:slots]
        rows = (order * self.columns + torch.arange(self.columns, device=order.device)).flatten()
        for values in self.state, self.cell:
            values[: len(rows)] = values.index_select(0, rows)
        self.number[:slots] = self.number.gather(0, order)
        self.slots, self.full = slots, bool((taken == slots).all())

    def narrow(self, columns: int) -> None:
        """Go on with the first columns alone."""
        if columns == self.columns:
            return
        state, cell, number, before = self.state, self.cell, self.number, self.columns
        self.columns, self.number = columns, number[:, :columns].contiguous()
        self.state, self.cell = self._empty(), self._empty()
        for old, new in ((state, self.state), (cell, self.cell)):
            blocks = old[: self.slots * before].view(self.slots, before, -1)
            new[: self.slots * columns].view(self.slots, columns, -1).copy_(blocks[:, :columns])

    def start(
        self,
        before: tuple[Float[Tensor, "earlier hidden"], Float[Tensor, "earlier hidden"]],
        number: Int[Tensor, "batch"],
        removed: Bool[Tensor, "batch"],
        count: int,
    ) -> None:
        """One more shortened text in each of `count` columns, from the unchanged states before the token was read."""
        rows = slice(self.slots * self.columns, (self.slots + 1) * self.columns)
        for values, old in zip((self.state, self.cell), before, strict=True):
            values[rows] = old[: self.columns]
        self.number[self.slots] = torch.where(removed, number, NONE)[: self.columns]
        self.slots, self.full = self.slots + 1, self.full and count == self.columns


def _rounded(rows: int) -> int:
    """The next number that `Product` need not fill up."""
    return -(-rows // Product.IMAGES) * Product.IMAGES
