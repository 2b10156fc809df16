"""Positions that a table says something of, beside the texts that they are said of."""

import numpy as np
from jaxtyping import Float, Int

from attnprobe.errors import UserError


def check_positions(
    step: Float[np.ndarray, " rows"] | Int[np.ndarray, " rows"], lengths: Int[np.ndarray, " rows"], where: str
) -> None:
    """Whether every position is one of its text.

    Args:
        step: from 0.
        lengths: of each row's text; 0 where there is no such text.
        where: what has the positions, for the message.

    Raises:
        UserError: one is not; the files do not belong together.
    """
    if not ((step >= 0) & (step < lengths) & (step == np.floor(step))).all():
        raise UserError(
            f"{where} has a position that its text does not have: the run's tables and examples do not belong together. Copy "
            f"the run again from where it came, or give its command again with on_finished=replace"
        )
