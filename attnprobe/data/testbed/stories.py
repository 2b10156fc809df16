"""Stories: people move between rooms, pick up, carry and drop objects, and a question asks where
something is."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from attnprobe.data.testbed.drawing import Draw, pick, stream

NAMES = ("nora", "omar", "lena", "ivan")
OBJECTS = ("lantern", "kettle", "violin")
ROOMS = ("attic", "cellar", "library", "pantry", "studio", "terrace")
MOVES = ("walked to", "went to", "ran to", "hurried to", "strolled to")
PICKS = ("picked up", "took", "grabbed")
DROPS = ("dropped", "put down")
IDLES = ("hummed a tune", "looked around", "told a joke", "felt sleepy")
LONGEST_STORY = {1: 8, 2: 14, 3: 20}
"""Sentences of the longest story for every number of hops; stories have half of them to all."""
IDLE = 0.1
"""Probability of a sentence that is of no use ("nora hummed a tune")."""


def generate_stories(count: int, seed: int, hops: int = 1) -> Iterator[dict[str, Any]]:
    """Stories of people who move between rooms, pick up, carry and drop objects, each with one
    question.

    The kinds of question are those of bAbI's tasks 1 to 3 (Weston et al. 2015); world, words and
    generator are ours.

    hops 1: "where is nora ?" The answer's support is her last move. hops 2: "where is the lantern
    ?" Held: the last pick-up and its holder's last move. Dropped: the drop and the last move of who
    dropped it, before the drop. hops 3: "where was the lantern before the attic ?" Asked of rooms
    that the object was carried into once and was in at no other time. Support: the move into that
    room, the carrier's move before it, and the last pick-up before it.

    Args:
        count: number of rows.
        seed: another seed gives other rows.
        hops: facts that the answer needs: 1, 2 or 3.

    Yields:
        `document` the sentences joined by " . " and closed by " ."; `question`; `label` the answer,
        a room; `candidates` all rooms; `sentences`; `support`, increasing indices of the sentences
        that the answer needs.

    >>> row = next(generate_stories(1, seed=17, hops=2))
    >>> row["sentences"][3:]
    ['omar grabbed the lantern', 'ivan ran to the attic', 'omar ran to the pantry', 'omar hummed a
    tune']
    >>> row["question"], row["label"], row["support"]
    ('where is the lantern ?', 'pantry', [3, 5])
    """
    for index in range(count):
        draw = stream(seed, f"story{hops}", index)
        questions: list[tuple[str, str, tuple[int, ...]]] = []
        while not questions:  # a short story may have nothing to ask
            told = _World(draw)
            longest = LONGEST_STORY[hops]
            for _ in range(longest // 2 + int(draw() * (longest - longest // 2 + 1))):
                told.happen()
            questions = told.questions(hops)
        question, label, support = questions[int(draw() * len(questions))]
        yield {
            "document": " . ".join(told.sentences) + " .",
            "question": question,
            "label": label,
            "candidates": sorted(ROOMS),
            "sentences": told.sentences,
            "support": sorted(support),
        }


class _World:
    """Who and what is where, and by which sentences one knows."""

    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.sentences: list[str] = []
        self.place: dict[str, str] = {}  # of people
        self.moved: dict[str, int] = {}  # each person's last move
        self.holder: dict[str, str] = {}
        self.picked: dict[str, int] = {}  # each object's last pick-up
        self.known: dict[str, tuple[int, int]] = {}  # why one knows where an object is
        self.path: dict[
            str, list[tuple[str, tuple[int, ...]]]
        ] = {}  # an object's rooms, and how it came there

    def happen(self) -> None:
        """Let one thing happen, and tell it."""
        draw = self.draw
        now = len(self.sentences)
        name = pick(draw, NAMES)
        here = self.place.get(name)
        if draw() < IDLE:
            self.sentences.append(f"{name} {pick(draw, IDLES)}")
            return
        if here is not None and draw() < 0.5:
            # an object that was never mentioned may be anywhere, so also here
            free = [
                x
                for x in OBJECTS
                if x not in self.holder and (x not in self.path or self.path[x][-1][0] == here)
            ]
            held = [x for x in OBJECTS if self.holder.get(x) == name]
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
        there = pick(draw, [room for room in ROOMS if room != here])
        for thing, holder in self.holder.items():
            if holder == name:
                self.known[thing] = self.picked[thing], now
                self.path[thing].append((there, (self.picked[thing], self.moved[name], now)))
        self.place[name], self.moved[name] = there, now
        self.sentences.append(f"{name} {pick(draw, MOVES)} the {there}")

    def questions(self, hops: int) -> list[tuple[str, str, tuple[int, ...]]]:
        """All that may be asked now: question, answer, support."""
        if hops == 1:
            return [
                (f"where is {name} ?", room, (self.moved[name],))
                for name, room in self.place.items()
            ]
        if hops == 2:
            return [
                (f"where is the {thing} ?", self.path[thing][-1][0], known)
                for thing, known in self.known.items()
            ]
        return [
            (f"where was the {thing} before the {room} ?", before, support)
            for thing, path in self.path.items()
            for (before, _), (room, support) in pairwise(path)
            if sum(room == other for other, _ in path) == 1
        ]
