"""Attributions and erased words of a model that reads pieces, against the library's own network."""

import pytest
import torch

from attnprobe.core.errors import UserError
from attnprobe.core.randomness import Draws
from attnprobe.importance.base import Subject, built_in
from attnprobe.importance.word_removal import predictions_keeping
from attnprobe.probes.faithfulness import Faithfulness
from tests.models.pretrained.families import batch_of, checkpoint, classifier
from tests.toys import predict

TEXTS = ["the film was unable", "a long dull story of people"]
"""`unable` is cut in two."""
ATTRIBUTIONS = ("gradient_input", "integrated_gradients", "saliency", "smooth_grad", "occlusion", "kernel_shap", "lime",
                "shapley_sampling", "sufficient_subset")  # fmt: skip


@pytest.fixture(scope="module")
def subject():
    model = classifier("bert", layer=-1)
    batch = batch_of(model, TEXTS)
    model.prepare(batch)
    outputs = model(batch)
    few = {name: built_in(name) for name in ATTRIBUTIONS}
    few |= {"shapley_sampling": type(few["shapley_sampling"])(samples=3), "lime": type(few["lime"])(samples=20)}
    return Subject(model, batch, outputs, model.readout(batch, outputs), importances=few)


@pytest.fixture(scope="module")
def theirs():
    from transformers import AutoModelForSequenceClassification

    return AutoModelForSequenceClassification.from_pretrained(checkpoint("bert"), attn_implementation="eager").eval()


def of_row(subject, row):
    """Pieces and the words that they belong to, without padding."""
    there = subject.batch.piece_word[row] > -2
    return subject.batch.pieces[row, there].unsqueeze(0), subject.batch.piece_word[row, there]


@pytest.mark.parametrize("name", ATTRIBUTIONS)
def test_every_attribution_has_a_score_per_word(subject, name):
    scores = subject.scores(name)
    assert scores.shape == subject.batch.content.shape
    assert scores[subject.batch.content].isfinite().all()
    assert (scores[~subject.batch.content] == 0).all()


def test_gradient_times_input_is_the_librarys_summed_over_the_pieces(subject, theirs):
    for row in range(len(TEXTS)):
        pieces, word = of_row(subject, row)
        vectors = theirs.get_input_embeddings()(pieces).detach().requires_grad_()
        logits = theirs(inputs_embeds=vectors).logits[0]
        own = int(subject.outputs.logits[row].argmax())
        (gradient,) = torch.autograd.grad(logits[own] - logits[1 - own], vectors)
        for place in subject.batch.content[row].nonzero()[:, 0].tolist():
            expected = (gradient * vectors)[0, word == place].sum().item()
            assert subject.scores("gradient_input")[row, place].item() == pytest.approx(expected, abs=1e-5)


def test_deleted_words_are_gone_with_their_pieces(subject):
    keep = subject.batch.content.clone()
    first = keep.long().argmax(-1)
    keep[0, first[0] + 1] = keep[1, first[1]] = keep[1, first[1] + 3] = False
    found = predictions_keeping(subject, keep, "delete")
    other = batch_of(subject.classifier, ["the was unable", "long dull of people"])
    torch.testing.assert_close(found, predict(subject.classifier, other).double(), atol=1e-6, rtol=0)


def test_zeroed_words_have_zero_vectors(subject, theirs):
    keep, row = subject.batch.content.clone(), 0
    place = int(keep[row].nonzero()[-1])  # unable, of two pieces
    keep[row, place] = False
    found = predictions_keeping(subject, keep, "zeros")[row]
    pieces, word = of_row(subject, row)
    assert (word == place).sum() > 1
    vectors = theirs.get_input_embeddings()(pieces).detach()
    vectors[0, word == place] = 0
    expected = theirs(inputs_embeds=vectors).logits[0].softmax(-1).double()
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)


def test_a_mask_is_refused_where_the_tokenizer_has_none(subject, monkeypatch):
    probe = Faithfulness(operators=["mask"])
    probe.refuse(subject.classifier)
    monkeypatch.setattr(subject.classifier, "mask", None)
    with pytest.raises(UserError, match="operators: mask: this model's tokenizer has no mask token"):
        probe.refuse(subject.classifier)


def test_each_changed_text_is_read_once_whoever_asks_and_without_padding(subject, monkeypatch):
    """Leave-one-out and faithfulness ask for many of the same texts; the reference reads every one alone."""
    fresh = Subject(subject.classifier, subject.batch, subject.outputs, subject.readout)
    read, forward = [], subject.classifier.forward

    def watched(batch):
        assert (batch.piece_word != -2).any(0).all()
        read.extend(tuple(row[kind != -2].tolist()) for row, kind in zip(batch.pieces, batch.piece_word, strict=True))
        return forward(batch)

    monkeypatch.setattr(subject.classifier, "forward", watched)
    names = ["leave_one_out", "attention", "random", "gradient_input"]
    list(Faithfulness(importances=names, operators=["delete"]).measure(fresh, Draws(0, "faithfulness")))
    assert len(read) == len(set(read)) > 10
    content = subject.batch.content
    keep = content & (torch.rand(3, *content.shape, generator=torch.Generator().manual_seed(0)) > 0.5)
    keep[..., 1] = True
    for operator in ("delete", "mask", "zeros"):
        together = predictions_keeping(fresh, keep, operator)
        for number, one in enumerate(keep):
            alone = Subject(subject.classifier, subject.batch, subject.outputs, subject.readout)
            torch.testing.assert_close(together[number], predictions_keeping(alone, one, operator), atol=1e-6, rtol=0)
