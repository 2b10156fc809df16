import re

import pytest

from attnprobe.core.errors import UserError
from attnprobe.importance.base import built_in, classes, names
from attnprobe.models.base import Unit
from attnprobe.models.encoders import TextEncoder
from attnprobe.runs.composition import CONFIGURATION
from tests.importance.subjects import subject_of

STEMS = sorted(path.stem for path in (CONFIGURATION / "importance").glob("*.yaml"))

OF_DATA = ("file", "idf", "log_odds")
"""Those that are undefined until they have seen the data."""
REFUSING = ("deep_lift",)
"""Those that refuse this model; tests/importance/test_gradients.py has one of theirs."""


def test_every_importance_has_settings_a_title_and_a_colour_of_its_own():
    assert [name for name in names() if name in STEMS] == STEMS
    members = [classes()[stem] for stem in STEMS]
    assert [member.name for member in members] == STEMS
    assert len({member.title for member in members}) == len(STEMS)
    assert len({member.colour for member in members}) == len(STEMS)
    assert all(re.fullmatch("#[0-9A-F]{6}", member.colour) for member in members)


@pytest.mark.whole
@pytest.mark.parametrize("question", [False, True])
@pytest.mark.parametrize("stem", [stem for stem in STEMS if stem not in (*OF_DATA, *REFUSING)])
def test_padding_changes_no_score_and_the_sign_is_declared(stem, question):
    subject = subject_of(question=question)
    padded = subject_of(question=question, padding=3)
    if not subject.importance(stem).is_defined(subject):
        pytest.skip("not defined for this decoder")
    content = subject.outputs.content
    wide = padded.scores(stem)[:, : content.shape[1]]
    scores = subject.scores(stem)
    assert scores.shape == content.shape
    assert (scores[content] - wide[content]).abs().max() < 1e-6
    assert subject.importance(stem).signed or (scores[content] >= 0).all()


@pytest.mark.parametrize("name", ["attenton", "base", "../x"])
def test_an_unknown_name_is_refused(name):
    with pytest.raises(UserError, match=f"unknown importance '{name}': expected one of"):
        built_in(name)


def test_what_is_about_words_is_refused_for_sentences(monkeypatch):
    monkeypatch.setattr(TextEncoder, "unit", Unit.SENTENCE)
    classifier = subject_of().classifier
    built_in("value_norm").refuse(classifier)
    built_in("leave_one_out").refuse(classifier)
    with pytest.raises(UserError, match="importance idf is about single words"):
        built_in("idf").refuse(classifier)
