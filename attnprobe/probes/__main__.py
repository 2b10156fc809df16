"""python -m attnprobe.probes [FILE]: what every metric is, as Markdown tables; with FILE, each into its place there
(docs/results.md), between `<!-- metrics of NAME -->` and `<!-- end -->`."""

import re
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from inspect import isabstract
from itertools import groupby
from pathlib import Path
from pkgutil import iter_modules
from textwrap import fill

import attnprobe.probes
from attnprobe.models.performance import PERFORMANCE, TRAINING
from attnprobe.probes.base import DESCRIPTION, Probe, RankingProbe
from attnprobe.results.metrics import Metric

BLOCK = re.compile(r"(?<=<!-- metrics of )(\w+)( -->\n).*?(?=<!-- end -->)", re.DOTALL)
EVERY = "description"
HEADS = ("metric", "unit, range", "step", "better", "")
BETTER = {True: "higher", False: "lower", None: ""}


def probes() -> dict[str, type[Probe]]:
    """The built-in probes, by name."""
    names = [one.name for one in iter_modules(attnprobe.probes.__path__) if one.name != "__main__"]
    modules = [import_module(f"{attnprobe.probes.__name__}.{name}") for name in names]
    classes = [one for module in modules for one in vars(module).values() if isinstance(one, type)]
    return {one.name: one for one in classes if issubclass(one, Probe) and not isabstract(one)}


def blocks() -> dict[str, str]:
    """The Markdown of every table of a run, by its name, and of what all probes' tables have."""
    every = {name: probe for name, probe in sorted(probes().items()) if set(DESCRIPTION) <= set(probe.metrics)}
    told = wrapped(f"In the tables of {listed(list(every))}:") + f"\n\n{table(DESCRIPTION)}"
    return {EVERY: told, "performance": table(PERFORMANCE), "training": table(TRAINING)} | {
        name: block_of(probe) for name, probe in probes().items()
    }


def block_of(probe: type[Probe]) -> str:
    """A probe's importances, and its metrics but for those of every probe."""
    own = [one for one in probe.metrics if one not in DESCRIPTION]
    if not issubclass(probe, RankingProbe):
        return table(own)
    labels = [probe.filed.get(name, name) for name in probe.published]
    return wrapped(f"Importances, unless `importances=[…]` names others: {listed(labels)}.") + f"\n\n{table(own)}"


def listed(names: Sequence[str]) -> str:
    """Names as code, one after the other."""
    return ", ".join(f"`{name}`" for name in names)


def wrapped(sentence: str) -> str:
    """A sentence in lines."""
    return fill(sentence, 120, break_long_words=False, break_on_hyphens=False)


def table(metrics: Sequence[Metric]) -> str:
    """Metrics as a Markdown table; those that differ in nothing but the name share a line."""
    lines = [line(HEADS), "|---" * len(HEADS) + "|"]
    lines += [line([listed([one.name for one in alike]), *cells]) for cells, alike in groupby(metrics, key=cells_of)]
    return "\n".join(lines) + "\n"


def line(cells: Sequence[str]) -> str:
    """A line of a Markdown table."""
    return "|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|"


def cells_of(metric: Metric) -> tuple[str, ...]:
    """The cells of a metric's line after its name."""
    remarks = [metric.about, metric.only]
    about = "; ".join(one for one in remarks if one) + (f" ({metric.source})" if metric.source else "")
    return metric.scale.words, metric.step, BETTER[metric.higher_is_better], about


def filled(page: str, content: Mapping[str, str]) -> str:
    """A page with the metrics of the tables that it has places for."""
    return BLOCK.sub(lambda place: f"{place[1]}{place[2]}\n{content[place[1]]}\n", page)


def main() -> None:
    """Write them into a file, or print them."""
    if len(sys.argv) == 1:
        for name, block in blocks().items():
            print(f"### `{name}`\n\n{block}")
        return
    path = Path(sys.argv[1])
    path.write_text(filled(path.read_text(encoding="utf-8"), blocks()), encoding="utf-8")


if __name__ == "__main__":
    main()
