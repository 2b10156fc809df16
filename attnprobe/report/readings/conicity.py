"""Are the states that attention chooses from alike? (Mohankumar et al. 2020)"""

from attnprobe.report.reading import Headline, Reading

READING = Reading(
    probe="conicity",
    order=14,
    title="Conicity: are the states that attention chooses from alike?",
    about=(
        "The mean cosine of a text's states with their mean. Near 1 all states point the same way: whichever of them is "
        "attended to, much the same comes out, and a weight says little of its word. As many vectors in random directions "
        "are shown beside it; of few vectors these are far from 0 too."
    ),
    headlines=(
        Headline("conicity", "mean cosine of the states with their mean"),
        Headline("conicity_null", "  in random directions"),
    ),
)
