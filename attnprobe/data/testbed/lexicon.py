"""The words of the reviews, and the forms of their sentences."""

from enum import IntEnum


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
# A star marks a word of the rationale until the review is put together; {} is its place. "good/bad" is a word that counts:
# the first is said if the label is 1.
FRAMES = ("i think that", "i believe that", "everybody would agree that", "i would say that")
NEGATING_FRAMES = ("i {}doubt that", "i {}deny that", "{}nobody would agree that", "i {}cannot say that")
BUTS = ("{0} *but {1}", "{0} , *but {1}", "{0} , *yet {1}", "*although {0} , {1}", "*though {0} , {1}",
        "{1} *although {0}", "{1} , *though {0}")
ANDS = ("{0} and {1}", "{0} , {1}", "{0} while {1}", "{0} , and {1}")
LISTS = ("{0} , {1} and {2}", "{0} and {1} and {2}", "{0} , {1} , {2}")
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
