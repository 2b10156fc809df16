"""Stories: people move between rooms, pick up, carry and drop objects, and a question asks where something is."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from attnprobe.core.errors import UserError
from attnprobe.data.testbed.drawing import Draw, check_rows, pick, stream

NAMES = ("nora", "omar", "lena", "ivan", "priya", "tomas")
OBJECTS = ("lantern", "kettle", "violin", "compass", "umbrella")
ROOMS = ("attic", "cellar", "library", "pantry", "studio", "terrace", "workshop", "nursery")
MOVES = ("walked to", "went to", "ran to", "hurried to", "strolled to")
PICKS = ("picked up", "took", "grabbed")
DROPS = ("dropped", "put down")
IDLES = ("hummed a tune", "looked around", "told a joke", "felt sleepy")
LONGEST_STORY = {1: 8, 2: 14, 3: 20}
"""Default of `sentences` for every number of hops."""


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
    check_rows(count, start)
    if hops not in LONGEST_STORY:
        raise UserError(f"hops={hops}: the testbed tells stories with hops=1, hops=2 or hops=3")
    longest = LONGEST_STORY[hops] if sentences is None else sentences
    for name, value, low, high in (
        ("people", people, 1, len(NAMES)),
        ("objects", objects, 1, len(OBJECTS)),
        ("rooms", rooms, 2, len(ROOMS)),
    ):
        if not low <= value <= high:
            raise UserError(f"{name}={value}: the testbed has {low} to {high}; give {name}={high} or fewer")
    if longest < 2 * hops:
        raise UserError(f"sentences={longest} is too short for hops={hops}; give sentences={2 * hops} or more")
    if not 0 <= idle < 1:
        raise UserError(f"idle={idle} must be a probability below 1, such as idle=0.1")
    return (
        _story(stream(seed, f"story{hops}", i), hops, NAMES[:people], OBJECTS[:objects], ROOMS[:rooms], longest, idle)
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
        name = pick(draw, self.names)
        here = self.place.get(name)
        if draw() < self.idle:
            self.sentences.append(f"{name} {pick(draw, IDLES)}")
            return
        if here is not None and draw() < 0.5:
            # an object that was never mentioned may be anywhere, so also here
            free = [
                x for x in self.things if x not in self.holder and (x not in self.path or self.path[x][-1][0] == here)
            ]
            held = [x for x in self.things if self.holder.get(x) == name]
            if held and (not free or draw() < 0.3):
                thing = pick(draw, held)
                del self.holder[thing]
                self.known[thing] = now, self.moved[name]
                self.sentences.append(f"{name} {pick(draw, DROPS)} the {thing}")
                return
            if free:
                thing = pick(draw, free)
                self.holder[thing], self.picked[thing] = name, now
                self.known[thing] = now, self.moved[name]
                self.path.setdefault(thing, [(here, ())])
                self.sentences.append(f"{name} {pick(draw, PICKS)} the {thing}")
                return
        there = pick(draw, [room for room in self.rooms if room != here])
        for thing, holder in self.holder.items():
            if holder == name:
                self.known[thing] = self.picked[thing], now
                self.path[thing].append((there, (self.picked[thing], self.moved[name], now)))
        self.place[name], self.moved[name] = there, now
        self.sentences.append(f"{name} {pick(draw, MOVES)} the {there}")

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
