"""Do the weights carry the label, so that they guide another model?

Wiegreffe & Pinter 2019, section 3.4, table 3.
"""

from collections.abc import Mapping

from attnprobe.evidence.claims import Claim
from attnprobe.findings.members import balanced_accuracy, difference
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

GUIDES = {
    "guide_uniform": "uniform attention",
    "guide_trained": "attention trained with it",
    "guide_base": "attention of the base",
    "guide_adversary": "attention of the trained adversary",
}
"""Role → the attention that its model without context is given."""

HELPS = Wording(
    meets="It helps",
    fails="It does not help by more than {margin}",
    undecided="Whether it helps by more than {margin} is open",
)
ADVERSARY_IS_WORSE = Wording(
    meets="Guidance by the adversary is worse",
    fails="Guidance by the adversary is no worse",
    undecided="Whether guidance by the adversary is worse by more than {margin} is open",
    no_difference="Guidance by the adversary is no worse by more than {margin}",
)


def add_leak(reading: StudyReading, members: Members, published: Mapping[str, float]) -> None:
    """Add the paper's table 3: a model without context under four attentions.

    Two claims go with it: the base's attention guides better than equal weights, and better than
    the trained adversary's. Both are judged by balanced accuracy.

    Args:
        reading: of the study, which is added to.
        members: its runs.
        published: the paper's numbers of this data set, by metric.
    """
    f1_of_role = f1_by_role(members, GUIDES)
    table = score_table(members, GUIDES, f1_of_role, published, balanced=True)
    reading.tables["A model without context, guided by attention (the paper's table 3)"] = table

    guided = members.score_parts("guide_base", balanced_accuracy)
    margin = margin_of([float(balanced_accuracy(parts.sum(0))) for parts in guided.values()])
    gains = {
        rival: difference(
            guided, members.score_parts(f"guide_{rival}", balanced_accuracy), balanced_accuracy
        )
        for rival in ("uniform", "trained", "adversary")
    }

    guides = Claim(
        name="attention_guides",
        criterion="leak",
        statement="The base's attention tells a model without context more of the label than equal "
        "weights",
        source=f"{PAPER}, section 3.4",
        measure=of_several_runs,
        quantity="balanced accuracy, guided by the base − uniform; no more than "
        f"{margin_in_words(margin)} is no relevant difference",
        speaks="for",
        smallest=margin,
        primary=True,
    )
    helps = HELPS.of(gains["uniform"], margin).format(margin=margin_in_words(margin))
    words = (
        f"{helps}: guided by the base the model without context gains "
        f"{cite(gains['uniform'])} balanced accuracy over uniform attention, and "
        f"{cite(gains['trained'])} over attention of its own, over {len(guided)} seeds."
    )
    reading.add(guides, gains["uniform"], words)

    adversary_guides_worse = Claim(
        name="adversary_guides_worse",
        criterion="leak",
        statement="The trained adversary's attention guides worse than the base's",
        source=f"{PAPER}, section 3.4",
        measure=of_several_runs,
        quantity="balanced accuracy, guided by the base − by the adversary; no more than "
        f"{margin_in_words(margin)} is no relevant difference",
        smallest=margin,
    )
    is_worse = ADVERSARY_IS_WORSE.of(gains["adversary"], margin)
    words = (
        f"{is_worse.format(margin=margin_in_words(margin))}: balanced accuracy by the base's minus "
        f"by the adversary's is {cite(gains['adversary'])}."
    )
    reading.add(adversary_guides_worse, gains["adversary"], words)

    figure = seed_scores(
        members,
        GUIDES,
        f1_of_role,
        published,
        name="guide",
        caption="F1 of the model without context by the attention it is given: a dot per seed, "
        "their mean with its interval.",
    )
    reading.figures.append(figure)
