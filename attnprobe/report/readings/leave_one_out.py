"""What does the prediction lose with each single token? (Jain & Wallace 2019, section 4.1)"""

from attnprobe.report.reading import Headline, Reading

READING = Reading(
    probe="leave_one_out",
    order=40,
    headlines=(
        Headline("max_leave_one_out", "largest TVD without one token", by_class=True),
        Headline("decisive_tokens", "share of tokens that decide alone"),
    ),
)
