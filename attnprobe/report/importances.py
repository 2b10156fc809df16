"""What the report knows of importances: their titles, colours and signs, as the manifests of the runs say them.

So one that an outside package brings appears in tables and figures under its own title, and nothing of that package, nor
torch, is imported.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd
from matplotlib.colors import is_color_like

from attnprobe.report.wide import ByMetric, facets, mean_in_columns, metrics_there, per_example
from attnprobe.results.table import IMPORTANCES

COLOURS = ("#882255", "#44AA99", "#332288", "#117733", "#AA4499", "#661100")
"""Of those that no manifest gives a colour."""


@dataclass(frozen=True)
class Facts:
    """An importance's title in words, its colour, and whether its scores have a sign."""

    title: str
    colour: str
    signed: bool = False

    @property
    def ascii_title(self) -> str:
        """The title for a log file."""
        return self.title.replace("×", "x").encode("ascii", "replace").decode("ascii")


def facts_of(name: str, results: pd.DataFrame | ByMetric, probe: str) -> Facts:
    """What the results' runs say of the importance that a probe files under this name; made of the name where they say
    nothing.

    >>> facts_of("my_own", pd.DataFrame(), "erasure").title
    'my own'
    """
    said = results.attrs.get(IMPORTANCES, {}).get(probe, {}).get(name, {})
    colour = COLOURS[sum(name.encode()) % len(COLOURS)]
    own = said.get("colour", colour)
    return Facts(
        str(said.get("title", name.replace("_", " "))), own if is_color_like(own) else colour, bool(said.get("signed"))
    )


def importances_in(results: pd.DataFrame | ByMetric, probe: str, mark: str) -> list[str]:
    """The names that follow `mark` in the metrics of a probe, in the order in which the probe took its importances; those
    of which the runs say nothing follow in alphabetical order."""
    there = {one.removeprefix(mark) for one in metrics_there(results, probe) if one.startswith(mark)}
    said = [name for name in results.attrs.get(IMPORTANCES, {}).get(probe, {}) if name in there]
    return [*said, *sorted(there.difference(said))]


def means_by_importance(results: pd.DataFrame, probe: str, mark: str, kinds: Mapping[str, str]) -> pd.DataFrame:
    """One row per data set and model and importance X: in how many texts the first kind is known, and the mean of each
    kind's metric (`<kind>_X`) under its heading, with a 95 % bootstrap interval over the texts. Empty without importances."""
    names = importances_in(results, probe, mark)
    metrics = [f"{kind}_{name}" for name in names for kind in kinds]
    first = next(iter(kinds))
    lines = []
    for facet in facets(per_example(results, probe, metrics)) if names else []:
        for name in names:
            known = int(facet.rows[f"{first}_{name}"].notna().sum())
            line: dict[str, object] = {"data and model": facet.title}
            line |= {"importance": facts_of(name, results, probe).title, "n": known}
            for kind, heading in kinds.items():
                line |= mean_in_columns(heading, facet.rows[f"{kind}_{name}"].to_numpy())
            lines.append(line)
    return pd.DataFrame(lines)
