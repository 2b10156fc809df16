import pytest

from attnprobe.findings.mechanisms import MECHANISMS, encoder_of
from attnprobe.models.controls import GivenAttention, LexiconAttention


def test_an_encoder_is_called_by_its_class():
    encoder = {"_target_": "attnprobe.models.encoders.LSTMEncoder"}
    assert encoder_of({"training": {"model": {"encoder": encoder}}}) == "lstm"


@pytest.mark.parametrize("manifest", [{}, {"training": {"model": None}}])
def test_an_encoder_may_be_unknown(manifest):
    assert encoder_of(manifest) == ""


@pytest.mark.parametrize(
    ("site", "encoder"),
    [("layer -1, heads all, pooled", "bert"), ("layer 0, heads 3, pooled", "")],
)
def test_a_pretrained_model_is_its_family_where_all_heads_of_the_last_layer_are_asked(
    site, encoder
):
    facts = {"family": "bert", "site": site}
    assert encoder_of({"training": {"model": {}}, "model_facts": facts}) == encoder


def subclasses(kind):
    """All classes below this one."""
    for subclass in kind.__subclasses__():
        yield subclass
        yield from subclasses(subclass)


def test_every_attention_that_is_not_learned_has_a_name_for_what_it_is():
    kinds = {
        kind.__name__
        for kind in subclasses(GivenAttention)
        if kind.__module__.startswith("attnprobe.")
    }
    abstract = {"FocusedAttention"}
    learned = {"WordAttention"}
    assert LexiconAttention.__name__ in kinds
    assert kinds - abstract - learned <= set(MECHANISMS)
