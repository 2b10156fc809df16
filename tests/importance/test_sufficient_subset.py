import torch

from attnprobe.importance.perturbation import SufficientSubset
from tests.importance.attributions import additive_subject, contextual_subject, words_shares


def test_on_an_additive_model_words_go_from_the_least_to_the_most():
    subject = additive_subject()
    for row, content in enumerate(subject.batch.content):
        order = words_shares(subject)[row][content].argsort().argsort() + 1
        torch.testing.assert_close(subject.scores("sufficient_subset")[row][content], order.double() / content.sum())


def test_it_is_a_greedy_loop():
    subject = contextual_subject()
    one = SufficientSubset()
    explained, text = one.explained(subject), torch.tensor([1])
    places = subject.batch.content[1].nonzero()[:, 0].tolist()
    left, expected = list(places), {}
    while left:
        values = []
        for place in left:
            inputs = explained.inputs[1:2].clone()
            inputs[0, [other for other in places if other not in left or other == place]] = 0
            values.append(explained(inputs, text).item())
        left.remove(gone := left[values.index(max(values))])
        expected[gone] = (len(expected) + 1) / len(places)
    found = subject.scores("sufficient_subset")[1]
    assert found[places].tolist() == [expected[place] for place in places]
