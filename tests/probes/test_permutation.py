from itertools import permutations

import pytest
import torch
from numpy.testing import assert_allclose

from attnprobe.core.randomness import Draws
from attnprobe.exact.nulls import permute_attention
from attnprobe.probes.permutation import Permutation
from benchmarks import reference
from tests.probes.tables import values
from tests.toys import toy_batch, toy_classifier, toy_readout


def test_every_permutation_of_the_content_comes_up_equally_often():
    content = torch.tensor([[False, True, True, True, False]])
    attention = torch.tensor([[0.0, 0.5, 0.3, 0.2, 0.0]])
    noise = Draws(0, "x").uniform(6000, content, torch.tensor([0]))
    permuted = permute_attention(attention, content, noise)
    assert (permuted[..., [0, 4]] == 0).all()
    orders = [tuple(row) for row in permuted[:, 0, 1:4].tolist()]
    counts = [orders.count(order) for order in permutations(attention[0, 1:4].tolist())]
    assert sum(counts) == 6000
    assert min(counts) > 850  # 1000 expected each, standard deviation 29


def test_median_over_all_permutations_of_a_short_text_by_hand():
    classifier = toy_classifier(spread=4)
    batch = toy_batch([3])
    outputs, readout = toy_readout(classifier, batch)
    weights = readout.attention[0, 1:4].tolist()
    original = outputs.logits.softmax(-1)
    distances = []
    for order in permutations(weights):
        attention = torch.zeros_like(readout.attention)
        attention[0, 1:4] = torch.tensor(order, dtype=torch.float64)
        permuted = classifier.decoder.decode(outputs.hidden, attention).softmax(-1)
        distances.append(float((permuted - original).abs().sum().detach()) / 2)
    # 6 equally likely outcomes: with 999 samples the sample median is one of the middle two
    low, high = sorted(distances)[2:4]
    median = float(values(Permutation(999), readout)["median_tvd"])
    assert low - 1e-12 <= median <= high + 1e-12


@pytest.mark.parametrize("question", [False, True])
def test_agrees_with_the_published_loop_in_distribution(question):
    classifier = toy_classifier(spread=4, question=question, classes=3)
    batch = toy_batch([6, 9, 4, 7], question=question)
    outputs, readout = toy_readout(classifier, batch)
    ours = values(Permutation(2000), readout)["median_tvd"]
    torch.manual_seed(0)
    theirs = reference.permutation(
        classifier, outputs.hidden, batch.content, samples=2000, query=outputs.query
    )
    assert_allclose(ours, theirs, rtol=0.12)


def test_one_word_leaves_nothing_to_permute():
    result = values(Permutation(), toy_readout(toy_classifier(), toy_batch([1]))[1])
    assert float(result["median_tvd"]) == 0
