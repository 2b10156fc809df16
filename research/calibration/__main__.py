"""`python -m research.calibration STUDY… -o FILE`: the table that the package ships, from one or
several studies."""

import argparse
import json
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from attnprobe.core.errors import UserError
from attnprobe.results.files import write_atomically, write_text
from research.calibration.rates import markdown, tables_of
from research.calibration.records import collected, models_in, shipped


def main(arguments: list[str] | None = None) -> None:
    """Write it, and say of how many models it is."""
    parser = argparse.ArgumentParser(prog="python -m research.calibration", description=__doc__)
    what = (
        "directory of a finished +experiment=calibration, or the output=… of one that was cut short"
    )
    parser.add_argument("places", nargs="+", type=Path, metavar="STUDY", help=what)
    parser.add_argument("-o", "--output", type=Path, default=Path("calibration.parquet"))
    parser.add_argument(
        "--tables",
        type=Path,
        help="also write the tables of docs/results/calibration.md to this file",
    )
    given = parser.parse_args(arguments)
    try:
        models, answered = collected(models_in(given.places))
    except UserError as error:
        raise SystemExit(f"attnprobe: {error}") from None
    facts = json.dumps({"made_by": made_by(models), "models": str(answered["run_id"].nunique())})
    table = pa.Table.from_pandas(shipped(answered), preserve_index=False)
    table = table.replace_schema_metadata(
        {**(table.schema.metadata or {}), b"attnprobe": facts.encode()}
    )
    write_atomically(given.output, lambda target: pq.write_table(table, target))
    if given.tables is not None:
        parts = (
            f"## {name}\n\n{markdown(table)}" for name, table in tables_of(models, answered).items()
        )
        write_text("\n\n".join(parts) + "\n", given.tables)
    unsolved = int((models["rightness_label"] == "not solved").sum())
    print(f"{given.output}: {len(models)} models, {unsolved} did not solve their task")


def made_by(models: pd.DataFrame) -> str:
    """The commands that train these models and no others, one for each data set, encoder and set of
    seeds."""
    seeds_of = models.groupby(["data", "encoder", "control"])["seed"]
    cells = seeds_of.apply(lambda own: ",".join(map(str, sorted(own)))).reset_index()
    groups = cells.groupby(["data", "encoder", "seed"])["control"].agg(",".join).reset_index()
    command = "python -m attnprobe +experiment=calibration study.data=[{}] study.encoders=[{}] study.controls=[{}] "
    rows = groups[["data", "encoder", "control", "seed"]].to_numpy().tolist()
    return "; ".join(command.format(*cell) + f"study.seeds=[{seeds}]" for *cell, seeds in rows)


if __name__ == "__main__":
    main()
