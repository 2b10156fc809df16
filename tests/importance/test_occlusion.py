import pytest
import torch

from attnprobe.core.errors import UserError
from attnprobe.importance.perturbation import Occlusion
from tests.importance.attributions import additive_subject, contextual_subject, words_shares


def test_on_an_additive_model_it_is_what_each_word_adds():
    subject = additive_subject()
    torch.testing.assert_close(subject.scores("occlusion"), words_shares(subject), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("window", [1, 3])
def test_it_is_a_loop_over_the_windows(window):
    subject = contextual_subject(importances={"occlusion": Occlusion(window=window)})
    one = subject.importance("occlusion")
    explained, content = one.explained(subject), subject.batch.content
    for row in range(len(content)):
        places, text = content[row].nonzero()[:, 0], torch.tensor([row])
        whole = explained(explained.inputs[row : row + 1], text)
        width = min(window, len(places))
        total, times = torch.zeros(len(places)).double(), torch.zeros(len(places))
        for start in range(len(places) - width + 1):
            inputs = explained.inputs[row : row + 1].clone()
            inputs[0, places[start : start + width]] = 0
            total[start : start + width] += whole.item() - explained(inputs, text).item()
            times[start : start + width] += 1
        torch.testing.assert_close(subject.scores("occlusion")[row][content[row]], total / times, rtol=1e-5, atol=1e-6)


def test_no_window_is_refused():
    with pytest.raises(UserError, match=r"occlusion.window=0: expected .* at least 1"):
        Occlusion(window=0)
