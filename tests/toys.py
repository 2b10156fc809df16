"""Small batches and classifiers that the tests share."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.testing import assert_close

from attnprobe.core.batch import Batch, Outputs, Task, probabilities
from attnprobe.core.readout import Readout
from attnprobe.models.attention import AdditiveAttention, DotAttention
from attnprobe.models.base import Model
from attnprobe.models.classifier import AttentionClassifier
from attnprobe.models.decoders import AdditiveDecoder, LinearDecoder, QuestionDecoder
from attnprobe.models.encoders import AverageEncoder, CNNEncoder, LSTMEncoder
from attnprobe.models.recipe import Recipe
from attnprobe.models.transformer import TransformerEncoder

ENCODERS = {
    "lstm": partial(LSTMEncoder, hidden_size=6),
    "cnn": partial(CNNEncoder, kernel_sizes=(1, 3, 5), filters=4),
    "average": partial(AverageEncoder, hidden_size=12),
    "transformer": partial(TransformerEncoder, hidden_size=12, layers=2, heads=3),
}
REENCODED = {"transformer"}
"""Encoders in which every word changes every state, so that leave-one-out has no short cut for
them."""
DECODERS = {False: LinearDecoder, True: QuestionDecoder, "additive": AdditiveDecoder}
"""By what is asked: nothing, or a question whose answer is decoded so."""
ATTENTIONS = {"additive": AdditiveAttention, "dot": DotAttention}
VOCABULARY = 30


def recipe(**changes: object) -> Recipe:
    """A recipe that learns something from a toy in a few steps."""
    settings = {"optimizer": partial(torch.optim.Adam, lr=0.01, amsgrad=True)} | changes
    return Recipe(**settings)


def toy_batch(
    lengths: list[int], *, seed: int = 0, padding: int = 0, classes: int = 2, question: bool = False
) -> Batch:
    """Texts of these numbers of words between a start (2) and an end marker (3), with extra padding
    columns on request."""
    generator = torch.Generator().manual_seed(seed)
    texts = len(lengths)
    ids = torch.zeros(texts, max(lengths) + 2 + padding, dtype=torch.long)
    for row, length in enumerate(lengths):
        words = torch.randint(4, VOCABULARY, (length,), generator=generator)
        end = length + 1
        ids[row, 0] = 2
        ids[row, 1:end] = words
        ids[row, end] = 3
    labels = torch.randint(0, classes, (texts,), generator=generator)
    questions = torch.randint(4, VOCABULARY, (texts, 3), generator=generator)
    return Batch(
        ids,
        ids != 0,
        ids > 3,
        labels,
        torch.arange(texts) + 100,
        question=questions if question else None,
        question_mask=questions > 0 if question else None,
    )


def rows_of(batch: Batch, rows: list[int]) -> Batch:
    """Some examples of a batch, cut to their longest."""
    lengths = batch.mask[rows].sum(1)
    longest = int(lengths.max())
    return batch.rows(torch.tensor(rows)).cut(longest)


def toy_classifier(
    encoder: str | Callable = "lstm",
    attention: str | Callable = "additive",
    *,
    classes: int = 2,
    task: Task = Task.SINGLE_LABEL,
    question: bool | str = False,
    decoder: Callable | None = None,
    question_encoder: Callable | None = None,
    seed: int = 0,
    spread: float = 1.0,
    **extra: object,
) -> AttentionClassifier:
    """An untrained classifier in eval mode, of parts by name or as they are; `spread` scales its
    weights, so that its attention is not all but even."""
    encoder = ENCODERS[encoder] if isinstance(encoder, str) else encoder
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        embeddings = torch.randn(VOCABULARY, 8)
        embeddings[0] = 0
        classifier = AttentionClassifier(
            embeddings=embeddings,
            encoder=encoder,
            decoder=decoder or DECODERS[question],
            classes=classes,
            task=task,
            attention=ATTENTIONS[attention] if isinstance(attention, str) else attention,
            recipe=recipe(),
            question_encoder=(question_encoder or encoder) if question else None,
            **extra,
        )
    with torch.no_grad():
        for parameter in (*classifier.attention.parameters(), *classifier.decoder.parameters()):
            parameter.mul_(spread)
    return classifier.eval()


def toy_readout(classifier: AttentionClassifier, batch: Batch) -> tuple[Outputs, Readout]:
    """One forward pass in float64 and its readout."""
    classifier.double()
    with torch.no_grad():
        outputs = classifier(batch)
    return outputs, classifier.readout(batch, outputs)


def taught_by(teacher: Model, batch: Batch) -> Batch:
    """The batch with this teacher's predictions and attention."""
    with torch.no_grad():
        outputs = teacher(batch)
    batch.teacher_attention = outputs.attention
    batch.teacher_probability = outputs.logits.softmax(-1)
    return batch


def predict(classifier: Model, batch: Batch) -> Tensor:
    """Class probabilities `[batch, classes]`."""
    return probabilities(classifier(batch).logits, classifier.task)


def assert_same_alone(classifier: Model, batch: Batch) -> None:
    """Neither padding nor the other texts of the batch change a logit or a weight."""
    outputs = classifier(batch)
    for row in range(len(batch)):
        text = rows_of(batch, [row])
        single = classifier(text)
        weights = outputs.attention[row, : text.ids.shape[1]]
        assert_close(single.logits[0], outputs.logits[row])
        assert_close(single.attention[0], weights)


def undecided(classifier: AttentionClassifier, batch: Batch) -> AttentionClassifier:
    """The classifier with a bias that leaves the batch's mean logits at 0, so that its decisions
    hang on few words."""
    with torch.no_grad():
        bias = classifier.decoder.output.bias
        bias -= classifier(batch).logits.mean(0)[-len(bias) :]
    return classifier
