"""attnprobe run: one experiment, exactly as `python -m attnprobe` carries it out."""

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str]) -> None:
    """Hand everything to Hydra's command line."""
    from attnprobe.__main__ import main as hydra_main

    sys.argv = ["attnprobe", *arguments]
    hydra_main()
