"""Which tokens does the prediction react to most? (Jain & Wallace 2019, section 4.1)"""

from attnprobe.report.reading import Headline, Reading

READING = Reading(
    probe="gradient",
    order=30,
    headlines=(Headline("max_gradient", "largest share of the gradient on one token", by_class=True),),
)
