"""Every layer and head of one network in one pass, against a pass for each of them."""

import pytest
import torch

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
