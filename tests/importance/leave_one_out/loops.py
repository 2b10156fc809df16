"""Leave-one-out as a plain loop: one text, one token, one forward pass at a time."""

from dataclasses import replace
from functools import partial

import torch

from attnprobe.models.encoders import GRUEncoder, LSTMEncoder, NoEncoder
from tests.toys import predict, rows_of, toy_batch, toy_classifier, toy_readout

LENGTHS = [6, 1, 9, 4, 2]
MORE = {
    "gru": partial(GRUEncoder, hidden_size=5),
    "none": NoEncoder,
    "lstm 24": partial(LSTMEncoder, hidden_size=24),
}


def subject(
    encoder="lstm", attention="additive", *, question=False, padding=0, lengths=LENGTHS, **facts
):
    """A classifier (of the toys, or of `MORE`; `attention` a name or a class), a batch, and its
    outputs."""
    classes = facts.setdefault("classes", 3 if question else 2)
    classifier = toy_classifier(
        MORE.get(encoder, encoder), attention, question=question, **{"spread": 3} | facts
    )
    batch = toy_batch(lengths, question=question, classes=classes, padding=padding)
    return classifier, batch, toy_readout(classifier, batch)[0]


def one_by_one(classifier, batch, row, position):
    """The probabilities of one text without one token, all by itself."""
    single = rows_of(batch, [row])
    if batch.candidates is not None:
        single = replace(single, candidates=batch.candidates[[row]])
    keep = [i for i in range(single.ids.shape[1]) if i != position]
    with torch.no_grad():
        shorter = single.changed(
            lambda axis, column: column[:, keep] if axis == "tokens" else column
        )
        return predict(classifier, shorter)


def each_alone(classifier, batch, outputs):
    """Total variation distance of every text without every token from the text as it is; NaN where
    nothing is left."""
    distance = torch.full(batch.ids.shape, torch.nan, dtype=torch.float64)
    original = outputs.logits.detach().double().softmax(-1)
    for row, position in batch.content.nonzero().tolist():
        if batch.content[row].sum() > 1:
            prediction = one_by_one(classifier, batch, row, position)[0].double()
            distance[row, position] = (prediction - original[row]).abs().sum() / 2
    return distance
