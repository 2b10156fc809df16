import numpy as np
import pytest
import torch
from scipy.spatial.distance import jensenshannon
from scipy.stats import entropy
from torch.testing import assert_close

from attnprobe.core.batch import Task
from attnprobe.core.errors import UserError
from attnprobe.data.vocabulary import UNKNOWN
from attnprobe.models.objectives import Divergence, MaskedWords
from tests.models.pretrained.families import batch_of, classifier
from tests.toys import taught_by, toy_batch, toy_classifier


def taught_batch(lengths, padding=0, *, classes=2):
    """Texts with a teacher's predictions and attention."""
    teacher = toy_classifier(seed=9, spread=3, classes=classes)
    return taught_by(teacher, toy_batch(lengths, padding=padding, classes=classes))


@pytest.mark.parametrize("classes", [2, 3])
def test_divergence_is_the_papers_loss_per_example(classes):
    batch = taught_batch([6, 3, 1], padding=2, classes=classes)
    classifier = toy_classifier(spread=3, classes=classes)
    outputs = classifier(batch)
    with torch.no_grad():
        losses = Divergence(weight=0.3)(outputs, batch, Task.SINGLE_LABEL, None)
    probability = outputs.logits.softmax(-1).detach().numpy()
    for row, content in enumerate(batch.content):
        attention = outputs.attention[row][content].detach().numpy()
        teacher = batch.teacher_attention[row][content].numpy()
        difference = probability[row] - batch.teacher_probability[row].numpy()
        tvd = np.abs(difference).sum() / 2
        kl = entropy(attention, teacher)
        expected = {
            "tvd": pytest.approx(tvd, abs=1e-6),
            "kl": pytest.approx(kl, abs=1e-5),
            "jsd": pytest.approx(jensenshannon(attention, teacher) ** 2, abs=1e-5),
            "loss": pytest.approx(tvd - 0.3 * kl, abs=1e-5),
        }
        assert {name: float(losses[name][row]) for name in expected} == expected


def test_padding_changes_neither_loss_nor_gradient():
    gradients = []
    for padding in (0, 4):
        batch = taught_batch([6, 3, 1], padding=padding)
        classifier = toy_classifier(spread=3)
        loss = Divergence(weight=0.3)(classifier(batch), batch, Task.SINGLE_LABEL, None)["loss"]
        loss.sum().backward()
        gradients.append([p.grad.clone() for p in classifier.parameters()])
        assert all(torch.isfinite(g).all() for g in gradients[-1])
    for without, padded in zip(*gradients, strict=True):
        assert_close(without, padded, atol=1e-6, rtol=1e-5)


def test_a_weight_that_underflowed_at_the_teacher_gives_a_finite_loss():
    batch = taught_batch([4])
    classifier = toy_classifier()
    batch.teacher_attention = torch.eye(6)[1:2]
    losses = Divergence(weight=1.0)(classifier(batch), batch, Task.SINGLE_LABEL, None)
    assert 20 < float(losses["kl"].detach()) < 88
    losses["loss"].sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in classifier.parameters())


def test_divergence_never_reads_the_labels():
    batch = taught_batch([6, 3, 5])
    classifier = toy_classifier()
    losses = []
    for labels in (torch.zeros(3).long(), torch.ones(3).long()):
        batch.labels = labels
        losses.append(Divergence(0.1)(classifier(batch), batch, Task.SINGLE_LABEL, None)["loss"])
    assert torch.equal(*losses)


def test_divergence_needs_a_teacher():
    batch = toy_batch([6, 3, 5])
    with pytest.raises(UserError, match="teacher=PATH"):
        Divergence(0.1)(toy_classifier()(batch), batch, Task.SINGLE_LABEL, None)


def test_half_of_the_texts_lose_a_share_of_their_words_that_is_drawn_evenly():
    batch = toy_batch([40] * 2000)
    model = toy_classifier()
    torch.manual_seed(0)
    is_masked = MaskedWords().given(model, batch).ids == UNKNOWN
    assert not is_masked[~batch.content].any()
    share = is_masked.sum(-1).double() / 40
    positive = share[share > 0]
    assert 0.45 < len(positive) / 2000 < 0.52  # a text in 41 that was drawn keeps all of its words
    # of 40 words with an even rate every count from 0 to 40 is as likely: mean 1/2, deviation 0.296
    assert float(positive.mean()) == pytest.approx(0.51, abs=0.03)
    assert float(positive.std()) == pytest.approx(0.29, abs=0.03)


def test_no_text_loses_words_where_the_share_is_0():
    batch = toy_batch([40] * 2000)
    model = toy_classifier()
    assert MaskedWords(share=0.0).given(model, batch).ids.equal(batch.ids)


def test_a_pretrained_model_masks_all_pieces_of_a_word():
    model = classifier("bert")
    batch = batch_of(model)
    words = torch.zeros_like(batch.content)
    words[1, 3] = True
    expected = batch.pieces.clone()
    expected[1, batch.piece_word[1] == 3] = model.mask
    assert model.masked(batch, words).pieces.equal(expected)


def test_masked_words_are_refused_where_there_is_no_mask():
    model = classifier("bert")
    batch = batch_of(model)
    model.mask = None
    with pytest.raises(UserError, match="no mask token, which training=masked"):
        MaskedWords().given(model, batch)
