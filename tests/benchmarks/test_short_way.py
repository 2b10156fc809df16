import re

from benchmarks import short_way
from tests.models.pretrained.families import checkpoint


def test_the_short_way_whole_passes_and_a_loop_by_hand_give_the_same_logits(capsys):
    """The loop is written with `transformers` alone: what replacing attention means does not rest
    on our hooks."""
    short_way.main([str(checkpoint("bert")), "--pieces", "24", "--samples", "2"])

    printed = capsys.readouterr().out
    deviation = re.search(r"standard deviation of the logits (\S+)", printed)
    differences = dict(re.findall(r"^(.+): .* from it (\S+)$", printed, re.MULTILINE))
    assert list(differences) == ["whole", "short", "by hand"]
    assert max(map(float, differences.values())) < 1e-9
    assert float(deviation[1]) > 1e-3
