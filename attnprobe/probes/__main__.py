"""Print what every metric is, as Markdown tables, or fill them into a page.

`python -m attnprobe.probes` prints all tables. `python -m attnprobe.probes FILE` writes each into
its place in FILE (docs/reference.md), between `<!-- metrics of NAME -->` and `<!-- end -->`.
"""

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
    classes = {}
    for module in iter_modules(attnprobe.probes.__path__):
        if module.name == "__main__":
            continue
        for value in vars(import_module(f"{attnprobe.probes.__name__}.{module.name}")).values():
            if isinstance(value, type) and issubclass(value, Probe) and not isabstract(value):
                classes[value.name] = value
    return classes


def blocks() -> dict[str, str]:
    """The Markdown of each table by its name, and of the metrics that several probes share."""
    describing = [
        f"`{name}`"
        for name, probe in sorted(probes().items())
        if set(DESCRIPTION) <= set(probe.metrics)
    ]
    places = fill(f"In the tables of {', '.join(describing)}:", **WIDE)
    tables = {
        "description": f"{places}\n\n{_table(DESCRIPTION)}",
        "performance": _table(PERFORMANCE),
        "training": _table(TRAINING),
    }
    for name, probe in probes().items():
        tables[name] = _table([metric for metric in probe.metrics if metric not in DESCRIPTION])
        if issubclass(probe, RankingProbe):
            labels = [f"`{probe.filed.get(label, label)}`" for label in probe.published]
            sentence = f"Importances, unless `importances=[…]` names others: {', '.join(labels)}."
            tables[name] = f"{fill(sentence, **WIDE)}\n\n{tables[name]}"
    return tables


def _table(metrics: Sequence[Metric]) -> str:
    """Metrics as a Markdown table; consecutive ones that differ only in their name share a line."""
    lines = [
        _line(["metric", "unit, range", "step", "better", ""]),
        "|---" * 5 + "|",
    ]
    for facts, alike in groupby(metrics, key=_facts):
        names = ", ".join(f"`{metric.name}`" for metric in alike)
        lines.append(_line([names, *facts]))
    return "\n".join(lines) + "\n"


def _facts(metric: Metric) -> tuple[str, str, str, str]:
    about = "; ".join(filter(None, [metric.about, metric.only]))
    if metric.source:
        about += f" ({metric.source})"
    return metric.scale.words, metric.step, BETTER[metric.higher_is_better], about


def _line(cells: Sequence[str]) -> str:
    return "|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|"


def filled(page: str, content: Mapping[str, str]) -> str:
    """A page with each of its `<!-- metrics of NAME -->` places filled by `content[NAME]`."""
    return BLOCK.sub(lambda place: f"{place[1]}{place[2]}\n{content[place[1]]}\n", page)


def main() -> None:
    """Print the tables, or fill them into the page that the command line names."""
    if len(sys.argv) == 1:
        print("\n".join(f"### `{name}`\n\n{block}" for name, block in blocks().items()))
    else:
        path = Path(sys.argv[1])
        path.write_text(filled(path.read_text(encoding="utf-8"), blocks()), encoding="utf-8")


if __name__ == "__main__":
    main()
