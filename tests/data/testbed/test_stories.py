"""Stories against an interpreter that reads the sentences alone and knows nothing of how a row was
made."""

import pytest

from attnprobe.data.testbed import generate_stories

MOVES = ("walked to", "went to", "ran to", "hurried to", "strolled to")
PICKS = ("picked up", "took", "grabbed")
DROPS = ("dropped", "put down")


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
    words = question.split()
    if words[:2] == ["where", "was"]:
        thing = words[3]
        room = words[6]
        rooms = [whereabouts(story, thing, t)[0] for t in range(len(story) + 1)]
        arrivals = [
            t for t in range(1, len(rooms)) if rooms[t] == room != rooms[t - 1] and rooms[t - 1]
        ]
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
        (
            "nora went to the attic . omar ran to the cellar . nora ran to the pantry",
            "where is nora ?",
            "pantry",
            [2],
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
def test_answers_and_support_are_those_of_the_interpreter(hops):
    for row in generate_stories(800, seed=1, hops=hops):
        assert answer(row["sentences"], row["question"]) == (row["label"], row["support"]), row
        alone = [row["sentences"][i] for i in row["support"]]
        assert answer(alone, row["question"])[0] == row["label"], row  # the support is enough …
        for i in range(hops):  # … and nothing in it is spare
            assert answer(alone[:i] + alone[i + 1 :], row["question"])[0] != row["label"], row
        assert row["document"] == " . ".join(row["sentences"]) + " ."
        assert row["label"] in row["candidates"]
        assert len(row["support"]) == hops
    rows = list(generate_stories(3000, seed=3, hops=hops))
    assert list(generate_stories(5, seed=3, hops=hops)) == rows[:5]
    answers = [row["label"] for row in rows]
    assert (
        max(answers.count(room) for room in set(answers)) < 1.3 * 3000 / 6
    )  # no room is the usual answer


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_a_story_happens_in_one_world(hops):
    """Nobody takes what is held or elsewhere, drops what they do not hold, or moves to where they
    are."""
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
