"""python -m attnprobe.probes [FILE]: what every metric is, as Markdown tables; with FILE, each into
its place there (docs/reference.md), between `<!-- metrics of NAME -->` and `<!-- end -->`."""

import re
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from inspect import isabstract
from itertools import groupby
from pathlib import Path
from pkgutil import iter_modules
from textwrap import fill
from typing import Any

import attnprobe.probes
from attnprobe.core.metrics import Metric
from attnprobe.models.performance import PERFORMANCE, TRAINING
from attnprobe.probes.base import DESCRIPTION, Probe, RankingProbe

BLOCK = re.compile(r"(?<=<!-- metrics of )(\w+)( -->\n).*?(?=<!-- end -->)", re.DOTALL)
WIDE: dict[str, Any] = {"width": 120, "break_long_words": False, "break_on_hyphens": False}
BETTER = {True: "higher", False: "lower", None: ""}


def probes() -> dict[str, type[Probe]]:
    """The built-in probes, by name."""
    names = [one.name for one in iter_modules(attnprobe.probes.__path__) if one.name != "__main__"]
    modules = [import_module(f"{attnprobe.probes.__name__}.{name}") for name in names]
    classes = [one for module in modules for one in vars(module).values() if isinstance(one, type)]
    return {one.name: one for one in classes if issubclass(one, Probe) and not isabstract(one)}


def blocks() -> dict[str, str]:
    """The Markdown of every table of a run by its name, and of what all probes' tables have."""
    every = [
        f"`{name}`"
        for name, probe in sorted(probes().items())
        if set(DESCRIPTION) <= set(probe.metrics)
    ]
    written = {
        "description": fill(f"In the tables of {', '.join(every)}:", **WIDE)
        + "\n\n"
        + _table(DESCRIPTION),
        "performance": _table(PERFORMANCE),
        "training": _table(TRAINING),
    }
    for name, probe in probes().items():
        written[name] = _table([one for one in probe.metrics if one not in DESCRIPTION])
        if issubclass(probe, RankingProbe):
            labels = ", ".join(f"`{probe.filed.get(one, one)}`" for one in probe.published)
            sentence = f"Importances, unless `importances=[…]` names others: {labels}."
            written[name] = fill(sentence, **WIDE) + "\n\n" + written[name]
    return written


def _table(metrics: Sequence[Metric]) -> str:
    """Metrics as a Markdown table; those that differ in nothing but the name share a line."""

    def cells(metric: Metric) -> tuple[str, ...]:
        about = "; ".join(filter(None, [metric.about, metric.only])) + (
            f" ({metric.source})" if metric.source else ""
        )
        return metric.scale.words, metric.step, BETTER[metric.higher_is_better], about

    lines: list[tuple[str, ...]] = [("metric", "unit, range", "step", "better", "")]
    lines += [
        (", ".join(f"`{one.name}`" for one in alike), *rest)
        for rest, alike in groupby(metrics, key=cells)
    ]
    written = [
        "|" + "|".join(f" {cell} " if cell else " " for cell in line) + "|" for line in lines
    ]
    return "\n".join([written[0], "|---" * len(lines[0]) + "|", *written[1:]]) + "\n"


def filled(page: str, content: Mapping[str, str]) -> str:
    """A page with the metrics of the tables that it has places for."""
    return BLOCK.sub(lambda place: f"{place[1]}{place[2]}\n{content[place[1]]}\n", page)


if __name__ == "__main__":
    if len(sys.argv) == 1:
        print("\n".join(f"### `{name}`\n\n{block}" for name, block in blocks().items()))
    else:
        path = Path(sys.argv[1])
        path.write_text(filled(path.read_text(encoding="utf-8"), blocks()), encoding="utf-8")
