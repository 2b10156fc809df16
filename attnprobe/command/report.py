"""attnprobe report RUNS: one page, as `python -m attnprobe.report` writes it, and what is kept of it."""

from collections.abc import Sequence


def main(arguments: Sequence[str]) -> None:
    """Hand everything to the report's own command line."""
    from attnprobe.report.__main__ import main as write

    write(arguments, program="attnprobe report")
