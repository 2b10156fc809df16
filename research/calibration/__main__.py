"""`python -m research.calibration STUDY… -o FILE`: the table that the package ships, from one or several studies."""

import argparse
import sys
from pathlib import Path

import pandas as pd

from attnprobe.core.errors import UserError
from attnprobe.results.files import write_text
from research.calibration.rates import markdown, tables_of
from research.calibration.records import collected, models_in, ship


def main(arguments: list[str] | None = None) -> None:
    """Write it, and say of how many models it is."""
    parser = argparse.ArgumentParser(prog="python -m research.calibration", description=__doc__)
    what = "directory of a finished +experiment=calibration, or the output=… of one that was cut short"
    parser.add_argument("places", nargs="+", type=Path, metavar="STUDY", help=what)
    parser.add_argument("-o", "--output", type=Path, default=Path("calibration.parquet"))
    parser.add_argument("--tables", type=Path, help="also write the tables of docs/results/calibration.md to this file")
    given = parser.parse_args(arguments)
    try:
        models, answered = collected(models_in(given.places))
        ship(answered, given.output, made_by(models))
        if given.tables is not None:
            parts = (f"## {name}\n\n{markdown(table)}" for name, table in tables_of(models, answered).items())
            write_text("\n\n".join(parts) + "\n", given.tables)
    except UserError as error:
        print(f"attnprobe: {error}", file=sys.stderr)
        raise SystemExit(1) from None
    unsolved = int((models["rightness_label"] == "not solved").sum())
    print(f"{given.output}: {len(models)} models, {unsolved} did not solve their task")


def made_by(models: pd.DataFrame) -> str:
    """The commands that train these models and no others, one for each data set, encoder and set of seeds."""
    seeds: dict[tuple[str, str, tuple[int, ...]], list[str]] = {}
    for cell, own in models.groupby(["data", "encoder", "control"]):
        data, encoder, control = map(str, list(cell))
        seeds.setdefault((data, encoder, tuple(sorted(own["seed"]))), []).append(control)
    return "; ".join(
        f"python -m attnprobe +experiment=calibration study.data=[{data}] study.encoders=[{encoder}] "
        f"study.controls=[{','.join(controls)}] study.seeds=[{','.join(map(str, those))}]"
        for (data, encoder, those), controls in sorted(seeds.items())
    )


if __name__ == "__main__":
    main()
