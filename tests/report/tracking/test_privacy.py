"""What leaves with log_text=false: numbers, and no word or class of the data."""

import json
import re

import pandas as pd
import pyarrow.parquet as pq

from attnprobe.report import tracking as log
from attnprobe.results.table import read_examples
from attnprobe.runs.run import run
from tests.report.tracking.sent import artifacts_of, everything_sent, of_run, summary_of
from tests.runs import seal_again, small_run


def test_without_text_no_word_leaves(offline, tmp_path):
    """Words of the data, the names of the classes and the questions' words, in whatever file W&B would send."""
    overrides = ("task=qa", "data=stories", "data.source.train_size=60", "data.source.validation_size=20")
    directory = run(small_run(tmp_path / "runs", *overrides, "figures=false", probes="[permutation,gradient]"))
    log.log_run(directory, project="attention", mode="offline", log_text=False)
    words = set(json.loads((directory / "vocabulary.json").read_text())) - {"<PAD>", "<UNK>", "<SOS>", "<EOS>"}
    long = {word.encode() for word in words if len(word) > 5}
    assert len(long) > 5
    (folder,) = directory.glob("wandb/offline-run-*")
    sent = artifacts_of(of_run(directory))
    content = everything_sent(directory, offline)
    assert not {word for word in long if re.search(rb"\b" + re.escape(word) + rb"\b", content)}
    assert b'title="0: 0' in content  # positions stand where the words would
    assert not list(folder.rglob("*heatmaps*"))
    assert {path.name for path in directory.glob("*.json")} >= {"vocabulary.json"}  # nothing is lost here
    assert "vocabulary.json" not in sent["model"]
    assert pq.read_table(sent["results"]["examples/test.parquet"]).num_rows == len(read_examples(directory))


def test_without_text_no_class_name_leaves_in_keys_warnings_tables_figures_or_files(make_run, offline):
    run = make_run(count=40, names=["thumbs-down", "uplifting"])
    (run / "pipeline.json").write_text(json.dumps({"classes": ["thumbs-down", "uplifting"]}))
    path = run / "examples/test.parquet"
    pd.read_parquet(path).assign(prediction=1, label=1).to_parquet(path)
    seal_again(run)
    log.log_run(run, project="attention", mode="offline", log_text=False)
    assert b"uplifting" in (run / "manifest.json").read_bytes()
    summary = summary_of(run)
    assert "one class for every text (name not logged)" in summary["performance/warning",]
    assert ("adversarial/found_jsd/class_1",) in summary
    content = everything_sent(run, offline)
    assert b"name not logged" in content
    assert b"thumbs" not in content
    assert b"uplifting" not in content
