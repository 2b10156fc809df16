"""Transductions: a source word by word made into a target, of which every symbol has one source
word that decides it."""

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any, NamedTuple

from attnprobe.core.errors import UserError
from attnprobe.data.testbed.drawing import Draw, pick, shuffled, stream

NOUNS = ("ant", "bee", "cat", "dog", "elk", "fox")
ADJECTIVES = ("big", "new", "old", "red")
WORDS = (*NOUNS, *ADJECTIVES)
DICTIONARY = dict(
    zip(
        WORDS,
        ("moro", "lisu", "geto", "daka", "fevi", "kuna", "supi", "toba", "rada", "velo"),
        strict=True,
    )
)
"""What lookup puts in the place of each word."""
ACTIONS = {
    "walk": "WALK",
    "look": "LOOK",
    "run": "RUN",
    "jump": "JUMP",
    "left": "TURN_LEFT",
    "right": "TURN_RIGHT",
}
"""What SCAN's words do; `turn` does nothing but what its direction does."""
TIMES = {"twice": 2, "thrice": 3}
START = "go"
"""The first word of every prefix, so that none is empty."""

Aligned = list[tuple[str, int]]
"""The target: each symbol, and the place of the source word that it is made from."""


class Transduction(NamedTuple):
    """How a source is drawn (for a number of words), what becomes of it, and what each word is made
    into."""

    draw: Callable[[Draw, int], list[str]]
    make: Callable[[Sequence[str]], Aligned]
    dictionary: dict[str, str]


def reordered(source: Sequence[str]) -> Aligned:
    """The words looked up; an adjective comes after the noun that it stands before."""
    places = list[int]()
    place = 0
    while place < len(source):
        swaps = (
            source[place] in ADJECTIVES and place + 1 < len(source) and source[place + 1] in NOUNS
        )
        places += [place + 1, place] if swaps else [place]
        place += 2 if swaps else 1
    return [(DICTIONARY[source[one]], one) for one in places]


def obeyed(command: Sequence[str], start: int = 0) -> Aligned:
    """The actions of a command of SCAN (Lake & Baroni 2018, supplement, figure 7), each with the
    word that orders it: the verb, or the direction of a turn."""
    for joint in ("and", "after"):
        if joint in command:
            place = list(command).index(joint)
            first = obeyed(command[:place], start)
            second = obeyed(command[place + 1 :], start + place + 1)
            return first + second if joint == "and" else second + first
    if command[-1] in TIMES:
        return obeyed(command[:-1], start) * TIMES[command[-1]]
    verb = [] if command[0] == "turn" else [(ACTIONS[command[0]], start)]
    if len(command) == 1:
        return verb
    turn = [(ACTIONS[command[-1]], start + len(command) - 1)]
    if command[1] == "around":
        return (turn + verb) * 4
    return (turn * 2 if command[1] == "opposite" else turn) + verb


def _command(draw: Draw, length: int) -> list[str]:
    """A command of SCAN of this many words at most: one phrase or two joined ones, each a verb with
    or without a direction, once or several times."""
    phrases = list[list[str]]()
    joint = ""
    while not phrases or (joint and len(phrases) < 2):
        verb = pick(draw, ["walk", "look", "run", "jump", "turn"])
        how = pick(draw, ["", "to", "opposite", "around"])
        how = "to" if verb == "turn" and not how else how
        direction = pick(draw, ["left", "right"]) if how else ""
        words = [verb, how if how != "to" else "", direction, pick(draw, ["", "twice", "thrice"])]
        phrases.append([word for word in words if word])
        joint = joint or pick(draw, ["and", "after", ""])
    command = [*phrases[0], joint, *phrases[1]] if joint else phrases[0]
    return command if len(command) <= length else phrases[0]


def _words(draw: Draw, length: int) -> list[str]:
    return [pick(draw, WORDS) for _ in range(length)]


SAME = {word: word for word in WORDS}
TRANSDUCTIONS = {
    "copy": Transduction(
        _words, lambda source: [(word, place) for place, word in enumerate(source)], SAME
    ),
    "reverse": Transduction(
        _words, lambda source: [(word, place) for place, word in enumerate(source)][::-1], SAME
    ),
    "lookup": Transduction(
        _words,
        lambda source: [(DICTIONARY[word], place) for place, word in enumerate(source)],
        DICTIONARY,
    ),
    "reordering": Transduction(_words, reordered, DICTIONARY),
    "sort": Transduction(
        lambda draw, length: shuffled(draw, WORDS)[:length],
        lambda source: sorted((word, place) for place, word in enumerate(source)),
        SAME,
    ),
    "scan": Transduction(_command, obeyed, ACTIONS),
}


def generate_transductions(
    kind: str, sources: int, seed: int, shortest: int = 4, longest: int = 8
) -> Iterator[list[dict[str, Any]]]:
    """The rows of distinct sources, one list per source and one row per target symbol,
    teacher-forced.

    Kinds: `copy`, `reverse`, `lookup` (word by word in a dictionary), `reordering` (the same, with
    an adjective after its noun), `sort` (of distinct words) and `scan` (commands and the actions
    that they order).

    Args:
        kind: one of `TRANSDUCTIONS`.
        sources: their number.
        seed: another seed gives other sources. shortest, longest: words of a source; targets of
        SCAN have at most `longest` symbols as well.

    Yields:
        Rows of `source`; `prefix`, the target before the symbol; `label`, the symbol; `rationale`,
        true at the word that it is made from; and `counterfactual`, the source with that word
        changed so that the symbol is the next one in the alphabet and the prefix is as it was (None
        where no change of this word does that).

    Raises:
        UserError: there are too few distinct sources of these lengths.

    >>> rows = next(generate_transductions("reordering", 1, seed=0))
    >>> rows[0]["source"], [row["label"] for row in rows]
    ('elk old bee big fox', ['fevi', 'lisu', 'rada', 'kuna', 'supi'])
    >>> rows[2]["prefix"], rows[2]["rationale"], rows[2]["counterfactual"]
    ('go fevi lisu', [False, True, False, False, False], 'elk big bee big fox')
    """
    transduction = TRANSDUCTIONS[kind]
    seen = set[tuple[str, ...]]()
    symbols = sorted(set(transduction.dictionary.values()))
    word_of = {symbol: word for word, symbol in transduction.dictionary.items()}
    for index in count():
        if len(seen) == sources:
            return
        if index > 100 * sources:
            raise UserError(
                f"data.source.kind={kind} has fewer than {sources} distinct sources of {shortest} to {longest} words that "
                f"chance finds: take fewer (data.source.train_size), or longer ones (data.source.longest)"
            )
        draw = stream(seed, f"transduction {kind}", index)
        source = transduction.draw(draw, shortest + int(draw() * (longest - shortest + 1)))
        target = transduction.make(source)
        if tuple(source) in seen or (kind == "scan" and not shortest <= len(target) <= longest):
            continue
        seen.add(tuple(source))
        rows = []
        for step, (symbol, place) in enumerate(target):
            following = symbols[(symbols.index(symbol) + 1) % len(symbols)]
            other = [*source[:place], word_of[following], *source[place + 1 :]]
            before = [one for one, _ in target[:step]]
            try:
                holds = [one for one, _ in transduction.make(other)[: step + 1]] == [
                    *before,
                    following,
                ]
            except KeyError:  # no command
                holds = False
            rows.append(
                {
                    "source": " ".join(source),
                    "prefix": " ".join([START, *before]),
                    "label": symbol,
                    "rationale": [one == place for one in range(len(source))],
                    "counterfactual": " ".join(other) if holds else None,
                }
            )
        yield rows
