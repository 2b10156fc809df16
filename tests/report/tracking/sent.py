"""What W&B would send: the records of its offline files."""

import json
import struct
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from google.protobuf.message import DecodeError
from wandb.proto import wandb_internal_pb2

BLOCK = 32768
HEADER = 7


def records(path: Path) -> list[wandb_internal_pb2.Record]:
    """The records of a .wandb file: a LevelDB log (blocks of 32 KiB; crc, length, type) after 7
    bytes of its own."""
    content = path.read_bytes()
    at = HEADER
    pieces = b""
    payloads = []
    while at + HEADER <= len(content):
        remainder = BLOCK - at % BLOCK
        if remainder < HEADER:
            at += remainder
            continue
        _, length, kind = struct.unpack("<IHB", content[at : at + HEADER])
        if at + HEADER + length > len(content):  # still being written
            break
        pieces += content[at + HEADER : at + HEADER + length]
        at += HEADER + length
        if kind in (1, 4):  # whole, or last piece
            record = wandb_internal_pb2.Record()
            record.ParseFromString(pieces)
            payloads.append(record)
            pieces = b""
    return payloads


def finished_records(path: Path) -> list[wandb_internal_pb2.Record]:
    """The records once the last one is there: W&B's own process writes them out a moment after
    `finish()`."""
    for _ in range(6000):  # a bound against hanging; a machine under load takes what it takes
        try:
            messages = records(path)
        except DecodeError:  # read in the middle of a write: its end decides, or the last line
            messages = []
        if messages and messages[-1].WhichOneof("record_type") == "exit":
            return messages
        time.sleep(0.1)
    raise AssertionError(
        f"{path} has no end: {[record.WhichOneof('record_type') for record in messages]}"
    )


def values(items: Iterable[Any]) -> dict[tuple[str, ...], Any]:
    """The items of a history or summary by their key's parts."""
    return {tuple(item.nested_key) or (item.key,): json.loads(item.value_json) for item in items}


def of_kind(written: list[wandb_internal_pb2.Record], kind: str) -> list[Any]:
    return [getattr(record, kind) for record in written if record.WhichOneof("record_type") == kind]


def of_run(run: Path) -> list[wandb_internal_pb2.Record]:
    (path,) = run.glob("wandb/offline-run-*/*.wandb")
    return finished_records(path)


def steps_of(written: list[wandb_internal_pb2.Record]) -> list[dict[tuple[str, ...], Any]]:
    return [values(history.item) for history in of_kind(written, "history")]


def history_of(written: list[wandb_internal_pb2.Record]) -> dict[tuple[str, ...], Any]:
    return {name: value for step in steps_of(written) for name, value in step.items()}


def summary_of(run: Path) -> dict[tuple[str, ...], Any]:
    """The last value of everything in the summary of the one offline record of a run."""
    return values(item for part in of_kind(of_run(run), "summary") for item in part.update)


def artifacts_of(written: list[wandb_internal_pb2.Record]) -> dict[str, dict[str, Path]]:
    """The files of every artifact that somebody logged (W&B makes others of the tables) by their
    names in it."""
    return {
        artifact.type: {entry.path: Path(entry.local_path) for entry in artifact.manifest.contents}
        for artifact in of_kind(written, "artifact")
        if artifact.type in ("model", "results")
    }


def files_of_table(
    written: list[wandb_internal_pb2.Record], name: str
) -> tuple[list[dict[str, Any]], dict[str, Path]]:
    """The rows of a logged table, and the files beside it, in W&B's own artifacts."""
    for artifact in of_kind(written, "artifact"):
        files = {entry.path: Path(entry.local_path) for entry in artifact.manifest.contents}
        if f"{name}.table.json" in files:
            content = json.loads(files[f"{name}.table.json"].read_text(encoding="utf-8"))
            return [
                dict(zip(content["columns"], row, strict=True)) for row in content["data"]
            ], files
    raise LookupError(name)


def everything_sent(run: Path, offline: Path) -> bytes:
    """The bytes of whatever W&B would send of the one offline record of a run; tables as text."""
    (folder,) = run.glob("wandb/offline-run-*")
    sent = {path for place in (folder, offline) for path in place.rglob("*") if path.is_file()}
    sent |= {path for files in artifacts_of(of_run(run)).values() for path in files.values()}
    content = b""
    for path in sent:
        raw = path.read_bytes()
        if raw[:4] == b"PAR1":  # compressed
            table = pq.read_table(path)
            raw = str(table.schema).encode() + json.dumps(table.to_pydict(), default=str).encode()
        # what is installed is no word of the data
        content += b"" if path.name in ("requirements.txt", "conda-environment.yaml") else raw
    return content
