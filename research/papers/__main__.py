"""`python -m research.papers RUNS … --page PAGE`: every published number beside what runs measured.

The page is made of the runs' tables alone. A published number without a run says so; data that
nobody can have say that. `--networks PAGE` writes Serrano & Smith's networks: their flips, and the
paper's conclusions under nulls.
"""

import argparse
from pathlib import Path

from attnprobe.core.errors import UserError
from research.markdown import put_between_markers
from research.papers.networks import networks_part
from research.papers.page import parts_of_page


def main() -> None:
    """Carry out the command; a mistake is one line."""
    parser = argparse.ArgumentParser(prog="python -m research.papers", description=__doc__)
    parser.add_argument("runs", nargs="*", help="run directories, or folders above them")
    parser.add_argument("--page", type=Path, help="write into this page between its markers")
    parser.add_argument("--networks", type=Path, help="write the networks into this page")
    options = parser.parse_args()
    try:
        if options.networks is not None:
            put_between_markers(options.networks, {"networks": networks_part(options.runs)})
        if options.page is not None:
            put_between_markers(options.page, parts_of_page(options.runs))
        if options.page is None and options.networks is None:
            print("\n\n".join(parts_of_page(options.runs).values()))
    except UserError as error:
        raise SystemExit(f"research.papers: {error}") from None


if __name__ == "__main__":
    main()
