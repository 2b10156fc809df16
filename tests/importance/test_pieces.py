import pytest
import torch
from torch.testing import assert_close

from attnprobe.core.errors import UserError
from attnprobe.core.randomness import Draws
from attnprobe.importance.base import Subject
from attnprobe.importance.word_removal import predictions_keeping
from attnprobe.probes.faithfulness import Faithfulness
from tests.importance.layered import TEXTS
from tests.models.pretrained.families import batch_of
from tests.toys import predict

ATTRIBUTIONS = (
    "gradient_input",
    "integrated_gradients",
    "saliency",
    "smooth_grad",
    "occlusion",
    "kernel_shap",
    "lime",
    "shapley_sampling",
    "sufficient_subset",
)


def pieces_of(bert, row):
    """Pieces and the words that they belong to, without padding."""
    batch = bert.batch
    is_piece = batch.piece_word[row] > -2
    pieces = batch.pieces[row, is_piece]
    words = batch.piece_word[row, is_piece]
    return pieces.unsqueeze(0), words


@pytest.mark.parametrize("name", ATTRIBUTIONS)
def test_every_attribution_has_a_score_per_word(bert, name):
    scores = bert.scores(name)
    assert scores.shape == bert.batch.content.shape
    assert scores[bert.batch.content].isfinite().all()
    assert (scores[~bert.batch.content] == 0).all()


def test_gradient_times_input_is_the_librarys_summed_over_the_pieces(bert, librarys_bert):
    scores = bert.scores("gradient_input")
    for row in range(len(TEXTS)):
        pieces, word = pieces_of(bert, row)
        vectors = librarys_bert.get_input_embeddings()(pieces).detach().requires_grad_()
        logits = librarys_bert(inputs_embeds=vectors).logits[0]
        decision = int(bert.outputs.logits[row].argmax())
        lead = logits[decision] - logits[1 - decision]
        (gradient,) = torch.autograd.grad(lead, vectors)
        [piece_scores] = (gradient * vectors).sum(-1)
        for place in bert.batch.content[row].nonzero()[:, 0].tolist():
            expected = piece_scores[word == place].sum().item()
            assert scores[row, place].item() == pytest.approx(expected, abs=1e-5)


def test_deleted_words_are_gone_with_their_pieces(bert):
    keep = bert.batch.content.clone()
    first_of_text, first_of_other = keep.long().argmax(-1)
    keep[0, first_of_text + 1] = False
    keep[1, first_of_other] = False
    keep[1, first_of_other + 3] = False
    predicted = predictions_keeping(bert, keep, "delete")
    shortened = batch_of(bert.classifier, ["the was unable", "long dull of people"])
    expected = predict(bert.classifier, shortened).double()
    assert_close(predicted, expected, atol=1e-6, rtol=0)


def test_zeroed_words_have_zero_vectors(bert, librarys_bert):
    keep = bert.batch.content.clone()
    row = 0
    place = int(keep[row].nonzero()[-1])  # unable, of two pieces
    keep[row, place] = False
    predicted = predictions_keeping(bert, keep, "zeros")[row]
    pieces, word = pieces_of(bert, row)
    assert (word == place).sum() > 1
    vectors = librarys_bert.get_input_embeddings()(pieces).detach()
    vectors[0, word == place] = 0
    expected = librarys_bert(inputs_embeds=vectors).logits[0].softmax(-1).double()
    assert_close(predicted, expected, atol=1e-6, rtol=0)


def test_a_mask_is_refused_where_the_tokenizer_has_none(bert, monkeypatch):
    probe = Faithfulness(operators=["mask"])
    probe.refuse(bert.classifier)
    monkeypatch.setattr(bert.classifier, "mask", None)
    with pytest.raises(
        UserError, match="operators: mask: this model's tokenizer has no mask token"
    ):
        probe.refuse(bert.classifier)


@pytest.fixture
def texts_read(bert, monkeypatch):
    """The pieces of every text that the classifier reads from now on, in this order."""
    texts = []
    forward = bert.classifier.forward

    def watched(batch):
        is_piece = batch.piece_word != -2
        assert is_piece.any(0).all()  # no column of padding alone
        for pieces, is_own_piece in zip(batch.pieces, is_piece, strict=True):
            texts.append(tuple(pieces[is_own_piece].tolist()))
        return forward(batch)

    monkeypatch.setattr(bert.classifier, "forward", watched)
    return texts


def fresh(bert):
    """The same texts, of which nothing has been read."""
    return Subject(bert.classifier, bert.batch, bert.outputs, bert.readout)


def measure_faithfulness(subject):
    """Leave-one-out and faithfulness ask for many of the same texts."""
    names = ["leave_one_out", "attention", "random", "gradient_input"]
    probe = Faithfulness(importances=names, operators=["delete"])
    list(probe.measure(subject, Draws(0, "faithfulness")))


def test_each_changed_text_is_read_once_whoever_asks_and_without_padding(bert, texts_read):
    measure_faithfulness(fresh(bert))
    assert len(texts_read) > 10
    assert len(texts_read) == len(set(texts_read))


@pytest.mark.parametrize("operator", ["delete", "mask", "zeros"])
def test_what_was_read_before_changes_no_prediction(bert, operator):
    """The reference reads every text alone."""
    subject = fresh(bert)
    measure_faithfulness(subject)
    content = bert.batch.content
    noise = torch.rand(3, *content.shape, generator=torch.Generator().manual_seed(0))
    keep = content & (noise > 0.5)
    keep[..., 1] = True
    predicted = predictions_keeping(subject, keep, operator)
    for number, words in enumerate(keep):
        expected = predictions_keeping(fresh(bert), words, operator)
        assert_close(predicted[number], expected, atol=1e-6, rtol=0)
