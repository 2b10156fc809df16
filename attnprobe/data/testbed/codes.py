"""Texts with planted codes: which words are the reason for each code is known.

Sentences of other texts, which say nothing about any code, and between them sentences that name
signs, in three sections with a heading each. Code c is present where one of its signs is: one of
the synonyms of its own, or a sign that it shares with its neighbour (codes 0 and 1, 2 and 3, …),
which makes both of them present. In a sentence with "no" a sign is absent, and makes nothing
present. A text may have no code at all. How many synonyms there are, and how often signs are
shared or negated, is the kind of rule (`Signs`).

**Rationale** of a code that is present: the words of its signs. Of one that is absent: none.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from string import ascii_lowercase

from attnprobe.data.testbed.drawing import Draw, pick, shuffled, stream
from attnprobe.data.testbed.reviews import generate_reviews

PRESENT = 0.25
"""Share of the texts that name a sign of a code."""
FILLERS = 2000
"""Reviews of which the other sentences are taken."""
HEADINGS = ("history", "findings", "plan")
BEGINNINGS = (
    ("there", "was"),
    ("we", "noted"),
    ("the", "notes", "mention"),
    ("they", "describe"),
)


@dataclass(frozen=True)
class Signs:
    """By what signs the codes are known.

    Attributes:
        synonyms: signs that a code has for itself, 1 or more.
        shared: share, 0 to 1, of the texts with a sign of a code in which it is the one that the
            code shares with its neighbour.
        negated: share, 0 to 1, of the texts without a sign of a code that say "no" with one.
    """

    synonyms: int = 2
    shared: float = 0.2
    negated: float = 0.25

    def of_code(self, code: int) -> list[str]:
        """The signs that a code has for itself."""
        return [f"sign{code}{letter}" for letter in ascii_lowercase[: self.synonyms]]


@dataclass(frozen=True)
class CodedText:
    """A text, and which of its words are about each code.

    Attributes:
        words: the words.
        reasons: of each code the signs that make it present; none: it is absent.
        signs: of each code all its signs, also those after "no".
        headings: the headings of sections, which say nothing.
    """

    words: list[str]
    reasons: list[list[bool]]
    signs: list[list[bool]]
    headings: list[bool]


@dataclass(frozen=True)
class _Sentence:
    """A sentence, whose sign is the last word but one.

    Attributes:
        words: the words.
        codes: those that the sign is about.
        is_negated: the sign makes none of them present.
        is_heading: it is the heading of a section.
    """

    words: list[str]
    codes: tuple[int, ...] = ()
    is_negated: bool = False
    is_heading: bool = False


def generate_codes(
    size: int, codes: int, length: int, seed: int, signs: Signs | None = None
) -> Iterator[CodedText]:
    """Texts of about so many words; the same for a seed whatever the size.

    Args:
        size: how many texts.
        codes: how many codes there are.
        length: words of the sentences that say nothing about codes, at least.
        seed: of everything drawn.
        signs: by what codes are known; None: `Signs()`.
    """
    signs = signs or Signs()
    fillers = [list(row["tokens"]) for row in generate_reviews(FILLERS, seed)]
    for number in range(size):
        draw = stream(seed, "codes", number)
        sentences = [_Sentence(words) for words in _filler(draw, fillers, length)]
        for code in range(codes):
            sentences += _about(draw, code, codes, signs)
        yield _joined(_in_sections(_in_random_order(draw, sentences)), codes)


def _filler(draw: Draw, fillers: list[list[str]], length: int) -> Iterator[list[str]]:
    count = 0
    while count < length:
        words = fillers[int(draw() * len(fillers))]
        count += len(words)
        yield words


def _about(draw: Draw, code: int, codes: int, signs: Signs) -> list[_Sentence]:
    """The sentence that names a sign of the code, if there is one."""
    beginning = list(BEGINNINGS[int(draw() * len(BEGINNINGS))])
    own = pick(draw, signs.of_code(code))
    if draw() < PRESENT:
        neighbour = code ^ 1
        if draw() < signs.shared and neighbour < codes:
            pair = (min(code, neighbour), max(code, neighbour))
            return [_Sentence([*beginning, f"sign{pair[0]}and{pair[1]}", "."], pair)]
        return [_Sentence([*beginning, own, "."], (code,))]
    if draw() < signs.negated:
        return [_Sentence([*beginning, "no", own, "."], (code,), is_negated=True)]
    return []


def _in_random_order(draw: Draw, sentences: list[_Sentence]) -> list[_Sentence]:
    order = shuffled(draw, [str(place) for place in range(len(sentences))])
    return [sentences[int(place)] for place in order]


def _in_sections(sentences: list[_Sentence]) -> list[_Sentence]:
    """The sentences in three parts of about equal size, each after a heading."""
    divided = []
    for number, heading in enumerate(HEADINGS):
        first = number * len(sentences) // len(HEADINGS)
        end = (number + 1) * len(sentences) // len(HEADINGS)
        divided.append(_Sentence([heading, ":"], is_heading=True))
        divided += sentences[first:end]
    return divided


def _joined(sentences: list[_Sentence], codes: int) -> CodedText:
    words: list[str] = []
    present: list[list[int]] = [[] for _ in range(codes)]
    named: list[list[int]] = [[] for _ in range(codes)]
    headings = []
    for sentence in sentences:
        words += sentence.words
        place = len(words) - 2
        if sentence.is_heading:
            headings.append(place)
        for code in sentence.codes:
            named[code].append(place)
            if not sentence.is_negated:
                present[code].append(place)
    return CodedText(
        words=words,
        reasons=[_marks(places, len(words)) for places in present],
        signs=[_marks(places, len(words)) for places in named],
        headings=_marks(headings, len(words)),
    )


def _marks(places: list[int], size: int) -> list[bool]:
    """True at these places of a text of so many words."""
    marks = [False] * size
    for place in places:
        marks[place] = True
    return marks
