"""Do attention and the other importances point at the known reason?"""

from attnprobe.report.reading import Headline, Reading

NAMES = {"attention": "attention", "gradient": "gradient", "leave_one_out": "leave-one-out"}

READING = Reading(
    probe="plausibility",
    order=60,
    headlines=(
        Headline("rationale_share", "share of the text that is rationale (chance)"),
        *(Headline(f"top_in_rationale_{key}", f"top token in the rationale, {name}") for key, name in NAMES.items()),
        *(Headline(f"mass_in_rationale_{key}", f"mass on the rationale, {name}") for key, name in NAMES.items()),
    ),
)
