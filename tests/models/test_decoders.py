"""The additive decoder: exact answers against every set, every order and a grid of attentions, by the model's own stages."""

import itertools

import pytest
import torch

from attnprobe.core.batch import prediction_distance
from attnprobe.core.errors import UserError
from attnprobe.exact import farthest_attention, smallest_flipping_set
from attnprobe.measures import jensen_shannon
from attnprobe.models.decoders import AdditiveDecoder, LinearDecoder
from tests.toys import toy_batch, toy_classifier, toy_readout

LENGTHS = [4, 3, 1, 4, 4, 3]


def asked(classes, *, candidates=False, seed=0):
    """A classifier whose decoder is additive, a batch, its outputs, its readout, and its decisions under any attention."""
    batch = toy_batch(LENGTHS, question=True, classes=classes, padding=1)
    if candidates:
        batch.candidates = torch.ones(len(LENGTHS), classes).bool()
        batch.candidates[::2, 0] = batch.candidates[1::2, -1] = False
    classifier = toy_classifier(classes=classes, question="additive", spread=6, seed=seed)
    outputs, readout = toy_readout(classifier, batch)

    def decide(attention):
        with torch.no_grad():
            return classifier.decoder.decode(outputs.hidden, attention, outputs.query, batch.candidates)

    return batch, outputs, readout, decide


@pytest.mark.parametrize("classes", [2, 4])
def test_it_adds_what_text_and_question_say(classes):
    decoder = AdditiveDecoder(5, classes, query_size=3).double()
    v, q = torch.randn(2, 5).double(), torch.randn(2, 3).double()
    expected = v @ decoder.output.weight.T + decoder.output.bias + q @ decoder.question.weight.T
    expected = torch.cat([torch.zeros(2, 1), expected], -1) if classes == 2 else expected
    torch.testing.assert_close(decoder(v, q), expected)
    torch.nn.init.zeros_(decoder.question.weight)  # the null: a question that says nothing
    plain = LinearDecoder(5, classes).double()
    plain.load_state_dict(decoder.state_dict(), strict=False)
    torch.testing.assert_close(decoder(v, q), plain(v), rtol=0, atol=0)
    with pytest.raises(UserError, match="model/decoder=linear"):
        AdditiveDecoder(5, 2)


@pytest.mark.parametrize(("classes", "candidates"), [(2, False), (3, False), (4, True)])
def test_the_smallest_sets_are_those_of_all_sets_that_the_model_is_asked_about(classes, candidates):
    sizes = set()
    for seed in range(8):
        batch, outputs, readout, decide = asked(classes, candidates=candidates, seed=seed)
        found = smallest_flipping_set(readout.attention, readout.position_logits, readout.content)
        decided = decide(outputs.attention).argmax(-1)
        for row, content in enumerate(batch.content):
            places, expected = content.nonzero()[:, 0].tolist(), -1
            for erased in (one for n in range(1, len(places)) for one in itertools.combinations(places, n)):
                left = outputs.attention.clone()
                left[row, list(erased)] = 0
                if decide(left / left.sum(-1, keepdim=True))[row].argmax() != decided[row]:
                    expected = len(erased)
                    break
            assert found.size[row] == expected
            sizes.add(expected)
    assert {-1, 1, 2} <= sizes


@pytest.mark.parametrize("candidates", [False, True])
def test_no_attention_of_a_grid_is_farther_than_the_farthest(candidates):
    epsilon, steps, row = 0.05, 20, 1  # three words: the whole simplex in steps of 1/20
    batch, outputs, readout, decide = asked(3, candidates=candidates)
    found = farthest_attention(readout.attention, readout.position_logits, readout.content, epsilon=epsilon)
    own, places = readout.prediction(), batch.content[row].nonzero()[:, 0]
    torch.testing.assert_close(own, outputs.logits.softmax(-1))
    assert (prediction_distance(own, decide(found.attention).softmax(-1), readout.task) <= epsilon + 1e-9).all()
    for i, j in itertools.combinations_with_replacement(range(steps + 1), 2):
        other = outputs.attention.clone()
        other[row, places] = torch.tensor([i, j - i, steps - j]).double() / steps
        predicted = decide(other).softmax(-1)
        torch.testing.assert_close(readout.predict(other), predicted, atol=1e-12, rtol=0)
        if prediction_distance(own, predicted, readout.task)[row] <= epsilon:
            far = jensen_shannon(outputs.attention, other, batch.content)[row]
            assert far <= found.upper_bound[row] + 1e-9
            assert not found.is_exact[row] or far <= found.jsd[row] + 1e-6
    assert found.jsd[row] > 0.05
