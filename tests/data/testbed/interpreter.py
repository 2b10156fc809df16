"""An independent interpreter of reviews: it reads tokens and knows not how a row is made."""

from attnprobe.data.testbed.reviews import ADJECTIVES, ASPECTS, NOUNS, VERBS

POLARITY = {}
OPPOSITE = {}
for lexicon in (ADJECTIVES, NOUNS, VERBS):
    for good, bad in zip(lexicon[1], lexicon[-1], strict=True):
        POLARITY |= {good: 1, bad: -1}
        OPPOSITE |= {good: bad, bad: good}
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
    has_marker = False
    for word in sentence.split():
        if word in MARKERS:
            has_marker = True
        if word in ("but", "yet"):
            conceded = [True] * len(conceded)
        if word in MARKERS or word in (",", "and", "while"):
            clauses.append([])
            conceded.append(word in ("although", "though"))
        else:
            clauses[-1].append(word)
    pairs = zip(clauses, conceded, strict=True)
    return [(clause, silent) for clause, silent in pairs if clause], has_marker


def polarity(clause):
    """+1, −1, or None of a clause without an opinion."""
    opinions = [POLARITY[word] for word in clause if word in POLARITY]
    assert len(opinions) <= 1
    if not opinions:
        return None
    negators = sum(word in NEGATORS for word in clause)
    return opinions[0] * (-1) ** negators


def judges(clause, subjects):
    """Whether it judges one of these, if only with the judgement struck; a fact judges nothing."""
    text = f" {' '.join(clause)} "
    if not any(f" {subject} " in text for subject in subjects):
        return False
    words_of_subjects = set(" ".join(subjects).split())
    rest = set(clause) - words_of_subjects - EMPTY - NEGATORS - set(DEGREE)
    return rest <= set(POLARITY)


def sign(total):
    return None if total == 0 else int(total > 0)


def meaning(words):
    """The label, or None where nothing says what counts."""
    votes_of_ranks = {3: [], 2: [], 1: []}
    ruling = None
    for sentence in " ".join(words).split("."):
        clauses, has_marker = clauses_of(sentence)
        vote = vote_about_the_whole(clauses, has_marker)
        if vote is not None:
            ruling = vote
        for clause, silent in clauses:
            if not silent and judges(clause, ASPECTS):
                rank = next((DEGREE[word] for word in clause if word in DEGREE), 2)
                votes_of_ranks[rank].append(polarity(clause) or 0)
    if ruling is not None:
        return sign(ruling)
    top = next((votes for votes in votes_of_ranks.values() if votes), [])
    return sign(top[0]) if len(top) == 1 else None


def vote_about_the_whole(clauses, has_marker):
    """What a sentence says of the whole: positive, negative, 0 for undecided; None for nothing."""
    judgements = 0
    votes = []
    for clause, silent in clauses:
        if judges(clause, SUBJECTS):
            judgements += 1
            if not silent:
                votes.append(polarity(clause) or 0)
    if judgements == 0:
        return None
    is_ruled = has_marker and len(votes) == 1
    if is_ruled or judgements in (1, 3):
        return sum(votes)
    return 0


def label_of_rationale(words):
    """The label by the words of a rationale: each opinion with the negators since the last one."""
    total = 0
    turns = 1
    for word in words:
        if word in NEGATORS:
            turns = -turns
        if word in POLARITY:
            total += POLARITY[word] * turns
            turns = 1
    return sign(total)


def necessary(words):
    """For each token: does striking its word change the meaning?"""
    result = []
    for place, word in enumerate(words):
        struck = list(words)
        struck[place : place + 1] = ["and"] if word in MARKERS else []
        operative = any(word in kind for kind in (POLARITY, NEGATORS, DEGREE, MARKERS))
        decides = operative and meaning(struck) != meaning(words)
        result += [decides] * (1 + word.count("_"))  # a phrase of several tokens is one word
    return result
