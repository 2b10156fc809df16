"""An interpreter of reviews of its own: it reads the tokens alone and knows nothing of how a row
was made."""

from attnprobe.data.testbed.reviews import ADJECTIVES, ASPECTS, NOUNS, VERBS

POLARITY = {
    word: sign
    for lexicon in (ADJECTIVES, NOUNS, VERBS)
    for sign in (1, -1)
    for word in lexicon[sign]
}
OPPOSITE = {
    word: other
    for lexicon in (ADJECTIVES, NOUNS, VERBS)
    for pair in zip(lexicon[1], lexicon[-1], strict=True)
    for word, other in (pair, pair[::-1])
}
PHRASES = ("anything but", "far from", "by no means")
NEGATORS = {"not", "never", "hardly", "scarcely", "rarely", "doubt", "deny", "nobody", "cannot"} | {
    phrase.replace(" ", "_") for phrase in PHRASES
}
DEGREE = dict.fromkeys(("slightly", "somewhat", "mildly"), 1) | dict.fromkeys(
    ("very", "extremely", "truly"), 3
)
MARKERS = {"but", "yet", "although", "though"}
EMPTY = {
    "was",
    "is",
    "felt",
    "seemed",
    "a",
    "i",
    "that",
    "think",
    "believe",
    "say",
    "would",
    "everybody",
    "agree",
}
SUBJECTS = ("the film", "the movie", "the picture", "it", "this one", "the whole thing")


def units(text):
    for phrase in PHRASES:
        text = text.replace(phrase, phrase.replace(" ", "_"))
    return text.split()


def clauses_of(sentence):
    """Clauses, whether each is conceded, and whether the sentence has a contrast marker."""
    clauses = [[]]
    conceded = [False]
    marked = False
    for word in sentence.split():
        marked |= word in MARKERS
        if word in ("but", "yet"):
            conceded = [True] * len(conceded)
        if word in MARKERS or word in (",", "and", "while"):
            clauses.append([])
            conceded.append(word in ("although", "though"))
        else:
            clauses[-1].append(word)
    return [
        (clause, silent) for clause, silent in zip(clauses, conceded, strict=True) if clause
    ], marked


def polarity(clause):
    """+1, −1, or None of a clause without an opinion."""
    opinions = [POLARITY[word] for word in clause if word in POLARITY]
    assert len(opinions) <= 1
    return opinions[0] * (-1) ** sum(word in NEGATORS for word in clause) if opinions else None


def judges(clause, subjects):
    """Does it judge one of these, if only with the judgement struck? A fact about the film does
    not."""
    if not any(f" {subject} " in f" {' '.join(clause)} " for subject in subjects):
        return False
    rest = set(clause) - EMPTY - NEGATORS - set(DEGREE) - set(" ".join(subjects).split())
    return rest <= set(POLARITY)


def sign(total):
    return None if total == 0 else int(total > 0)


def meaning(words):
    """The label, or None where nothing says what counts."""
    ranks = {3: [], 2: [], 1: []}
    ruling = None
    for sentence in " ".join(words).split("."):
        read, marked = clauses_of(sentence)
        wholes = [(clause, silent) for clause, silent in read if judges(clause, SUBJECTS)]
        if wholes:
            spoken = [polarity(clause) for clause, silent in wholes if not silent]
            counted = len(wholes) == 1 or len(wholes) == 3 or (marked and len(spoken) == 1)
            ruling = sum(vote or 0 for vote in spoken) if counted else 0
        for clause, silent in read:
            if not silent and judges(clause, ASPECTS):
                rank = next((DEGREE[word] for word in clause if word in DEGREE), 2)
                ranks[rank].append(polarity(clause) or 0)
    if ruling is not None:
        return sign(ruling)
    top = next((votes for votes in ranks.values() if votes), [])
    return sign(top[0]) if len(top) == 1 else None


def alone(words):
    """The label by the words of a rationale in their order: each opinion with the negators since
    the last one."""
    total = 0
    turns = 1
    for word in words:
        turns *= -1 if word in NEGATORS else 1
        if word in POLARITY:
            total = total + POLARITY[word] * turns
            turns = 1
    return sign(total)


def necessary(words):
    """Per token: does striking it, alone, change the meaning?"""
    result = []
    for i, word in enumerate(words):
        struck = [*words[:i], *(["and"] if word in MARKERS else []), *words[i + 1 :]]
        operative = word in POLARITY or word in NEGATORS or word in DEGREE or word in MARKERS
        result += [operative and meaning(struck) != meaning(words)] * (1 + word.count("_"))
    return result
