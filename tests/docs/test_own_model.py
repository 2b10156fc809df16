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


@pytest.fixture(scope="module")
def runs(names):
    """The run of tensors, and that of the model as it is described."""
    return names["folder"] / "audit" / "run", names["folder"] / "described" / "run"


@pytest.mark.parametrize("metric", ["median_tvd", "max_attention", "predicted_class"])
def test_both_ways_are_the_same_model(runs, metric):
    tensors, described = runs
    numbers = values(tensors, "permutation", metric)
    assert_allclose(numbers, values(described, "permutation", metric), atol=1e-6)


def test_the_tensors_are_of_the_texts(names, runs):
    tensors, _ = runs
    examples = attnprobe.read_examples(tensors)
    assert [list(tokens) for tokens in examples["tokens"]] == names["TEXTS"]
    assert examples["label"].tolist() == names["LABELS"]
    assert values(tensors, "performance", "accuracy").item() == 1.0


TEXT = 5


def test_leave_one_out_is_what_the_plain_model_says_without_the_word(names, runs):
    import torch

    _, described = runs
    network = names["mine"]
    padded = names["ids"][TEXT]
    ids = padded[padded > 0]

    @torch.no_grad()
    def says(words):
        _, _, logits = network(words[None])
        return logits.softmax(-1)

    expected = []
    for place in range(1, len(ids) - 1):
        shortened = torch.cat([ids[:place], ids[place + 1 :]])
        change = says(shortened) - says(ids)
        expected.append(change.abs().sum().item() / 2)

    table = attnprobe.read_results(described, probe="leave_one_out")
    is_of_text = (table["metric"] == "leave_one_out") & (table["example_id"] == TEXT)
    distances = table[is_of_text].sort_values("step")["value"]
    assert_allclose(distances, expected, atol=1e-5)


def test_the_network_is_left_as_it_was(names):
    import torch

    network = names["mine"]
    assert network.training
    assert {parameter.dtype for parameter in network.parameters()} == {torch.float32}
