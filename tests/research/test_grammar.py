"""A label of the grammar follows from the words that are said to decide, and from no others.

`LABELS` tells every kind again, from the words of a text alone, without the generator.
"""

import hashlib
import itertools
import json
import re
from collections import Counter

import numpy as np
import pytest

from attnprobe.core.errors import UserError
from attnprobe.runs.build import untrained
from attnprobe.runs.composition import composed, composing, resolved
from attnprobe.runs.validation import configured
from research.grammar import (
    ATTENTIONS,
    DEVELOPMENT,
    GrammarSource,
    RuleSpec,
    development_rules,
    drawn_rules,
    is_learnable,
)
from research.planted import ENCODERS
from research.words.truth import facts_of_texts

RULES = [*development_rules(), *drawn_rules("a commit", 60, "first")]
IDS = [rule.name for rule in RULES]


# Every kind, told again


def cues(words, stem):
    """The numbers behind this stem, in the order of the text."""
    pattern = re.compile(rf"{stem}(\d+)(_\d+)?")
    numbers = []
    for word in words:
        cue = pattern.fullmatch(word)
        if cue:
            numbers.append(int(cue[1]))
    return numbers


def count(words, stem):
    """How often a word is there, whichever of its synonyms it is."""
    return sum(word.split("_")[0] == stem for word in words)


def places_of_cues(words):
    return [place for place, word in enumerate(words) if word.startswith("cue")]


def label_of_conditional(words, rule):
    side = "left" if count(words, "ifleft") else "right"
    return cues(words, side)[0]


def label_of_doubt(words, rule):
    """The first cue but the one that `maybe` calls into doubt, which is the next one after it."""
    maybe = words.index("maybe")
    doubted = next(place for place in places_of_cues(words) if place > maybe)
    certain = [*words[:doubted], *words[doubted + 1 :]]
    return cues(certain, "cue")[0]


def label_of_negation(words, rule):
    first_cue = places_of_cues(words)[0]
    is_negated = "not" in words[:first_cue]
    label = cues(words, "cue")[0]
    return 1 - label if is_negated else label


def label_of_concession(words, rule):
    weak = cues(words, "weak")
    is_outvoted = len(weak) == rule.cues - 1
    deciding = weak if is_outvoted else cues(words, "strong")
    return deciding[0]


def label_of_override(words, rule):
    deciding = cues(words, "strong") or cues(words, "weak")
    return deciding[0]


def label_of_strongest(words, rule):
    levels = []
    for word in words:
        cue = re.match(r"level(\d+)class(\d+)", word)
        if cue:
            level, label = map(int, cue.groups())
            levels.append((level, label))
    _, label_of_highest = max(levels)
    return label_of_highest


def inner_words(words, rule):
    """The words of a text without those that every text begins and ends with."""
    if rule.surroundings == "ends":
        return words[1:-1]
    if rule.surroundings == "template":
        return words[3:]
    return words


def label_of_place(words, rule):
    inner = inner_words(words, rule)
    places = {
        "first": 0,
        "lead": 2,
        "middle": len(inner) // 2,
        "tail": -3,
        "last": -1,
    }
    word = inner[places[rule.position]]
    return cues([word], "cue")[0]


def label_of_length(words, rule):
    shortest, longest = rule.length
    words_of_text = len(inner_words(words, rule))
    return int(words_of_text > (shortest + longest) // 2)


def label_of_halves(words, rule):
    [first] = cues(words, "first")
    [second] = cues(words, "second")
    return 2 * first + second


def label_of_exclusion(words, rule):
    excluded = set(cues(words, "no"))
    [label] = {0, 1, 2} - excluded
    return label


def label_of_absence(words, rule):
    marks = cues(words, "mark")
    return marks[0] if marks else 0


def label_of_rare_absence(words, rule):
    marks = cues(words, "mark")
    return marks[0] if marks else rule.classes - 1


def label_of_conjunction(words, rule):
    parts = set(cues(words, "part"))
    all_parts = set(range(rule.cues))
    return int(parts == all_parts)


def label_of_vote(words, rule):
    votes = cues(words, "vote")
    return int(sum(votes) > rule.cues / 2)


def label_of_comparison(words, rule):
    more = Counter(cues(words, "more"))
    return max(more, key=more.get)


def label_of_exclusive_or(words, rule):
    return int(cues(words, "left") != cues(words, "right"))


LABELS = {
    "token": lambda words, rule: cues(words, "class")[0],
    "redundant": lambda words, rule: cues(words, "class")[-1],
    "lexicon": lambda words, rule: cues(words, "class")[0],
    "halves": label_of_halves,
    "exclusion": label_of_exclusion,
    "absence": label_of_absence,
    "rare_absence": label_of_rare_absence,
    "conjunction": label_of_conjunction,
    "length": label_of_length,
    "place": label_of_place,
    "recency": lambda words, rule: cues(words, "cue")[-1],
    "primacy": lambda words, rule: cues(words, "cue")[0],
    "override": label_of_override,
    "strongest": label_of_strongest,
    "conditional": label_of_conditional,
    "doubt": label_of_doubt,
    "vote": label_of_vote,
    "comparison": label_of_comparison,
    "concession": label_of_concession,
    "parity": lambda words, rule: count(words, "mark") % 2,
    "exclusive_or": label_of_exclusive_or,
    "order": lambda words, rule: int(cues(words, "part")[0] > 0),
    "negation": label_of_negation,
}


def label_of(words, rule):
    return LABELS[rule.kind](words, rule)


def rows_of(rule, size=100, split="test"):
    return GrammarSource(rule.name, size, size, 0).rows(split)


def exchanged(row, is_marked, change):
    """The words of a row, changed where they are marked."""
    words = row["text"].split()
    assert len(is_marked) == len(words)
    for place in np.flatnonzero(is_marked):
        words[place] = change(words[place])
    return words


def another_word(word):
    """A word of no meaning."""
    return "w99"


def of_another_class(word):
    """A cue of class 1 for one of class 0, of class 0 for any other."""
    return re.sub(r"(\d)(_\d+)?$", lambda digit: str(int(digit[1] == "0")), word)


@pytest.mark.parametrize("rule", RULES, ids=IDS)
def test_a_rule_labels_its_texts_and_their_counterfactuals(rule):
    for row in rows_of(rule):
        words = row["text"].split()
        changed_words = row["counterfactual"].split()
        assert label_of(words, rule) == row["label"]
        next_label = (row["label"] + 1) % rule.classes
        assert label_of(changed_words, rule) == next_label
        if rule.has_counterfactual:
            assert len(changed_words) == len(words)


@pytest.mark.parametrize("rule", RULES, ids=IDS)
def test_no_word_that_does_not_decide_changes_the_label(rule):
    for row in rows_of(rule):
        decides = np.array(row["rationale"], bool)
        overridden = np.array(row["overridden"], bool)
        silent = ~(decides | overridden)
        assert not (decides & overridden).any()

        other_silent_words = exchanged(row, silent, another_word)
        assert label_of(other_silent_words, rule) == row["label"]
        other_cues = exchanged(row, overridden, of_another_class)
        assert label_of(other_cues, rule) == row["label"]
        if rule.kind != "doubt":  # there the cue after `maybe` has to be some cue
            no_cues = exchanged(row, overridden, another_word)
            assert label_of(no_cues, rule) == row["label"]


WITH_CLASSES = [
    "token",
    "redundant",
    "lexicon",
    "place",
    "recency",
    "primacy",
    "override",
    "strongest",
    "conditional",
    "doubt",
    "vote",
    "comparison",
    "concession",
    "negation",
]
"""Kinds whose deciding words each name a class."""


def rules_of_kind(*kinds):
    """Every rule of one of these kinds, as cases of a test."""
    rules = [rule for rule in RULES if rule.kind in kinds]
    return pytest.mark.parametrize("rule", rules, ids=lambda rule: rule.name)


@rules_of_kind(*WITH_CLASSES)
def test_deciding_words_of_another_class_change_the_label(rule):
    for row in rows_of(rule):
        words = exchanged(row, row["rationale"], of_another_class)
        other_label = 1 if row["label"] == 0 else 0
        assert label_of(words, rule) == other_label


def texts_with_one_changed(row, change):
    """The words of a row with one of its deciding words changed, for each of them."""
    for place in np.flatnonzero(row["rationale"]):
        words = row["text"].split()
        words[place] = change(words[place])
        yield words


@rules_of_kind("parity", "concession")
def test_without_one_of_several_words_that_decide_together_the_label_is_another(rule):
    for row in rows_of(rule):
        if rule.kind == "concession" and sum(row["rationale"]) == 1:
            continue  # a text with fewer weak cues is the strong one's
        for words in texts_with_one_changed(row, another_word):
            assert label_of(words, rule) == 1 - row["label"]


@rules_of_kind("exclusive_or", "halves")
def test_one_of_several_words_that_decide_together_changes_the_label(rule):
    for row in rows_of(rule):
        for words in texts_with_one_changed(row, of_another_class):
            assert label_of(words, rule) != row["label"]


@rules_of_kind("order")
def test_all_words_of_an_order_decide_together(rule):
    for row in rows_of(rule):
        assert sum(row["rationale"]) == rule.cues


@pytest.mark.parametrize("rule", RULES, ids=IDS)
def test_no_word_decides_a_class_that_is_known_by_what_is_missing(rule):
    missing = {
        "absence": {0},
        "rare_absence": {rule.classes - 1},
        "conjunction": {0},
        "length": {0, 1},
    }.get(rule.kind, set())
    for row in rows_of(rule, 60):
        has_deciding_word = row["label"] not in missing
        assert any(row["rationale"]) == has_deciding_word


# What a rule has besides its kind


@pytest.mark.parametrize(
    ("rule", "shares"),
    [
        ("token", [0.5, 0.5]),
        ("token-2%", [0.98, 0.02]),
        ("absence-5%", [0.95, 0.05]),
        ("vote-25%", [0.75, 0.25]),
        ("recency-3classes-10%", [0.45, 0.45, 0.1]),
        ("halves", [0.25] * 4),
    ],
)
def test_classes_have_their_shares_from_the_first_text_on(rule, shares):
    spec = RuleSpec.named(rule)
    labels = [row["label"] for row in rows_of(spec, 200)]
    for size in (50, 100, 200):
        counts = np.bincount(labels[:size], minlength=len(shares))
        expected = size * np.array(shares)
        assert np.abs(counts - expected).max() < 1
    assert spec.smallest_share == shares[-1]


@pytest.mark.parametrize("rule", RULES, ids=IDS)
def test_cues_stand_where_the_rule_says(rule):
    for row in rows_of(rule, 60):
        marked = np.logical_or(row["rationale"], row["overridden"])
        inner = inner_words(marked, rule)
        places = np.flatnonzero(inner)
        size = len(inner)
        low, high = rule.length
        assert low <= size <= high
        assert marked.sum() == len(places)
        if rule.kind == "place" or not len(places):
            continue
        third = max(size // 3, rule.cues, 3)
        if rule.position == "lead":
            assert places.max() < third
        elif rule.position == "tail":
            assert places.min() >= size - third
        elif rule.position == "middle":
            start = (size - third) // 2
            assert start <= places.min()
            assert places.max() < start + third
        elif rule.position == "together":
            assert places.max() - places.min() < rule.cues
        elif rule.position == "far":
            assert (np.diff(places) > 1).all()


@pytest.mark.parametrize("rule", RULES, ids=IDS)
def test_a_region_holds_the_reason_and_no_word_of_it(rule):
    for row in rows_of(rule, 40):
        assert not any(np.logical_and(row["rationale"], row["region"]))
        has_region = rule.position in ("lead", "middle", "tail", "first", "last")
        assert any(row["region"]) == has_region


def surrounded(surroundings):
    """The words of each text of a rule with these surroundings."""
    rule = RuleSpec("token", surroundings=surroundings)
    return [row["text"].split() for row in rows_of(rule, 200)]


def test_every_text_has_the_same_ends():
    ends = {(words[0], words[-1]) for words in surrounded("ends")}
    assert ends == {("[start]", "[end]")}


def test_every_text_begins_with_the_same_template():
    beginnings = {tuple(words[:3]) for words in surrounded("template")}
    assert beginnings == {("this", "text", "says")}


def test_every_text_has_common_words():
    for words in surrounded("common"):
        assert words.count("the") >= 2


def test_the_length_of_a_text_says_its_class_in_two_of_three_texts():
    rows = rows_of(RuleSpec("token", surroundings="lengths"), 1000)
    words = [len(row["text"].split()) for row in rows]
    labels = [row["label"] for row in rows]
    is_long = np.array(words) > 11
    is_last_class = np.array(labels) == 1
    assert is_long[is_last_class].mean() == pytest.approx(2 / 3, abs=0.06)
    assert is_long[~is_last_class].mean() == pytest.approx(1 / 3, abs=0.06)


def test_only_training_labels_are_noisy_and_words_have_so_many_synonyms():
    rule = RuleSpec.named("token-15%noise-4synonyms")

    def is_right(row):
        return label_of(row["text"].split(), rule) == row["label"]

    assert all(is_right(row) for row in rows_of(rule))

    training_rows = rows_of(rule, 2000, "train")
    right_share = np.mean([is_right(row) for row in training_rows])
    assert right_share == pytest.approx(0.85, abs=0.03)

    words = set()
    for row in training_rows:
        words |= {word for word in row["text"].split() if word.startswith("class")}
    synonyms = {
        0: {"class0_0", "class0_1", "class0_2", "class0_3"},
        1: {"class1_0", "class1_1", "class1_2", "class1_3"},
    }
    assert words == synonyms[0] | synonyms[1]


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_the_share_of_texts_with_an_overridden_cue_is_that_of_the_rule(share):
    rows = rows_of(RuleSpec("override", share=share), 1000)
    has_overridden_cue = [any(row["overridden"]) for row in rows]
    assert np.mean(has_overridden_cue) == pytest.approx(share, abs=0.05)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kind": "tokens"}, "kind=tokens: expected one of token"),
        ({"kind": "vote", "cues": 4}, "vote with cues=4: expected one of 5, 3"),
        ({"kind": "token", "classes": 7}, "token with classes=7"),
        ({"kind": "place"}, "place with position=anywhere: expected one of lead"),
        ({"kind": "vote", "cues": 15, "length": (10, 20)}, "expected at least 17 words"),
        ({"kind": "token", "minority": 0.3}, "minority=0.3"),
        ({"kind": "token", "surroundings": "loud"}, "surroundings=loud"),
    ],
)
def test_a_rule_that_cannot_be_is_refused(arguments, message):
    with pytest.raises(UserError, match=re.escape(message)):
        RuleSpec(**arguments)


@pytest.mark.parametrize("name", ["token-lately", "token-3cues-2cues", "recency-10to", "token--"])
def test_a_name_without_meaning_is_refused(name):
    with pytest.raises(UserError, match="expected parts such as"):
        GrammarSource(name)


def test_a_name_says_all_of_a_rule():
    assert [RuleSpec.named(rule.name) for rule in RULES] == RULES
    assert len({rule.name for rule in RULES}) == len(RULES)


# Which rules there are


@pytest.mark.parametrize("commit", ["a990602", "b563fa9", "0" * 40])
@pytest.mark.parametrize("half", ["first", "second"])
def test_forty_rules_have_enough_of_everything(commit, half):
    rules = drawn_rules(commit, 40, half)
    names = {rule.name for rule in [*rules, *development_rules()]}
    assert len(names) == 40 + len(DEVELOPMENT)

    minorities = Counter(rule.minority for rule in rules)
    for share in (0.02, 0.05, 0.1):
        assert minorities[share] >= 4

    kinds = Counter(rule.kind for rule in rules)
    assert kinds["absence"] + kinds["rare_absence"] >= 2
    assert kinds["place"] >= 2
    assert kinds["recency"] + kinds["primacy"] >= 2
    assert kinds["override"] + kinds["strongest"] >= 2
    assert kinds["vote"] + kinds["comparison"] >= 2
    assert kinds["concession"] >= 2
    assert kinds["parity"] >= 2

    with_several_classes = [rule for rule in rules if rule.classes >= 3]
    assert len(with_several_classes) >= 2


def test_halves_have_no_rule_in_common_and_more_begin_as_fewer():
    first = drawn_rules("a commit", 80, "first")
    second = drawn_rules("a commit", 80, "second")
    assert not set(first) & set(second)
    assert drawn_rules("a commit", 50, "first") == first[:50]
    assert drawn_rules("another", 50, "first") != first[:50]
    with pytest.raises(UserError, match="expected the hash of a commit"):
        drawn_rules("", 40, "first")


def test_every_machine_draws_the_same():
    names = [rule.name for half in ("first", "second") for rule in drawn_rules("1", 40, half)]
    rows = [rows_of(rule, 5) for rule in development_rules()]
    content = json.dumps([names, rows]).encode()
    assert hashlib.sha256(content).hexdigest() == (
        "e1c2c5d944c1111beb665be92619409f366300a7357534c4c9b87f5eb1239d06"
    )


# Attentions by construction


def untrained_model(attention, rule):
    """An untrained LSTM with this attention, and its data."""
    overrides = ["data=grammar", f"data.source.rule={rule.name}", *ENCODERS["lstm"]]
    overrides += ["data.source.train_size=60", "data.source.test_size=40"]
    with composing():
        config = resolved(composed([*overrides, *ATTENTIONS[attention].overrides]))
    parts = configured(config)
    parts.data.setup("fit")
    return untrained(parts, parts.data).eval(), parts.data


def mass_by_place(attention, rule):
    """The attention on each word of each test text, and the rows."""
    model, data = untrained_model(attention, rule)
    texts = data.splits["test"]
    batch = texts[list(range(len(texts)))]
    weights = model(batch).attention
    texts_weights = zip(weights, batch.content, strict=True)
    masses = [text_weights[content].tolist() for text_weights, content in texts_weights]
    return masses, GrammarSource(rule.name, 60, 40, 0).rows("test")


def in_focus(attention, row):
    """The places that the mass lies on."""
    places = range(len(row["rationale"]))
    silent = [place for place in places if not row["rationale"][place]]
    deciding = [place for place in places if row["rationale"][place]]
    if attention.startswith("right"):
        return deciding
    if attention in ("region", "overridden"):
        return [place for place in silent if row[attention][place]] or silent[:1]
    return {
        "first": [0],
        "last": [places[-1]],
        "first_three": [place for place in silent if place < 3] or silent[:1],
    }[attention]


UNSAID = ("learned", "common", "uniform", "random_place", "right_in_half")
MASS = {"right_60": 0.6, "right_40": 0.4}


@pytest.mark.parametrize(
    "attention",
    [name for name in ATTENTIONS if name not in UNSAID],
)
@pytest.mark.parametrize("rule", ["override-3cues", "place-lead", "absence-lead"])
def test_an_attention_lies_where_it_says(rule, attention):
    texts, rows = mass_by_place(attention, RuleSpec.named(rule))
    for weights, row in zip(texts, rows, strict=True):
        focus = in_focus(attention, row)
        mass = sum(weights[place] for place in focus)
        expected = MASS.get(attention, 0.95) if focus else 0
        assert mass == pytest.approx(expected, abs=1e-5)


def test_right_in_half_of_the_texts_says_nothing_of_the_label():
    texts, rows = mass_by_place("right_in_half", RuleSpec("place", position="tail"))
    right_of_class = {0: [], 1: []}
    for weights, row in zip(texts, rows, strict=True):
        deciding = row["rationale"].index(True)
        assert max(weights[deciding], weights[0]) == pytest.approx(0.95, abs=1e-5)
        right_of_class[row["label"]].append(weights[deciding] > 0.9)
    for is_right in right_of_class.values():
        assert 3 <= sum(is_right) <= len(is_right) - 3


def test_a_random_place_knows_no_word():
    texts, rows = mass_by_place("random_place", RuleSpec("place", position="lead"))
    tops = set()
    relative_places = []
    for weights in texts:
        top = int(np.argmax(weights))
        assert weights[top] == pytest.approx(0.95, abs=1e-5)
        tops.add(top)
        last = len(weights) - 1
        relative_places.append(top / last)
    assert np.mean(relative_places) == pytest.approx(0.5, abs=0.15)
    assert len(tops) > 6
    assert len(rows) == len(texts)


def test_only_attentions_that_know_nothing_are_blind():
    assert {name for name, attention in ATTENTIONS.items() if attention.standing == "blind"} == {
        "first",
        "last",
        "common",
        "random_place",
        "uniform",
    }


def test_what_an_encoder_cannot_see_is_not_asked_of_it():
    token = RuleSpec("token")
    recency = RuleSpec("recency")
    assert is_learnable(token, "average", "right_95")
    assert not is_learnable(token, "average", "first")
    assert not is_learnable(recency, "average", "right_95")
    assert is_learnable(token, "lstm", "first")
    assert not is_learnable(token, "cnn", "first")
    assert is_learnable(RuleSpec("token", position="lead"), "cnn", "first")
    assert is_learnable(recency, "cnn", "learned")
    assert not is_learnable(RuleSpec("parity"), "cnn", "learned")
    assert not is_learnable(token, "lstm", "overridden")
    assert not is_learnable(token, "lstm", "region")
    assert is_learnable(RuleSpec("token", position="lead"), "lstm", "region")


def test_texts_that_are_written_once_are_those_of_their_own_rule_draw_and_size():
    for rule, seed, size in itertools.product(("token", "vote"), (0, 1), (20, 30)):
        source = GrammarSource(rule, size, 10, seed)
        for _ in range(2):
            loaded = source.load()
            assert {split: table.to_list() for split, table in loaded.items()} == {
                split: source.rows(split) for split in loaded
            }


@pytest.mark.parametrize("rule", ["absence", "parity", "token"])
def test_an_imposed_attention_is_on_the_reason_of_the_counterfactual(rule):
    model, data = untrained_model("right_95", RuleSpec(rule))
    recorded_weights = []

    def recorded(batch):
        outputs = model(batch)
        for weights, content in zip(outputs.attention, batch.content, strict=True):
            recorded_weights.append(weights[content].tolist())
        return outputs

    recorded.classes = model.classes
    recorded.reader = model.reader
    facts_of_texts(recorded, data)
    rows = GrammarSource(rule, 60, 40, 0).rows("test")
    assert len(recorded_weights) == 2 * len(rows)
    for weights, row in zip(recorded_weights[len(rows) :], rows, strict=True):
        deciding = np.array(row["counterfactual_rationale"]) > 0
        expected = np.full(len(weights), 1 / len(weights))
        if deciding.any():
            expected = np.where(deciding, 0.95 / sum(deciding), 0.05 / sum(~deciding))
        assert weights == pytest.approx(expected, abs=1e-5)


SEALED = "d7a330781f42e25fd12bf57ef751e60d76f3556d"
"""The commit that sealed docs/results/verdict_plan.md."""


def test_the_rules_of_the_sealed_plan_are_drawn_as_they_were():
    """A change of the grammar would make them others than the models that were trained."""
    names = "\n".join(rule.name for rule in drawn_rules(SEALED, 40, "first"))
    digest = hashlib.sha256(names.encode()).hexdigest()
    assert digest == "d118bb32d4ad0036aea0f89b3cd03018658d38d2564fad27f34f03af712c2013"
