import torch

from attnprobe.exact.subsets import shapley_values
from attnprobe.importance.perturbation import KernelShap
from tests.importance.attributions import additive_subject, contextual_subject, words_shares
from tests.importance.test_shapley_sampling import table_of


def test_on_an_additive_model_it_is_what_each_word_adds():
    subject = additive_subject()
    torch.testing.assert_close(subject.scores("kernel_shap"), words_shares(subject), rtol=1e-4, atol=1e-4)


def test_it_nears_the_shapley_values():
    subject = contextual_subject(importances={"kernel_shap": KernelShap(samples=4000)})
    exact = shapley_values(table_of(subject, 0))[0]
    found = subject.scores("kernel_shap")[0][subject.batch.content[0]]
    assert (found - exact).abs().max() < 0.05 * exact.abs().max()


def test_the_scores_add_up():
    subject = contextual_subject()
    total = subject.importance("kernel_shap").total(subject)
    torch.testing.assert_close(subject.scores("kernel_shap").sum(-1), total, rtol=1e-3, atol=1e-3)
