"""Which tokens does the prediction react to most? (Jain & Wallace 2019, section 4.1)"""

from attnprobe.report.reading import Headline, HeatMap, Reading

READING = Reading(
    probe="gradient",
    order=30,
    title="Gradients: what the prediction reacts to",
    about=(
        "The gradient of the predicted probability by each token's word vector, times that vector, as a share of the "
        "text's sum: 0 to 1 per token. A large share on one token means that the prediction reacts to it most. This is "
        "one of the two measures that attention is compared with; it is no ground truth: a gradient describes small "
        "changes only, and fades where a prediction is saturated."
    ),
    maps=(HeatMap("gradient", "Gradient", "share of the gradient, attention held fixed; sums to 1"),),
    headlines=(Headline("max_gradient", "largest share of the gradient on one token", by_class=True),),
)
