"""What is known of importances, and which of them a table has numbers of.

It is read from the runs' manifests, so that neither an outside package nor torch is imported.
"""

import re
from dataclasses import dataclass

import pandas as pd
from matplotlib.colors import is_color_like

from attnprobe.results.pivot import metrics_there
from attnprobe.results.table import IMPORTANCES

COLOURS = ("#882255", "#44AA99", "#332288", "#117733", "#AA4499", "#661100")


@dataclass(frozen=True)
class Facts:
    """What is known of an importance.

    Attributes:
        title: its name in words.
        colour: of its lines in figures.
        signed: whether its scores have a sign.
    """

    title: str
    colour: str
    signed: bool = False

    @property
    def ascii_title(self) -> str:
        """The title in plain ASCII, for log files."""
        return self.title.replace("×", "x").encode("ascii", "replace").decode("ascii")


def facts_of(name: str, results: pd.DataFrame, probe: str) -> Facts:
    """What the results' runs say of an importance, or else what its name says.

    Args:
        name: what the probe files the importance under.
        results: a long table.
        probe: whose importance it is.

    >>> facts_of("my_own", pd.DataFrame(), "erasure").title
    'my own'
    """
    facts = results.attrs.get(IMPORTANCES, {}).get(probe, {}).get(name, {})
    default_colour = COLOURS[sum(name.encode()) % len(COLOURS)]
    colour = facts.get("colour", default_colour)
    return Facts(
        title=str(facts.get("title", name.replace("_", " "))),
        colour=colour if is_color_like(colour) else default_colour,
        signed=bool(facts.get("signed")),
    )


def importances_in(results: pd.DataFrame, probe: str, mark: str) -> dict[str, Facts]:
    """The importances that a probe has numbers of.

    Args:
        results: a long table.
        probe: whose metrics they are.
        mark: what stands before an importance's name in a metric.

    Returns:
        Name → facts, in the order in which the probe took its importances; those of which the runs
        say nothing follow in alphabetical order.
    """
    metrics = metrics_there(results, probe)
    names = {metric.removeprefix(mark) for metric in metrics if metric.startswith(mark)}
    declared = [name for name in results.attrs.get(IMPORTANCES, {}).get(probe, {}) if name in names]
    ordered = [*declared, *sorted(names.difference(declared))]
    return {name: facts_of(name, results, probe) for name in ordered}


def importances_and_operators(
    results: pd.DataFrame, probe: str, mark: str
) -> list[tuple[str, str]]:
    """(importance, operator) of the metrics `<mark><importance>_by_<operator>` of a probe."""
    names = importances_in(results, probe, mark)
    matches = [re.fullmatch(r"(.+)_by_(\w+?)", name) for name in names]
    return [(match[1], match[2]) for match in matches if match]
