"""The testbed against interpreters of its own: they read the tokens alone and know nothing of how a row was made."""

import json
from itertools import islice, product

import pytest
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from attnprobe.data.testbed import RULES, generate_reviews, generate_stories, reviews
from attnprobe.data.testbed.drawing import stream
from attnprobe.data.testbed.lexicon import ADJECTIVES, ASPECTS, NOUNS, VERBS
from attnprobe.errors import UserError
from attnprobe.results.table import read_results
from attnprobe.running.run import run
from tests.runs import composed

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
SUBJECTS = ("the film", "the movie", "the picture", "it", "this one", "the whole thing")
SETTINGS = [
    {},
    dict.fromkeys(("negation", "contrast", "weighing", "counting", "order", "asides", "remarks"), 0.7),
    *({**RULES[rule], "asides": 0.6} for rule in RULES if rule != "mixed"),
]
EMPTY = {"was", "is", "felt", "seemed", "a", "i", "that", "think", "believe", "say", "would", "everybody", "agree"}


def units(text):
    for phrase in PHRASES:
        text = text.replace(phrase, phrase.replace(" ", "_"))
    return text.split()


def clauses_of(sentence):
    """Clauses, whether each is conceded, and whether the sentence has a contrast marker."""
    clauses, conceded, marked = [[]], [False], False
    for word in sentence.split():
        marked |= word in MARKERS
        if word in ("but", "yet"):
            conceded = [True] * len(conceded)
        if word in MARKERS or word in (",", "and", "while"):
            clauses.append([])
            conceded.append(word in ("although", "though"))
        else:
            clauses[-1].append(word)
    return [(clause, silent) for clause, silent in zip(clauses, conceded, strict=True) if clause], marked


def polarity(clause):
    """+1, −1, or None of a clause without an opinion."""
    opinions = [POLARITY[word] for word in clause if word in POLARITY]
    assert len(opinions) <= 1
    return opinions[0] * (-1) ** sum(word in NEGATORS for word in clause) if opinions else None


def judges(clause, subjects):
    """Does it judge one of these, if only with the judgement struck? A fact about the film does not."""
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
    """The label by the words of a rationale in their order: each opinion with the negators since the last one."""
    total, turns = 0, 1
    for word in words:
        turns *= -1 if word in NEGATORS else 1
        if word in POLARITY:
            total, turns = total + POLARITY[word] * turns, 1
    return sign(total)


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
        ("the film was good , though it was witty .", 1, "good though"),
        ("the film was good and it was witty .", None, ""),
        ("the film was dull . it shines .", 1, "shines"),
        ("it shines . the film ran for two hours .", 1, "shines"),
        ("it shines . the film was .", None, ""),
        ("the film was dull , it was witty and it was not a bore .", 1, "witty not bore"),
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
def test_the_label_is_the_interpreters_and_the_rationale_is_necessary_and_sufficient(setting):
    for row in generate_reviews(1500, seed=5, **setting):
        words = units(row["text"])
        assert meaning(words) == row["label"], row["text"]
        assert row["tokens"] == row["text"].split()
        assert row["text"] == row["text"].lower()
        assert 6 <= len(row["tokens"]) <= 40
        marked = [t for t, decides in zip(row["tokens"], row["rationale"], strict=True) if decides]
        rest = [
            t if not decides else "and"
            for t, decides in zip(row["tokens"], row["rationale"], strict=True)
            if not decides or t in MARKERS
        ]
        assert alone(units(" ".join(marked))) == row["label"], row["text"]
        assert meaning(units(" ".join(rest))) is None, row["text"]
        needed = necessary(words)
        opinions = sum(t in POLARITY for t in marked)
        if opinions == 1:
            assert needed == row["rationale"], row["text"]
        else:  # a count: all but an outvoted clause, and where three agree it takes two of them
            assert opinions == 3
            assert all(marked for need, marked in zip(needed, row["rationale"], strict=True) if need)
            assert sum(t in POLARITY for t, need in zip(row["tokens"], needed, strict=True) if need) in (0, 2)


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_counterfactual_has_the_other_label_and_no_other_word_turns_it(setting):
    for row in generate_reviews(800, seed=6, **setting):
        tokens, other = row["tokens"], row["counterfactual"].split()
        assert meaning(units(row["counterfactual"])) == 1 - row["label"], row["text"]
        for token, changed, decides in zip(tokens, other, row["rationale"], strict=True):
            assert changed == (OPPOSITE[token] if decides and token in POLARITY else token)
        for i, token in enumerate(tokens):
            if token in POLARITY and not row["rationale"][i]:
                turned = [*tokens[:i], OPPOSITE[token], *tokens[i + 1 :]]
                assert meaning(units(" ".join(turned))) == row["label"], row["text"]


def test_nothing_but_the_last_draw_knows_the_label(monkeypatch):
    """Turn the last random number over: the same review with the other label comes out, its counterfactual. Hence each
    review and its counterfactual are equally likely, and so is either label for what they share."""
    for index in range(400):
        drawn = []

        def recording(index=index, drawn=drawn):
            source = stream(4, "review", index)
            return lambda: drawn.append(source()) or drawn[-1]

        monkeypatch.setattr(reviews, "stream", lambda *_: recording())
        row = next(generate_reviews(1, seed=4))
        replayed = iter([*drawn[:-1], 1 - drawn[-1]])
        monkeypatch.setattr(reviews, "stream", lambda *_, replayed=replayed: replayed.__next__)
        turned = next(generate_reviews(1, seed=4))
        assert turned["label"] == 1 - row["label"]
        assert turned["rationale"] == row["rationale"]
        assert (turned["text"], turned["counterfactual"]) == (row["counterfactual"], row["text"])


def test_no_setting_breaks_the_grammar():
    names = ("negation", "contrast", "weighing", "counting", "order", "asides", "remarks")
    for shares in product((0, 1), repeat=len(names)):
        for row in generate_reviews(10, seed=1, **dict(zip(names, shares, strict=True))):
            assert meaning(units(row["text"])) == row["label"]
            assert 6 <= len(row["tokens"]) <= 40


def test_rows_are_balanced_varied_and_depend_on_seed_and_number_alone():
    rows = list(generate_reviews(5000, seed=2))
    assert list(generate_reviews(7, seed=2)) == rows[:7]
    assert list(generate_reviews(7, seed=2, start=40)) == rows[40:47]
    assert next(generate_reviews(1, seed=3)) != rows[0]
    assert 0.47 < sum(row["label"] for row in rows) / 5000 < 0.53
    assert len({row["text"] for row in rows}) > 4900
    assert 200 < len({token for row in rows for token in row["tokens"]}) < 500


def test_every_device_of_the_grammar_is_used():
    rationales = [[t for t, d in zip(r["tokens"], r["rationale"], strict=True) if d] for r in generate_reviews(4000, 4)]
    for device in (NEGATORS - {p.replace(" ", "_") for p in PHRASES}) | {"anything", "far"} | MARKERS | set(DEGREE):
        assert any(device in rationale for rationale in rationales), device
    assert any(sum(word in NEGATORS for word in rationale) == 2 for rationale in rationales)


def parts(count, seed):
    """Labels, whole texts, and their words in the rationale and outside, as texts."""
    rows = list(generate_reviews(count, seed))
    inside, outside = (
        [" ".join(t for t, d in zip(r["tokens"], r["rationale"], strict=True) if d == keep) for r in rows]
        for keep in (True, False)
    )
    return [r["label"] for r in rows], [r["text"] for r in rows], inside, outside


def bag_of_words_auc(training, texts, labels, tested):
    bag = CountVectorizer(token_pattern=r"\S+")
    model = LogisticRegression(max_iter=300, C=0.1).fit(bag.fit_transform(training), labels)
    return roc_auc_score(tested, model.decision_function(bag.transform(texts)))


def test_a_bag_of_words_knows_nothing_without_the_rationale():
    labels, whole, inside, outside = parts(3000, seed=0)
    tested, *others = parts(10_000, seed=1)
    auc = [bag_of_words_auc(*pair, labels, tested) for pair in zip((whole, inside, outside), others, strict=True)]
    # the rationale's words alone say much, negation and counting aside; the whole text less; the rest nothing
    assert auc[1] > 0.75
    assert auc[1] > auc[0] + 0.05
    assert abs(auc[2] - 0.5) < 0.03  # five standard errors


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


@pytest.mark.slow
def test_a_trained_lstm_knows_nothing_without_the_rationale_and_all_with_it_alone(tmp_path):
    """pytest -m slow tests/data/test_testbed.py: three trainings, 10,000 test texts."""
    found = {}
    splits = {"train": parts(4000, seed=0), "validation": parts(1000, seed=1), "test": parts(10_000, seed=2)}
    for place, name in enumerate(("whole", "alone", "struck"), start=1):
        folder = tmp_path / name
        folder.mkdir()
        for split, made in splits.items():
            lines = (
                json.dumps({"text": text, "label": label}) for label, text in zip(made[0], made[place], strict=True)
            )
            (folder / f"{split}.jsonl").write_text("\n".join(lines))
        settings = ("data=files", f"data.path={folder}", "data.tokenizer=whitespace", "probe=[]", "figures=false")
        results = read_results(run(composed(*settings, f"output={tmp_path}")), probe="performance")
        found[name] = results.set_index("metric").loc["roc_auc", "value"]
    assert abs(found["struck"] - 0.5) <= 0.03
    assert found["alone"] > 0.97
