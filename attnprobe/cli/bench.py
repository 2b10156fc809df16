"""attnprobe bench SCORES…: do scores of words find those that decide, where these are known?"""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnprobe.cli.main import Parser, answering
from attnprobe.core.printing import WIDTH
from attnprobe.findings.bench.presence import refuse_missing_bench

if TYPE_CHECKING:
    import pandas as pd

    from attnprobe.findings.bench.judging import BenchRates

EPILOG = """examples:
  attnprobe bench scores.parquet --data bench
  attnprobe bench attention gradient lime truth random
  attnprobe bench decompx rollout --models '*--transformer--*' --json

SCORES is a file (docs/bench.md has the format), the name of an importance,
attention, or one of two answers that are known: truth, and its reverse."""


def bench_parser() -> Parser:
    """The arguments of the command."""
    parser = Parser("bench", usage="attnprobe bench SCORES [SCORES ...] [options]", epilog=EPILOG)
    parser.add_argument("scores", metavar="SCORES", nargs="+", help="files, or importances by name")
    parser.add_argument(
        "--data", type=Path, default=Path("bench"), metavar="FOLDER", help="the bench (./bench)"
    )
    parser.add_argument(
        "--models", default="*", metavar="PATTERN", help="only models with such names"
    )
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE.parquet", help="write a row per model"
    )
    parser.add_argument("--json", action="store_true", help="print all rates as JSON")
    return parser


def bench(arguments: Sequence[str]) -> None:
    """Print how well scores find the words that decide, and the verdicts on them.

    Args:
        arguments: what follows the command's name.
    """
    options = bench_parser().parse_args(arguments)
    with answering():
        refuse_missing_bench(options.data)
        import pandas as pd  # takes seconds, which a mistake need not wait for

        from attnprobe.findings.bench.folder import BenchFolder
        from attnprobe.results.writer import own_target

        if options.output is not None:
            own_target(options.output)  # refused before the work rather than after it
        folder = BenchFolder.open(options.data)
        from attnprobe.findings.bench.judging import as_columns, judged, rates_by_kind
        from attnprobe.runs.bench import sources_of

        models = folder.models(options.models)
        sources = sources_of(options.scores, folder, models)
        rows = pd.DataFrame(judged(folder, models, sources))
        rates = rates_by_kind(rows)
        if options.output is not None:
            write_rows(rows, own_target(options.output))
        if options.json:
            print(as_json(as_columns(rates)))
        else:
            show(rates)


def write_rows(rows: "pd.DataFrame", path: Path) -> None:
    """Write a row per model and source of scores; the file says who wrote it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from attnprobe.core.errors import answering_disk
    from attnprobe.results.files import signed_table, write_atomically

    table = signed_table(pa.Table.from_pandas(rows, preserve_index=False))
    with answering_disk(path):
        write_atomically(path, lambda target: pq.write_table(table, target))


def as_json(table: "pd.DataFrame") -> str:
    """A table as a list of objects; null where a number is undefined."""
    return json.dumps(json.loads(table.to_json(orient="records")), indent=1)


def show(rates: Sequence["BenchRates"]) -> None:
    """Print a line per source of scores; of a single one also a line per kind of rule."""
    from attnprobe.findings.bench.judging import ALL

    overall = [line for line in rates if line.kind == ALL]
    first = overall[0]
    print(
        f"{first.models} models of {first.rules} rules, {first.asked} with words that move the "
        "prediction.\nBrackets: 95 %, over rules. Chance: AUROC 0.5, the rest 0."
    )
    show_table("scores", [(line.scores, line) for line in overall])
    if len(overall) == 1:
        show_table("kind of rule", [(line.kind, line) for line in rates if line.kind != ALL])
    print(
        "AUROC, AP: of the words that decide. truth: share of the scores, beyond chance,\n"
        "on words that decide. share, yes: what the verdict says without knowing them."
    )


def show_table(heading: str, lines: Sequence[tuple[str, "BenchRates"]]) -> None:
    """Print rates.

    Args:
        heading: of the first column.
        lines: the first column's cell, and the rates.
    """
    from rich.console import Console

    from attnprobe.report.terminal import terminal_table

    columns: dict[str, dict[str, Any]] = {heading: {"overflow": "fold", "max_width": 15}}
    columns |= {
        name: {"justify": "right", "no_wrap": True}
        for name in ("AUROC", "AP", "truth", "share", "yes %")
    }
    rows = [
        [
            name,
            cited(line.auroc),
            number(line.average_precision.value),
            number(line.truth.value),
            cited(line.share),
            cited(line.yes, percent=True),
        ]
        for name, line in lines
    ]
    is_terminal = Console().is_terminal
    table = terminal_table(columns, rows, lines=is_terminal, padding=(0, 0, 0, 1))
    Console(width=None if is_terminal else WIDTH).print(table)


def cited(interval: tuple[float, float, float], *, percent: bool = False) -> str:
    """A number with its interval, such as `.93 [.88, .97]`; empty where it is undefined."""
    value, low, high = interval
    if math.isnan(value):
        return ""
    form = "{:.0f}" if percent else "{:.2f}"
    factor = 100 if percent else 1
    ends = ""
    if not math.isnan(low):
        ends = f" [{form.format(factor * low)}, {form.format(factor * high)}]"
    return short(form.format(factor * value) + ends)


def number(value: float) -> str:
    """Two digits after the point; empty where it is undefined."""
    return "" if math.isnan(value) else short(f"{value:.2f}")


def short(text: str) -> str:
    """Numbers without the zero before the point, and none below zero that is none."""
    return text.replace("-0.00", "0.00").replace("0.", ".")
