"""Reviews whose label and whose reason for the label are known, and whose other words say nothing
about it.

A review is a list of sentences, each closed by ".". A sentence is a remark (no opinion) or up to
three clauses, split by "," or a conjunction. What a review means:

1. *Polarity.* A clause says its sentiment word's polarity (+1, −1), reversed once by every negator
   in it: "not good", "never disappoints", "hardly a triumph", "anything but dull", "i doubt that
   the plot was good". A negator's scope ends with its clause. So "nobody would agree that it was
   not good" is positive.
2. *The whole.* What is said of the whole ("the film", "it") counts; where it is judged, aspects
("the acting") are silent.
3. *Order.* Of several sentences that judge the whole, the last one counts.
4. *Concession.* In "X but Y", "X , yet Y", "although X , Y", "Y though X" X is conceded and silent.
   Without such a marker, nothing says which of two clauses about the whole counts, and the review
   has no label.
5. *Counting.* Where a sentence has three clauses about the whole, the majority counts.
6. *Weighing.* Where the whole is not judged, the most emphatic aspect counts: intensified ("very
   dull") over plain over diminished ("slightly dull"). Of two that are equally emphatic neither
   does.

The rule that a review needs is drawn first, then all its words; the polarity of what counts is
drawn last, and no other word depends on it. What is silent has a polarity of its own, drawn apart.
So the words outside the rationale are as likely with one label as with the other: no leak, by
construction, and not by counting.

**Rationale.** The sentiment words that count and their negators; the contrast marker of a
concession; the degree word that decides a weighing. *Sufficient*: read alone, in order, they give
the label. *Necessary*: with them struck the review has no label. One alone struck (a phrase such as
"by no means" as one; a marker becomes "and") takes the label away or turns it, but for the outvoted
word of a count. *All there is*: see above.

**Counterfactual.** The same review with the sentiment words that count turned into their opposites:
the other label."""

from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import Any

from attnprobe.data.testbed.drawing import Draw, pick, shuffled, stream


class Rank(IntEnum):
    """What a clause's word is worth against another's: rule 3."""

    DIMINISHED = 1
    PLAIN = 2
    INTENSIFIED = 3
    WHOLE = 4


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


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
    f"the {word}"
    for word in _words(
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
# A star marks a word of the rationale until the review is put together; {} is its place. "good/bad"
# is a word that counts: the first is said if the label is 1.
FRAMES = ("i think that", "i believe that", "everybody would agree that", "i would say that")
NEGATING_FRAMES = (
    "i {}doubt that",
    "i {}deny that",
    "{}nobody would agree that",
    "i {}cannot say that",
)
BUTS = (
    "{0} *but {1}",
    "{0} , *but {1}",
    "{0} , *yet {1}",
    "*although {0} , {1}",
    "*though {0} , {1}",
    "{1} *although {0}",
    "{1} , *though {0}",
)
ANDS = ("{0} and {1}", "{0} , {1}", "{0} while {1}", "{0} , and {1}")
LISTS = ("{0} , {1} and {2}", "{0} and {1} and {2}", "{0} , {1} , {2}")
PEOPLE = ("i", "we", "my sister", "my neighbour", "a friend", "our guests", "nobody", "everybody")
DEEDS = (
    "bought popcorn",
    "booked the seats",
    "watched the trailer",
    "read the book",
    "took the bus",
    "arrived early",
    "sat in the front row",
    "knew the director",
    "paid for the tickets",
    "checked the time",
    "stayed for the credits",
    "ate some crisps",
    "talked to the usher",
    "wore a coat",
    "met a colleague outside",
    "walked home through the park",
    "compared several posters",
    "asked about parking",
)
TIMES = (
    "on monday",
    "on friday",
    "last night",
    "after work",
    "before dinner",
    "at noon",
    "in march",
    "this week",
    "",
)
HABITS = ("", "", "never ", "hardly ", "also ")
FACTS = (
    "the film ran for two hours",
    "the movie opened in june",
    "the picture did not open in june",
    "it rained outside",
    "the plot takes place in a town",
    "the script was written in paris",
    "the cast was not from here",
    "the story begins on a train",
    "this one came out last year",
    "the score was recorded at home",
)


SHORTEST = 6
LONGEST = 40
FRAMED = 0.2


RULES: dict[str, dict[str, Any]] = {
    "mixed": {},
    "word": {"negation": 0, "weighing": 0, "counting": 0, "order": 0, "contrast": 0},
    "negation": {"negation": 0.5, "weighing": 0, "counting": 0, "order": 0, "contrast": 0},
    "concession": {"negation": 0, "weighing": 0, "counting": 0, "order": 0, "contrast": 1},
    "order": {"negation": 0, "weighing": 0, "counting": 0, "order": 1},
    "counting": {"negation": 0, "weighing": 0, "counting": 1},
}
"""Settings of `generate_reviews` by what a reader has to know: everything, or one rule alone."""


def generate_reviews(
    count: int,
    seed: int,
    *,
    negation: float = 0.2,
    contrast: float = 0.35,
    weighing: float = 0.1,
    counting: float = 0.1,
    order: float = 0.15,
    asides: float = 0.3,
    remarks: float = 0.4,
) -> Iterator[dict[str, Any]]:
    """Short reviews of 6 to 40 tokens with their label and its rationale, as defined at the top of
    this file.

    Args:
        count: number of rows.
        seed: another seed gives other rows.
        negation: probability that a clause is negated at its word, and that a frame ("i think
            that") is a negating one.
        weighing: probability that no clause is about the whole, and two aspects are told apart by
            degree.
        counting: probability, otherwise, that three clauses about the whole are counted.
        order: probability, otherwise, that an earlier sentence judges the whole as well.
        contrast: probability, otherwise, that the clause that counts is put beside a conceded one.
        asides: probability of each of two further sentences about aspects.
        remarks: probability of each of two sentences without opinion.

    Yields:
        `text` lower-case tokens joined by spaces; `label` 0 or 1, equally likely; `tokens`;
        `rationale`, True for the tokens that decide the label; `counterfactual`, the text with the
        other label.

    >>> row = next(generate_reviews(1, seed=8))
    >>> row["text"], row["label"]
    ('this one felt never thrilling , though the movie seemed a letdown .', 0)
    >>> [token for token, decides in zip(row["tokens"], row["rationale"]) if decides]
    ['never', 'thrilling', 'though']
    >>> row["counterfactual"]
    'this one felt never tiresome , though the movie seemed a letdown .'
    """
    for index in range(count):
        draw = stream(seed, "review", index)
        aspects = shuffled(draw, ASPECTS)

        def whole(says: int, framed: float = FRAMED, draw: Draw = draw) -> str:
            return _clause(draw, pick(draw, WHOLES), Rank.WHOLE, negation, says, framed=framed)

        def aspect(
            rank: Rank,
            says: int = 0,
            degree_star: str = "",
            draw: Draw = draw,
            aspects: Any = aspects,
        ) -> str:
            return _clause(draw, aspects.pop(), rank, negation, says, degree_star)

        ruling = Rank.WHOLE
        earlier = None
        if draw() < weighing:
            ruling = Rank.INTENSIFIED if draw() < 0.5 else Rank.PLAIN
            lifted = ruling == Rank.INTENSIFIED  # else it is the rival that its degree word lowers
            pair = [
                aspect(ruling, 1, "*" if lifted else ""),
                aspect(Rank(ruling - 1), 0, "" if lifted else "*"),
            ]
            sentence = pick(draw, (*ANDS, "{0} . {1}")).format(*shuffled(draw, pair))
        elif draw() < counting:
            outvoted = draw() < 0.75  # else all three agree, as often as of three coins
            votes = shuffled(draw, ["+", "+", "-" if outvoted else "+"])
            sentence = pick(draw, LISTS).format(
                *(whole(1 if vote == "+" else -1, framed=0) for vote in votes)
            )
        elif draw() < order:
            earlier = whole(0)
            sentence = whole(1)
        elif draw() < contrast:
            sentence = pick(draw, BUTS).format(whole(0), whole(1))
        else:
            sentence = whole(1)

        extra = [
            _aside(draw, aspect, ruling)
            for _ in range(2)
            if draw() < asides and ruling != Rank.PLAIN
        ]
        extra += [_remark(draw) for _ in range(2) if draw() < remarks]
        told = [sentence] if earlier is None else [earlier, sentence]
        length = sum(one.count(" ") + 2 for one in told)  # tokens, with each sentence's full stop
        for one in shuffled(draw, extra):
            if length + one.count(" ") + 2 <= LONGEST:
                told.append(one)
                length += one.count(" ") + 2
        if length < SHORTEST:
            told.append(_remark(draw))
        told = shuffled(draw, told)
        if earlier is not None:
            first, second = sorted((told.index(earlier), told.index(sentence)))
            told[first], told[second] = earlier, sentence
        # last of all, so that nothing else can depend on it
        label = int(draw() < 0.5)
        words = (" . ".join(told) + " .").split(" ")
        said = [word.removeprefix("*").split("/") for word in words]
        tokens, other = (
            [word[which] for word in said] for which in ((0, -1) if label else (-1, 0))
        )
        yield {
            "text": " ".join(tokens),
            "label": label,
            "tokens": tokens,
            "rationale": [word[0] == "*" for word in words],
            "counterfactual": " ".join(other),
        }


def _aside(draw: Draw, aspect: Callable[[Rank], str], ruling: Rank) -> str:
    """One or two clauses about aspects, less emphatic than what counts; there are none with a plain
    aspect that counts, whose equal a "slightly" struck would make."""

    def rank() -> Rank:
        return Rank(1 + int(draw() * (ruling - 1)))

    kind = draw()
    if kind < 0.6:
        return pick(draw, ANDS).format(aspect(rank()), aspect(rank()))
    if kind < 0.8:
        return aspect(rank())
    return pick(draw, BUTS).format(aspect(rank()), aspect(rank())).replace("*", "")


def _clause(
    draw: Draw,
    subject: str,
    rank: Rank,
    negation: float,
    says: int,
    degree_star: str = "",
    *,
    framed: float = FRAMED,
) -> str:
    """One clause. `says`: +1 what the label says, −1 the opposite, both with their words starred;
    0: it is silent, and its polarity its own. `degree_star` marks the degree word."""
    star = "*" if says else ""
    polarity = says or (1 if draw() < 0.5 else -1)
    degrees = DEGREES.get(rank, ())
    frame = ""
    in_frame = draw() < framed
    negating = draw() < negation
    negated = draw() < negation
    if degrees:  # how much is "not very good"? The grammar does not say so
        negating = negated = False
    if in_frame:
        frame = pick(draw, NEGATING_FRAMES if negating else FRAMES).format(star) + " "
        if negating:
            polarity = -polarity
    if negated:
        polarity = -polarity

    def opinion(lexicon: dict[int, tuple[str, ...]]) -> str:
        place = int(draw() * len(lexicon[1]))
        word = lexicon[polarity][place]
        opposite = lexicon[-polarity][place]
        return f"*{word}/{opposite}" if says else word

    form = 0.0 if degrees else draw()
    if form > 0.85:
        negator = f"{star}{pick(draw, VERB_NEGATORS)} " if negated else ""
        return f"{frame}{subject} {negator}{opinion(VERBS)}"
    start = f"{frame}{subject} {pick(draw, COPULAS)} "
    if negated:
        start += star + pick(draw, NEGATORS).replace(" ", f" {star}") + " "
    if form > 0.7:
        return f"{start}a {opinion(NOUNS)}"
    if rank == Rank.WHOLE and not negated and not (in_frame and negating) and draw() < 0.3:
        start += (
            pick(draw, ALL_DEGREES) + " "
        )  # decoration: what outranks all aspects needs no emphasis
    elif degrees:
        start += degree_star + pick(draw, degrees) + " "
    return f"{start}{opinion(ADJECTIVES)}"


def _remark(draw: Draw) -> str:
    """A sentence without opinion, one in five of them two clauses in contrast."""
    facts = list[str]()
    while not facts or (len(facts) == 1 and draw() < 0.2):
        if draw() < 0.3:
            facts.append(pick(draw, FACTS))
        else:
            deed = (
                f"{pick(draw, PEOPLE)} {pick(draw, HABITS)}{pick(draw, DEEDS)} {pick(draw, TIMES)}"
            )
            facts.append(deed.rstrip())
    return " but ".join(facts)
