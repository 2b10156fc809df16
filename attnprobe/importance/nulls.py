"""Gradient and leave-one-out of the same model under other attentions.

Both contain the attention that they are taken at.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnprobe.core.batch import Batch
from attnprobe.core.readout import Readout
from attnprobe.exact.checks import LEAST_MASS, Content
from attnprobe.exact.nulls import Samples
from attnprobe.importance.base import Scores
from attnprobe.importance.gradients import gradients_at
from attnprobe.importance.word_removal import AT_ONCE, removable
from attnprobe.models.base import Model


def gradients_under(classifier: Model, batch: Batch, attentions: Samples) -> Samples:
    """|word vector · ∂ŷ/∂word vector| with each of the attentions held fixed, 0 or more.

    0 outside content. ŷ as in `attnprobe.importance.gradients.gradients`.
    """
    samples = []
    with torch.enable_grad():
        scale, outputs = classifier.scaled(batch)
        for attention in attentions:
            fixed = classifier.under(batch, scale, outputs, attention.to(scale.dtype))
            embedding, _ = gradients_at(classifier, batch, scale, fixed)
            samples.append(embedding)
    return torch.stack(samples).double()


def removals_under(
    classifier: Model, batch: Batch, readout: Readout, attentions: Samples, *, chunk: int = AT_ONCE
) -> Samples:
    """Distance of the predictions without each word and with it, each attention held fixed.

    But for the removed word's weight: the others are renormalised. NaN outside content and where
    nothing is left. Every shortened text is encoded once, for all attentions.
    """
    whole = readout.predict(attentions)
    distances = torch.full_like(attentions, torch.nan)
    example, removed = removable(batch.content)
    if not len(example):  # a batch of one-word texts
        return distances
    size = max(1, chunk // batch.ids.shape[1])
    with torch.no_grad():
        for rows, places in zip(example.split(size), removed.split(size), strict=True):
            text = classifier.without(batch, rows, places)
            rest, mass = _renormalised(attentions[:, rows], places, text.ids.shape[1])
            inputs = classifier.inputs(text)
            outputs = classifier.outputs_from(text, inputs, rest[0].to(inputs.dtype))
            predicted = classifier.readout(text, outputs).predict(rest)
            distance = readout.distance(predicted, whole[:, rows])
            distances[:, rows, places] = torch.where(mass >= LEAST_MASS, distance, torch.nan)
    return distances


def _renormalised(
    attentions: Samples, places: Int[Tensor, "texts"], width: int
) -> tuple[Float[Tensor, "samples texts shorter"], Float[Tensor, "samples texts"]]:
    """Attentions over texts without the words at `places`, and their mass before that.

    `width` is that of the texts without the words: where it is the same as before, something stands
    in each word's place; else the text has closed up.
    """
    place = torch.arange(width, device=places.device)
    if width == attentions.shape[-1]:
        rest = attentions.masked_fill(place == places.unsqueeze(1), 0)
    else:
        source = place + (place >= places.unsqueeze(1)).long()
        rest = attentions.gather(-1, source.expand(len(attentions), -1, -1))
    mass = rest.sum(-1, keepdim=True)
    rest = torch.where(mass > 0, rest / torch.where(mass > 0, mass, 1), 0)
    return rest, mass.squeeze(-1)


def aligned(attention: Scores, scores: Scores, content: Content) -> Scores:
    """The attention's weights in the order of the scores: no other order of them agrees better."""
    place = scores.nan_to_num(nan=0).masked_fill(~content, -torch.inf).argsort(dim=-1, stable=True)
    weights = attention.masked_fill(~content, -torch.inf).sort(-1).values
    return torch.where(content, torch.zeros_like(attention).scatter(-1, place, weights), 0)
