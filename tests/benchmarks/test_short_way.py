import re

from benchmarks import short_way
from tests.models.pretrained.families import checkpoint


def test_the_short_way_whole_passes_and_a_loop_by_hand_give_the_same_logits(capsys):
    """The loop is written with `transformers` alone: what replacing attention means does not rest
    on our hooks."""
    short_way.main([str(checkpoint("bert")), "--pieces", "24", "--samples", "2"])
    told = capsys.readouterr().out
    moved = float(re.search(r"standard deviation of the logits (\S+)", told)[1])
    apart = re.findall(r"^(.+): .* from it (\S+)$", told, re.MULTILINE)
    assert [name for name, _ in apart] == ["whole", "short", "by hand"]
    assert max(float(one) for _, one in apart) < 1e-9 < 1e-3 < moved
