"""Stories: people move between rooms, and carry objects; a question asks where something is."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

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
"""Probability of a sentence that no question needs ("nora hummed a tune")."""


def generate_stories(count: int, seed: int, hops: int = 1) -> Iterator[dict[str, Any]]:
    """Stories of people who move between rooms, and pick up and drop objects, with one question.

    The kinds of question are those of bAbI's tasks 1 to 3 (Weston et al. 2015); world, words and
    generator are ours.

    - hops 1: "where is nora ?" The answer's support is her last move.
    - hops 2: "where is the lantern ?" Held: the last pick-up and its holder's last move. Dropped:
      the drop and the last move of who dropped it, before the drop.
    - hops 3: "where was the lantern before the attic ?" Asked of rooms that the object was carried
      into once and was in at no other time. Support: the move into that room, the carrier's move
      before it, and the last pick-up before it.

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
    longest = LONGEST_STORY[hops]
    shortest = longest // 2
    for index in range(count):
        draw = stream(seed, f"story{hops}", index)
        questions: list[_Question] = []
        while not questions:  # a short story may have nothing to ask
            world = _World(draw)
            length = shortest + int(draw() * (longest - shortest + 1))
            for _ in range(length):
                world.happen()
            questions = world.questions(hops)
        question = questions[int(draw() * len(questions))]
        yield {
            "document": " . ".join(world.sentences) + " .",
            "question": question.text,
            "label": question.answer,
            "candidates": sorted(ROOMS),
            "sentences": world.sentences,
            "support": sorted(question.support),
        }


class _Question(NamedTuple):
    """A question, its answer, and the sentences that the answer needs."""

    text: str
    answer: str
    support: tuple[int, ...]


class _Visit(NamedTuple):
    """A room that an object was in, and the sentences that say how it came there."""

    room: str
    support: tuple[int, ...]


class _World:
    """Who and what is where, and which sentences say so.

    Attributes:
        sentences: the story so far.
        place: the room of each person.
        moved: the sentence of each person's last move.
        holder: the person who holds each object that is held.
        picked: the sentence of each object's last pick-up.
        evidence: the two sentences that say where each object is.
        path: the rooms that each object was in, in order.
    """

    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.sentences: list[str] = []
        self.place: dict[str, str] = {}
        self.moved: dict[str, int] = {}
        self.holder: dict[str, str] = {}
        self.picked: dict[str, int] = {}
        self.evidence: dict[str, tuple[int, int]] = {}
        self.path: dict[str, list[_Visit]] = {}

    def happen(self) -> None:
        """Let one thing happen, and tell it in a sentence."""
        name = pick(self.draw, NAMES)
        room = self.place.get(name)
        if self.draw() < IDLE:
            self.sentences.append(f"{name} {pick(self.draw, IDLES)}")
        elif room is None or self.draw() >= 0.5 or not self._handle_object(name, room):
            self._move(name, room)

    def _handle_object(self, name: str, room: str) -> bool:
        """Let a person drop or pick up an object; False where there is none."""
        draw = self.draw
        free = [thing for thing in OBJECTS if self._may_be_in(thing, room)]
        held = [thing for thing in OBJECTS if self.holder.get(thing) == name]
        now = len(self.sentences)
        if held and (not free or draw() < 0.3):
            thing = pick(draw, held)
            del self.holder[thing]
            verb = pick(draw, DROPS)
        elif free:
            thing = pick(draw, free)
            self.holder[thing] = name
            self.picked[thing] = now
            self.path.setdefault(thing, [_Visit(room, ())])
            verb = pick(draw, PICKS)
        else:
            return False
        self.evidence[thing] = (now, self.moved[name])
        self.sentences.append(f"{name} {verb} the {thing}")
        return True

    def _may_be_in(self, thing: str, room: str) -> bool:
        """An object that was never mentioned may be in any room."""
        if thing in self.holder:
            return False
        return thing not in self.path or self.path[thing][-1].room == room

    def _move(self, name: str, room: str | None) -> None:
        """Let a person go to another room, with the objects that they hold."""
        now = len(self.sentences)
        target = pick(self.draw, [other_room for other_room in ROOMS if other_room != room])
        for thing, holder in self.holder.items():
            if holder == name:
                self.evidence[thing] = (self.picked[thing], now)
                support = (self.picked[thing], self.moved[name], now)
                self.path[thing].append(_Visit(target, support))
        self.place[name] = target
        self.moved[name] = now
        self.sentences.append(f"{name} {pick(self.draw, MOVES)} the {target}")

    def questions(self, hops: int) -> list[_Question]:
        """All questions that may be asked now."""
        questions = []
        if hops == 1:
            for name, room in self.place.items():
                questions.append(_Question(f"where is {name} ?", room, (self.moved[name],)))
        elif hops == 2:
            for thing, support in self.evidence.items():
                room = self.path[thing][-1].room
                questions.append(_Question(f"where is the {thing} ?", room, support))
        else:
            for thing, path in self.path.items():
                rooms = [visit.room for visit in path]
                for before, visit in pairwise(path):
                    if rooms.count(visit.room) == 1:
                        text = f"where was the {thing} before the {visit.room} ?"
                        questions.append(_Question(text, before.room, visit.support))
        return questions
