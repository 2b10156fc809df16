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

from attnprobe.findings.table import findings

__all__ = ["findings"]
