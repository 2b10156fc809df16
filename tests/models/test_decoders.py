import itertools

import pytest
import torch

from attnprobe.core.errors import UserError
from attnprobe.exact import smallest_flipping_set
from attnprobe.models.decoders import AdditiveDecoder, LinearDecoder
from tests.toys import toy_batch, toy_classifier, toy_readout

LENGTHS = [4, 3, 1, 4, 4, 3]


def asked(classes, *, candidates=False, seed=0):
    """A classifier whose decoder is additive, a batch, its outputs, its readout, and its decisions
    under any attention."""
    batch = toy_batch(LENGTHS, question=True, classes=classes, padding=1)
    if candidates:
        batch.candidates = torch.ones(len(LENGTHS), classes).bool()
        batch.candidates[::2, 0] = batch.candidates[1::2, -1] = False
    classifier = toy_classifier(classes=classes, question="additive", spread=6, seed=seed)
    outputs, readout = toy_readout(classifier, batch)

    def decide(attention):
        with torch.no_grad():
            return classifier.decoder.decode(
                outputs.hidden, attention, outputs.query, batch.candidates
            )

    return batch, outputs, readout, decide


@pytest.mark.parametrize("classes", [2, 4])
def test_it_adds_what_text_and_question_say(classes):
    decoder = AdditiveDecoder(5, classes, query_size=3).double()
    v = torch.randn(2, 5).double()
    q = torch.randn(2, 3).double()
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
        even = batch.content.double() / batch.content.sum(-1, keepdim=True)
        for attention in (outputs.attention, even, (outputs.attention + even) / 2):
            predicted = decide(attention).softmax(-1)
            torch.testing.assert_close(readout.predict(attention), predicted, atol=1e-12, rtol=0)
        found = smallest_flipping_set(readout.attention, readout.position_logits, readout.content)
        decided = decide(outputs.attention).argmax(-1)
        for row, content in enumerate(batch.content):
            places = content.nonzero()[:, 0].tolist()
            expected = -1
            for erased in (
                one for n in range(1, len(places)) for one in itertools.combinations(places, n)
            ):
                left = outputs.attention.clone()
                left[row, list(erased)] = 0
                if decide(left / left.sum(-1, keepdim=True))[row].argmax() != decided[row]:
                    expected = len(erased)
                    break
            assert found.size[row] == expected
            sizes.add(expected)
    assert {-1, 1, 2} <= sizes
