"""Some hundred generated command lines and data files; `make fuzz` makes 10,000 of each."""

from attnprobe.data.module import TextDataModule
from attnprobe.data.sources import TestbedSource
from tests.fuzz import files, overrides


def small_data() -> TextDataModule:
    data = TextDataModule(
        "testbed",
        TestbedSource(train_size=60, validation_size=20, test_size=20),
        tokenizer="whitespace",
        embedding_size=8,
    )
    data.setup("fit")
    return data


def test_every_command_line_is_a_run_or_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ATTNPROBE_DATA_DIR", raising=False)
    assert overrides.failures(100, small_data(), seed=1) == []


def test_every_file_is_a_data_set_or_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("TQDM_DISABLE", "1")
    assert files.failures(100, tmp_path, seed=1) == []
