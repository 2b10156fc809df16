import pytest
import torch

from attnprobe.nulls.attentions import is_top, top_of
from attnprobe.nulls.erasing import each_erased, each_on_top, erased
from tests.toys import toy_batch, toy_classifier, toy_readout


def by_hand(readout, weights, row, item):
    """The decision's loss and whether it flips, one text and one item."""
    whole = readout.attention.clone()
    whole[row] = weights
    before = readout.predict(whole)[row]
    rest = whole.clone()
    rest[row, item] = 0
    rest[row] /= rest[row].sum()
    after = readout.predict(rest)[row]
    decision = int(before.argmax())
    return float(before[decision] - after[decision]), float(int(after.argmax()) != decision)


@pytest.mark.parametrize("question", [False, True])
def test_every_erasure_and_every_exchange_agree_with_a_loop(question):
    classifier, batch = toy_classifier(spread=4, question=question, classes=3), toy_batch([6, 3], question=question)
    _, readout = toy_readout(classifier, batch)
    top = top_of(readout.attention.unsqueeze(0), readout.content, torch.rand(1, *readout.content.shape))[0]
    each, best = each_erased(readout, readout.attention), each_on_top(readout, readout.attention, top)
    for row, item in readout.content.nonzero().tolist():
        drop, flip = by_hand(readout, readout.attention[row], row, item)
        assert float(each.drop[row, item]) == pytest.approx(drop, abs=1e-12)
        assert float(each.flip[row, item]) == flip
        weights = readout.attention[row].clone()
        weights[item], weights[top[row]] = readout.attention[row, top[row]], readout.attention[row, item]
        drop, flip = by_hand(readout, weights, row, item)
        assert float(best.drop[row, item]) == pytest.approx(drop, abs=1e-12)
        assert float(best.flip[row, item]) == flip
    assert each.drop[~readout.content].isnan().all()
    assert (best.drop.gather(1, top.unsqueeze(1)) == each.drop.gather(1, top.unsqueeze(1))).all()
    assert (is_top(readout.attention, readout.content).gather(1, top.unsqueeze(1))).all()


def test_an_item_with_all_of_the_attention_cannot_be_erased():
    _, readout = toy_readout(toy_classifier(), toy_batch([3]))
    alone = torch.zeros(1, 1, 5, dtype=torch.float64)
    alone[..., 2] = 1
    assert erased(readout, alone, torch.tensor([[2]])).drop.isnan().all()
    assert erased(readout, alone, torch.tensor([[1]])).drop.abs().max() == 0
