"""Reviews whose label and its reason are known, and whose other words say nothing about it.

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

from collections.abc import Iterator
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
        "good great superb moving charming clever funny witty fresh gripping brilliant "
        "lovely tender elegant graceful wonderful delightful thrilling honest vivid "
        "smart warm rich sharp superior stirring playful radiant"
    ),
    -1: _words(
        "bad awful dreadful dull boring clumsy bland silly stale tedious terrible ugly "
        "cold sloppy lifeless horrible annoying tiresome phony murky dumb limp thin "
        "blunt inferior numbing plodding drab"
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
        "acting plot script score cast pacing dialogue editing camerawork ending "
        "opening humor lighting direction story soundtrack"
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
    """Short reviews of 6 to 40 tokens with their label and its rationale (see the module).

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
        writer = _Writer(draw, negation)
        ruling = Rank.WHOLE  # of the clause that counts
        earlier = None
        if draw() < weighing:
            ruling = Rank.INTENSIFIED if draw() < 0.5 else Rank.PLAIN
            sentence = writer.weighing(ruling)
        elif draw() < counting:
            sentence = writer.counting()
        elif draw() < order:
            earlier = writer.whole(0)
            sentence = writer.whole(1)
        elif draw() < contrast:
            sentence = pick(draw, BUTS).format(writer.whole(0), writer.whole(1))
        else:
            sentence = writer.whole(1)

        extra = []
        for _ in range(2):
            if draw() < asides and ruling != Rank.PLAIN:
                extra.append(writer.aside(ruling))
        for _ in range(2):
            if draw() < remarks:
                extra.append(writer.remark())
        sentences = writer.arranged(sentence, earlier, extra)

        # last of all, so that nothing else can depend on it
        label = int(draw() < 0.5)
        yield _labelled(" . ".join(sentences) + " .", label)


def _labelled(marked_text: str, label: int) -> dict[str, Any]:
    """The row of a review whose words are starred (rationale) and paired ("good/bad").

    The first word of a pair is said if the label is 1.
    """
    words = marked_text.split(" ")
    tokens = []
    counterfactual = []
    for word in words:
        alternatives = word.removeprefix("*").split("/")
        tokens.append(alternatives[0 if label else -1])
        counterfactual.append(alternatives[-1 if label else 0])
    return {
        "text": " ".join(tokens),
        "label": label,
        "tokens": tokens,
        "rationale": [word[0] == "*" for word in words],
        "counterfactual": " ".join(counterfactual),
    }


def _length(sentence: str) -> int:
    """Tokens of a sentence, with its full stop."""
    return sentence.count(" ") + 2


class _Writer:
    """Writes the clauses of one review with the review's own random numbers.

    In all methods `says` is +1 for what the label says and −1 for the opposite, both with their
    words starred; 0 for a clause that is silent, with a polarity of its own.

    Args:
        draw: random numbers.
        negation: probability that a clause is negated at its word, and that a frame is a negating
            one.
    """

    def __init__(self, draw: Draw, negation: float) -> None:
        self.draw = draw
        self.negation = negation
        self.aspects = shuffled(draw, ASPECTS)

    def whole(self, says: int, framed: float = FRAMED) -> str:
        """A clause about the whole, in a frame with probability `framed`."""
        subject = pick(self.draw, WHOLES)
        return self.clause(subject, Rank.WHOLE, says, framed=framed)

    def aspect(self, rank: Rank, says: int = 0, degree_star: str = "") -> str:
        """A clause about an aspect that the review has not named yet."""
        return self.clause(self.aspects.pop(), rank, says, degree_star)

    def weighing(self, ruling: Rank) -> str:
        """Two aspects, of which the more emphatic one, of rank `ruling`, counts."""
        if ruling == Rank.INTENSIFIED:  # its degree word lifts it
            winner = self.aspect(ruling, 1, degree_star="*")
            rival = self.aspect(Rank(ruling - 1))
        else:  # the rival's degree word lowers the rival
            winner = self.aspect(ruling, 1)
            rival = self.aspect(Rank(ruling - 1), degree_star="*")
        template = pick(self.draw, (*ANDS, "{0} . {1}"))
        return template.format(*shuffled(self.draw, [winner, rival]))

    def counting(self) -> str:
        """Three clauses about the whole, of which the majority counts."""
        outvoted = self.draw() < 0.75  # else all three agree, as often as of three coins
        votes = shuffled(self.draw, ["+", "+", "-" if outvoted else "+"])
        template = pick(self.draw, LISTS)
        clauses = [self.whole(1 if vote == "+" else -1, framed=0) for vote in votes]
        return template.format(*clauses)

    def aside(self, ruling: Rank) -> str:
        """One or two clauses about aspects, less emphatic than what counts.

        Where a plain aspect counts there are no asides: striking "slightly" would make an equal.
        """
        kind = self.draw()
        if kind < 0.6:
            template = pick(self.draw, ANDS)
        elif kind < 0.8:
            template = "{0}"
        else:
            template = pick(self.draw, BUTS).replace("*", "")
        clauses = []
        for _ in range(1 if template == "{0}" else 2):
            rank = Rank(1 + int(self.draw() * (ruling - 1)))
            clauses.append(self.aspect(rank))
        return template.format(*clauses)

    def remark(self) -> str:
        """A sentence without opinion, one in five of them two clauses in contrast."""
        draw = self.draw
        facts: list[str] = []
        while not facts or (len(facts) == 1 and draw() < 0.2):
            if draw() < 0.3:
                facts.append(pick(draw, FACTS))
            else:
                person = pick(draw, PEOPLE)
                deed = f"{pick(draw, HABITS)}{pick(draw, DEEDS)}"
                facts.append(f"{person} {deed} {pick(draw, TIMES)}".rstrip())
        return " but ".join(facts)

    def arranged(self, sentence: str, earlier: str | None, extra: list[str]) -> list[str]:
        """The sentences of a review of 6 to 40 tokens, in random order.

        Args:
            sentence: the sentence that counts.
            earlier: a sentence that stands somewhere before it, if there is one.
            extra: sentences that are taken as long as there is room.
        """
        sentences = [sentence] if earlier is None else [earlier, sentence]
        length = sum(_length(chosen) for chosen in sentences)
        for candidate in shuffled(self.draw, extra):
            if length + _length(candidate) <= LONGEST:
                sentences.append(candidate)
                length += _length(candidate)
        if length < SHORTEST:
            sentences.append(self.remark())
        sentences = shuffled(self.draw, sentences)
        if earlier is not None:
            first, second = sorted((sentences.index(earlier), sentences.index(sentence)))
            sentences[first] = earlier
            sentences[second] = sentence
        return sentences

    def clause(
        self, subject: str, rank: Rank, says: int, degree_star: str = "", *, framed: float = FRAMED
    ) -> str:
        """A clause about a subject.

        Args:
            subject: such as "the film".
            rank: its emphasis.
            says: see the class.
            degree_star: a star where the degree word belongs to the rationale.
            framed: probability of a frame ("i think that").
        """
        draw = self.draw
        star = "*" if says else ""
        degrees = DEGREES.get(rank, ())
        polarity = says or (1 if draw() < 0.5 else -1)
        in_a_frame = draw() < framed
        frame_negates = draw() < self.negation
        word_negated = draw() < self.negation
        if degrees:  # how much is "not very good"? The grammar does not say so
            frame_negates = False
            word_negated = False
        frame_negates = frame_negates and in_a_frame
        if frame_negates != word_negated:
            polarity = -polarity

        beginning = subject
        if in_a_frame:
            frame = pick(draw, NEGATING_FRAMES if frame_negates else FRAMES).format(star)
            beginning = f"{frame} {subject}"
        form = 0.0 if degrees else draw()
        if form > 0.85:
            negator = f"{star}{pick(draw, VERB_NEGATORS)} " if word_negated else ""
            return f"{beginning} {negator}{self.opinion(VERBS, polarity, says)}"

        beginning += f" {pick(draw, COPULAS)}"
        if word_negated:
            negator = pick(draw, NEGATORS).replace(" ", f" {star}")
            beginning += f" {star}{negator}"
        if form > 0.7:
            return f"{beginning} a {self.opinion(NOUNS, polarity, says)}"
        # decoration: what outranks all aspects needs no emphasis
        may_be_decorated = rank == Rank.WHOLE and not word_negated and not frame_negates
        if may_be_decorated and draw() < 0.3:
            beginning += f" {pick(draw, ALL_DEGREES)}"
        elif degrees:
            beginning += f" {degree_star}{pick(draw, degrees)}"
        return f"{beginning} {self.opinion(ADJECTIVES, polarity, says)}"

    def opinion(self, lexicon: dict[int, tuple[str, ...]], polarity: int, says: int) -> str:
        """A word of this polarity, with its opposite where the clause counts."""
        place = int(self.draw() * len(lexicon[1]))
        word = lexicon[polarity][place]
        return f"*{word}/{lexicon[-polarity][place]}" if says else word
