"""Every importance on every model of a bench: the shipped rates, and the table of the docs."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from attnprobe.core.errors import UserError
from attnprobe.findings.bench.folder import BenchFolder, BenchModel, BenchText
from attnprobe.findings.bench.judging import ALL, as_columns, judged, rates_of
from attnprobe.findings.bench.scores import KNOWN
from attnprobe.importance.base import built_in
from attnprobe.results.files import write_atomically, write_text
from attnprobe.runs.bench import ImportanceScores, importances_of_bench

LAYERED = "transformer"
"""The kind of model for which every method is defined."""
DIGITS = 4
"""Of the shipped rates, which the docs are written from."""


def rank(
    bench: BenchFolder, path: Path, methods: Sequence[str] = (), most_texts: int | None = None
) -> pd.DataFrame:
    """A row per model and importance, and per known answer.

    Args:
        bench: with its models' runs.
        path: of the rows, which are added to: what is cut short goes on.
        methods: the importances; none: all.
        most_texts: so many texts of each model, the first ones; None: all.

    Returns:
        See `attnprobe.findings.bench.judging.judged`.
    """
    rows = pd.DataFrame(columns=["model", "scores"])
    if path.exists():
        rows = pd.read_parquet(path)
    importances = ImportanceScores(bench)
    for model in bench.models():
        done = set(rows["scores"][rows["model"] == model.name])
        texts = bench.texts(model)[:most_texts]
        sources = {name: scorer for name, scorer in KNOWN.items() if name not in done}
        for name in methods or importances_of_bench():
            is_known = name in done or name in KNOWN
            if not is_known and can_score(importances, name, model, texts):
                sources[name] = partial(importances.scores, name)
        if not sources:
            continue
        added = pd.DataFrame(judged(bench, [model], sources, most_texts))
        rows = pd.concat([rows, added], ignore_index=True)
        write_atomically(path, lambda target, rows=rows: rows.to_parquet(target, index=False))
        print(f"{model.name}: {len(sources)} methods", flush=True)
    return rows


def can_score(
    importances: ImportanceScores, name: str, model: BenchModel, texts: Sequence[BenchText]
) -> bool:
    """Whether an importance has scores for a model; what is computed for it is kept."""
    try:
        importances.scores(name, model, texts)
    except UserError:
        return False
    return True


def rates_by_encoder(rows: pd.DataFrame) -> pd.DataFrame:
    """The rates of each method on all models, where it is defined for all, and by encoder.

    A method that some models of an encoder refuse has no rate of that encoder: the others are
    those on which it happens to be defined.

    Args:
        rows: as of `rank`.

    Returns:
        A row per method (`scores`) and `encoder`, the best first.
    """
    models = rows["model"].nunique()
    models_of = rows.groupby("encoder")["model"].nunique()
    tables = []
    for _, method in rows.groupby("scores"):
        parts = [
            (encoder, part)
            for encoder, part in method.groupby("encoder")
            if len(part) == models_of[encoder]
        ]
        if len(method) == models:
            parts.insert(0, (ALL, method))
        for encoder, part in parts:
            table = as_columns([rates_of(part, ALL)]).drop(columns="kind")
            tables.append(table.assign(encoder=encoder))
    rates = pd.concat(tables, ignore_index=True)
    first = ["scores", "encoder"]
    columns = [*first, *(name for name in rates.columns if name not in first)]
    return rates[columns].sort_values(["auroc", "scores"], ascending=[False, True])


def write_rates(rates: pd.DataFrame, path: Path) -> None:
    """Write the shipped table.

    Args:
        rates: as of `rates_by_encoder`.
        path: of the table.
    """
    ordered = rates.sort_values(["encoder", "scores"])
    write_text(ordered.to_csv(index=False, float_format=f"%.{DIGITS}f"), path)


@dataclass(frozen=True)
class MethodRates:
    """The rates of one method.

    Attributes:
        name: of the method.
        encoders: encoder, or `ALL` → the row of `rates_by_encoder`.
    """

    name: str
    encoders: Mapping[Hashable, Mapping[Hashable, Any]]

    @property
    def is_general(self) -> bool:
        """Whether the method is defined for all encoders."""
        return ALL in self.encoders

    @property
    def main_encoder(self) -> Hashable:
        """All encoders; of a method of some, transformers, else any."""
        for encoder in (ALL, LAYERED):
            if encoder in self.encoders:
                return encoder
        return next(iter(self.encoders))

    @property
    def main(self) -> Mapping[Hashable, Any]:
        """The row of `main_encoder`."""
        return self.encoders[self.main_encoder]


def as_markdown(rates: pd.DataFrame) -> str:
    """The methods' rates as a table for the docs, the best first.

    A method that was asked of fewer texts than others says so, and has no rate of yes: the interval
    over fewer texts is wider.

    Args:
        rates: as of `rates_by_encoder`.
    """
    lines = [
        "| method | AUROC | AUROC, transformers | on deciding words | verdict's share | yes |",
        "|---|---|---|---|---|---|",
    ]
    methods = []
    for name, rows in rates.groupby("scores"):
        methods.append(MethodRates(str(name), rows.set_index("encoder").to_dict("index")))
    methods.sort(key=lambda method: (not method.is_general, -method.main["auroc"]))
    all_texts = rates.groupby("encoder")["texts"].max().to_dict()
    for method in methods:
        has_all_texts = method.main["texts"] == all_texts[method.main_encoder]
        title = title_of(method.name)
        cells = [
            title if has_all_texts else f"{title}, {method.main['texts']:.0f} texts",
            interval(method.main, "auroc") if method.is_general else "",
            interval(method.encoders[LAYERED], "auroc") if LAYERED in method.encoders else "",
            interval(method.main, "truth"),
            interval(method.main, "share"),
            interval(method.main, "yes", percent=True) if has_all_texts else "–",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def title_of(method: str) -> str:
    """A method in the docs: known answers in words, importances as their settings are."""
    titles = {"truth": "*the truth itself*", "reverse": "*its reverse*"}
    if method in titles:
        return titles[method]
    return f"`{built_in(method).name}`"


def interval(row: Mapping[Hashable, Any], name: str, *, percent: bool = False) -> str:
    """Such as `0.98 [0.95, 1.00]`; without brackets where there is no interval."""
    form = "{:.0f}" if percent else "{:.2f}"
    factor = 100 if percent else 1

    def number(column: str) -> str:
        return form.format(factor * row[column] + 0.0).replace("-0.00", "0.00")

    value = number(name) + (" %" if percent else "")
    if pd.isna(row[f"{name}_low"]):
        return value
    return f"{value} [{number(f'{name}_low')}, {number(f'{name}_high')}]"
