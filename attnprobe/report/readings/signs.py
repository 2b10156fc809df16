"""Does attention point at words that speak against the decision? (Liu et al. 2022)"""

import numpy as np

from attnprobe.report.claims import Claim
from attnprobe.report.evidence import mean_of
from attnprobe.report.reading import Headline, Reading

LEVELS = {"contribution": "state", "gradient_input": "word"}
WORDS = {"contribution": "contribution to the margin", "gradient_input": "gradient × input"}

READING = Reading(
    probe="signs",
    order=12,
    title="Signs: does attention point at what speaks against the decision?",
    about=(
        "A weight is never below 0, so that attention cannot say that a word speaks against the decision. Where a measure "
        "has a sign, this is how often the most attended item is one that does, and how much attention lies on such items. "
        "Beside it stands the share of the items that speak against the decision: what the same weights in random order "
        "have. A large number is no fault of the attention alone: the model may have to read such words."
    ),
    claims=tuple(
        Claim(
            name=f"points_for_the_decision_{name}",
            criterion="erasure",
            statement=f"Less attention lies on what speaks against the decision, by its {WORDS[name]}, than in random order",
            source="Liu et al. 2022, section 3, with a null that keeps the mechanism",
            measure=mean_of(f"chance_{name}", f"against_{name}", value=np.subtract, reach=2.0),
            quantity="share of the items that speak against the decision − attention on them, −1 to 1; up to 0.02 is no "
            "relevant difference",
            speaks="for",
            level=level,
            smallest=0.02,
        )
        for name, level in LEVELS.items()
    ),
    headlines=tuple(
        headline
        for name, words in WORDS.items()
        for headline in (
            Headline(f"violation_{name}", f"top item speaks against the decision, by {words}"),
            Headline(f"against_{name}", "  attention on all that do"),
            Headline(f"chance_{name}", "  share of the items that do: weights in random order"),
        )
    ),
)
