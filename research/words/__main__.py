"""`python -m research.words FOLDER`: is the verdict on words right where the answer is known?

Trains small models on the rules of `research.rules`, with attention that is right or wrong by
construction or learned, and asks each with the probe `swaps`. A file per model in FOLDER: what is
cut short goes on with the same command."""

import argparse
import json
import warnings
from itertools import product
from pathlib import Path

import pandas as pd
import torch

from attnprobe.results.files import write_text
from attnprobe.runs.composition import composing
from research.calibration.rates import markdown
from research.rules import BLIND, RULES
from research.words.asking import CLAIMS, facts_of_model
from research.words.cells import is_possible
from research.words.judging import judged, record, table


def main() -> None:
    """Train and ask, or read."""
    options = parser().parse_args()
    if options.table:
        show(options)
    else:
        train(options)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    command_line = argparse.ArgumentParser(prog="python -m research.words", description=__doc__)
    command_line.add_argument(
        "folder", type=Path, help="of the models; with --table also a file that --keep wrote"
    )
    command_line.add_argument(
        "--rules",
        default=",".join(BLIND),
        help=f"of {', '.join(RULES)}, reviews_word, reviews_negation, …",
    )
    command_line.add_argument(
        "--encoders", default="lstm,cnn,average,transformer", help="or the folder of a checkpoint"
    )
    command_line.add_argument(
        "--attentions", default="rationale,first_70,learned,common_70,last_70"
    )
    command_line.add_argument(
        "--draws", default="100,101,102,103,104", help="of texts, weights and everything random"
    )
    command_line.add_argument("--texts", type=int, default=100)
    command_line.add_argument(
        "--null", action="store_true", help="also each model's own weights in random order"
    )
    command_line.add_argument(
        "--table", action="store_true", help="train nothing: the tables of what is there"
    )
    command_line.add_argument(
        "--record", type=Path, help="with --table: the shipped calibration.parquet, told of it"
    )
    command_line.add_argument(
        "--keep", type=Path, help="with --table: a parquet file of a row per model, added to"
    )
    return command_line


def train(options: argparse.Namespace) -> None:
    """Train the models that are not there yet, and ask them."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    cells = product(
        options.draws.split(","),
        options.rules.split(","),
        options.encoders.split(","),
        options.attentions.split(","),
    )
    with composing():
        for draw, rule, encoder, attention in cells:
            path = options.folder / f"{rule}-{Path(encoder).name}-{attention}-{draw}.json"
            if path.exists() or not is_possible(rule, encoder, attention):
                continue
            facts = facts_of_model(
                rule, encoder, attention, int(draw), options.texts, null=options.null
            )
            path.parent.mkdir(parents=True, exist_ok=True)
            write_text(json.dumps(facts), path)
            print(
                f"{path.stem}: accuracy {facts['accuracy']:.2f}, "
                f"rightness {facts['rightness']:.2f}",
                flush=True,
            )


def show(options: argparse.Namespace) -> None:
    """Print the tables of the models that are there; keep their rows, and tell the record."""
    is_file = options.folder.is_file()
    models = pd.read_parquet(options.folder) if is_file else judged(options.folder)
    if options.keep is not None:
        models = kept(models, options.keep)
    if options.record is not None:
        record(models, options.record)

    models["all"] = "all"
    for by in (["all"], ["encoder"], ["rule"], ["rule", "encoder"]):
        print_table("table", table(models, by))
    for claims in CLAIMS.values():
        for claim in claims:
            if claim.primary and claim.name in models:
                is_about_states = claim.name == "top_state_decides" and "state kind" in models
                rows = models.assign(kind=models["state kind"]) if is_about_states else models
                print_table(claim.name, table(rows, ["encoder"], claim.name))
    counts = [
        models[column].value_counts().to_dict() if column in models else ""
        for column in ("kind", "null")
    ]
    print(*counts)


def kept(models: pd.DataFrame, path: Path) -> pd.DataFrame:
    """These models and those of the file, which is written anew; of one model the newer row."""
    if path.exists():
        models = pd.concat([pd.read_parquet(path), models], ignore_index=True)
        models = models.drop_duplicates(["rule", "encoder", "attention", "draw"], keep="last")
    models.to_parquet(path, index=False)
    return models


def print_table(claim: str, rows: pd.DataFrame) -> None:
    """A claim's name, and its table in Markdown."""
    print(claim, markdown(rows), sep="\n\n", end="\n\n")


if __name__ == "__main__":
    main()
