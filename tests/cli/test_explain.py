import pytest

from attnprobe.cli.explain import lines_of


@pytest.mark.parametrize(("first", "places"), [(1, ("1", "3")), (0, ("0", "2"))])
def test_a_word_that_comes_twice_has_its_place_as_the_model_is_asked_for_it(first, places):
    row = {
        "text": "good not good",
        "tokens": ["good", "not", "good"],
        "attention": [0.5, 0.1, 0.4],
        "prediction": "pos",
        "probability": {"neg": 0.2, "pos": 0.8},
        "flipping_set": [True, False, True],
        "flips_to": "neg",
    }
    attention, erasure = lines_of(row, {"good", "not"}, first)[-2:]
    named = [f"good (word {place})" for place in places]
    assert attention == f"  attention: {named[0]} 0.500, {named[1]} 0.400, not 0.100"
    assert all(name in erasure for name in named)
