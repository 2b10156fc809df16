"""Ask all constructions, and write the tables of their page.

    python -m research.constructions [constructions trained coverage null seeds] [--page PAGE]

Without names all tables are made: constructions, null and seeds take half a minute of one core
each, trained eleven minutes, coverage a quarter of an hour.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch

from attnprobe.core.errors import UserError
from research.constructions.asking import ask
from research.constructions.catalogue import catalogue
from research.constructions.coverage import (
    MINORITIES,
    SAMPLES,
    Coverage,
    coverages,
    random_orders,
    seed_changes,
)
from research.constructions.page import (
    constructions_table,
    coverage_table,
    null_table,
    seeds_table,
    trained_table,
)
from research.constructions.trained import ask_all_trained
from research.markdown import put_between_markers, require_parts

PAGE = Path("docs/results/constructions.md")
SEEDS = 24
RIGHT_IN = (0.1, 0.3, 0.38, 0.42, 0.46, 0.5, 0.55, 0.6, 0.8, 1.0)
"""Shares of the texts in which the attention is right whose verdict is asked with several seeds."""


def all_coverages() -> Iterator[Coverage]:
    """Every line of the table."""
    for base, samples in SAMPLES.items():
        for minority in MINORITIES:
            yield from coverages(base, minority, samples)


TABLES: dict[str, Callable[[], str]] = {
    "constructions": lambda: constructions_table(map(ask, catalogue())),
    "trained": lambda: trained_table(ask_all_trained()),
    "coverage": lambda: coverage_table(all_coverages()),
    "null": lambda: null_table(random_orders()),
    "seeds": lambda: seeds_table(seed_changes(SEEDS, RIGHT_IN)),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tables", nargs="*", metavar="TABLE", default=list(TABLES))
    parser.add_argument("--page", type=Path, default=PAGE)
    options = parser.parse_args(arguments)
    unknown = set(options.tables) - set(TABLES)
    if unknown:
        parser.error(f"{', '.join(sorted(unknown))}: expected some of {', '.join(TABLES)}")
    try:
        require_parts(options.page, options.tables)
    except UserError as error:
        parser.error(str(error))
    torch.set_num_threads(1)
    for name in options.tables:
        put_between_markers(options.page, {name: TABLES[name]()})
        print(f"{name}: written to {options.page}", flush=True)


if __name__ == "__main__":
    main()
