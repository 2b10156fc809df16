"""How much of attention's order hangs on differences that are next to nothing?"""

from attnprobe.report.reading import Headline, Reading

READING = Reading(
    probe="near_ties",
    order=52,
    title="Near ties: how firm is the order of the weights?",
    about=(
        "Rank correlations count every pair of positions alike, also those whose weights hardly differ. Here every weight is "
        "moved by about a hundredth of itself (a setting), and the weights are compared with themselves: no measure can "
        "agree better with an order that is only known so well."
    ),
    headlines=(
        Headline("near_ties", "pairs of weights that are nearly level"),
        Headline("top_gap", "lead of the largest weight, as a share of it"),
        Headline("tau_moved", "tau(attention, attention moved by 1 %)"),
        Headline("top_stays", "  the same top word"),
    ),
)
