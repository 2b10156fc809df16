"""Transductions: a source is made into a target, each symbol of which one source word decides."""

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
"""The symbol that lookup makes of each word."""
ACTIONS = {
    "walk": "WALK",
    "look": "LOOK",
    "run": "RUN",
    "jump": "JUMP",
    "left": "TURN_LEFT",
    "right": "TURN_RIGHT",
}
"""The actions that SCAN's words order; `turn` itself orders none, only its direction does."""
TIMES = {"twice": 2, "thrice": 3}
START = "go"
"""The first word of every prefix, so that none is empty."""

Aligned = list[tuple[str, int]]
"""The target: each symbol, and the place of the source word that it is made from."""


class Transduction(NamedTuple):
    """A way to make targets.

    Attributes:
        draw: draws a source of so many words.
        make: makes the target of a source.
        dictionary: the symbol that each word is made into.
    """

    draw: Callable[[Draw, int], list[str]]
    make: Callable[[Sequence[str]], Aligned]
    dictionary: dict[str, str]


def reordered(source: Sequence[str]) -> Aligned:
    """The words looked up; an adjective comes after the noun that it stands before."""
    places: list[int] = []
    place = 0
    while place < len(source):
        following = source[place + 1 : place + 2]
        if source[place] in ADJECTIVES and following and following[0] in NOUNS:
            places += [place + 1, place]
            place += 2
        else:
            places.append(place)
            place += 1
    return [(DICTIONARY[source[place]], place) for place in places]


def obeyed(command: Sequence[str], start: int = 0) -> Aligned:
    """The actions of a command of SCAN (Lake & Baroni 2018, supplement, figure 7).

    Args:
        command: the words of the command.
        start: the place of its first word in the whole source.

    Returns:
        Each action with the place of the word that orders it: the verb, or the direction of a turn.
    """
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
    """A command of SCAN of this many words at most: one phrase, or two joined ones."""
    first = _phrase(draw)
    joint = pick(draw, ["and", "after", ""])
    if not joint:
        return first
    second = _phrase(draw)
    command = [*first, joint, *second]
    return command if len(command) <= length else first


def _phrase(draw: Draw) -> list[str]:
    """A verb with or without a direction, once or several times."""
    verb = pick(draw, ["walk", "look", "run", "jump", "turn"])
    manner = pick(draw, ["", "to", "opposite", "around"])
    if verb == "turn" and not manner:
        manner = "to"
    direction = pick(draw, ["left", "right"]) if manner else ""
    adverb = "" if manner == "to" else manner
    words = [verb, adverb, direction, pick(draw, ["", "twice", "thrice"])]
    return [word for word in words if word]


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
    """Rows of distinct sources: a list per source, and a teacher-forced row per target symbol.

    Kinds: `copy`, `reverse`, `lookup` (word by word in a dictionary), `reordering` (the same, with
    an adjective after its noun), `sort` (of distinct words) and `scan` (commands and the actions
    that they order).

    Args:
        kind: one of `TRANSDUCTIONS`.
        sources: number of sources.
        seed: another seed gives other sources.
        shortest: words of a source (and symbols of a target of SCAN), at least.
        longest: words of a source (and symbols of a target of SCAN), at most.

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
    seen: set[tuple[str, ...]] = set()
    for index in count():
        if len(seen) == sources:
            return
        if index > 100 * sources:
            raise UserError(
                f"data.source.kind={kind} has fewer than {sources} distinct sources of {shortest} "
                f"to {longest} words that chance finds: take fewer (data.source.train_size), or "
                f"longer ones (data.source.longest)"
            )
        draw = stream(seed, f"transduction {kind}", index)
        length = shortest + int(draw() * (longest - shortest + 1))
        source = transduction.draw(draw, length)
        target = transduction.make(source)
        fits = kind != "scan" or shortest <= len(target) <= longest
        if tuple(source) not in seen and fits:
            seen.add(tuple(source))
            yield [_step(transduction, source, target, step) for step in range(len(target))]


def _step(
    transduction: Transduction, source: list[str], target: Aligned, step: int
) -> dict[str, Any]:
    """The teacher-forced row of one symbol of a target."""
    symbol, place = target[step]
    prefix = [before for before, _ in target[:step]]
    symbols = sorted(set(transduction.dictionary.values()))
    next_symbol = symbols[(symbols.index(symbol) + 1) % len(symbols)]
    word_of = {made: word for word, made in transduction.dictionary.items()}
    changed = [*source[:place], word_of[next_symbol], *source[place + 1 :]]
    try:
        changed_target = [made for made, _ in transduction.make(changed)]
        is_counterfactual = changed_target[: step + 1] == [*prefix, next_symbol]
    except KeyError:  # no command
        is_counterfactual = False
    return {
        "source": " ".join(source),
        "prefix": " ".join([START, *prefix]),
        "label": symbol,
        "rationale": [position == place for position in range(len(source))],
        "counterfactual": " ".join(changed) if is_counterfactual else None,
    }
