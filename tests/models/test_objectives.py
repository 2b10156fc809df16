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
from tests.probes.texts import numbers_of
from tests.toys import taught_by, toy_batch, toy_classifier


def taught_batch(lengths, padding=0, *, classes=2):
    """Texts with a teacher's predictions and attention."""
    teacher = toy_classifier(seed=9, spread=3, classes=classes)
    return taught_by(teacher, toy_batch(lengths, padding=padding, classes=classes))


def losses_of(objective, classifier, batch):
    return objective(classifier(batch), batch, Task.SINGLE_LABEL, None)


@pytest.mark.parametrize("row", range(3))
@pytest.mark.parametrize("classes", [2, 3])
def test_divergence_is_the_papers_loss_per_example(classes, row):
    """TVD of the predictions minus the weighted KL divergence of the attentions."""
    batch = taught_batch([6, 3, 1], padding=2, classes=classes)
    classifier = toy_classifier(spread=3, classes=classes)
    with torch.no_grad():
        outputs = classifier(batch)
        losses = losses_of(Divergence(weight=0.3), classifier, batch)
    content = batch.content[row]
    attention = outputs.attention[row, content].numpy()
    teacher_attention = batch.teacher_attention[row, content].numpy()
    change = outputs.logits[row].softmax(-1) - batch.teacher_probability[row]
    tvd = change.abs().sum().item() / 2
    kl = entropy(attention, teacher_attention)
    jsd = jensenshannon(attention, teacher_attention) ** 2
    numbers = numbers_of(losses, row)
    assert numbers["tvd"] == pytest.approx(tvd, abs=1e-6)
    assert numbers["kl"] == pytest.approx(kl, abs=1e-5)
    assert numbers["jsd"] == pytest.approx(jsd, abs=1e-5)
    assert numbers["loss"] == pytest.approx(tvd - 0.3 * kl, abs=1e-5)


def gradients_of_divergence(padding):
    """Of all parameters, one after the other."""
    classifier = toy_classifier(spread=3)
    batch = taught_batch([6, 3, 1], padding=padding)
    losses = losses_of(Divergence(weight=0.3), classifier, batch)
    losses["loss"].sum().backward()
    gradients = [parameter.grad.flatten() for parameter in classifier.parameters()]
    return torch.cat(gradients)


def test_padding_changes_neither_loss_nor_gradient():
    gradient = gradients_of_divergence(padding=0)
    assert gradient.isfinite().all()
    assert_close(gradients_of_divergence(padding=4), gradient, atol=1e-6, rtol=1e-5)


def test_a_weight_that_underflowed_at_the_teacher_gives_a_finite_loss():
    batch = taught_batch([4])
    batch.teacher_attention = torch.tensor([[0.0, 1.0, 0.0, 0.0, 0.0, 0.0]])
    classifier = toy_classifier()
    losses = losses_of(Divergence(weight=1.0), classifier, batch)
    losses["loss"].sum().backward()
    assert 20 < losses["kl"].item() < 88
    for parameter in classifier.parameters():
        assert parameter.grad.isfinite().all()


def test_divergence_never_reads_the_labels():
    classifier = toy_classifier()
    batch = taught_batch([6, 3, 5])
    batch.labels = torch.tensor([0, 0, 0])
    loss = losses_of(Divergence(0.1), classifier, batch)["loss"]
    batch.labels = torch.tensor([1, 1, 1])
    loss_of_other_labels = losses_of(Divergence(0.1), classifier, batch)["loss"]
    assert torch.equal(loss, loss_of_other_labels)


def test_divergence_needs_a_teacher():
    batch = toy_batch([6, 3, 5])
    with pytest.raises(UserError, match="teacher=PATH"):
        losses_of(Divergence(0.1), toy_classifier(), batch)


@pytest.fixture(scope="module")
def masked_share():
    """The share of each of 2,000 texts of 40 words that is masked."""
    batch = toy_batch([40] * 2000)
    torch.manual_seed(0)
    masked = MaskedWords().given(toy_classifier(), batch)
    is_masked = masked.ids == UNKNOWN
    assert not is_masked[~batch.content].any()
    return is_masked.sum(-1).double() / 40


def test_half_of_the_texts_lose_words(masked_share):
    """A text in 41 that was drawn keeps all of its words."""
    texts = (masked_share > 0).double().mean()
    assert 0.45 < texts < 0.52


def test_the_share_of_words_that_a_text_loses_is_drawn_evenly(masked_share):
    """With an even rate every count from 0 to 40 is as likely: mean 1/2, deviation 0.296."""
    share = masked_share[masked_share > 0]
    assert share.mean().item() == pytest.approx(0.51, abs=0.03)
    assert share.std().item() == pytest.approx(0.29, abs=0.03)


def test_no_text_loses_words_where_the_share_is_0():
    batch = toy_batch([40] * 2000)
    masked = MaskedWords(share=0.0).given(toy_classifier(), batch)
    assert masked.ids.equal(batch.ids)


def test_a_pretrained_model_masks_all_pieces_of_a_word():
    model = classifier("bert")
    batch = batch_of(model)
    words = torch.zeros_like(batch.content)
    words[1, 3] = True
    is_piece_of_word = batch.piece_word[1] == 3
    expected = batch.pieces.clone()
    expected[1, is_piece_of_word] = model.mask
    assert model.masked(batch, words).pieces.equal(expected)


def test_masked_words_are_refused_where_there_is_no_mask():
    model = classifier("bert")
    batch = batch_of(model)
    model.mask = None
    with pytest.raises(UserError, match="no mask token, which training=masked"):
        MaskedWords().given(model, batch)
