import pytest
import torch

from attnprobe.importance.leave_one_out.changed_states import factored_score
from attnprobe.models.attention import AdditiveAttention, UniformAttention
from tests.importance.leave_one_out.loops import subject


class Squared(AdditiveAttention):
    positionwise = True

    def forward(self, hidden, query=None):
        return super().forward(hidden, query) ** 2


@pytest.mark.parametrize("question", [False, True])
@pytest.mark.parametrize("attention", ["additive", "dot", UniformAttention, Squared])
def test_a_layer_and_a_score_give_the_attentions_own_scores(attention, question):
    classifier, _, outputs = subject(attention=attention, question=question)
    layer, score = factored_score(classifier.attention, outputs.hidden)
    states = outputs.hidden.flatten(0, 1)
    query = None if outputs.query is None else outputs.query.repeat_interleave(outputs.hidden.shape[1], 0)
    found = score(torch.nn.functional.linear(states, *layer), query).view(outputs.scores.shape)
    torch.testing.assert_close(found, classifier.attention(outputs.hidden, outputs.query), atol=1e-12, rtol=0)
    # an affine layer of its own is narrower than the state
    own = attention == "additive" or (attention == "dot" and not question)
    assert (len(layer.bias) < states.shape[1]) == own
