import re
from pathlib import Path

import pytest
from numpy.testing import assert_allclose

import attnprobe

PAGE = (Path(__file__).parents[2] / "docs" / "own_model.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    """What the page's code defines, run in order; pages are left out."""
    folder = tmp_path_factory.mktemp("own")
    defined = {"__name__": "own_model"}
    code = "\n".join(re.findall(r"^```python\n(.*?)^```", PAGE, re.M | re.S))
    code = re.sub(r'output="(\w+)"', rf'output="{folder}/\1", page=False', code)
    exec(compile(code, "docs/own_model.md", "exec"), defined)
    return defined | {"folder": folder}


def values(run, probe, metric):
    table = attnprobe.read_results(run, probe=probe)
    return table[table["metric"] == metric].set_index("example_id")["value"].sort_index()


def test_both_ways_are_the_same_model(names):
    tensors, described = (names["folder"] / name / "run" for name in ("audit", "described"))
    assert values(tensors, "performance", "accuracy").item() == 1.0
    for metric in ("median_tvd", "max_attention", "predicted_class"):
        tensor_values, described_values = (
            values(run, "permutation", metric) for run in (tensors, described)
        )
        assert_allclose(tensor_values, described_values, atol=1e-6)
    examples = attnprobe.read_examples(tensors)
    assert [list(row) for row in examples["tokens"]] == names["TEXTS"]
    assert examples["label"].tolist() == names["LABELS"]


def test_leave_one_out_is_what_the_plain_model_says_without_the_word(names):
    import torch

    run = names["folder"] / "described" / "run"
    network = names["mine"]
    ids = names["ids"]
    table = attnprobe.read_results(run, probe="leave_one_out")
    rows = table[(table["metric"] == "leave_one_out") & (table["example_id"] == 5)].sort_values(
        "step"
    )["value"]
    text = ids[5][ids[5] > 0]
    without = [torch.cat([text[:at], text[at + 1 :]])[None] for at in range(1, len(text) - 1)]
    with torch.no_grad():
        whole, *reduced = (network(words)[2].softmax(-1) for words in (text[None], *without))
    expected = [float((prediction - whole).abs().sum() / 2) for prediction in reduced]
    assert_allclose(rows, expected, atol=1e-5)

    # the network is left as it was
    assert network.training
    assert {parameter.dtype for parameter in network.parameters()} == {torch.float32}
