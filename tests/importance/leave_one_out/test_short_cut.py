import pytest
import torch
from torch.testing import assert_close

from attnprobe.importance.leave_one_out import leave_one_out
from attnprobe.importance.leave_one_out.changed_states import EncodedTexts, changed_states
from attnprobe.models.attention import AdditiveAttention, Attention, UniformAttention
from attnprobe.models.classifier import AttentionClassifier
from attnprobe.models.linearised_layers import Affine
from tests.importance.leave_one_out.loops import each_alone, subject
from tests.toys import ENCODERS, REENCODED


class PositionBias(AdditiveAttention):
    """A later word gets more: its score depends on where it is, and removing a word moves those
    after it."""

    def forward(self, hidden, query=None):
        return super().forward(hidden, query) + 0.15 * torch.arange(hidden.shape[1])


class RelativeToTheMean(Attention):
    """Scores of the state's difference from the text's mean state."""

    def __init__(self, hidden_size, query_size=None):
        super().__init__(hidden_size, query_size)
        self.score = torch.nn.Linear(hidden_size, 1)

    def forward(self, hidden, query=None):
        real = (hidden != 0).any(-1, keepdim=True)
        mean = hidden.sum(1, keepdim=True) / real.sum(1, keepdim=True)
        return self.score((hidden - mean).tanh()).squeeze(-1)


def assert_same_distance(distance, expected):
    assert_close(distance, expected, atol=1e-10, rtol=0, equal_nan=True)


def every_text_encoded(classifier, batch, outputs, **settings):
    removals = leave_one_out(classifier, batch, outputs, **settings)
    expected = each_alone(classifier, batch, outputs)
    assert_same_distance(removals.distance, expected)
    assert removals.reencoded
    return removals


@pytest.mark.whole
@pytest.mark.parametrize("tolerance", [1e-6, 0.0])
@pytest.mark.parametrize("attention", [PositionBias, RelativeToTheMean])
@pytest.mark.parametrize("encoder", [*ENCODERS, "gru", "none"])
def test_an_attention_that_sees_more_than_the_single_state_gets_every_text_encoded(
    encoder, attention, tolerance
):
    examined = subject(encoder, attention, lengths=[6, 1, 24, 4], padding=2)
    removals = every_text_encoded(*examined, tolerance=tolerance)
    assert removals.distance.nan_to_num().max() > 1e-3
    assert removals.sampled == 0


@pytest.mark.parametrize("attention", [PositionBias, RelativeToTheMean])
@pytest.mark.parametrize("encoder", [encoder for encoder in ENCODERS if encoder not in REENCODED])
def test_taken_for_a_function_of_the_single_state_such_attention_would_be_wrong(
    encoder, attention, monkeypatch
):
    monkeypatch.setattr(attention, "positionwise", True)
    examined = subject(encoder, attention, lengths=[6, 1, 24, 4])
    removals = every_text_encoded(*examined)
    assert removals.rejected > 1e-4


@pytest.mark.parametrize("encoder", ["cnn", "average"])
def test_where_one_word_has_all_weight_the_others_share_it_once_it_is_gone(encoder):
    """Beside it their weights are below the smallest number that there is."""
    classifier, batch, _ = subject(encoder, "dot", lengths=[6, 2, 9])
    with torch.no_grad():
        classifier.attention.score.weight.mul_(1e5)
        outputs = classifier(batch)
    largest_lead = 0
    for scores, content in zip(outputs.scores, batch.content, strict=True):
        lead = scores[content].max() - scores[content].median()
        largest_lead = max(largest_lead, lead)
    assert largest_lead > 750
    removals = leave_one_out(classifier, batch, outputs, tolerance=0.0)
    assert not removals.reencoded
    expected = each_alone(classifier, batch, outputs)
    assert_same_distance(removals.distance, expected)


@pytest.mark.parametrize("attention", ["additive", "dot", UniformAttention])
@pytest.mark.parametrize("encoder", ENCODERS)
def test_an_encoder_derived_from_a_known_one_is_not_taken_for_it(encoder, attention):
    """What it adds may be the position, or the text's mean."""

    classifier, batch, _ = subject(encoder, attention)

    class Derived(type(classifier.encoder)):
        def forward(self, embeddings, mask, content):
            hidden = super().forward(embeddings, mask, content)
            position = torch.arange(hidden.shape[1]).unsqueeze(-1)
            return (hidden + 0.3 * position.cos()) * mask.unsqueeze(-1)

    classifier.encoder.__class__ = Derived
    with torch.no_grad():
        every_text_encoded(classifier, batch, classifier(batch))


@pytest.fixture
def texts_read(monkeypatch):
    """The batches that a classifier reads from now on."""
    batches = []
    forward = AttentionClassifier.forward

    def watched(self, batch):
        batches.append(batch)
        return forward(self, batch)

    monkeypatch.setattr(AttentionClassifier, "forward", watched)
    return batches


@pytest.mark.parametrize("encoder", ["lstm", "cnn", "average", "none"])
def test_the_check_compares_removals_of_every_part_of_the_batch(encoder, texts_read):
    """Its error is that of the numbers returned, against texts encoded one by one."""
    classifier, batch, outputs = subject(encoder, lengths=[60, 1, 40, 2, 50])
    texts_read.clear()
    removals = leave_one_out(classifier, batch, outputs)
    (sample,) = texts_read
    assert len(sample) == removals.sampled
    assert 4 <= removals.sampled <= 8
    assert sample.example_id.unique().numel() >= 3

    distance = each_alone(classifier, batch, outputs)
    error = (removals.distance - distance).abs().nan_to_num()
    assert removals.error <= error.max() + 1e-12
    assert removals.error == pytest.approx(0, abs=1e-6)
    assert removals.rejected is None
    assert not removals.reencoded


def test_of_texts_of_one_word_nothing_is_checked():
    classifier, batch, outputs = subject(lengths=[1, 1])
    removals = leave_one_out(classifier, batch, outputs)
    assert removals.distance.isnan().all()
    assert (removals.sampled, removals.error) == (0, 0.0)


def test_numbers_that_are_none_count_as_the_largest_error():
    classifier, batch, outputs = subject()
    outputs.hidden[0, 2] = torch.nan
    removals = leave_one_out(classifier, batch, outputs)
    assert removals.rejected == 1
    assert removals.reencoded


def test_an_lstm_that_forgets_rejoins_the_unchanged_text_and_stays_within_the_tolerance():
    classifier, batch, outputs = subject(lengths=[150, 41])
    texts = EncodedTexts(
        classifier.embedding.weight,
        batch.ids,
        batch.mask,
        batch.content,
        outputs.hidden,
    )
    unchanged = Affine(torch.eye(12).double(), torch.zeros(12).double())

    def computed_states(tolerance):
        changed = changed_states(classifier.encoder, texts, unchanged, tolerance)
        return sum(len(item.text) for item in changed)

    all_states = computed_states(0.0)
    most_states = computed_states(1e-8)
    few_states = computed_states(1e-3)
    assert all_states > 1.5 * most_states
    assert 1.5 * most_states > 2 * few_states

    exact = leave_one_out(classifier, batch, outputs, tolerance=0.0).distance
    near = leave_one_out(classifier, batch, outputs, tolerance=1e-8).distance
    assert_close(near, exact, atol=1e-7, rtol=0, equal_nan=True)


@pytest.mark.whole
@pytest.mark.parametrize("scale", [1.0, 5.0, 20.0])
@pytest.mark.parametrize("seed", range(2))
def test_random_networks_with_large_weights_end_at_the_definition(scale, seed):
    """At 20 times its initial weights a network is chaotic: rounding alone moves the distances by a
    hundredth."""
    classifier, batch, _ = subject("lstm 24", lengths=[200, 90], seed=seed)
    with torch.no_grad():
        for parameter in classifier.encoder.parameters():
            parameter.mul_(scale)
        outputs = classifier(batch)
    removals = leave_one_out(classifier, batch, outputs)
    exact = leave_one_out(classifier, batch, outputs, shortcut=False)
    error = (removals.distance - exact.distance).abs()
    is_off = error[batch.content] > 1e-5
    is_chaotic = scale == 20
    # where nothing is stable a sample of 64 may still miss a few of 290
    most_off = 0.05 if is_chaotic else 0
    assert is_off.double().mean() <= most_off
    assert (removals.rejected is not None) == is_chaotic
    assert removals.error <= 1e-5
