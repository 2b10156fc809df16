"""`python -m research.labels codes FOLDER`, `… plain FOLDER SOURCE` or `… long`: a table each."""

import argparse
from pathlib import Path

import pandas as pd

from research.labels.codes import record
from research.labels.long import growth
from research.labels.plain import beside
from research.markdown import markdown


def main() -> None:
    """Read the arguments, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m research.labels")
    parser.add_argument("what", choices=["codes", "plain", "long"])
    parser.add_argument("folder", type=Path, nargs="?", help="where runs and tables are written")
    parser.add_argument("source", type=Path, nargs="?", help="folder of GoEmotions, for plain")
    parser.add_argument("--models", default="caml,laat")
    parser.add_argument("--draws", default="0,1,2,3,4", help="seeds of texts and trainings")
    parser.add_argument("--epochs", type=int, default=8, help="of plain")
    arguments = parser.parse_args()
    kinds = arguments.models.split(",")
    draws = [int(draw) for draw in arguments.draws.split(",")]
    if arguments.what == "long":
        table = growth([(500, 50), (1000, 50), (2000, 25), (2000, 50), (4096, 50)])
    elif arguments.what == "codes":
        table = record(arguments.folder, kinds, draws)
    else:
        parts = [
            beside(kind, arguments.source, arguments.folder, arguments.epochs, draws)
            for kind in kinds
        ]
        table = pd.concat(parts, ignore_index=True)
    print(markdown(table.round(3)))


if __name__ == "__main__":
    main()
