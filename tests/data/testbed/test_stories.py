"""Stories against an interpreter that reads sentences, and knows nothing of how a row is made."""

from collections import Counter

import pytest

from attnprobe.data.testbed import generate_stories

MOVES = ("walked to", "went to", "ran to", "hurried to", "strolled to")
PICKS = ("picked up", "took", "grabbed")
DROPS = ("dropped", "put down")


def last(story, before, verbs, subject="", object_=""):
    """The last sentence before `before` that starts and ends so, or None."""
    for number in reversed(range(before)):
        name, rest = story[number].split(" ", 1)
        has_verb = any(rest.startswith(f"{verb} the ") for verb in verbs)
        if has_verb and name.startswith(subject) and rest.endswith(object_):
            return number
    return None


def first_word(sentence):
    return sentence.split()[0]


def last_word(sentence):
    return sentence.split()[-1]


def whereabouts(story, thing, before):
    """Where an object is at a time, and by which sentences, searched backwards."""
    handled = last(story, before, PICKS + DROPS, object_=thing)
    if handled is None:
        return None, None
    name = first_word(story[handled])
    is_held = any(verb in story[handled] for verb in PICKS)
    until = before if is_held else handled  # what is held moves along
    moved = last(story, until, MOVES, name)
    if moved is None:
        return None, None
    return last_word(story[moved]), sorted((moved, handled))


def room_before(story, thing, room):
    """Where an object was before a room that it was carried into once, and by which sentences."""
    arrivals = []
    for time in range(len(story)):
        room_before_it, _ = whereabouts(story, thing, time)
        room_after_it, _ = whereabouts(story, thing, time + 1)
        is_carried = room_before_it is not None and room_before_it != room_after_it
        if is_carried and room_after_it == room:
            arrivals.append(time)
    if len(arrivals) != 1:
        return None, None
    [arrival] = arrivals
    before, support = whereabouts(story, thing, arrival)
    name = first_word(story[arrival])
    moved = last(story, arrival, MOVES, name)
    picked = last(story, arrival, PICKS, name, thing)
    assert {moved, picked} <= {*support, picked}
    return before, sorted((moved, picked, arrival))


def answer(story, question):
    """The room, and the sentences that say so; None and None where nothing does."""
    match question.split():
        case ["where", "was", "the", thing, "before", "the", room, "?"]:
            return room_before(story, thing, room)
        case ["where", "is", "the", thing, "?"]:
            return whereabouts(story, thing, len(story))
        case ["where", "is", name, "?"]:
            moved = last(story, len(story), MOVES, name)
            if moved is None:
                return None, None
            return last_word(story[moved]), [moved]
    raise ValueError(question)


@pytest.mark.parametrize(
    ("document", "question", "label", "support"),
    [
        (
            "nora went to the attic . omar ran to the cellar . nora ran to the pantry",
            "where is nora ?",
            "pantry",
            [2],
        ),
        (
            "nora went to the attic . nora took the kettle . nora dropped the kettle . "
            "nora ran to the pantry",
            "where is the kettle ?",
            "attic",
            [0, 2],
        ),
        (
            "nora went to the attic . nora took the kettle . omar ran to the cellar . "
            "nora ran to the pantry",
            "where was the kettle before the pantry ?",
            "attic",
            [0, 1, 3],
        ),
    ],
)
def test_the_story_interpreter_answers_as_a_person_does(document, question, label, support):
    assert answer(document.split(" . "), question) == (label, support)


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_answers_and_support_are_those_of_the_interpreter(hops):
    for row in generate_stories(800, seed=1, hops=hops):
        room, support = answer(row["sentences"], row["question"])
        assert room == row["label"], row
        assert support == row["support"], row
        assert row["document"] == " . ".join(row["sentences"]) + " ."
        assert row["label"] in row["candidates"]
        assert len(row["support"]) == hops


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_the_support_is_enough_and_nothing_in_it_is_spare(hops):
    for row in generate_stories(800, seed=1, hops=hops):
        support = [row["sentences"][number] for number in row["support"]]
        room, _ = answer(support, row["question"])
        assert room == row["label"], row
        for left_out in range(hops):
            rest = support.copy()
            del rest[left_out]
            room, _ = answer(rest, row["question"])
            assert room != row["label"], row


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_no_room_is_the_usual_answer(hops):
    rows = generate_stories(3000, seed=3, hops=hops)
    answers = Counter(row["label"] for row in rows)
    even_share = 3000 / 6
    assert max(answers.values()) < 1.3 * even_share


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_a_story_depends_on_its_seed_and_number_alone(hops):
    rows = list(generate_stories(3000, seed=3, hops=hops))
    assert list(generate_stories(5, seed=3, hops=hops)) == rows[:5]


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_a_story_happens_in_one_world(hops):
    """Nobody takes what is held or elsewhere, drops what they do not hold, or moves nowhere."""
    for row in generate_stories(300, seed=2, hops=hops):
        place = {}
        held = {}
        lies = {}
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
