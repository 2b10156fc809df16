"""What several commands of research/ are told in one way."""

from attnprobe.core.errors import UserError


def draws_of(text: str) -> list[int]:
    """The seeds that `--draws` names, separated by commas.

    Raises:
        UserError: one of them is no whole number.
    """
    draws = []
    for draw in text.split(","):
        if not draw.strip().isdecimal():
            raise UserError(f"--draws {text}: expected whole numbers, such as 0,1,2")
        draws.append(int(draw))
    return draws
