import pytest
import torch
from torch.testing import assert_close

from attnprobe.importance.leave_one_out.changed_states import factored_score
from attnprobe.importance.leave_one_out.recombine import SoftmaxAccumulator
from attnprobe.importance.leave_one_out.recurrent import product_with
from attnprobe.models.attention import AdditiveAttention, UniformAttention
from tests.importance.leave_one_out.loops import subject


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rows", [0, 127, 128, 500])
def test_a_product_by_convolution_is_the_matrix_product(rows, dtype):
    generator = torch.Generator().manual_seed(rows)
    vectors = torch.randn(rows, 128, generator=generator, dtype=dtype)
    matrix = torch.randn(128, 512, generator=generator, dtype=dtype)
    expected = vectors.double() @ matrix.double()
    product = product_with(matrix)(vectors)
    near = 1e-12 if dtype == torch.float64 else 1e-4
    assert_close(product, expected.to(dtype), atol=near, rtol=0)


class Squared(AdditiveAttention):
    positionwise = True

    def forward(self, hidden, query=None):
        return super().forward(hidden, query) ** 2


@pytest.mark.parametrize("question", [False, True])
@pytest.mark.parametrize("attention", ["additive", "dot", UniformAttention, Squared])
def test_a_layer_and_a_score_give_the_attentions_own_scores(attention, question):
    classifier, _, outputs = subject(attention=attention, question=question)
    states = outputs.hidden.flatten(0, 1)
    query = None
    if outputs.query is not None:
        query = outputs.query.repeat_interleave(outputs.hidden.shape[1], 0)
    layer, score = factored_score(classifier.attention, outputs.hidden)
    projected_states = torch.nn.functional.linear(states, *layer)
    scores = score(projected_states, query).view(outputs.scores.shape)
    expected = classifier.attention(outputs.hidden, outputs.query)
    assert_close(scores, expected, atol=1e-12, rtol=0)
    # an affine layer of its own is narrower than the state
    is_factored = attention == "additive"
    if not question:
        is_factored |= attention == "dot"
    is_narrower = len(layer.bias) < states.shape[1]
    assert is_narrower == is_factored


def means_under(scores, values):
    """The mean of the values under the softmax of their scores."""
    weights = scores.softmax(-1)
    return torch.einsum("tp,tpv->tv", weights, values)


@pytest.mark.parametrize("cut", [0, 4, 9])
@pytest.mark.parametrize("limit", [1, 7, 10**6])
def test_means_of_positions_in_any_order_and_number_and_of_two_parts_merged(
    limit, cut, monkeypatch
):
    monkeypatch.setattr(SoftmaxAccumulator, "LIMIT", limit)
    generator = torch.Generator().manual_seed(cut)
    scores = torch.randn(3, 9, generator=generator, dtype=torch.float64)
    scores *= 400  # exp of the largest overflows
    values = torch.randn(3, 9, 2, generator=generator, dtype=torch.float64)

    last_part = SoftmaxAccumulator.empty(3, 2, scores.device)
    positions = cut + torch.randperm(9 - cut, generator=generator)
    for position in positions.tolist():
        text = torch.randperm(3, generator=generator)
        last_part.add(text, scores[text, position], values[text, position])
    no_weight = torch.tensor([-torch.inf]).double()
    ones = torch.ones(1, 2).double()
    last_part.add(torch.tensor([1]), no_weight, ones)

    first_scores = scores[:, :cut]
    first_means = means_under(first_scores, values[:, :cut])
    merged = last_part.means(first_scores.logsumexp(-1), first_means)
    expected = means_under(scores, values)
    assert_close(merged, expected)
