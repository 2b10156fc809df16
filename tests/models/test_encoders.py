import pytest
import torch

from attnprobe.models.encoders import CNNEncoder, GRUEncoder, LSTMEncoder, NoEncoder
from tests.toys import ENCODERS, toy_batch

VECTORS = torch.randn(30, 8, generator=torch.Generator().manual_seed(1)) * (
    torch.arange(30) > 0
).unsqueeze(-1)


@pytest.mark.parametrize("name", ENCODERS)
def test_a_state_sees_its_neighbours_but_for_the_average(name):
    encoder = ENCODERS[name](input_size=8).eval()
    batch = toy_batch([6])
    other = batch.ids.clone()
    other[0, 3] = 4 + (batch.ids[0, 3] - 3) % 20
    before, after = (
        encoder(VECTORS[ids], batch.mask, batch.content)[0] for ids in (batch.ids, other)
    )
    changed = (before != after).any(-1)
    assert changed[3]
    assert changed[[1, 2, 4, 5]].any() == (name != "average")


@pytest.mark.parametrize(
    ("made", "theirs"), [(LSTMEncoder, torch.nn.LSTM), (GRUEncoder, torch.nn.GRU)]
)
def test_two_directions_equal_one_bidirectional_network_over_packed_sequences(made, theirs):
    torch.manual_seed(0)
    encoder = made(8, 6).eval().double()
    both = theirs(8, 6, batch_first=True, bidirectional=True).double()
    right = {f"{name}_reverse": weight for name, weight in encoder.backwards.state_dict().items()}
    both.load_state_dict(encoder.forwards.state_dict() | right)
    batch = toy_batch([5, 2, 7, 1], padding=3)
    inputs = VECTORS[batch.ids].double()
    lengths = batch.mask.sum(1)
    packed = torch.nn.utils.rnn.pack_padded_sequence(
        inputs, lengths, batch_first=True, enforce_sorted=False
    )
    packed, last = both(packed)
    expected, _ = torch.nn.utils.rnn.pad_packed_sequence(packed, batch_first=True, total_length=12)
    states = encoder(inputs.requires_grad_(), batch.mask, batch.content)
    torch.testing.assert_close(states, expected, atol=1e-12, rtol=0)
    states.sum().backward()  # in eval mode
    assert inputs.grad.abs().sum() > 0
    if made is LSTMEncoder:  # a question is the last state of each direction
        torch.testing.assert_close(
            encoder.summary(states, batch.mask), torch.cat([*last[0]], -1), atol=1e-12, rtol=0
        )


def test_cnn_is_zero_at_markers_and_without_encoder_states_are_word_vectors():
    batch = toy_batch([3, 2])
    states = CNNEncoder(8)(VECTORS[batch.ids], batch.mask, batch.content)
    assert states.shape == (2, 5, 128)
    assert (states[~batch.content] == 0).all()
    words = NoEncoder(8)(VECTORS[batch.ids], batch.mask, batch.content)
    torch.testing.assert_close(words, VECTORS[batch.ids] * batch.mask.unsqueeze(-1), rtol=0, atol=0)
