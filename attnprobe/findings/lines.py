"""The lines of a card: the questions that every model is asked, and the setting that tests each."""

from dataclasses import dataclass

from attnprobe.evidence import deciding_words

Place = tuple[str, str]
"""Criterion and level of a line."""


@dataclass(frozen=True)
class Line:
    """A question that every card answers.

    Attributes:
        criterion: one of `attnprobe.evidence.claims.CRITERIA`.
        level: one of `attnprobe.evidence.claims.LEVELS`.
        yes: what a yes says of the attention, in a few words.
        tested_by: the setting that adds the test.
    """

    criterion: str
    level: str
    yes: str
    tested_by: str

    @property
    def place(self) -> Place:
        """Criterion and level, which tell the lines apart."""
        return self.criterion, self.level


SEVERAL = "+experiment=audit"
"""Trains the model several times."""
NECESSITY = Line("necessity", "model", "better than equal weights", SEVERAL)
STABILITY = Line("stability", "model", "same words in another training", SEVERAL)
STATES = Line("erasure", "state", "erasing the top state changes the prediction", "probe=[skill]")
WORDS = Line(*deciding_words.LINE, deciding_words.ON_CARD, deciding_words.TESTED_BY)
"""The line that the chip goes by."""
LEAK = Line("leak", "model", "the weights alone reveal the label", "+experiment=wiegreffe")
PLAUSIBILITY = Line("plausibility", "word", "on the words that people mark", "probe=[plausibility]")
CARD = (
    NECESSITY,
    STABILITY,
    Line("agreement", "word", "agrees with leaving out single words", "probe=[agreement]"),
    Line(
        "exclusivity",
        "state",
        "very different weights change the prediction",
        "probe=[adversarial]",
    ),
    STATES,
    WORDS,
    LEAK,
    PLAUSIBILITY,
)
"""Every line, in the order of a card."""
LINES = {line.place: line for line in CARD}
NEEDS_MARKS = "data.rationale=COLUMN"
"""What tests plausibility where the data do not say which words people marked."""
NEUTRAL = (LEAK.criterion,)
"""Criteria that speak neither for the attention nor against it: right and wrong weights may carry
the label, or not."""
