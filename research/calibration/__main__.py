"""`python -m research.calibration STUDY… -o FILE`: the table that is shipped, from studies."""

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
    """Write the table, and say of how many models it is."""
    parser = argparse.ArgumentParser(prog="python -m research.calibration", description=__doc__)
    parser.add_argument(
        "places",
        nargs="+",
        type=Path,
        metavar="STUDY",
        help="directory of a finished +experiment=calibration, or the output=… of one that was cut "
        "short",
    )
    parser.add_argument("-o", "--output", type=Path, default=Path("calibration.parquet"))
    parser.add_argument(
        "--tables",
        type=Path,
        help="also write the tables of docs/results/calibration.md to this file",
    )
    options = parser.parse_args(arguments)
    try:
        models, answered = collected(models_in(options.places))
    except UserError as error:
        raise SystemExit(f"attnprobe: {error}") from None

    write_shipped(models, answered, options.output)
    if options.tables is not None:
        sections = [
            f"## {caption}\n\n{markdown(table)}"
            for caption, table in tables_of(models, answered).items()
        ]
        write_text("\n\n".join(sections) + "\n", options.tables)
    unsolved = int((models["rightness_label"] == "not solved").sum())
    print(f"{options.output}: {len(models)} models, {unsolved} did not solve their task")


def write_shipped(models: pd.DataFrame, answered: pd.DataFrame, path: Path) -> None:
    """Write what verdicts cite, with the commands that made it in the file's metadata."""
    facts = {"made_by": made_by(models), "models": str(answered["run_id"].nunique())}
    table = pa.Table.from_pandas(shipped(answered), preserve_index=False)
    metadata = (table.schema.metadata or {}) | {b"attnprobe": json.dumps(facts).encode()}
    table = table.replace_schema_metadata(metadata)
    write_atomically(path, lambda target: pq.write_table(table, target))


def made_by(models: pd.DataFrame) -> str:
    """The commands that train these models and no others.

    There is one for each data set, encoder and set of seeds.
    """
    seeds = models.groupby(["data", "encoder", "control"])["seed"].apply(
        lambda numbers: ",".join(map(str, sorted(numbers)))
    )
    controls = seeds.reset_index().groupby(["data", "encoder", "seed"])["control"].agg(",".join)
    return "; ".join(
        f"python -m attnprobe +experiment=calibration study.data=[{row.data}] "
        f"study.encoders=[{row.encoder}] study.controls=[{row.control}] study.seeds=[{row.seed}]"
        for row in controls.reset_index().itertuples()
    )


if __name__ == "__main__":
    main()
