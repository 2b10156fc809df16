"""Does attention point at words that speak against the decision? (Liu et al. 2022)"""

from attnprobe.report.reading import Headline, Reading

WORDS = {"contribution": "contribution to the margin", "gradient_input": "gradient × input"}

READING = Reading(
    probe="signs",
    order=12,
    title="Signs: does attention point at what speaks against the decision?",
    about=(
        "A weight is never below 0, so that attention cannot say that a word speaks against the decision. Where a measure "
        "has a sign, this is how often the most attended item is one that does, and how much attention lies on such items. "
        "Beside it stands the share of the items that speak against the decision: what the same weights in random order "
        "have. No claim is made: the weights themselves made the decision, so that on average less lies on what speaks "
        "against it, whether they mean something or not. Nor is a large number a fault of the attention alone: the model "
        "may have to read such words."
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
