import torch

from attnprobe.exact.subsets import shapley_values
from attnprobe.importance.perturbation import ShapleySampling
from tests.importance.attributions import additive_subject, contextual_subject, words_shares


def table_of(subject, row):
    """What is explained, for every set of words kept, by bit mask: a plain loop."""
    one = subject.importance("shapley_sampling")
    explained, words = one.explained(subject), int(subject.batch.content[row].sum())
    values = []
    for mask in range(2**words):
        inputs = explained.inputs[row : row + 1].clone()
        gone = [place for place in range(words) if not mask >> place & 1]
        inputs[0, subject.batch.content[row].nonzero()[gone, 0]] = 0
        values.append(explained(inputs, torch.tensor([row])).item())
    return torch.tensor([values], dtype=torch.float64)


def test_on_an_additive_model_it_is_what_each_word_adds():
    subject = additive_subject()
    torch.testing.assert_close(subject.scores("shapley_sampling"), words_shares(subject), rtol=1e-5, atol=1e-6)


def test_it_nears_the_shapley_values():
    subject = contextual_subject(importances={"shapley_sampling": ShapleySampling(samples=400)})
    exact = shapley_values(table_of(subject, 0))[0]
    found = subject.scores("shapley_sampling")[0][subject.batch.content[0]]
    assert (found - exact).abs().max() < 0.1 * exact.abs().max()


def test_the_scores_of_any_orders_add_up():
    subject = contextual_subject(importances={"shapley_sampling": ShapleySampling(samples=2)})
    total = subject.importance("shapley_sampling").total(subject)
    torch.testing.assert_close(subject.scores("shapley_sampling").sum(-1), total, rtol=1e-5, atol=1e-5)
