"""Every layer and head of one network in one pass, against a pass for each of them."""

import pytest
import torch

from attnprobe.models.pretrained.doors import Pass
from attnprobe.models.pretrained.site import Site
from tests.models.pretrained.families import batch_of, classifier

pytest.importorskip("transformers")
FAMILIES = {"bert": True, "gpt2": True, "deberta": True, "albert": False, "t5": False}
"""Whether passes may begin at any of their layers."""


@pytest.mark.parametrize("family", FAMILIES)
def test_every_site_is_what_a_model_of_that_site_alone_has(family):
    model = classifier(family)
    batch = batch_of(model)
    model.prepare(batch)
    model.to(model.precision)
    found = list(model.at_sites(batch))
    assert [at.name for at in found] == list(model.sites)
    heads = model.found.heads
    assert len(found) == sum(1 + count for count in heads)
    assert bool(model.upper) == FAMILIES[family]
    assert ("from states" in model.found.differences) == FAMILIES[family]
    for place in (0, 2, len(found) // 2, len(found) - 1):
        at = found[place]
        layer, head = divmod(place, heads[0] + 1)
        model.site = Site(layer, [head - 1] if head else None)
        outputs = model.outputs_from(batch, None)
        torch.testing.assert_close(at.outputs.attention, outputs.attention, atol=1e-6, rtol=0)
        other = torch.where(batch.content, outputs.attention.double().roll(1, 0) + 0.1, 0)
        other = other / other.sum(-1, keepdim=True)
        whole = model.readout(batch, outputs, short=False).logits(other[None])
        torch.testing.assert_close(at.readout.logits(other[None]), whole, atol=5e-6, rtol=0)
        assert (whole[0] - outputs.logits.double()).abs().max() > 1e-6
        assert ((at.off_text > 0) & (at.off_text < 1)).all()


@pytest.mark.parametrize("family", ["bert", "gpt2", "deberta"])
@pytest.mark.parametrize("uniform", ["last", "all"])
def test_a_uniform_model_gives_all_that_a_row_may_see_the_same_weight(family, uniform):
    model, learned = classifier(family, uniform=uniform), classifier(family)
    batch = batch_of(model)
    for one in (model, learned):
        one.prepare(batch)
    kept = []
    with torch.no_grad():
        logits = model.run(batch, Pass(keep=kept.append))
        assert (logits - learned.run(batch, Pass())).abs().max() > 1e-4
    lengths = (batch.piece_word != -2).sum(-1)
    for text, length in enumerate(lengths.tolist()):
        last = kept[-1].weights[text, :, length - 1]  # of a causal model too this row may see the whole text
        torch.testing.assert_close(last[:, :length], torch.full_like(last[:, :length], 1 / length))
        assert (last[:, length:] == 0).all()
        first = kept[0].weights[text, :, length - 1, :length]
        assert (float(first.max() - first.min()) < 1e-6) == (uniform == "all")
    outputs = model.outputs_from(batch, None)
    readout = model.readout(batch, outputs)
    torch.testing.assert_close(readout.logits(readout.attention), outputs.logits.double(), atol=1e-5, rtol=0)
    other = torch.where(batch.content, 1.0 * torch.arange(batch.content.shape[1]), 0).double()
    other = other / other.sum(-1, keepdim=True)
    at = {one.name: one.readout for one in model.at_sites(batch)}["layer 1"]
    model.site = Site(1)
    whole = model.readout(batch, model.outputs_from(batch, None), short=False)
    torch.testing.assert_close(at.logits(other[None]), whole.logits(other[None]), atol=1e-5, rtol=0)


def test_the_network_runs_once_for_all_of_them(monkeypatch):
    model = classifier("bert")
    batch = batch_of(model)
    model.prepare(batch)
    list(model.at_sites(batch))
    passes = []
    run = model.run
    monkeypatch.setattr(model, "run", lambda *given: passes.append(1) or run(*given))
    list(model.at_sites(batch))
    assert len(passes) == 1
