"""What the report knows of importances: their titles, colours and signs, as the manifests of the runs say them.

So one that an outside package brings stands in tables and figures under its own title, and nothing of that package, nor
torch, is imported.
"""

from dataclasses import dataclass

import pandas as pd

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


def facts_of(name: str, results: pd.DataFrame) -> Facts:
    """What the results' runs say of the importance of this name; made of the name where they say nothing.

    >>> facts_of("my_own", pd.DataFrame()).title
    'my own'
    """
    said = results.attrs.get(IMPORTANCES, {}).get(name, {})
    colour = COLOURS[sum(name.encode()) % len(COLOURS)]
    return Facts(
        str(said.get("title", name.replace("_", " "))), str(said.get("colour", colour)), bool(said.get("signed"))
    )


def importances_in(results: pd.DataFrame, mark: str) -> list[str]:
    """The names that follow `mark` in the table's metrics, in alphabetical order."""
    return sorted(str(one).removeprefix(mark) for one in results["metric"].unique() if str(one).startswith(mark))
