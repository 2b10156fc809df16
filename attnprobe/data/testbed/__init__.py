"""Texts made from a seed, whose label and whose reason for the label are known: the default data of every experiment.

Reviews (`attnprobe.data.testbed.reviews`) have a sentiment; stories (`attnprobe.data.testbed.stories`) are asked about.
"""

from attnprobe.data.testbed.reviews import RULES, generate_reviews
from attnprobe.data.testbed.stories import generate_stories

__all__ = ["RULES", "generate_reviews", "generate_stories"]
