"""Reviews whose label and whose reason for the label are known.

A review is a list of sentences, each closed by ".". A sentence is a remark (no opinion) or one or two
clauses, split by "," or a conjunction. What a review means:

1. *Polarity.* A clause says its sentiment word's polarity (+1, −1), once turned around by every negator in it:
   "not good", "never disappoints", "hardly a triumph", "anything but dull", "i doubt that the plot was good". A
   negator's scope ends with its clause. So "nobody would agree that it was not good" is positive.
2. *Concession.* "X but Y", "X , yet Y", "although X , Y", "Y though X": X is conceded and says nothing.
3. *Rank.* Clauses about the whole ("the film", "it") outrank clauses about an aspect ("the acting"). Among aspects
   the more emphatic outranks: intensified ("very dull") over plain over diminished ("slightly dull").
4. *Verdict.* The polarities of the highest rank are added up. Where they cancel, the next rank is asked, and so on.
   The sign is the label (1 positive, 0 negative).

Remarks have no sentiment word but do have negators, contrasts and "the film": none of these words decides alone.

**Rationale.** The words that can carry meaning are sentiment words, negators, degree words and contrast markers;
of these the rationale holds exactly those without which the review would not have its label: strike one (a phrase
such as "by no means" as one; a marker becomes "and") and the verdict is the other label or none. Turning any
other sentiment word into its opposite leaves the label as it was; turning the one in the rationale changes it.
That is always the sentiment word of exactly one clause, with that clause's negators, and with whatever puts the
clause in power over another: the contrast marker, or the degree word that lifts it above (or its rival below).
"""

from collections.abc import Iterator
from enum import IntEnum
from typing import Any

from attnprobe.data.testbed.drawing import Draw, check_rows, check_share, pick, shuffled, stream

SHORTEST, LONGEST = 6, 40
"""Tokens of a review."""


class Rank(IntEnum):
    """What a clause's word is worth against another's: rule 3."""

    DIMINISHED = 1
    PLAIN = 2
    INTENSIFIED = 3
    WHOLE = 4


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


# fmt: off
ADJECTIVES = {
    +1: _words(
        "good great superb moving charming clever funny witty fresh gripping brilliant lovely tender elegant graceful "
        "wonderful delightful thrilling honest vivid smart warm rich sharp superior stirring playful radiant"
    ),
    -1: _words(
        "bad awful dreadful dull boring clumsy bland silly stale tedious terrible ugly cold sloppy lifeless horrible "
        "annoying tiresome phony murky dumb limp thin blunt inferior numbing plodding drab"
    ),
}
NOUNS = {
    +1: _words("triumph delight treasure gem masterpiece marvel joy winner"),
    -1: _words("mess disaster failure bore chore letdown flop mistake"),
}
VERBS = {
    +1: _words("delivers shines dazzles succeeds charms sparkles soars enchants"),
    -1: _words("disappoints stumbles drags fails bores grates sinks annoys"),
}
WHOLES = ("the film", "the movie", "the picture", "it", "this one", "the whole thing")
ASPECTS = tuple(
    f"the {word}" for word in _words(
        "acting plot script score cast pacing dialogue editing camerawork ending opening humor lighting direction "
        "story soundtrack"
    )
)
COPULAS = ("was", "is", "felt", "seemed")
NEGATORS = ("not", "not", "never", "hardly", "scarcely", "anything but", "far from", "by no means")
VERB_NEGATORS = ("never", "hardly", "rarely", "scarcely")
DEGREES = {
    Rank.DIMINISHED: ("slightly", "somewhat", "mildly"),
    Rank.INTENSIFIED: ("very", "extremely", "truly"),
}
ALL_DEGREES = (*DEGREES[Rank.DIMINISHED], *DEGREES[Rank.INTENSIFIED])
FRAMED = 0.2
"""Probability that a clause stands in a frame."""
# A star marks a word of the rationale until the review is put together; {} is its place.
FRAMES = ("i think that", "i believe that", "everybody would agree that", "i would say that")
NEGATING_FRAMES = ("i {}doubt that", "i {}deny that", "{}nobody would agree that", "i {}cannot say that")
BUTS = ("{0} *but {1}", "{0} , *but {1}", "{0} , *yet {1}", "*although {0} , {1}", "*though {0} , {1}",
        "{1} *although {0}", "{1} , *though {0}")
ANDS = ("{0} and {1}", "{0} , {1}", "{0} while {1}", "{0} , and {1}")
PEOPLE = ("i", "we", "my sister", "my neighbour", "a friend", "our guests", "nobody", "everybody")
DEEDS = (
    "bought popcorn", "booked the seats", "watched the trailer", "read the book", "took the bus", "arrived early",
    "sat in the front row", "knew the director", "paid for the tickets", "checked the time", "stayed for the credits",
    "ate some crisps", "talked to the usher", "wore a coat", "met a colleague outside", "walked home through the park",
    "compared several posters", "asked about parking",
)
TIMES = ("on monday", "on friday", "last night", "after work", "before dinner", "at noon", "in march", "this week", "")
HABITS = ("", "", "never ", "hardly ", "also ")
FACTS = (
    "the film ran for two hours", "the movie opened in june", "the picture did not open in june", "it rained outside",
    "the plot takes place in a town", "the script was written in paris", "the cast was not from here",
    "the story begins on a train", "this one came out last year", "the score was recorded at home",
)
# fmt: on


def generate_reviews(
    count: int,
    seed: int,
    *,
    start: int = 0,
    negation: float = 0.2,
    contrast: float = 0.35,
    weighing: float = 0.15,
    asides: float = 0.3,
    remarks: float = 0.4,
) -> Iterator[dict[str, Any]]:
    """Short reviews of 6 to 40 tokens with their label and its rationale, as defined at the top of this file.

    Args:
        count: number of rows, 1 or more.
        seed: another seed gives other rows.
        start: number of the first row, so that splits can be cut from one stream.
        negation: probability that a clause is negated at its word, and that a frame ("i think that") is a negating one.
        contrast: probability that the ruling clause stands against a conceded one.
        weighing: probability that no clause is about the whole, and two opposed aspects are told apart by degree.
        asides: probability of each of two further sentences about aspects, which cancel or oppose the label.
        remarks: probability of each of two sentences without opinion.

    Yields:
        `text` lower-case tokens joined by spaces; `label` 0 or 1, equally likely; `tokens`; `rationale`, True for
        the tokens that decide the label.

    Raises:
        UserError: count < 1, start < 0, or a probability outside [0, 1].

    >>> row = next(generate_reviews(1, seed=10))
    >>> print(row["text"])
    the humor is somewhat elegant and i believe that the editing felt slightly lifeless .
    the whole thing felt not warm .
    >>> row["label"]
    0
    >>> [token for token, decides in zip(row["tokens"], row["rationale"]) if decides]
    ['not', 'warm']
    """
    check_rows(count, start)
    check_share(negation=negation, contrast=contrast, weighing=weighing, asides=asides, remarks=remarks)
    return (
        _review(stream(seed, "review", i), negation, contrast, weighing, asides, remarks)
        for i in range(start, start + count)
    )


def _review(
    draw: Draw, negation: float, contrast: float, weighing: float, asides: float, remarks: float
) -> dict[str, Any]:
    label = int(draw() < 0.5)
    side = 2 * label - 1
    aspects = shuffled(draw, ASPECTS)

    def whole(polarity: int, star: str = "") -> str:
        return _clause(draw, pick(draw, WHOLES), polarity, Rank.WHOLE, negation, star)

    def aspect(polarity: int, rank: Rank, star: str = "", degree_star: str = "") -> str:
        return _clause(draw, aspects.pop(), polarity, rank, negation, star, degree_star)

    # The ruling sentence. All else in the review cancels or opposes the label: that is what makes every word of
    # the rationale necessary.
    ruling = Rank.WHOLE
    if draw() < weighing:
        ruling = Rank.INTENSIFIED if draw() < 0.5 else Rank.PLAIN
        lifted = ruling == Rank.INTENSIFIED  # else it is the rival that its degree word lowers
        pair = [
            aspect(side, ruling, "*", "*" if lifted else ""),
            aspect(-side, Rank(ruling - 1), "", "" if lifted else "*"),
        ]
        sentences = [pick(draw, (*ANDS, "{0} . {1}")).format(*shuffled(draw, pair))]
    elif draw() < contrast:
        sentences = [pick(draw, BUTS).format(whole(-side), whole(side, "*"))]
    else:
        sentences = [whole(side, "*")]

    extra = []
    for _ in range(2):
        # Beside a plain winner, striking the "slightly" of a lower pair would make its clause the winner's equal.
        if draw() < asides and ruling != Rank.PLAIN:
            rank = Rank(1 + int(draw() * (ruling - 1)))
            kind = draw() if ruling == Rank.WHOLE else 0.0  # an opposing aspect would take part in the weighing
            if kind < 0.6:
                pair = shuffled(draw, [aspect(side, rank), aspect(-side, rank)])
                extra.append(pick(draw, ANDS).format(*pair))
            elif kind < 0.8:
                extra.append(aspect(-side, rank))
            else:
                opposed = aspect(side, rank), aspect(-side, Rank(1 + int(draw() * 3)))
                extra.append(pick(draw, BUTS).format(*opposed).replace("*", ""))
    extra += [_remark(draw) for _ in range(2) if draw() < remarks]

    length = _length(sentences[0])
    for sentence in shuffled(draw, extra):
        if length + _length(sentence) <= LONGEST:
            sentences.append(sentence)
            length += _length(sentence)
    if length < SHORTEST:
        sentences.append(_remark(draw))
    marked = (" . ".join(shuffled(draw, sentences)) + " .").split(" ")
    rationale = [word[0] == "*" for word in marked]
    tokens = [word.removeprefix("*") for word in marked]
    return {"text": " ".join(tokens), "label": label, "tokens": tokens, "rationale": rationale}


def _length(sentence: str) -> int:
    return sentence.count(" ") + 2  # and its full stop


def _clause(
    draw: Draw, subject: str, polarity: int, rank: Rank, negation: float, star: str = "", degree_star: str = ""
) -> str:
    """One clause that says `polarity`. `star` marks the words that carry it, `degree_star` the degree word."""
    degrees = DEGREES.get(rank, ())
    frame = ""
    framed, negating, negated = draw() < FRAMED, draw() < negation, draw() < negation
    if degrees:  # how much is "not very good"? The grammar does not say so
        negating = negated = False
    if framed:
        frame = pick(draw, NEGATING_FRAMES if negating else FRAMES).format(star) + " "
        if negating:
            polarity = -polarity
    if negated:
        polarity = -polarity
    form = 0.0 if degrees else draw()
    if form > 0.85:
        negator = _starred(star, pick(draw, VERB_NEGATORS)) if negated else ""
        return f"{frame}{subject} {negator}{star}{pick(draw, VERBS[polarity])}"
    start = f"{frame}{subject} {pick(draw, COPULAS)} "
    if negated:
        start += _starred(star, pick(draw, NEGATORS))
    if form > 0.7:
        return f"{start}a {star}{pick(draw, NOUNS[polarity])}"
    if rank == Rank.WHOLE and not negated and not (framed and negating) and draw() < 0.3:
        start += pick(draw, ALL_DEGREES) + " "  # decoration: what outranks all aspects needs no emphasis
    elif degrees:
        start += degree_star + pick(draw, degrees) + " "
    return f"{start}{star}{pick(draw, ADJECTIVES[polarity])}"


def _starred(star: str, phrase: str) -> str:
    return star + phrase.replace(" ", " " + star) + " "


def _remark(draw: Draw) -> str:
    """A sentence without opinion, one in five of them two clauses in contrast."""
    first = _fact(draw)
    return f"{first} but {_fact(draw)}" if draw() < 0.2 else first


def _fact(draw: Draw) -> str:
    if draw() < 0.3:
        return pick(draw, FACTS)
    return f"{pick(draw, PEOPLE)} {pick(draw, HABITS)}{pick(draw, DEEDS)} {pick(draw, TIMES)}".rstrip()
