"""`python -m research.models FOLDER`: are the criteria about models right?

And what can an audit of a few seeds show?

`transfer` trains a model without context under built attentions, right or wrong and with or without
the label in their weights. `pools` trains sixty seeds of a model with learned and with equal
weights, and draws audits of 3, 5 and 9 from them. `validity` asks necessity and stability where
what must come out is known. A file per model in FOLDER: what is cut short goes on with the same
command."""

import argparse
import warnings
from itertools import product
from pathlib import Path

import pandas as pd
import torch

from attnprobe.runs.composition import composing
from research.markdown import markdown
from research.models.audits import CLAIMS, curves, stability_curves
from research.models.cells import (
    ALIKE,
    CELLS,
    EVEN,
    GUIDED,
    GUIDES,
    NEED,
    settings_of,
    valid_settings,
)
from research.models.training import train_and_keep
from research.models.transfer import transfer_table
from research.models.validity import plausible, validity


def main() -> None:
    """Train, or read."""
    options = parser().parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    if options.table:
        show(options.folder, options.record)
        return
    with composing():
        if "transfer" in options.parts:
            train_guided(options.folder)
        if "pools" in options.parts:
            train_pools(options.folder, options.seeds, options.texts)
        if "validity" in options.parts:
            train_valid(options.folder, options.seeds)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    command_line = argparse.ArgumentParser(prog="python -m research.models", description=__doc__)
    command_line.add_argument("folder", type=Path)
    command_line.add_argument("--parts", default="transfer,pools,validity")
    command_line.add_argument(
        "--seeds", type=int, default=60, help="of the pools, and of each cell of validity"
    )
    command_line.add_argument(
        "--texts", type=int, default=300, help="that the models of the pools are tested on"
    )
    command_line.add_argument(
        "--table", action="store_true", help="train nothing: the tables of what is there"
    )
    command_line.add_argument(
        "--record", type=Path, help="with --table: the shipped audits.csv, which verdicts cite"
    )
    return command_line


def train_guided(folder: Path) -> None:
    """The model without context under every built attention."""
    for draw, seed, attention in product(range(5), range(2), GUIDES):
        config = settings_of(draw, *GUIDED, *GUIDES[attention])
        path = folder / f"guide-{attention}-{draw}-{seed}.json"
        train_and_keep(path, config, seed, readout=True)


def train_pools(folder: Path, seeds: int, texts: int) -> None:
    """The pools that audits are drawn from."""
    kinds = {"learned": (), "equal": EVEN}
    for seed, cell, kind in product(range(seeds), CELLS, kinds):
        config = settings_of(0, *CELLS[cell], *kinds[kind], f"data.source.test_size={texts}")
        path = folder / f"pool-{cell}-{kind}-{seed}.json"
        train_and_keep(path, config, seed, readout=kind == "learned")


def train_valid(folder: Path, seeds: int) -> None:
    """The cells of which it is known what must come out."""
    for seed, cell in product(range(seeds), NEED | ALIKE):
        epochs = 0 if cell == "untrained" else 8
        path = folder / f"valid-{cell}-own-{seed}.json"
        train_and_keep(path, valid_settings(cell), seed, epochs=epochs)
        if cell in NEED:
            path = folder / f"valid-{cell}-equal-{seed}.json"
            train_and_keep(path, valid_settings(cell, *EVEN), seed)


def show(folder: Path, record: Path | None) -> None:
    """Print all tables of the models that are there; write that of audits to the file `record`."""
    tables = [curves(folder, cell, claim) for claim, cell in product(CLAIMS, CELLS)]
    tables += [stability_curves(folder, cell) for cell in ("learned", "learned, twins")]
    audits = pd.concat(tables)
    if record is not None:
        audits.round(4).to_csv(record, index=False)
    valid = pd.DataFrame([validity(folder, cell) for cell in NEED | ALIKE])
    marked = pd.DataFrame([plausible(folder, cell) for cell in ALIKE])
    print(markdown(transfer_table(folder)), markdown(audits.round(3)), sep="\n\n", end="\n\n")
    print(markdown(valid.round(3)), markdown(marked), sep="\n\n")


if __name__ == "__main__":
    main()
