import pytest
import torch
from torch.testing import assert_close

from attnprobe.models.encoders import CNNEncoder, GRUEncoder, LSTMEncoder, NoEncoder
from tests.toys import ENCODERS, toy_batch

VECTORS = torch.randn(30, 8, generator=torch.Generator().manual_seed(1))
VECTORS[0] = 0


@pytest.mark.parametrize("name", ENCODERS)
def test_a_state_sees_its_neighbours_but_for_the_average(name):
    encoder = ENCODERS[name](input_size=8).eval()
    batch = toy_batch([6])

    def states_of(ids):
        (states,) = encoder(VECTORS[ids], batch.mask, batch.content)
        return states

    other_word = batch.ids.clone()
    other_word[0, 3] = 4 + (batch.ids[0, 3] - 3) % 20
    is_changed = (states_of(batch.ids) != states_of(other_word)).any(-1)
    assert is_changed[3]
    assert is_changed[[1, 2, 4, 5]].any() == (name != "average")


class Directions:
    """A recurrent encoder, and PyTorch's bidirectional network of the same weights over packed
    sequences."""

    def __init__(self, encoder_class, network_class):
        torch.manual_seed(0)
        self.encoder = encoder_class(8, 6).eval().double()
        network = network_class(8, 6, batch_first=True, bidirectional=True).double()
        weights = self.encoder.forwards.state_dict()
        for name, weight in self.encoder.backwards.state_dict().items():
            weights[f"{name}_reverse"] = weight
        network.load_state_dict(weights)

        self.batch = toy_batch([5, 2, 7, 1], padding=3)
        self.inputs = VECTORS[self.batch.ids].double()
        packed = torch.nn.utils.rnn.pack_padded_sequence(
            self.inputs,
            self.batch.mask.sum(1),
            batch_first=True,
            enforce_sorted=False,
        )
        packed, self.last = network(packed)
        self.expected, _ = torch.nn.utils.rnn.pad_packed_sequence(
            packed,
            batch_first=True,
            total_length=12,
        )

    def states(self):
        return self.encoder(self.inputs.requires_grad_(), self.batch.mask, self.batch.content)


@pytest.mark.parametrize(
    ("encoder_class", "network_class"),
    [(LSTMEncoder, torch.nn.LSTM), (GRUEncoder, torch.nn.GRU)],
)
def test_two_directions_equal_one_bidirectional_network_over_packed_sequences(
    encoder_class,
    network_class,
):
    directions = Directions(encoder_class, network_class)
    states = directions.states()
    assert_close(states, directions.expected, atol=1e-12, rtol=0)
    states.sum().backward()  # in eval mode
    assert directions.inputs.grad.abs().sum() > 0


def test_an_lstm_summarises_a_question_by_the_last_state_of_each_direction():
    directions = Directions(LSTMEncoder, torch.nn.LSTM)
    summary = directions.encoder.summary(directions.states(), directions.batch.mask)
    forwards, backwards = directions.last[0]
    expected = torch.cat([forwards, backwards], -1)
    assert_close(summary, expected, atol=1e-12, rtol=0)


def read(encoder, batch):
    """The states of a batch."""
    return encoder(VECTORS[batch.ids], batch.mask, batch.content)


def test_a_cnn_is_zero_at_markers():
    batch = toy_batch([3, 2])
    states = read(CNNEncoder(8), batch)
    assert states.shape == (2, 5, 128)
    assert (states[~batch.content] == 0).all()


def test_without_an_encoder_states_are_word_vectors():
    batch = toy_batch([3, 2])
    states = read(NoEncoder(8), batch)
    assert_close(states[batch.mask], VECTORS[batch.ids[batch.mask]], rtol=0, atol=0)
    assert (states[~batch.mask] == 0).all()
