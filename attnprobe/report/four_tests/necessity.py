"""Is attention needed? Learned against uniform attention (Wiegreffe & Pinter 2019, section 3.2, table 2)"""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from attnprobe.report.evidence import FAILS, HOLDS, NEGLIGIBLE
from attnprobe.report.figures.studies import performances
from attnprobe.report.four_tests.findings import add, row, shown, statement
from attnprobe.report.four_tests.members import Members, seeds_vary
from attnprobe.report.joint import difference, performance
from attnprobe.report.studies import StudyReading


def uniform(reading: StudyReading, members: Members, papers: Mapping[str, float]) -> None:
    """Table 2: learned against uniform attention."""
    base, even = members.by_seed("base"), members.by_seed("uniform")
    table = pd.DataFrame(
        [
            row("learned attention", performance(members.confusions("base")), papers.get("f1_base", np.nan)),
            row("uniform attention", performance(members.confusions("uniform")), papers.get("f1_uniform", np.nan)),
        ]
    )
    reading.tables["Uniform attention, frozen (the paper's table 2)"] = table.dropna(axis="columns", how="all")
    gain, margin = difference(members.confusions("base"), members.confusions("uniform")), seeds_vary(members)
    claim = statement(
        "attention_is_needed", "necessity", "Learned attention classifies better than uniform attention",
        "section 3.2", f"difference of F1, learned − uniform; up to {margin:g}, what another seed makes, is no relevant "
        "difference", "for", smallest=margin, primary=True,
    )  # fmt: skip
    words = {
        HOLDS: "Learned attention is better by {}: on this data set attention is of use, and tests of it can inform.",
        FAILS: "Learned attention is not better ({}): on this data set attention is not needed, and the other tests of it "
        "are not informative.",
        NEGLIGIBLE: "Learned and uniform attention differ by no more than another seed makes ({}): on this data set "
        "attention is not needed, and the other tests of it are not informative.",
    }.get(gain.exceeds(0, margin), "The difference, {}, is not told apart from none.")
    add(reading, claim, gain, words.format(f"{shown(gain)} F1 over {len(base)} seeds and {gain.n:,} texts"))
    groups = {"learned": base, "uniform": even}
    marks = {"learned": papers.get("f1_base", np.nan), "uniform": papers.get("f1_uniform", np.nan)}
    caption = "F1 with learned and with uniform attention: a dot per seed, and their mean with its interval."
    reading.figures.append(("uniform", caption, performances(groups, marks, reading.data)))
