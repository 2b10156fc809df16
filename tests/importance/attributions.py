"""What the tests of attributions share: a model of which every attribution is known by hand, and
one that is not linear."""

from functools import partial

import torch

from attnprobe.importance.base import Subject
from attnprobe.models.attention import UniformAttention
from attnprobe.models.classifier import AttentionClassifier
from attnprobe.models.decoders import LinearDecoder
from attnprobe.models.encoders import NoEncoder
from tests.importance.subjects import subject_of
from tests.toys import VOCABULARY, recipe, toy_batch, toy_readout

LENGTHS = [5, 9, 2, 1]


def additive_subject(*, classes=3, padding=0, importances=None):
    """Word vectors, uniform attention and a linear decoder: the logits are b + (1/n) Σ_t W e_t."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        embeddings = torch.randn(VOCABULARY, 8)
        embeddings[0] = 0
        model = AttentionClassifier(
            embeddings=embeddings,
            encoder=NoEncoder,
            attention=UniformAttention,
            decoder=LinearDecoder,
            classes=classes,
            recipe=recipe(),
        ).eval()
    batch = toy_batch(LENGTHS, padding=padding, classes=classes)
    names = [f"class {number}" for number in range(classes)]
    return Subject(model, batch, *toy_readout(model, batch), None, importances or {}, 0, names)


def words_shares(subject, *, first=None, second=None):
    """By hand: what each word adds to a logit, or to the difference of two; word vectors and
    decoder as black boxes.

    Args:
        subject: of a model as `additive_subject` makes it.
        first: the class of the logit, the predicted one if None.
        second: the rank of the rival in the text's prediction, if any.
    """
    model = subject.classifier
    content = subject.batch.content
    word_count = content.sum(-1)
    ranking = subject.outputs.logits.argsort(-1, descending=True)
    unit = torch.eye(model.encoder.size, dtype=torch.float64)
    weights = model.decoder(unit) - model.decoder(0 * unit)
    word_logits = model.inputs(subject.batch) @ weights / word_count[:, None, None]
    rows = torch.arange(len(ranking))
    explained = ranking[:, 0] if first is None else first
    shares = word_logits[rows, :, explained]
    if second is not None:
        rival = ranking[:, second]
        shares = shares - word_logits[rows, :, rival]
    return shares.masked_fill(~content, 0).detach()


contextual_subject = partial(subject_of, lengths=LENGTHS)
