"""Settings of the testbed that cannot be."""

import pytest

from attnprobe.core.errors import UserError
from attnprobe.data.testbed import generate_reviews, generate_stories


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: generate_reviews(0, 1), "0 rows from row 0: .*count=1000"),
        (lambda: generate_reviews(1, 1, start=-1), "1 rows from row -1"),
        (lambda: generate_reviews(1, 1, negation=1.5), "negation=1.5 is not a probability.*negation=0.4"),
        (lambda: generate_stories(0, 1), "0 rows"),
        (lambda: generate_stories(1, 1, hops=4), "hops=4: .*hops=1, hops=2 or hops=3"),
        (lambda: generate_stories(1, 1, people=7), "people=7: the testbed has 1 to 6"),
        (lambda: generate_stories(1, 1, rooms=1), "rooms=1: the testbed has 2 to 8"),
        (lambda: generate_stories(1, 1, hops=3, sentences=5), "sentences=5 is too short for hops=3; give sentences=6"),
        (lambda: generate_stories(1, 1, idle=1.0), "idle=1.0 .*idle=0.1"),
    ],
)
def test_wrong_settings_are_said_before_the_first_row(call, says):
    with pytest.raises(UserError, match=says):
        call()
