"""Texts made from a seed, whose label and its reason are known: the default data of experiments.

Reviews (`attnprobe.data.testbed.reviews`) have a sentiment; stories
(`attnprobe.data.testbed.stories`) are asked about; transductions
(`attnprobe.data.testbed.transductions`) are made into another sequence symbol by symbol.
"""

from attnprobe.data.testbed.reviews import RULES, generate_reviews
from attnprobe.data.testbed.stories import generate_stories
from attnprobe.data.testbed.transductions import TRANSDUCTIONS, generate_transductions

__all__ = [
    "RULES",
    "TRANSDUCTIONS",
    "generate_reviews",
    "generate_stories",
    "generate_transductions",
]
