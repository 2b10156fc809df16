"""What the numbers of finished runs say.

`findings(runs)` is the one place that decides; everything else shows its table. A verdict goes this
way, with a dataclass for each step:

1. `attnprobe.evidence`: a claim's measure makes an `Evidence`, a number with its interval, of a
   table; claim and evidence are a `Finding`.
2. `rules`: the findings on one model become `Judgement`s, corrected for each other and by what was
   asked before them, and with their track record (`track_record`).
3. `chip`: the judgements become a chip and a sentence; with these they are a `Card`.
4. `table` makes the cards of all models, and `stored` keeps them as `findings.parquet`.
5. A renderer shows a `Card`, or the `Summary` of it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attnprobe.findings.table import findings

__all__ = ["findings"]


def __getattr__(name: str) -> Any:
    """Import `findings` when it is first used: the probes, whose claims it reads, import torch."""
    if name in __all__:
        return getattr(import_module("attnprobe.findings.table"), name)
    raise AttributeError(f"module 'attnprobe.findings' has no attribute {name!r}")
