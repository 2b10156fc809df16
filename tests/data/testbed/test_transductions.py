"""Transductions against a plain loop over the sources alone, SCAN against commands of its paper."""

from itertools import chain

import numpy as np
import pytest

from attnprobe.core.errors import UserError
from attnprobe.data.sources import TransductionSource
from attnprobe.data.testbed.transductions import (
    ADJECTIVES,
    DICTIONARY,
    NOUNS,
    TRANSDUCTIONS,
    generate_transductions,
    obeyed,
)
from tests.data.test_data_sets import composed


def places_by_hand(kind, source):
    """Which word each symbol is made from, told in another way than the generator does."""
    places = list(range(len(source)))
    if kind == "reverse":
        return [len(source) - 1 - place for place in places]
    if kind == "sort":
        return [source.index(word) for word in sorted(source)]
    if kind == "reordering":
        swapped = set()
        for place in places[:-1]:
            following = place + 1
            is_pair = source[place] in ADJECTIVES and source[following] in NOUNS
            if is_pair and place not in swapped:
                places[place] = following
                places[following] = place
                swapped |= {place, following}
    return places


WITHOUT_SCAN = sorted(set(TRANSDUCTIONS) - {"scan"})


@pytest.mark.parametrize("kind", WITHOUT_SCAN)
def test_every_step_is_what_a_plain_loop_makes_of_the_source(kind):
    for rows in generate_transductions(kind, 60, seed=1):
        source = rows[0]["source"].split()
        places = places_by_hand(kind, source)
        target = [source[place] for place in places]
        if kind in ("lookup", "reordering"):
            target = [DICTIONARY[word] for word in target]
        assert [row["label"] for row in rows] == target
        for step, row in enumerate(rows):
            prefix = ["go", *target[:step]]
            assert row["prefix"].split() == prefix
            assert np.flatnonzero(row["rationale"]).tolist() == [places[step]]
            assert len(row["rationale"]) == len(source)


@pytest.mark.parametrize("kind", WITHOUT_SCAN)
def test_words_stay_in_their_places_where_nothing_is_reordered(kind):
    are_moved = []
    for rows in generate_transductions(kind, 60, seed=1):
        source = rows[0]["source"].split()
        places = places_by_hand(kind, source)
        are_moved.append(places != sorted(places))
    assert any(are_moved) == (kind not in ("copy", "lookup"))


@pytest.mark.parametrize(
    ("command", "actions", "places"),
    [
        ("jump", "JUMP", [0]),
        ("turn left twice", "TURN_LEFT TURN_LEFT", [1, 1]),
        ("jump opposite left after walk", "WALK TURN_LEFT TURN_LEFT JUMP", [4, 2, 2, 0]),
        ("walk right thrice", "TURN_RIGHT WALK TURN_RIGHT WALK TURN_RIGHT WALK", [1, 0] * 3),
        ("turn around right", "TURN_RIGHT TURN_RIGHT TURN_RIGHT TURN_RIGHT", [2] * 4),
        ("look and run around left", "LOOK " + "TURN_LEFT RUN " * 4, [0, *[4, 2] * 4]),
    ],
)
def test_commands_of_scan_are_obeyed_as_published(command, actions, places):
    expected = list(zip(actions.split(), places, strict=True))
    assert obeyed(command.split()) == expected


@pytest.mark.parametrize("kind", TRANSDUCTIONS)
def test_a_counterfactual_differs_in_the_reason_alone_and_is_of_the_next_class(kind):
    symbols = sorted(set(TRANSDUCTIONS[kind].dictionary.values()))
    counterfactuals = 0
    for row in chain.from_iterable(generate_transductions(kind, 60, seed=2)):
        if row["counterfactual"] is None:
            continue
        counterfactuals += 1
        source = row["source"].split()
        changed = row["counterfactual"].split()
        differs = np.not_equal(changed, source)
        assert differs.tolist() == row["rationale"]

        _, *made = row["prefix"].split()
        next_class = (symbols.index(row["label"]) + 1) % len(symbols)
        expected = [*made, symbols[next_class]]
        target = [symbol for symbol, _ in TRANSDUCTIONS[kind].make(changed)]
        assert target[: len(expected)] == expected
    assert counterfactuals > 100


def load(seed):
    return TransductionSource("scan", 60, 20, 20, seed=seed).load()


def test_the_rows_of_a_source_are_in_one_split():
    train, validation, test = (set(split["source"]) for split in load(seed=3).values())
    assert len(train) == 60
    assert len(validation) == 20
    assert len(test) == 20
    assert len(train | validation | test) == 100


def test_a_seed_gives_the_same_rows():
    again = load(seed=3)
    for name, split in load(seed=3).items():
        assert again[name].to_dict() == split.to_dict()
    other_seed = load(seed=4)
    assert other_seed["train"]["source"] != again["train"]["source"]


def test_too_few_sources_are_refused():
    message = r"copy has fewer than 300 distinct sources.*data\.source\.longest"
    with pytest.raises(UserError, match=message):
        TransductionSource("copy", 200, 50, 50, shortest=1, longest=1).load()


def test_impossible_lengths_are_refused():
    with pytest.raises(UserError, match=r"data\.source\.longest=2: expected 4 or more"):
        TransductionSource("copy", longest=2)


def test_every_step_becomes_an_example_with_its_place():
    data = composed("transductions", "data.source.kind=reverse", "data.source.train_size=60")
    data.setup()
    split = data.splits["train"]
    batch = split[list(range(12))]
    for row, number in enumerate(batch.example_id.tolist()):
        words = split.tokens(number)
        prefix = split.question(number)
        (place,) = np.flatnonzero(split.rationale(number))
        (position,) = batch.rationale[row].nonzero()
        # the prefix has one word more than steps were made
        assert place == len(words) - len(prefix)
        assert position == place + 1  # after the start marker
        assert split.classes[batch.labels[row]] == words[place]
