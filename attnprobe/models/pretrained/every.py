"""Every layer and head of a network on one batch, seen in one pass."""

from collections.abc import Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from attnprobe.batch import Batch, Outputs
from attnprobe.models.base import AtSite
from attnprobe.models.pretrained.check import LIMITS
from attnprobe.models.pretrained.doors import Pass, Seen
from attnprobe.models.pretrained.replacing import readout_at
from attnprobe.models.pretrained.rows import masses, membership, shown
from attnprobe.models.pretrained.site import Site
from attnprobe.models.pretrained.upper import UpperLayers

if TYPE_CHECKING:
    from attnprobe.models.pretrained.model import PretrainedClassifier


def every_site(heads: list[int], rows: str) -> list[Site]:
    """All sites of a network: of each attention all heads together, then each by itself.

    Args:
        heads: how many each of its attentions has.
        rows: see `Site`.
    """
    return [
        Site(call, one, rows) for call, count in enumerate(heads) for one in (None, *([head] for head in range(count)))
    ]


def at_every_site(model: "PretrainedClassifier", batch: Batch) -> Iterator[AtSite]:
    """The attention at each site, and what would be predicted under another one there.

    The network runs once. What other attentions give is computed from the states that went into their layer, where that
    agrees with whole passes (`agreeing`), and at the last layer's pooled row by the short way.
    """
    assert model.found is not None
    assert batch.piece_word is not None
    if model.upper is None:
        model.upper = agreeing(model, batch)
    upper = model.upper or None
    states: list[Tensor] = []
    kept: list[Seen] = []
    keeping = upper.states(states) if upper else model.tail.state_in(states) if model.tail else nullcontext()
    with torch.no_grad(), keeping:
        logits = model.run(batch, Pass(keep=kept.append))
    member = membership(batch.piece_word, batch.content)
    for site in every_site([one.weights.shape[1] for one in kept], model.site.rows):
        one = kept[site.layer]
        if one.weights.shape[-1] != batch.piece_word.shape[1]:
            continue  # over something other than this text
        chosen = model.selection(batch, one.weights.shape[1], site)
        attention, on_text = shown(masses(chosen.of(one.weights), member), chosen.valid)
        scores = attention.log().masked_fill(~batch.content, -torch.inf)
        nothing = attention.new_zeros(*attention.shape, 0)
        outputs = Outputs(logits, attention.to(logits.dtype), scores.to(logits.dtype), nothing, batch.content)
        is_last = site.layer == len(kept) - 1
        tail = model.tail if is_last and chosen.query is not None and one.values is not None else None
        state = states[site.layer] if upper else states[-1] if tail else None
        way = {"tail": tail} if tail else {"upper": upper}
        yield AtSite(site.name, outputs, readout_at(model, batch, outputs, site, one, state=state, **way), 1 - on_text)


def agreeing(model: "PretrainedClassifier", batch: Batch) -> UpperLayers | Literal[False]:
    """The network's layers, where passes that begin at any of them give what whole passes give; else False, with a remark."""
    assert model.found is not None
    kept: list[Seen] = []
    states: list[Tensor] = []
    try:
        with torch.no_grad():
            whole = model.run(batch, Pass(keep=kept.append))
            upper = UpperLayers(model.network, [one.module for one in kept])
            with upper.states(states):
                model.run(batch, Pass())
            apart = torch.zeros(())
            for number, state in enumerate(states):
                one = Pass(first=number)
                with upper.starting(number, state):
                    apart = torch.maximum(apart, (model.run(batch, one) - whole).abs().max().cpu())
                if one.count != len(kept) - number:
                    raise LookupError(f"from layer {number} on there are {one.count} attentions")
        model.found.differences["from states"] = float(apart)
        if apart <= LIMITS[whole.dtype] * max(1.0, float(whole.abs().max())):
            return upper
        why = f"differs by {float(apart):.2g}"
    except (LookupError, RuntimeError, TypeError, ValueError, AttributeError) as error:
        why = f"{type(error).__name__}: {' '.join(str(error).split())[:150]}"
    model.found.remarks.append(f"no passes from a layer's states ({why}): whole passes are taken")
    return False
