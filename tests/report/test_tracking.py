import json
import struct
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import wandb
from wandb.proto import wandb_internal_pb2

from attnprobe.errors import UserError
from attnprobe.report import tracking
from attnprobe.results import read_examples, read_results

BLOCK, HEADER = 32768, 7


def records(path: Path) -> list[wandb_internal_pb2.Record]:
    """The records of a .wandb file: a LevelDB log (blocks of 32 KiB; crc, length, type) after 7 bytes of its own."""
    content, at, pieces, found = path.read_bytes(), HEADER, b"", []
    while at + HEADER <= len(content):
        left = BLOCK - at % BLOCK
        if left < HEADER:
            at += left
            continue
        _, length, kind = struct.unpack("<IHB", content[at : at + HEADER])
        pieces += content[at + HEADER : at + HEADER + length]
        at += HEADER + length
        if kind in (1, 4):  # whole, or last piece
            record = wandb_internal_pb2.Record()
            record.ParseFromString(pieces)
            found.append(record)
            pieces = b""
    return found


def finished_records(path: Path) -> list[wandb_internal_pb2.Record]:
    """The records once the last one is there: W&B's own process writes them out a moment after `finish()`."""
    for _ in range(200):
        found = records(path)
        if found and found[-1].WhichOneof("record_type") == "exit":
            return found
        time.sleep(0.1)
    raise AssertionError(f"{path} has no end: {[record.WhichOneof('record_type') for record in found]}")


def values(items: Iterable[Any]) -> dict[tuple[str, ...], Any]:
    """The items of a history or summary by their key's parts."""
    return {tuple(item.nested_key) or (item.key,): json.loads(item.value_json) for item in items}


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WANDB_MODE", "WANDB_RUN_GROUP", "WANDB_TAGS", "WANDB_DIR", "WANDB_NAME"):
        monkeypatch.delenv(name, raising=False)


def test_an_offline_run_holds_numbers_tables_figures_config_group_and_tags(make_run, offline):
    run = make_run("jain/sst #1", count=20)
    tracking.log_run(run, project="attention", mode="offline", log_text=True)
    assert wandb.run is None  # finished, so that the next run of this process is another one
    (path,) = run.glob("wandb/offline-run-*/*.wandb")
    written = finished_records(path)
    (start,) = [r.run for r in written if r.WhichOneof("record_type") == "run"]
    assert start.project == "attention"
    assert start.run_group == "jain_adversarial"
    assert start.job_type == "sst-lstm_additive"
    assert set(start.tags) == {"sst", "lstm_additive", "seed-0", "performance", "permutation", "adversarial"}
    config = {item.key: json.loads(item.value_json) for item in start.config.update}
    assert config["data"] == {"name": "sst"}
    history = values(item for r in written if r.WhichOneof("record_type") == "history" for item in r.history.item)
    assert history["adversarial/found_jsd",] > 0
    assert history["tables/adversarial", "_type"] == "table-file"
    assert history["tables/adversarial", "nrows"] == 20
    assert history["figures/adversarial_heatmaps", "_type"] == "image-file"
    assert (path.parent / "files" / history["figures/permutation", "path"]).stat().st_size > 1000
    examples = json.loads((path.parent / "files" / history["tables/examples_test", "path"]).read_text())
    assert "text" in examples["columns"]
    summary = values(item for r in written if r.WhichOneof("record_type") == "summary" for item in r.summary.update)
    assert summary["performance/accuracy_published",] == pytest.approx(0.808116)
    assert summary["adversarial/found_jsd/class_1_low",] < summary["adversarial/found_jsd/class_1",]


def test_without_text_no_word_reaches_the_files(make_run, offline):
    run = make_run("quiet", count=12)
    tracking.log_run(run, project="attention", mode="offline", group="mine", log_text=False)
    (folder,) = run.glob("wandb/offline-run-*")
    written = finished_records(next(folder.glob("*.wandb")))
    content = b"".join(path.read_bytes() for path in folder.rglob("*") if path.suffix in (".wandb", ".json"))
    for word in ("moving", "_under_", "[red]bold[/red]"):
        assert word.encode() not in content
    assert not list(folder.rglob("*heatmaps*"))
    (start,) = [r.run for r in written if r.WhichOneof("record_type") == "run"]
    assert start.run_group == "mine"


def test_probe_tables_are_one_row_per_example(make_run):
    results = read_results(make_run(count=9))
    table = tracking.probe_table(results, "adversarial")
    assert len(table) == 9
    assert table["example_id"].tolist() == list(range(9))
    row = results[(results["metric"] == "optimum_jsd") & (results["example_id"] == 4)]
    assert table.loc[4, "optimum_jsd"] == row["value"].item()
    assert "found_attention" not in table
    assert tracking.probe_table(results, "performance").empty


def test_lists_become_cells(make_run):
    examples = read_examples(make_run(count=5))
    table = tracking.example_table(examples, log_text=True)
    assert table["tokens"].tolist() == examples["text"].tolist()
    assert table["probability"][0].startswith("[0.")
    assert table["label"].tolist() == examples["label"].tolist()
    assert set(tracking.example_table(examples, log_text=False)) == set(examples) - {"text", "tokens"}
    several = pd.DataFrame({"label": [[0, 1], [1, 1]]})
    assert tracking.example_table(several, log_text=True)["label"].tolist() == ["[0, 1]", "[1, 1]"]


def test_an_unfinished_run_or_an_unreachable_service_is_a_users_error(make_run, tmp_path, monkeypatch):
    with pytest.raises(UserError, match="no finished run"):
        tracking.log_run(tmp_path / "nothing", project="p", mode="offline")
    with pytest.raises(UserError, match="hold no numbers"):
        tracking.log_run(make_run("bare", probes=()), project="p", mode="offline")

    def refuse(**given):
        raise wandb.Error("no API key configured")

    monkeypatch.setattr(tracking.wandb, "init", refuse)
    with pytest.raises(UserError, match=r"no API key configured.*wandb login.*mode=offline"):
        tracking.log_run(make_run(), project="p")


def test_the_run_is_finished_even_where_logging_fails(make_run, monkeypatch, offline):
    def fail(*given, **named):
        raise RuntimeError("disk full")

    monkeypatch.setattr(tracking, "draw_figures", fail)
    with pytest.raises(RuntimeError, match="disk full"):
        tracking.log_run(make_run(count=5), project="p", mode="offline")
    assert wandb.run is None


def test_names_that_wandb_refuses_are_put_right():
    identity = {"data": "d" * 80, "model": "m", "seed": "3"}
    words = tracking.tags(identity, ["permutation", "m"])
    assert words == ["d" * 63 + "…", "m", "seed-3", "permutation"]
    assert tracking.identifier("a/b:c") == "a-b-c"
