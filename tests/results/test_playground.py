from attnprobe.results.directory import PLAYGROUND, RunDirectory
from attnprobe.results.playground import read_playground, write_playground
from attnprobe.results.table import read_examples
from tests.invented_runs import invented_run
from tests.small_runs import seal_again


def test_what_fits_is_read(tmp_path):
    run = invented_run(tmp_path, "a", classes=2, count=6, probes=("performance", "permutation"))
    examples = read_examples(run)
    text = examples[examples["tokens"].map(len) > 2].iloc[0]
    length = len(text["tokens"])
    weights = [1.0, *[0.0] * (length - 1)]
    row = {
        "example_id": int(text["example_id"]),
        "attention": weights,
        "position_logits": [0.0, 1.0] * length,
        "epsilon": 0.05,
        "farthest": weights[::-1],
        "jsd": 0.6,
        "upper_bound": 0.6,
        "is_exact": True,
        "flipping": [False] * length,
        "flips_to": -1,
    }
    write_playground([row], run / PLAYGROUND)
    seal_again(run)
    assert read_playground(RunDirectory(run)) == [row]
