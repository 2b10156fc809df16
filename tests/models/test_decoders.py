import itertools

import pytest
import torch
from torch.testing import assert_close

from attnprobe.core.errors import UserError
from attnprobe.exact import smallest_flipping_set
from attnprobe.models.decoders import AdditiveDecoder, LinearDecoder
from tests.toys import toy_batch, toy_classifier, toy_readout

LENGTHS = [4, 3, 1, 4, 4, 3]


def additive_decoder(classes):
    """A decoder of vectors of five numbers with a question of three, and such a vector and
    question."""
    decoder = AdditiveDecoder(5, classes, query_size=3).double()
    vectors = torch.randn(2, 5, dtype=torch.float64)
    queries = torch.randn(2, 3, dtype=torch.float64)
    return decoder, vectors, queries


@pytest.mark.parametrize("classes", [2, 4])
def test_the_additive_decoder_adds_what_text_and_question_say(classes):
    decoder, vectors, queries = additive_decoder(classes)
    text = vectors @ decoder.output.weight.T + decoder.output.bias
    question = queries @ decoder.question.weight.T
    expected = text + question
    if classes == 2:
        expected = torch.cat([torch.zeros(2, 1), expected], -1)
    assert_close(decoder(vectors, queries), expected)


@pytest.mark.parametrize("classes", [2, 4])
def test_a_question_that_says_nothing_leaves_the_linear_decoder(classes):
    decoder, vectors, queries = additive_decoder(classes)
    torch.nn.init.zeros_(decoder.question.weight)
    plain = LinearDecoder(5, classes).double()
    plain.load_state_dict(decoder.state_dict(), strict=False)
    assert_close(decoder(vectors, queries), plain(vectors), rtol=0, atol=0)


def test_the_additive_decoder_needs_a_question():
    with pytest.raises(UserError, match="model/decoder=linear"):
        AdditiveDecoder(5, 2)


class Questioned:
    """A classifier whose decoder is additive, on a batch: its outputs, its readout, and its
    decisions under any attention."""

    def __init__(self, classes, *, candidates, seed):
        self.batch = toy_batch(LENGTHS, question=True, classes=classes, padding=1)
        if candidates:
            self.batch.candidates = torch.ones(len(LENGTHS), classes).bool()
            self.batch.candidates[::2, 0] = False
            self.batch.candidates[1::2, -1] = False
        self.classifier = toy_classifier(classes=classes, question="additive", spread=6, seed=seed)
        self.outputs, self.readout = toy_readout(self.classifier, self.batch)

    @torch.no_grad()
    def logits(self, attention):
        return self.classifier.decoder.decode(
            self.outputs.hidden,
            attention,
            self.outputs.query,
            self.batch.candidates,
        )

    def smallest_set(self, row):
        """The size of the smallest set of words without which a text is decided otherwise, found by
        trying all of them; −1: there is none."""
        attention = self.outputs.attention
        words = self.batch.content[row].nonzero().flatten().tolist()
        decision = self.logits(attention)[row].argmax()
        for size in range(1, len(words)):
            for erased in itertools.combinations(words, size):
                remaining = attention.clone()
                remaining[row, erased] = 0
                weights = remaining / remaining.sum(-1, keepdim=True)
                if self.logits(weights)[row].argmax() != decision:
                    return size
        return -1


CASES = pytest.mark.parametrize(("classes", "candidates"), [(2, False), (3, False), (4, True)])


@CASES
@pytest.mark.parametrize("seed", range(8))
def test_the_readout_of_an_additive_decoder_predicts_as_the_decoder_does(classes, candidates, seed):
    model = Questioned(classes, candidates=candidates, seed=seed)
    content = model.batch.content.double()
    even = content / content.sum(-1, keepdim=True)
    attention = model.outputs.attention
    for weights in (attention, even, (attention + even) / 2):
        prediction = model.logits(weights).softmax(-1)
        assert_close(model.readout.predict(weights), prediction, atol=1e-12, rtol=0)


@CASES
def test_the_smallest_flipping_sets_are_those_of_all_sets(classes, candidates):
    sizes = set()
    for seed in range(8):
        model = Questioned(classes, candidates=candidates, seed=seed)
        readout = model.readout
        sets = smallest_flipping_set(readout.attention, readout.position_logits, readout.content)
        expected = [model.smallest_set(row) for row in range(len(LENGTHS))]
        assert sets.size.tolist() == expected
        sizes |= {*expected}
    assert {-1, 1, 2} <= sizes
