"""Words that lose part of themselves, in proportion to their scores: soft comprehensiveness and sufficiency."""

import pandas as pd

from attnprobe.report.importances import means_by_importance
from attnprobe.report.reading import Headline, Reading, Tabulation

PROBE = "soft_erasure"
MARK = "soft_comprehensiveness_"
KINDS = {"soft_comprehensiveness": "soft comprehensiveness", "soft_sufficiency": "soft sufficiency"}


def of_importance(name: str, words: str) -> tuple[Headline, ...]:
    """The numbers of one importance."""
    return (
        Headline(f"soft_comprehensiveness_{name}", f"soft comprehensiveness: {words}"),
        Headline(f"soft_sufficiency_{name}", "  soft sufficiency (high is good)"),
    )


def rows(results: pd.DataFrame) -> pd.DataFrame:
    """Both metrics of every importance, per data set and model, with intervals."""
    return means_by_importance(results, PROBE, MARK, KINDS)


READING = Reading(
    probe=PROBE,
    title="Soft erasure: does the prediction rest on words as much as their scores say?",
    about=(
        "Every number of a word's vector goes with the word's score as its probability (comprehensiveness), or stays with it "
        "(sufficiency), so that no threshold decides which words count. Both are in shares of what is lost without any word; "
        "high is good. Scores that are all alike have 1 for the sum of the two."
    ),
    order=63,
    of_importance=of_importance,
    mark=MARK,
    tables=(
        Tabulation(
            "soft_erasure",
            "Soft comprehensiveness and sufficiency of each importance over n texts (Zhao & Aletras 2023), in shares of the "
            "fall of probability without any word; high is good. Means with 95 % bootstrap intervals.",
            rows,
        ),
    ),
)
