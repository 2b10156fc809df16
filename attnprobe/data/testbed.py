"""Texts made from a seed, whose label and whose reason for the label are known: the default data of every experiment.

**Reviews.** A review is a list of sentences, each closed by ".". A sentence is a remark (no opinion) or one or two
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

**Stories.** People move between rooms, pick up, carry and drop objects; see `generate_stories`.

Row i depends on (seed, i) alone: each row has its own generator, seeded by the two. Only its `random()` is used,
whose sequence Python keeps across versions.
"""

from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from itertools import pairwise
from random import Random
from typing import Any

from attnprobe.errors import UserError

SHORTEST, LONGEST = 6, 40
"""Tokens of a review."""

Draw = Callable[[], float]


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

NAMES = ("nora", "omar", "lena", "ivan", "priya", "tomas")
OBJECTS = ("lantern", "kettle", "violin", "compass", "umbrella")
ROOMS = ("attic", "cellar", "library", "pantry", "studio", "terrace", "workshop", "nursery")
# fmt: on
MOVES = ("walked to", "went to", "ran to", "hurried to", "strolled to")
PICKS = ("picked up", "took", "grabbed")
DROPS = ("dropped", "put down")
IDLES = ("hummed a tune", "looked around", "told a joke", "felt sleepy")
LONGEST_STORY = {1: 8, 2: 14, 3: 20}
"""Default of `sentences` for every number of hops."""


def _pick(draw: Draw, options: Sequence[str]) -> str:
    return options[int(draw() * len(options))]


def _stream(seed: int, kind: str, index: int) -> Draw:
    return Random(f"{kind}:{seed}:{index}").random


def _check_rows(count: int, start: int) -> None:
    if count < 1 or start < 0:
        raise UserError(f"{count} rows from row {start}: the testbed needs count ≥ 1 and start ≥ 0; try count=1000")


def _check_share(**shares: float) -> None:
    for name, share in shares.items():
        if not 0 <= share <= 1:
            raise UserError(f"{name}={share} is no probability; give a number from 0 to 1, such as {name}=0.4")


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
    _check_rows(count, start)
    _check_share(negation=negation, contrast=contrast, weighing=weighing, asides=asides, remarks=remarks)
    return (
        _review(_stream(seed, "review", i), negation, contrast, weighing, asides, remarks)
        for i in range(start, start + count)
    )


def _review(
    draw: Draw, negation: float, contrast: float, weighing: float, asides: float, remarks: float
) -> dict[str, Any]:
    label = int(draw() < 0.5)
    side = 2 * label - 1
    aspects = _shuffled(draw, ASPECTS)

    def whole(polarity: int, star: str = "") -> str:
        return _clause(draw, _pick(draw, WHOLES), polarity, Rank.WHOLE, negation, star)

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
        sentences = [_pick(draw, (*ANDS, "{0} . {1}")).format(*_shuffled(draw, pair))]
    elif draw() < contrast:
        sentences = [_pick(draw, BUTS).format(whole(-side), whole(side, "*"))]
    else:
        sentences = [whole(side, "*")]

    extra = []
    for _ in range(2):
        # Beside a plain winner, striking the "slightly" of a lower pair would make its clause the winner's equal.
        if draw() < asides and ruling != Rank.PLAIN:
            rank = Rank(1 + int(draw() * (ruling - 1)))
            kind = draw() if ruling == Rank.WHOLE else 0.0  # an opposing aspect would take part in the weighing
            if kind < 0.6:
                pair = _shuffled(draw, [aspect(side, rank), aspect(-side, rank)])
                extra.append(_pick(draw, ANDS).format(*pair))
            elif kind < 0.8:
                extra.append(aspect(-side, rank))
            else:
                opposed = aspect(side, rank), aspect(-side, Rank(1 + int(draw() * 3)))
                extra.append(_pick(draw, BUTS).format(*opposed).replace("*", ""))
    extra += [_remark(draw) for _ in range(2) if draw() < remarks]

    length = _length(sentences[0])
    for sentence in _shuffled(draw, extra):
        if length + _length(sentence) <= LONGEST:
            sentences.append(sentence)
            length += _length(sentence)
    if length < SHORTEST:
        sentences.append(_remark(draw))
    marked = (" . ".join(_shuffled(draw, sentences)) + " .").split(" ")
    rationale = [word[0] == "*" for word in marked]
    tokens = [word.removeprefix("*") for word in marked]
    return {"text": " ".join(tokens), "label": label, "tokens": tokens, "rationale": rationale}


def _length(sentence: str) -> int:
    return sentence.count(" ") + 2  # and its full stop


def _shuffled(draw: Draw, options: Sequence[str]) -> list[str]:
    # Fisher-Yates, because Random.shuffle is not promised to stay the same between versions of Python
    result = list(options)
    for i in range(len(result) - 1, 0, -1):
        j = int(draw() * (i + 1))
        result[i], result[j] = result[j], result[i]
    return result


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
        frame = _pick(draw, NEGATING_FRAMES if negating else FRAMES).format(star) + " "
        if negating:
            polarity = -polarity
    if negated:
        polarity = -polarity
    form = 0.0 if degrees else draw()
    if form > 0.85:
        negator = _starred(star, _pick(draw, VERB_NEGATORS)) if negated else ""
        return f"{frame}{subject} {negator}{star}{_pick(draw, VERBS[polarity])}"
    start = f"{frame}{subject} {_pick(draw, COPULAS)} "
    if negated:
        start += _starred(star, _pick(draw, NEGATORS))
    if form > 0.7:
        return f"{start}a {star}{_pick(draw, NOUNS[polarity])}"
    if rank == Rank.WHOLE and not negated and not (framed and negating) and draw() < 0.3:
        start += _pick(draw, ALL_DEGREES) + " "  # decoration: what outranks all aspects needs no emphasis
    elif degrees:
        start += degree_star + _pick(draw, degrees) + " "
    return f"{start}{star}{_pick(draw, ADJECTIVES[polarity])}"


def _starred(star: str, phrase: str) -> str:
    return star + phrase.replace(" ", " " + star) + " "


def _remark(draw: Draw) -> str:
    """A sentence without opinion, one in five of them two clauses in contrast."""
    first = _fact(draw)
    return f"{first} but {_fact(draw)}" if draw() < 0.2 else first


def _fact(draw: Draw) -> str:
    if draw() < 0.3:
        return _pick(draw, FACTS)
    return f"{_pick(draw, PEOPLE)} {_pick(draw, HABITS)}{_pick(draw, DEEDS)} {_pick(draw, TIMES)}".rstrip()


def generate_stories(
    count: int,
    seed: int,
    hops: int = 1,
    *,
    start: int = 0,
    people: int = 4,
    objects: int = 3,
    rooms: int = 6,
    sentences: int | None = None,
    idle: float = 0.1,
) -> Iterator[dict[str, Any]]:
    """Stories of people who move between rooms, pick up, carry and drop objects, each with one question.

    The kinds of question are those of bAbI's tasks 1 to 3 (Weston et al. 2015); world, words and generator are ours.

    hops 1: "where is nora ?" The answer's support is her last move.
    hops 2: "where is the lantern ?" Held: the last pick-up and its holder's last move. Dropped: the drop and the last
        move of who dropped it, before the drop.
    hops 3: "where was the lantern before the attic ?" Asked of rooms that the object was carried into once and was
        in at no other time. Support: the move into that room, the carrier's move before it, and the last pick-up
        before it.

    Args:
        count: number of rows, 1 or more.
        seed: another seed gives other rows.
        hops: facts that the answer needs: 1, 2 or 3.
        start: number of the first row, so that splits can be cut from one stream.
        people: how many people, 1 to 6.
        objects: how many objects, 1 to 5.
        rooms: how many rooms, 2 to 8.
        sentences: the longest story, at least 2 · hops; stories have half of it to all of it. Default 8, 14 or 20.
        idle: probability of a sentence that is of no use ("nora hummed a tune").

    Yields:
        `document` the sentences joined by " . " and closed by " ."; `question`; `label` the answer, a room;
        `candidates` all rooms; `sentences`; `support`, increasing indices of the sentences that the answer needs.

    Raises:
        UserError: a number outside the ranges above.

    >>> row = next(generate_stories(1, seed=1, hops=2, sentences=5))
    >>> row["document"]
    'ivan ran to the cellar . omar walked to the terrace . ivan picked up the lantern .'
    >>> row["question"], row["label"], row["support"]
    ('where is the lantern ?', 'cellar', [0, 2])
    """
    _check_rows(count, start)
    if hops not in LONGEST_STORY:
        raise UserError(f"hops={hops}: the testbed tells stories with hops=1, hops=2 or hops=3")
    for name, value, low, high in (
        ("people", people, 1, len(NAMES)),
        ("objects", objects, 1, len(OBJECTS)),
        ("rooms", rooms, 2, len(ROOMS)),
    ):
        if not low <= value <= high:
            raise UserError(f"{name}={value}: the testbed has {low} to {high}; give {name}={high} or fewer")
    longest = LONGEST_STORY[hops] if sentences is None else sentences
    if longest < 2 * hops:
        raise UserError(f"sentences={longest} is too short for hops={hops}; give sentences={2 * hops} or more")
    if not 0 <= idle < 1:
        raise UserError(f"idle={idle} must be a probability below 1, such as idle=0.1")
    return (
        _story(_stream(seed, f"story{hops}", i), hops, NAMES[:people], OBJECTS[:objects], ROOMS[:rooms], longest, idle)
        for i in range(start, start + count)
    )


def _story(
    draw: Draw,
    hops: int,
    names: tuple[str, ...],
    things: tuple[str, ...],
    rooms: tuple[str, ...],
    longest: int,
    idle: float,
) -> dict[str, Any]:
    while True:  # a short story may have nothing to ask
        told = _World(draw, names, things, rooms, idle)
        for _ in range(longest // 2 + int(draw() * (longest - longest // 2 + 1))):
            told.happen()
        questions = told.questions(hops)
        if questions:
            break
    question, label, support = questions[int(draw() * len(questions))]
    return {
        "document": " . ".join(told.sentences) + " .",
        "question": question,
        "label": label,
        "candidates": sorted(rooms),
        "sentences": told.sentences,
        "support": sorted(support),
    }


class _World:
    """Who and what is where, and by which sentences one knows."""

    def __init__(
        self, draw: Draw, names: tuple[str, ...], things: tuple[str, ...], rooms: tuple[str, ...], idle: float
    ) -> None:
        self.draw, self.names, self.things, self.rooms, self.idle = draw, names, things, rooms, idle
        self.sentences: list[str] = []
        self.place: dict[str, str] = {}  # of people
        self.moved: dict[str, int] = {}  # each person's last move
        self.holder: dict[str, str] = {}
        self.picked: dict[str, int] = {}  # each object's last pick-up
        self.known: dict[str, tuple[int, int]] = {}  # why one knows where an object is
        self.path: dict[str, list[tuple[str, tuple[int, ...]]]] = {}  # an object's rooms, and how it came there

    def happen(self) -> None:
        """Let one thing happen, and tell it."""
        draw, now = self.draw, len(self.sentences)
        name = _pick(draw, self.names)
        here = self.place.get(name)
        if draw() < self.idle:
            self.sentences.append(f"{name} {_pick(draw, IDLES)}")
            return
        if here is not None and draw() < 0.5:
            # an object never told of may be anywhere: here, then
            free = [
                x for x in self.things if x not in self.holder and (x not in self.path or self.path[x][-1][0] == here)
            ]
            held = [x for x in self.things if self.holder.get(x) == name]
            if held and (not free or draw() < 0.3):
                thing = _pick(draw, held)
                del self.holder[thing]
                self.known[thing] = now, self.moved[name]
                self.sentences.append(f"{name} {_pick(draw, DROPS)} the {thing}")
                return
            if free:
                thing = _pick(draw, free)
                self.holder[thing], self.picked[thing] = name, now
                self.known[thing] = now, self.moved[name]
                self.path.setdefault(thing, [(here, ())])
                self.sentences.append(f"{name} {_pick(draw, PICKS)} the {thing}")
                return
        there = _pick(draw, [room for room in self.rooms if room != here])
        for thing, holder in self.holder.items():
            if holder == name:
                self.known[thing] = self.picked[thing], now
                self.path[thing].append((there, (self.picked[thing], self.moved[name], now)))
        self.place[name], self.moved[name] = there, now
        self.sentences.append(f"{name} {_pick(draw, MOVES)} the {there}")

    def questions(self, hops: int) -> list[tuple[str, str, tuple[int, ...]]]:
        """All that may be asked now: question, answer, support."""
        if hops == 1:
            return [(f"where is {name} ?", room, (self.moved[name],)) for name, room in self.place.items()]
        if hops == 2:
            return [(f"where is the {thing} ?", self.path[thing][-1][0], known) for thing, known in self.known.items()]
        return [
            (f"where was the {thing} before the {room} ?", before, support)
            for thing, path in self.path.items()
            for (before, _), (room, support) in pairwise(path)
            if sum(room == other for other, _ in path) == 1
        ]
