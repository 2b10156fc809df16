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


def whereabouts(story, thing, before):
    """Where an object is at a time, and by which sentences, searched backwards."""
    handled = last(story, before, PICKS + DROPS, object_=thing)
    if handled is None:
        return None, None
    name = story[handled].split()[0]
    is_held = any(verb in story[handled] for verb in PICKS)
    moved = last(story, before if is_held else handled, MOVES, name)
    if moved is None:
        return None, None
    return story[moved].split()[-1], sorted((moved, handled))


def room_before(story, thing, room):
    """Where an object was before a room that it was carried into once, and by which sentences."""
    rooms = [whereabouts(story, thing, time)[0] for time in range(len(story) + 1)]
    arrivals = []
    for time in range(1, len(rooms)):
        if rooms[time] == room != rooms[time - 1] and rooms[time - 1]:
            arrivals.append(time)
    if len(arrivals) != 1:
        return None, None
    arrival = arrivals[0] - 1
    before, support = whereabouts(story, thing, arrival)
    name = story[arrival].split()[0]
    moved = last(story, arrival, MOVES, name)
    picked = last(story, arrival, PICKS, name, thing)
    assert {moved, picked} <= {*support, picked}
    return before, sorted((moved, picked, arrival))


def answer(story, question):
    words = question.split()
    if words[:2] == ["where", "was"]:
        return room_before(story, thing=words[3], room=words[6])
    if len(words) == 4 and words[2] != "the":
        moved = last(story, len(story), MOVES, words[2])
        return (None, None) if moved is None else (story[moved].split()[-1], [moved])
    return whereabouts(story, words[3], len(story))


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
        assert answer(row["sentences"], row["question"]) == (row["label"], row["support"]), row
        assert row["document"] == " . ".join(row["sentences"]) + " ."
        assert row["label"] in row["candidates"]
        assert len(row["support"]) == hops


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_the_support_is_enough_and_nothing_in_it_is_spare(hops):
    for row in generate_stories(800, seed=1, hops=hops):
        support = [row["sentences"][number] for number in row["support"]]
        assert answer(support, row["question"])[0] == row["label"], row
        for number in range(hops):
            rest = support[:number] + support[number + 1 :]
            assert answer(rest, row["question"])[0] != row["label"], row


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_no_room_is_the_usual_answer(hops):
    answers = Counter(row["label"] for row in generate_stories(3000, seed=3, hops=hops))
    assert max(answers.values()) < 1.3 * 3000 / 6


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
