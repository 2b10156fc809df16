"""Is attention of use to another model? (Wiegreffe & Pinter 2019, section 3.4, table 3)"""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from attnprobe.report.evidence import FAILS, HOLDS, NEGLIGIBLE
from attnprobe.report.figures.studies import performances
from attnprobe.report.four_tests.findings import add, row, shown, statement
from attnprobe.report.four_tests.members import Members, seeds_vary
from attnprobe.report.joint import difference, performance
from attnprobe.report.studies import StudyReading

GUIDES = {
    "uniform": "uniform attention",
    "trained": "attention trained with it",
    "base": "attention of the base",
    "adversary": "attention of the trained adversary",
}


def guide(reading: StudyReading, members: Members, papers: Mapping[str, float]) -> None:
    """Table 3: a model without context under four attentions."""
    groups = {name: members.by_seed(f"guide_{name}") for name in GUIDES}
    marks = {name: papers.get(f"f1_guide_{name}", np.nan) for name in GUIDES}
    reading.tables["A model without context, guided by attention (the paper's table 3)"] = pd.DataFrame(
        [row(words, performance(members.confusions(f"guide_{name}")), marks[name]) for name, words in GUIDES.items()]
    ).dropna(axis="columns", how="all")
    gain, margin = (
        difference(members.confusions("guide_base"), members.confusions("guide_uniform")),
        seeds_vary(members),
    )
    claim = statement(
        "attention_guides", "transfer", "The base's attention helps a model without context more than uniform attention does",
        "section 3.4", f"difference of F1, guided by the base − uniform; up to {margin:g} is no relevant difference", "for",
        smallest=margin, primary=True,
    )  # fmt: skip
    own = difference(members.confusions("guide_base"), members.confusions("guide_trained"))
    lost = difference(members.confusions("guide_base"), members.confusions("guide_adversary"))
    no = "It does not help by more than another seed makes"
    verdict = {HOLDS: "It helps", FAILS: no, NEGLIGIBLE: no}.get(gain.exceeds(0, margin), "Whether it helps is open")
    words = (
        f"{verdict}: guided by the base the model without context gains {shown(gain)} F1 over uniform attention, and "
        f"{shown(own)} over attention of its own, over {len(groups['base'])} seeds."
    )
    add(reading, claim, gain, words)
    claim = statement(
        "adversary_guides_worse", "transfer", "The trained adversary's attention guides worse than the base's",
        "section 3.4", f"difference of F1, guided by the base − by the adversary; up to {margin:g} is no relevant difference",
        "for", smallest=margin,
    )  # fmt: skip
    verdict = {HOLDS: "is worse", FAILS: "is no worse", NEGLIGIBLE: "is no worse by more than another seed makes"}.get(
        lost.exceeds(0, margin), "is not told apart"
    )
    add(reading, claim, lost, f"Guidance by the adversary {verdict}: the base's is ahead by {shown(lost)} F1.")
    caption = (
        "F1 of the model without context by the attention it is given: a dot per seed, their mean with its interval."
    )
    shown_groups = {GUIDES[name]: values for name, values in groups.items()}
    reading.figures.append(
        ("guide", caption, performances(shown_groups, {GUIDES[n]: v for n, v in marks.items()}, reading.data))
    )
