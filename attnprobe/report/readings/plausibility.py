"""Do attention and the other importances point at the known reason?"""

import numpy as np

from attnprobe.report.claims import Claim
from attnprobe.report.evidence import mean_of
from attnprobe.report.reading import Column, Headline, Reading
from attnprobe.report.readings.leave_one_out import checked
from attnprobe.report.skill import beyond_chance

SOURCE = "DeYoung et al. 2020, section 4"
SMALLEST = 0.1
"""Of what lies between chance and the whole rationale, what is worth a word."""


def more_than_chance(name: str, statement: str, metric: str, quantity: str, *, primary: bool = False) -> Claim:
    """A claim that attention is on the rationale more than chance would be."""
    return Claim(
        name=name,
        criterion="plausibility",
        statement=statement,
        source=SOURCE,
        measure=beyond_chance(f"{metric}_attention", "rationale_share"),
        quantity=quantity,
        speaks="for",
        level="word",
        smallest=SMALLEST,
        primary=primary,
    )


CLAIMS = (
    more_than_chance(
        "top_token_in_rationale",
        "The most attended word is in the rationale more often than a random one",
        "top_in_rationale",
        "share of the texts whose top word is in the rationale, on a scale on which chance is 0 and always is 1",
    ),
    more_than_chance(
        "mass_on_rationale",
        "More attention lies on the rationale than a uniform attention would put there",
        "mass_in_rationale",
        "attention on the rationale, on a scale on which a uniform attention has 0 and all of it on the rationale 1",
        primary=True,
    ),
    Claim(
        name="gradient_is_more_plausible",
        criterion="plausibility",
        statement="The top word by gradient is in the rationale more often than the most attended one",
        source=SOURCE,
        measure=mean_of("top_in_rationale_gradient", "top_in_rationale_attention", value=np.subtract),
        quantity="difference of the shares of the texts, −1 to 1",
        level="word",
    ),
)


def of_importance(name: str, title: str) -> tuple[Headline, ...]:
    """The numbers of one importance."""
    return (
        Headline(f"top_in_rationale_{name}", f"top token in the rationale, {title}"),
        Headline(f"mass_in_rationale_{name}", f"mass on the rationale, {title}"),
        Headline(f"f1_rationale_{name}", f"F1 of as many words as it has, {title}"),
        Headline(f"auprc_rationale_{name}", f"average precision, {title}"),
    )


READING = Reading(
    probe="plausibility",
    of_importance=of_importance,
    mark="top_in_rationale_",
    order=60,
    noted=checked,
    title="Plausibility: does it point at the known reason?",
    about=(
        "How often the top word of each importance lies in the rationale (the words that a human, or the "
        "maker of the data, calls the reason), and what share of each lies on it: 0 to 1. The rationale's share of the "
        "text is what chance would reach. This says that an explanation looks right, not that the model reasons that way "
        "(Jacovi & Goldberg 2020): a faithful explanation of a wrong model looks wrong."
    ),
    claims=CLAIMS,
    columns=(Column("top_in_rationale_attention", "most attended is in the rationale", sorts=False, truth=True),),
    headlines=(
        Headline("rationale_share", "share of the text that is rationale (chance)"),
        Headline("auprc_chance", "average precision of a random order (chance)"),
    ),
)
