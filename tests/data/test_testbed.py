"""The testbed against interpreters of its own: they read the tokens alone and know nothing of how a row was made."""

from itertools import islice, product

import pytest
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression

from attnprobe.data.testbed import generate_reviews, generate_stories
from attnprobe.data.testbed.reviews import ADJECTIVES, NOUNS, VERBS
from attnprobe.errors import UserError

POLARITY = {word: sign for lexicon in (ADJECTIVES, NOUNS, VERBS) for sign in (1, -1) for word in lexicon[sign]}
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
DEGREE = dict.fromkeys(("slightly", "somewhat", "mildly"), 1) | dict.fromkeys(("very", "extremely", "truly"), 3)
MARKERS = {"but", "yet", "although", "though"}
WHOLE = {"film", "movie", "picture", "it", "one", "thing"}
SETTINGS = [{}, dict.fromkeys(("negation", "contrast", "weighing", "asides", "remarks"), 0.7)]


def units(text):
    for phrase in PHRASES:
        text = text.replace(phrase, phrase.replace(" ", "_"))
    return text.split()


def meaning(words):
    """The label, or None where all cancels, read clause by clause."""
    totals = {4: 0, 3: 0, 2: 0, 1: 0}
    for sentence in " ".join(words).split("."):
        clauses, conceded = [[]], [False]
        for word in sentence.split():
            if word in ("but", "yet"):
                conceded = [True] * len(conceded)
            if word in MARKERS or word in (",", "and", "while"):
                clauses.append([])
                conceded.append(word in ("although", "though"))
            else:
                clauses[-1].append(word)
        for clause, silent in zip(clauses, conceded, strict=True):
            opinions = [POLARITY[word] for word in clause if word in POLARITY]
            if opinions and not silent:
                (polarity,) = opinions
                turns = sum(word in NEGATORS for word in clause)
                rank = 4 if WHOLE & set(clause) else next((DEGREE[word] for word in clause if word in DEGREE), 2)
                totals[rank] += polarity * (-1) ** turns
    return next((int(total > 0) for total in totals.values() if total), None)


def necessary(words):
    """Per token: does striking it, alone, change the meaning?"""
    result = []
    for i, word in enumerate(words):
        struck = [*words[:i], *(["and"] if word in MARKERS else []), *words[i + 1 :]]
        operative = word in POLARITY or word in NEGATORS or word in DEGREE or word in MARKERS
        result += [operative and meaning(struck) != meaning(words)] * (1 + word.count("_"))
    return result


@pytest.mark.parametrize(
    ("text", "label", "rationale"),
    [
        ("the film was not good .", 0, "not good"),
        ("the movie never disappoints .", 1, "never disappoints"),
        ("it was hardly a triumph .", 0, "hardly triumph"),
        ("the picture was anything but dull .", 1, "anything but dull"),
        ("this one was extremely funny .", 1, "funny"),
        ("nobody would agree that it was not good .", 1, "nobody not good"),
        ("the film was charming but it was by no means a gem .", 0, "but by no means gem"),
        ("although the film was a mess , it delivers .", 1, "although delivers"),
        ("the film was dull , though it was witty .", 0, "dull though"),
        ("the acting was slightly dull and the plot was moving .", 1, "slightly moving"),
        ("the acting was dull . the plot was very moving .", 1, "very moving"),
        ("the acting was superb and the plot was dreadful . the film was a bore .", 0, "bore"),
        ("the acting was very dull . we never sat in the front row but it rained outside . it shines .", 1, "shines"),
        ("the acting was superb , the plot was dreadful .", None, "superb dreadful"),
    ],
)
def test_the_interpreter_reads_sentences_as_a_person_does(text, label, rationale):
    words = units(text)
    assert meaning(words) == label
    if label is not None:
        assert [t for t, decides in zip(text.split(), necessary(words), strict=True) if decides] == rationale.split()


@pytest.mark.parametrize("setting", SETTINGS)
def test_label_and_rationale_are_those_of_the_interpreter(setting):
    for row in generate_reviews(3000, seed=5, **setting):
        words = units(row["text"])
        assert meaning(words) == row["label"], row["text"]
        assert necessary(words) == row["rationale"], row["text"]
        assert row["tokens"] == row["text"].split()
        assert row["text"] == row["text"].lower()
        assert 6 <= len(row["tokens"]) <= 40


@pytest.mark.parametrize("setting", SETTINGS)
def test_only_the_rationales_sentiment_word_turns_the_label(setting):
    for row in generate_reviews(1000, seed=6, **setting):
        tokens = row["tokens"]
        opinions = [i for i, token in enumerate(tokens) if token in POLARITY]
        assert sum(row["rationale"][i] for i in opinions) == 1
        for i in opinions:
            turned = meaning(units(" ".join([*tokens[:i], OPPOSITE[tokens[i]], *tokens[i + 1 :]])))
            assert (turned != row["label"]) == row["rationale"][i], row["text"]
        silent = [t for t, decides in zip(tokens, row["rationale"], strict=True) if decides or t not in POLARITY]
        assert meaning(units(" ".join(silent))) == row["label"]  # all other opinions struck together


def test_no_setting_breaks_the_grammar():
    for shares in product((0, 1), repeat=5):
        setting = dict(zip(SETTINGS[1], shares, strict=True))
        for row in generate_reviews(20, seed=1, **setting):
            assert meaning(units(row["text"])) == row["label"]
            assert 6 <= len(row["tokens"]) <= 40


def test_rows_are_balanced_varied_and_depend_on_seed_and_number_alone():
    rows = list(generate_reviews(5000, seed=2))
    assert list(generate_reviews(7, seed=2)) == rows[:7]
    assert list(generate_reviews(7, seed=2, start=40)) == rows[40:47]
    assert next(generate_reviews(1, seed=3)) != rows[0]
    assert 0.47 < sum(row["label"] for row in rows) / 5000 < 0.53
    assert len({row["text"] for row in rows}) > 4950
    assert 200 < len({token for row in rows for token in row["tokens"]}) < 500


def test_every_device_of_the_grammar_is_used():
    rationales = [[t for t, d in zip(r["tokens"], r["rationale"], strict=True) if d] for r in generate_reviews(4000, 4)]
    for device in (NEGATORS - {p.replace(" ", "_") for p in PHRASES}) | {"anything", "far"} | MARKERS | set(DEGREE):
        assert any(device in rationale for rationale in rationales), device
    assert any(sum(word in NEGATORS for word in rationale) == 2 for rationale in rationales)


def test_a_bag_of_words_does_not_solve_the_reviews():
    rows = list(generate_reviews(6000, seed=0))
    counts = CountVectorizer(token_pattern=r"\S+").fit_transform([row["text"] for row in rows])
    labels = [row["label"] for row in rows]
    model = LogisticRegression(max_iter=1000).fit(counts[:4000], labels[:4000])
    assert model.score(counts[4000:], labels[4000:]) < 0.75


# Stories

MOVES = ("walked to", "went to", "ran to", "hurried to", "strolled to")
PICKS, DROPS = ("picked up", "took", "grabbed"), ("dropped", "put down")


def last(story, before, verbs, subject="", object_=""):
    """The last sentence before `before` that starts and ends so, or None."""
    for i in reversed(range(before)):
        name, rest = story[i].split(" ", 1)
        done = any(rest.startswith(f"{verb} the ") for verb in verbs)
        if done and name.startswith(subject) and rest.endswith(object_):
            return i
    return None


def whereabouts(story, thing, before):
    """Where an object is at a time, and by which sentences, searched backwards."""
    handled = last(story, before, PICKS + DROPS, object_=thing)
    if handled is None:
        return None, None
    name = story[handled].split()[0]
    held = any(verb in story[handled] for verb in PICKS)
    moved = last(story, before if held else handled, MOVES, name)
    return (None, None) if moved is None else (story[moved].split()[-1], sorted((moved, handled)))


def answer(story, question):
    """Answer and support, from the sentences alone."""
    words = question.split()
    if words[:2] == ["where", "was"]:
        thing, room = words[3], words[6]
        rooms = [whereabouts(story, thing, t)[0] for t in range(len(story) + 1)]
        arrivals = [t for t in range(1, len(rooms)) if rooms[t] == room != rooms[t - 1] and rooms[t - 1]]
        if len(arrivals) != 1:
            return None, None
        (arrival,) = arrivals
        before, why = whereabouts(story, thing, arrival - 1)
        name = story[arrival - 1].split()[0]
        moved = last(story, arrival - 1, MOVES, name)
        picked = last(story, arrival - 1, PICKS, name, thing)
        assert {moved, picked} <= {*why, picked}
        return before, sorted((moved, picked, arrival - 1))
    if len(words) == 4 and words[2] != "the":
        moved = last(story, len(story), MOVES, words[2])
        return (None, None) if moved is None else (story[moved].split()[-1], [moved])
    return whereabouts(story, words[3], len(story))


@pytest.mark.parametrize(
    ("document", "question", "label", "support"),
    [
        ("nora went to the attic . omar ran to the cellar . nora ran to the pantry", "where is nora ?", "pantry", [2]),
        (
            "nora went to the attic . nora took the kettle . nora ran to the pantry",
            "where is the kettle ?",
            "pantry",
            [1, 2],
        ),
        (
            "nora went to the attic . nora took the kettle . nora dropped the kettle . nora ran to the pantry",
            "where is the kettle ?",
            "attic",
            [0, 2],
        ),
        (
            "nora went to the attic . nora took the kettle . omar ran to the cellar . nora ran to the pantry",
            "where was the kettle before the pantry ?",
            "attic",
            [0, 1, 3],
        ),
    ],
)
def test_the_story_interpreter_answers_as_a_person_does(document, question, label, support):
    assert answer(document.split(" . "), question) == (label, support)


@pytest.mark.parametrize("hops", [1, 2, 3])
@pytest.mark.parametrize(
    "size", [{}, {"people": 6, "objects": 5, "rooms": 8, "sentences": 30}, {"people": 1, "rooms": 2}]
)
def test_answers_and_support_are_those_of_the_interpreter(hops, size):
    for row in generate_stories(400, seed=1, hops=hops, **size):
        assert answer(row["sentences"], row["question"]) == (row["label"], row["support"]), row
        alone = [row["sentences"][i] for i in row["support"]]
        assert answer(alone, row["question"])[0] == row["label"], row  # the support is enough …
        for i in range(hops):  # … and nothing in it is spare
            assert answer(alone[:i] + alone[i + 1 :], row["question"])[0] != row["label"], row
        assert row["document"] == " . ".join(row["sentences"]) + " ."
        assert row["label"] in row["candidates"]
        assert len(row["support"]) == hops


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_a_story_happens_in_one_world(hops):
    """Nobody takes what is held or elsewhere, drops what they do not hold, or moves to where they are."""
    for row in generate_stories(300, seed=2, hops=hops):
        place, held, lies = {}, {}, {}
        for sentence in row["sentences"]:
            name, rest = sentence.split(" ", 1)
            target = rest.split()[-1]
            if rest.startswith(MOVES):
                assert place.get(name) != target
                place[name] = target
            elif rest.startswith(PICKS):
                assert target not in held
                assert lies.get(target, place[name]) == place[name]
                held[target] = name
            elif rest.startswith(DROPS):
                assert held.pop(target) == name
                lies[target] = place[name]


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_stories_vary_and_no_room_is_the_usual_answer(hops):
    rows = list(generate_stories(3000, seed=3, hops=hops))
    assert list(generate_stories(5, seed=3, hops=hops, start=10)) == rows[10:15]
    assert len({row["document"] + row["question"] for row in rows}) > 2900
    answers = [row["label"] for row in rows]
    assert {tuple(row["candidates"]) for row in rows} == {tuple(sorted(set(answers)))}
    assert max(answers.count(room) for room in set(answers)) < 1.3 * 3000 / 6


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: generate_reviews(0, 1), "0 rows from row 0: .*count=1000"),
        (lambda: generate_reviews(1, 1, start=-1), "1 rows from row -1"),
        (lambda: generate_reviews(1, 1, negation=1.5), "negation=1.5 is no probability.*negation=0.4"),
        (lambda: generate_stories(0, 1), "0 rows"),
        (lambda: generate_stories(1, 1, hops=4), "hops=4: .*hops=1, hops=2 or hops=3"),
        (lambda: generate_stories(1, 1, people=7), "people=7: the testbed has 1 to 6"),
        (lambda: generate_stories(1, 1, rooms=1), "rooms=1: the testbed has 2 to 8"),
        (lambda: generate_stories(1, 1, hops=3, sentences=5), "sentences=5 is too short for hops=3; give sentences=6"),
        (lambda: generate_stories(1, 1, idle=1.0), "idle=1.0 .*idle=0.1"),
    ],
)
def test_wrong_settings_are_said_before_the_first_row(call, says):
    with pytest.raises(UserError, match=says):
        call()


def test_a_million_rows_are_not_made_ahead():
    assert len(list(islice(generate_reviews(10**6, seed=0), 3))) == 3
