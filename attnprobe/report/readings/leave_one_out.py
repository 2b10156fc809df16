"""What does the prediction lose with each single token? (Jain & Wallace 2019, section 4.1)"""

from attnprobe.report.reading import Headline, Reading

READING = Reading(
    probe="leave_one_out",
    order=40,
    title="Leave-one-out: what the prediction loses with each token",
    about=(
        "How far the prediction moves when one token is taken out of the text and the rest is encoded anew, as total "
        "variation distance: 0 (not at all) to 1. It is the other measure that attention is compared with. It is no ground "
        "truth either: a word that is said twice can be left out once at no cost, and a text with a gap is not one that "
        "the model was trained on."
    ),
    headlines=(
        Headline("max_leave_one_out", "largest TVD without one token", by_class=True),
        Headline("decisive_tokens", "share of tokens that decide alone"),
    ),
)
