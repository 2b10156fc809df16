"""Is the most attended item the one that matters most? Erase one weight (Serrano & Smith 2019, section 4)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnprobe.erasure import SingleErasures, erase_each
from attnprobe.measures import kendall_tau
from attnprobe.probes.base import DESCRIPTION, Measurement, Note, RankingProbe, Subject, description, positions
from attnprobe.probes.erasure import FILED
from attnprobe.randomness import Draws
from attnprobe.results.metrics import JSD, JSD_DIFFERENCE, SHARE, TAU, TRUTH, Metric, Scale

SOURCE = "Serrano & Smith 2019, section 4"
METRICS = (
    Metric("effect_js", JSD, "JSD of the predictions before and after this item's erasure", step="position", source=SOURCE),
    Metric("effect_flip", TRUTH, "another class is ahead afterwards", step="position", source=SOURCE),
    Metric("js_top_{importance}", JSD, "`effect_js` of the top item", higher_is_better=True, source=SOURCE),
    Metric("flip_top_{importance}", TRUTH, "`effect_flip` of the top item", higher_is_better=True, source=SOURCE),
    Metric("js_random_{importance}", JSD, "mean over all other items"),
    Metric("flip_random_{importance}", SHARE, "other items that flip"),
    Metric("delta_js_{importance}", JSD_DIFFERENCE, "top − random", higher_is_better=True, source=SOURCE),
    Metric("delta_js_negative_{importance}", SHARE, "others whose erasure does more than the top's",
           higher_is_better=False, source=SOURCE),
    Metric("drawn_delta_js_{importance}", JSD_DIFFERENCE, "top − one other item, drawn at random", higher_is_better=True),
    Metric("drawn_delta_attention_{importance}", Scale("weight", -1, 1), "difference of their weights"),
    Metric("drawn_flip_{importance}", TRUTH, "the drawn one flips", higher_is_better=False),
    Metric("js_second", JSD, "of the second most attended item"),
    Metric("js_lowest", JSD, "of the least attended item", higher_is_better=False),
    Metric("flip_second", TRUTH, "of the second most attended item"),
    Metric("flip_lowest", TRUTH, "of the least attended item", higher_is_better=False),
    Metric("tau_attention_effect", TAU, "of attention and `effect_js`", higher_is_better=True),
    Metric("undefined_erasure", TRUTH, "some item has all the weight: less than 1e-12 of it is left without that item"),
    *DESCRIPTION,
)  # fmt: skip
"""See `SingleWeight`."""


@dataclass
class SingleWeight(RankingProbe):
    """Erase the weight of the top item i*, renormalise, and compare with erasing another item r.

    Yields per content position (step) `effect_js`, the Jensen-Shannon divergence (nats, 0 to ln 2) of the predictions
    before and after its erasure, and `effect_flip` (1: another class is ahead afterwards); and per example, with i* the
    top item by X, each of the importances; published: `attention`, `gradient` (of the predicted class's probability by the
    weights, signed: the importance `attention_gradient`) and `gradient_attention` (their product). The importance `gradient`,
    of the word vectors, is filed as `input_gradient`.

    - `js_top_X`, `flip_top_X`: of i*;
    - `js_random_X`, `flip_random_X`: means over all r ≠ i*, what infinitely many draws of r would give;
    - `delta_js_X` = js_top − js_random, and `delta_js_negative_X`: the share of r whose erasure does more than i*'s;
    - `drawn_delta_js_X`, `drawn_delta_attention_X` (α_i* − α_r), `drawn_flip_X`: of one r drawn uniformly;

    `js_second`, `flip_second`, `js_lowest`, `flip_lowest`: of the second most and the least attended item;
    `tau_attention_effect`: Kendall's τ-b of attention and effect_js; `undefined_erasure` (1: some item has all
    the weight, so that without it less than 1e-12 is left); `max_attention`, `predicted_class`, `content_length`.

    What compares two items is NaN in examples of one item, and what needs an undefined erasure is NaN as well.

    Note:
        The published r is a uniformly drawn position other than the first, which may be i* itself. The first of tied
        items is the top one.
    """

    name: ClassVar[str] = "single_weight"
    metrics = METRICS
    one_decision = True
    published = ("attention", "attention_gradient", "gradient_attention")
    filed: ClassVar[Mapping[str, str]] = FILED

    def measure(self, subject: Subject, draws: Draws) -> Iterator[Measurement | Note]:
        """Yield the measurements of one batch."""
        readout = subject.readout
        content, attention = readout.content, readout.attention
        effect = erase_each(readout)
        step = positions(content)
        yield Measurement("effect_js", effect.divergence, step)
        yield Measurement("effect_flip", effect.flips, step)
        noise = draws.uniform(1, content, readout.example_id)[0]
        for name, scores in self.scores(subject).items():
            undefined = (scores.isnan() & content).any(-1)
            for metric, value in against_others(effect, attention, scores, content, noise).items():
                known = value.double().masked_fill(undefined, torch.nan)
                yield Measurement(f"{metric}_{self.label(name)}", known)
        order = attention.masked_fill(~content, -torch.inf).argsort(dim=-1, descending=True, stable=True)
        several = content.sum(-1) > 1
        last = (content.sum(-1) - 1).unsqueeze(-1)
        for name, place in (("second", torch.ones_like(last)), ("lowest", last)):
            item = order.gather(-1, place.clamp(max=order.shape[1] - 1)).squeeze(-1)
            yield Measurement(f"js_{name}", torch.where(several, at(effect.divergence, item), torch.nan))
            yield Measurement(f"flip_{name}", torch.where(several, at(effect.flips, item), torch.nan))
        yield Measurement("tau_attention_effect", kendall_tau(attention, effect.divergence, content))
        yield Measurement("undefined_erasure", (effect.divergence.isnan() & content).any(-1))
        yield from description(readout)
        yield from self.notes(subject)


def at(values: Float[Tensor, "batch seq"], item: Int[Tensor, "batch"]) -> Float[Tensor, "batch"]:
    """One position's value per example."""
    return values.gather(-1, item.unsqueeze(-1)).squeeze(-1)


def against_others(
    effect: SingleErasures,
    attention: Float[Tensor, "batch seq"],
    scores: Float[Tensor, "batch seq"],
    content: Bool[Tensor, "batch seq"],
    noise: Float[Tensor, "batch seq"],
) -> dict[str, Float[Tensor, "batch"]]:
    """The highest-scored item's erasure compared with that of the others, and of the one with the most noise among them."""
    top = scores.nan_to_num(nan=0).masked_fill(~content, -torch.inf).argmax(-1)
    others = content.scatter(-1, top.unsqueeze(-1), False)
    several = others.any(-1)
    drawn = noise.masked_fill(~others, -1).argmax(-1)
    js_top, flip_top = at(effect.divergence, top), at(effect.flips, top)

    def mean(values: Tensor) -> Tensor:
        return torch.where(others, values, 0).sum(-1) / torch.where(several, others.sum(-1), torch.nan)

    def compared(values: Tensor) -> Tensor:
        return torch.where(several, values, torch.nan)

    js_random = mean(effect.divergence)
    negative = (effect.divergence > js_top.unsqueeze(-1)).double()
    return {
        "js_top": js_top,
        "flip_top": flip_top,
        "js_random": js_random,
        "flip_random": mean(effect.flips),
        "delta_js": js_top - js_random,
        "delta_js_negative": mean(torch.where((effect.divergence + js_top.unsqueeze(-1)).isnan(), torch.nan, negative)),
        "drawn_delta_js": compared(js_top - at(effect.divergence, drawn)),
        "drawn_delta_attention": compared(at(attention, top) - at(attention, drawn)),
        "drawn_flip": compared(at(effect.flips, drawn)),
    }
