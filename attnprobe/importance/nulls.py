"""Gradient and leave-one-out of the same model under other attentions: both contain the attention
that they are taken at."""

import torch

from attnprobe.core.batch import Batch
from attnprobe.core.readout import Readout
from attnprobe.exact.checks import LEAST_MASS, Content
from attnprobe.exact.nulls import Samples
from attnprobe.importance.base import Scores
from attnprobe.importance.gradients import gradients_at
from attnprobe.importance.word_removal import AT_ONCE, removable
from attnprobe.models.base import Model


def gradients_under(classifier: Model, batch: Batch, attentions: Samples) -> Samples:
    """|word vector · ∂ŷ/∂word vector| with each of the attentions held fixed, 0 or more; 0 outside
    content. ŷ as in `attnprobe.importance.gradients.gradients`."""
    with torch.enable_grad():
        scale, own = classifier.scaled(batch)
        every = (
            classifier.under(batch, scale, own, attention.to(scale.dtype))
            for attention in attentions
        )
        return torch.stack(
            [gradients_at(classifier, batch, scale, outputs)[0] for outputs in every]
        ).double()


def removals_under(
    classifier: Model, batch: Batch, readout: Readout, attentions: Samples, *, chunk: int = AT_ONCE
) -> Samples:
    """Distance of the predictions without each word and with it, each of the attentions held fixed
    but for the removed word's weight, the others renormalised; NaN outside content and where
    nothing is left. Every shortened text is encoded once, for all attentions."""
    whole = readout.predict(attentions)
    result = torch.full_like(attentions, torch.nan)
    example, removed = removable(batch)
    width = batch.ids.shape[1]
    size = max(1, chunk // width)
    with torch.no_grad():
        # of a batch of one-word texts nothing is left
        for rows, places in (
            zip(example.split(size), removed.split(size), strict=True) if len(example) else ()
        ):
            text = classifier.without(batch, rows, places)
            place = torch.arange(text.ids.shape[1], device=batch.ids.device)
            if len(place) == width:  # something stands in the word's place
                rest = attentions[:, rows].masked_fill(place == places.unsqueeze(1), 0)
            else:
                source = (place + (place >= places.unsqueeze(1)).long()).expand(
                    len(attentions), -1, -1
                )
                rest = attentions[:, rows].gather(-1, source)
            mass = rest.sum(-1, keepdim=True)
            rest = torch.where(mass > 0, rest / torch.where(mass > 0, mass, 1), 0)
            inputs = classifier.inputs(text)
            outputs = classifier.outputs_from(text, inputs, rest[0].to(inputs.dtype))
            apart = readout.distance(
                classifier.readout(text, outputs).predict(rest), whole[:, rows]
            )
            result[:, rows, places] = torch.where(mass.squeeze(-1) >= LEAST_MASS, apart, torch.nan)
    return result


def aligned(attention: Scores, scores: Scores, content: Content) -> Scores:
    """The attention's own weights in the order of the scores: no other order of them agrees
    better."""
    place = scores.nan_to_num(nan=0).masked_fill(~content, -torch.inf).argsort(dim=-1, stable=True)
    weights = attention.masked_fill(~content, -torch.inf).sort(-1).values
    return torch.where(content, torch.zeros_like(attention).scatter(-1, place, weights), 0)
