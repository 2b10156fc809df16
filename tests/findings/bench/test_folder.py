import numpy as np
import pandas as pd
import pytest
import torch

from attnprobe.core.errors import UserError
from attnprobe.findings.bench.folder import (
    BenchFolder,
    packed_probabilities,
    unpacked_probabilities,
)
from tests.toy_bench import toy_model, toy_text, write_bench


def test_a_text_is_read_as_it_was_stored(tmp_path):
    text = toy_text(3)
    bench = BenchFolder(tmp_path)
    bench.add(toy_model(texts=1), [text])
    (stored,) = bench.texts(toy_model())
    assert (stored.words, stored.example_id) == (text.words, text.example_id)
    assert (stored.label, stored.prediction) == (text.label, text.prediction)
    assert stored.deciding.tolist() == text.deciding.tolist()
    assert torch.equal(stored.sets.kept, text.sets.kept)
    for name in ("with_set", "without_set"):
        stored_outcome = getattr(stored.sets, name)
        assert torch.allclose(stored_outcome, getattr(text.sets, name), atol=1e-5)
    # what a word does is known to more digits than any verdict needs
    assert torch.allclose(stored.sets.effects().squared, text.sets.effects().squared, atol=1e-4)


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_probabilities_of_all_classes_come_back(classes):
    outcome = torch.rand(7, classes, dtype=torch.float64).softmax(-1)
    content = packed_probabilities(outcome)
    assert len(content) == 2 * 7 * (classes - 1)
    unpacked = unpacked_probabilities(content, classes)
    assert torch.allclose(unpacked, outcome, atol=1e-4)
    assert torch.allclose(unpacked.sum(-1), torch.ones(7, dtype=torch.float64))


def test_certain_probabilities_come_back_exactly():
    outcome = torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    assert torch.equal(unpacked_probabilities(packed_probabilities(outcome), 2), outcome)


def test_a_model_is_stored_once_and_unsolved_ones_are_not_asked_about(tmp_path):
    bench = write_bench(tmp_path, absence=True)
    bench.add(toy_model(), [toy_text(0)])
    names = [model.name for model in bench.all_models()]
    expected = ["absence--lstm", "parity--lstm", "recency--lstm", "token--cnn", "token--lstm"]
    assert names == expected
    assert "parity--lstm" not in [model.name for model in bench.models()]
    assert [model.name for model in bench.models("token--*")] == expected[3:]
    assert len(bench.texts(toy_model())) == 1


def test_a_damaged_table_of_models_and_a_missing_model_are_named(tmp_path):
    bench = write_bench(tmp_path)
    with pytest.raises(UserError, match=r"runs/token--lstm.* is missing: .*copy the bench again"):
        bench.stored_run("token--lstm")
    (tmp_path / "models.parquet").write_bytes(b"junk")
    with pytest.raises(UserError, match=r"models.parquet cannot be read: .*copy the bench again"):
        bench.models()


def test_a_folder_without_a_bench_says_where_to_get_one(tmp_path):
    with pytest.raises(UserError, match=r"holds no bench: expected .*models.parquet.*--data"):
        BenchFolder.open(tmp_path)


def test_a_pattern_of_no_model_names_some(tmp_path):
    bench = write_bench(tmp_path)
    with pytest.raises(UserError, match=r"models=gru: no model .*: expected .*token--lstm"):
        bench.models("gru")


def test_another_format_is_refused(tmp_path):
    bench = write_bench(tmp_path)
    path = tmp_path / "models.parquet"
    pd.read_parquet(path).drop(columns="half").to_parquet(path)
    with pytest.raises(UserError, match="has no column half: expected a bench of this version"):
        bench.models()


@pytest.mark.parametrize("content", [b"", b"PAR1 cut off"])
def test_damaged_texts_are_one_line(tmp_path, content):
    bench = write_bench(tmp_path)
    (tmp_path / "texts" / "token--lstm.parquet").write_bytes(content)
    with pytest.raises(UserError, match=r"token--lstm.parquet cannot be read: .*copy the bench"):
        bench.texts(toy_model())


def test_attention_keeps_its_order(tmp_path):
    text = toy_text(0)
    object.__setattr__(text, "attention", np.array([0.5, 0.1, 0.1, 0.1, 0.1, 0.1]))
    bench = BenchFolder(tmp_path)
    bench.add(toy_model(), [text])
    assert bench.texts(toy_model())[0].attention == pytest.approx(text.attention)
