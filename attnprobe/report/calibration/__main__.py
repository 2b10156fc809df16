"""`python -m attnprobe.report.calibration STUDY… -o FILE`: the table that the package ships, from one or several studies."""

import argparse
import sys
from pathlib import Path

import pandas as pd

from attnprobe.errors import UserError
from attnprobe.report.calibration.collect import collected, models_in, ship
from attnprobe.report.calibration.summary import summary
from attnprobe.results.files import write_text


def main(arguments: list[str] | None = None) -> None:
    """Write it, and say of how many models it is."""
    parser = argparse.ArgumentParser(prog="attnprobe.report.calibration", description=__doc__)
    parser.add_argument(
        "places",
        nargs="+",
        type=Path,
        metavar="STUDY",
        help="directory of a finished +experiment=calibration, or the output=… of one that was cut short",
    )
    parser.add_argument("-o", "--output", type=Path, default=Path("calibration.parquet"))
    parser.add_argument("--tables", type=Path, help="also write the tables of docs/calibration.md to this file")
    given = parser.parse_args(arguments)
    try:
        models, answered = collected(models_in(given.places))
        ship(answered, given.output, made_by(models))
        if given.tables is not None:
            write_text(summary(models, answered), given.tables)
    except UserError as error:
        print(f"attnprobe: {error}", file=sys.stderr)
        raise SystemExit(1) from None
    unsolved = int((models["rightness_label"] == "not solved").sum())
    print(f"{given.output}: {len(models)} models, {unsolved} did not solve their task")


def made_by(models: pd.DataFrame) -> str:
    """The command that trains these models, and perhaps some more: every control of theirs with every encoder and seed."""
    told = " ".join(
        f"study.{name}=[{','.join(map(str, sorted(models[column].unique())))}]"
        for name, column in (("controls", "control"), ("encoders", "encoder"), ("data", "data"), ("seeds", "seed"))
    )
    return f"python -m attnprobe +experiment=calibration {told}"


if __name__ == "__main__":
    main()
