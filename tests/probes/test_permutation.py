from collections import Counter
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
    attention = torch.tensor([[0.0, 0.5, 0.3, 0.2, 0.0]], dtype=torch.float64)
    noise = Draws(0, "x").uniform(6000, content, torch.tensor([0]))

    permuted = permute_attention(attention, content, noise).squeeze(1)

    counts = Counter(map(tuple, permuted.tolist()))
    orders = {(0.0, *order, 0.0) for order in permutations([0.5, 0.3, 0.2])}
    assert set(counts) == orders
    assert min(counts.values()) > 850  # 1000 expected each, standard deviation 29


def test_median_over_all_permutations_of_a_short_text_by_hand():
    classifier = toy_classifier(spread=4)
    outputs, readout = toy_readout(classifier, toy_batch([3]))
    original = outputs.logits.softmax(-1)
    distances = []
    for order in permutations([1, 2, 3]):
        attention = readout.attention[:, [0, *order, 4]]
        logits = classifier.decoder.decode(outputs.hidden, attention)
        distance = (logits.softmax(-1) - original).abs().sum() / 2
        distances.append(distance.item())

    median = values(Permutation(999), readout)["median_tvd"].item()

    # 6 equally likely outcomes: with 999 samples the sample median is one of the middle two
    low, high = sorted(distances)[2:4]
    assert low - 1e-12 <= median <= high + 1e-12


@pytest.mark.whole
@pytest.mark.parametrize("question", [False, True])
def test_agrees_with_the_published_loop_in_distribution(question):
    classifier = toy_classifier(spread=4, question=question, classes=3)
    batch = toy_batch([6, 9, 4, 7], question=question)
    outputs, readout = toy_readout(classifier, batch)
    numbers = values(Permutation(2000), readout)
    torch.manual_seed(0)
    medians = reference.permutation(
        classifier,
        outputs.hidden,
        batch.content,
        samples=2000,
        query=outputs.query,
    )
    assert_allclose(numbers["median_tvd"], medians, rtol=0.12)


def test_one_word_leaves_nothing_to_permute():
    _, readout = toy_readout(toy_classifier(), toy_batch([1]))
    numbers = values(Permutation(), readout)
    assert numbers["median_tvd"].item() == 0
