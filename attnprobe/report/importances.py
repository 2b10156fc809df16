"""What the report knows of importances: their titles, colours and signs, as the manifests of the runs say them.

So one that an outside package brings stands in tables and figures under its own title, and nothing of that package, nor
torch, is imported.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

IMPORTANCES = "importances"
"""Key of a table's `attrs` with the facts of its runs' importances."""
COLOURS = ("#882255", "#44AA99", "#332288", "#999933", "#CC79A7", "#009E73")
"""Of those that no manifest gives a colour."""


@dataclass(frozen=True)
class Facts:
    """An importance's title in words, its colour, and whether its scores have a sign."""

    title: str
    colour: str
    signed: bool = False


def facts_of(name: str, known: Mapping[str, Mapping[str, Any]]) -> Facts:
    """What is known of the importance of this name; made of the name where nothing is.

    >>> facts_of("my_own", {}).title
    'my own'
    """
    said = known.get(name, {})
    colour = COLOURS[sum(name.encode()) % len(COLOURS)]
    return Facts(
        str(said.get("title", name.replace("_", " "))), str(said.get("colour", colour)), bool(said.get("signed"))
    )
