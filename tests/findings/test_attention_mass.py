import pytest

from attnprobe.findings.attention_mass import AttentionMass


@pytest.mark.parametrize(
    ("shares", "sentence"),
    [
        pytest.param(
            {"special_mass": 0.6, "start_mass": 0.45},
            "on average 60 % of the attention is on no word of the text (45 % on the first piece",
            id="mostly on no word",
        ),
        pytest.param(
            {"special_mass": 0.2, "first_word_mass": 0.6},
            "75 % of what is on words is on the first one",
            id="mostly on the first word",
        ),
        pytest.param(
            {"special_mass": 0.5, "second_mass": 0.1},
            "20 % of what is on words is on the second text of the pair",
            id="a pair of texts",
        ),
        pytest.param(
            {"unseen_share": 0.25},
            "25 % of a text's words are outside what this attention can see",
            id="words that it cannot be on",
        ),
    ],
)
def test_a_reader_is_told_where_most_of_the_attention_is(shares, sentence):
    assert sentence in AttentionMass.recorded_in({"attention_on": shares}).in_words


@pytest.mark.parametrize(
    "manifest",
    [
        pytest.param({}, id="an old run says nothing"),
        pytest.param({"attention_on": ["no", "mapping"]}, id="something else stands there"),
        pytest.param({"attention_on": {"special_mass": "0.9"}}, id="its share is no number"),
        pytest.param(
            {"attention_on": {"special_mass": 0.4, "first_word_mass": 0.2}}, id="spread over words"
        ),
        pytest.param(
            {"attention_on": {"special_mass": 0.0, "first_word_mass": 0.49}}, id="just less"
        ),
    ],
)
def test_otherwise_nothing_is_said(manifest):
    assert AttentionMass.recorded_in(manifest).in_words == ""


def test_attention_that_is_on_no_word_at_all_divides_by_nothing():
    mass = AttentionMass(special_mass=1.0, first_word_mass=0.0, second_mass=0.0)
    assert mass.in_words.startswith("on average 100 % of the attention is on no word of the text")
    assert "second text" not in mass.in_words
