import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge

from attnprobe.core.errors import UserError
from attnprobe.importance.attribution import Explained
from attnprobe.importance.perturbation import Lime
from tests.importance.attributions import additive_subject, contextual_subject, words_shares


def test_on_an_additive_model_the_regression_finds_what_each_word_adds():
    subject = additive_subject(importances={"lime": Lime(alpha=1e-9)})
    torch.testing.assert_close(subject.scores("lime"), words_shares(subject), rtol=1e-5, atol=1e-5)


def test_it_is_the_weighted_ridge_regression_on_its_own_draws(monkeypatch):
    one, seen, keeping = Lime(samples=60), [], Explained.keeping

    def watched(self, kept):
        seen.append(kept.clone())
        return keeping(self, kept)

    monkeypatch.setattr(Explained, "keeping", watched)
    subject = contextual_subject(lengths=[9], importances={"lime": one})
    found = subject.scores("lime")[0][subject.batch.content[0]]
    (kept,) = [part.numpy() for part in seen if len(part) == 60]
    assert 0.4 < kept.mean() < 0.6
    cosine = kept.sum(1) / np.maximum(np.sqrt(9 * kept.sum(1)), 1e-8)
    weight = np.exp(-((1 - cosine) ** 2) / (2 * 0.25**2))
    target = keeping(one.explained(subject).alone(0), torch.tensor(kept)).numpy()
    np.testing.assert_allclose(found.numpy(), Ridge(alpha=1.0).fit(kept, target, weight).coef_, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("setting", "value"), [("width", 0.0), ("alpha", 0.0), ("samples", 0)])
def test_a_setting_of_0_or_less_is_refused(setting, value):
    with pytest.raises(UserError, match=rf"importance.lime.{setting}={value}: expected"):
        Lime(**{setting: value})
