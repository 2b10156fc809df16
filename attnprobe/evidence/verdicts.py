"""The words of a decision: eight verdicts, four answers and five chips, as one table.

A *verdict* says what the numbers decide about a claim. An *answer* says the same to a question in a
word. A *chip* says whether an attention may be read. Each verdict has one answer, and it leads to
one chip where it is the verdict on the words that decide (`attnprobe.evidence.deciding_words`):

| verdict | answer | chip |
|---|---|---|
| meets | yes | With care (Read it, where nothing speaks against it) |
| fails | no | No |
| no relevant difference | no | No |
| cannot decide | open | Not shown |
| too rare to say | open | Not shown |
| not informative | open | Not shown |
| not meaningful | open | Do not read |
| not tested | untested | Not shown |
"""

from enum import StrEnum


class Answer(StrEnum):
    """The answer to a question.

    Attributes:
        sign: stands beside the word, so that no answer is told by its colour alone.
        meaning: a clause for readers of the page.
    """

    sign: str
    meaning: str

    def __new__(cls, word: str, sign: str, meaning: str) -> "Answer":
        """Make a member that is equal to its word."""
        answer = str.__new__(cls, word)
        answer._value_ = word
        answer.sign = sign
        answer.meaning = meaning
        return answer

    YES = (
        "yes",
        "✓",
        "the whole 95 % interval lies beyond what is asked for; "
        "a tick: how often such a yes is right is known",
    )
    NO = (
        "no",
        "✗",
        "none of the interval reaches what is asked for, "
        "or all of it is too close to no effect to matter",
    )
    OPEN = (
        "open",
        "?",
        "the interval is too wide, too few texts carry the number, "
        "or this test cannot tell right from wrong here",
    )
    UNTESTED = ("untested", "–", "the test that decides it was not run")


class Chip(StrEnum):
    """May this attention be read?"""

    READ = "Read it"
    CARE = "With care"
    NO = "No"
    UNSHOWN = "Not shown"
    POOR = "Do not read"


class Verdict(StrEnum):
    """What the numbers decide about a claim.

    The first six follow from one number alone. A verdict is `not meaningful` where the model may be
    guessing, and `not tested` where there is no number.

    Attributes:
        answer: the verdict in a word.
        chip: the best chip of an attention with this verdict on the words that decide; `Read it`
            takes more than a verdict.
    """

    answer: Answer
    chip: Chip

    def __new__(cls, words: str, answer: Answer, chip: Chip) -> "Verdict":
        """Make a member that is equal to its words."""
        verdict = str.__new__(cls, words)
        verdict._value_ = words
        verdict.answer = answer
        verdict.chip = chip
        return verdict

    MEETS = ("meets", Answer.YES, Chip.CARE)
    FAILS = ("fails", Answer.NO, Chip.NO)
    NO_DIFFERENCE = ("no relevant difference", Answer.NO, Chip.NO)
    CANNOT_DECIDE = ("cannot decide", Answer.OPEN, Chip.UNSHOWN)
    TOO_RARE = ("too rare to say", Answer.OPEN, Chip.UNSHOWN)
    NOT_INFORMATIVE = ("not informative", Answer.OPEN, Chip.UNSHOWN)
    NOT_MEANINGFUL = ("not meaningful", Answer.OPEN, Chip.POOR)
    NOT_TESTED = ("not tested", Answer.UNTESTED, Chip.UNSHOWN)

    @classmethod
    def named(cls, words: str) -> "Verdict":
        """The verdict with these words, as files hold it.

        Raises:
            ValueError: if no verdict is called so.
        """
        for verdict in cls:
            if verdict.value == words:
                return verdict
        raise ValueError(f"there is no verdict {words!r}: expected {', '.join(cls)}")

    @property
    def is_decided(self) -> bool:
        """Whether the verdict is a yes or a no."""
        return self.answer in (Answer.YES, Answer.NO)
