import torch

from attnprobe.importance.baselines import Random
from tests.importance.subjects import subject_of


def test_belongs_to_the_seed_and_the_example():
    scores = subject_of().scores("random")
    content = subject_of().outputs.content
    torch.testing.assert_close(subject_of(padding=3).scores("random")[:, : content.shape[1]], scores, rtol=0, atol=0)
    assert not torch.equal(subject_of(seed=1).scores("random"), scores)
    assert ((scores[content] > 0) & (scores[content] < 1)).all()


def test_is_spread_evenly():
    subject = subject_of(lengths=[50] * 40)
    values = Random().scores(subject)[subject.outputs.content]
    # 2,000 numbers: the standard error of each share of a quarter is 0.01
    for quarter in range(4):
        inside = ((values >= quarter / 4) & (values < (quarter + 1) / 4)).double().mean()
        assert abs(float(inside) - 0.25) < 0.05
