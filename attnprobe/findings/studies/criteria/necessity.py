"""Is attention needed? Learned against uniform attention.

Wiegreffe & Pinter 2019, section 3.2, table 2.
"""

from collections.abc import Mapping

from attnprobe.evidence.claims import Claim
from attnprobe.findings.members import difference
from attnprobe.findings.studies.base import StudyReading
from attnprobe.findings.studies.criteria.members import (
    Members,
    f1_by_role,
    score_table,
    seed_scores,
)
from attnprobe.findings.studies.criteria.statements import (
    PAPER,
    Wording,
    cite,
    margin_in_words,
    margin_of,
    of_several_runs,
)

WORDING = Wording(
    meets="Learned attention is better by {number}: on this data set attention is of use, and "
    "tests of it can inform.",
    fails="Learned attention is not better ({number}): on this data set attention is not needed, "
    "and the other tests of it are not informative.",
    undecided="Whether learned attention is better by more than {margin} is open: the difference "
    "is {number}.",
    no_difference="Learned and uniform attention differ by no more than {margin}, {number}: on "
    "this data set attention is not needed, and the other tests of it are not informative.",
)


def add_necessity(reading: StudyReading, members: Members, published: Mapping[str, float]) -> None:
    """Add the paper's table 2, and whether the model classifies better with learned attention.

    Args:
        reading: of the study, which is added to.
        members: its runs.
        published: the paper's numbers of this data set, by metric.
    """
    models = {"base": "learned attention", "uniform": "uniform attention"}
    f1_of_role = f1_by_role(members, models)
    table = score_table(members, models, f1_of_role, published, balanced=False)
    reading.tables["Uniform attention, frozen (the paper's table 2)"] = table

    base = members.score_parts("base")
    gain = difference(base, members.score_parts("uniform"))
    margin = margin_of(members.with_role("base")["f1"].tolist())
    claim = Claim(
        name="attention_is_needed",
        criterion="necessity",
        statement="The model classifies better with learned weights than with equal ones",
        source=f"{PAPER}, section 3.2",
        measure=of_several_runs,
        quantity="difference of F1, learned − uniform; no more than "
        f"{margin_in_words(margin)} is no relevant difference",
        speaks="for",
        smallest=margin,
        primary=True,
    )
    number = f"{cite(gain)} F1 over {len(base)} seeds and {gain.n:,} texts"
    sentence = WORDING.of(gain, margin)
    reading.add(claim, gain, sentence.format(number=number, margin=margin_in_words(margin)))

    figure = seed_scores(
        members,
        {"base": "learned", "uniform": "uniform"},
        f1_of_role,
        published,
        name="uniform",
        caption="F1 with learned and with uniform attention: a dot per seed, and their mean with "
        "its interval.",
    )
    reading.figures.append(figure)
