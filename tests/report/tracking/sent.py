"""What W&B would send: the records of its offline files."""

import json
import struct
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from google.protobuf.message import DecodeError
from wandb.proto.wandb_internal_pb2 import Record

BLOCK = 32768
HEADER = 7
Key = tuple[str, ...]
"""The parts of a number's name."""


def records(path: Path) -> list[Record]:
    """The records of a .wandb file: a LevelDB log (blocks of 32 KiB; crc, length, type) after 7
    bytes of its own."""
    content = path.read_bytes()
    place = HEADER
    pieces = b""
    payloads = []
    while place + HEADER <= len(content):
        remainder = BLOCK - place % BLOCK
        if remainder < HEADER:
            place += remainder
            continue
        start = place + HEADER
        _, length, kind = struct.unpack("<IHB", content[place:start])
        end = start + length
        if end > len(content):  # still being written
            break
        pieces += content[start:end]
        place = end
        if kind in (1, 4):  # whole, or last piece
            record = Record()
            record.ParseFromString(pieces)
            payloads.append(record)
            pieces = b""
    return payloads


def finished_records(path: Path) -> list[Record]:
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
    kinds = [record.WhichOneof("record_type") for record in messages]
    raise AssertionError(f"{path} has no end: {kinds}")


def values(items: Iterable[Any]) -> dict[Key, Any]:
    """The items of a history or summary by their key's parts."""
    by_key = {}
    for item in items:
        key = tuple(item.nested_key) or (item.key,)
        by_key[key] = json.loads(item.value_json)
    return by_key


def of_kind(written: list[Record], kind: str) -> list[Any]:
    records_of_kind = [record for record in written if record.WhichOneof("record_type") == kind]
    return [getattr(record, kind) for record in records_of_kind]


def of_run(run: Path) -> list[Record]:
    (path,) = run.glob("wandb/offline-run-*/*.wandb")
    return finished_records(path)


def steps_of(written: list[Record]) -> list[dict[Key, Any]]:
    return [values(history.item) for history in of_kind(written, "history")]


def history_of(written: list[Record]) -> dict[Key, Any]:
    history = {}
    for step in steps_of(written):
        history |= step
    return history


def summary_of(run: Path) -> dict[Key, Any]:
    """The last value of everything in the summary of the one offline record of a run."""
    summary = {}
    for part in of_kind(of_run(run), "summary"):
        summary |= values(part.update)
    return summary


def artifacts_of(written: list[Record]) -> dict[str, dict[str, Path]]:
    """The files of every artifact that somebody logged (W&B makes others of the tables) by their
    names in it."""
    artifacts = {}
    for artifact in of_kind(written, "artifact"):
        if artifact.type in ("model", "results"):
            artifacts[artifact.type] = files_of(artifact)
    return artifacts


def files_of(artifact: Any) -> dict[str, Path]:
    """Where an artifact's files lie, by their names in it."""
    return {entry.path: Path(entry.local_path) for entry in artifact.manifest.contents}


def files_of_table(
    written: list[Record], name: str
) -> tuple[list[dict[str, Any]], dict[str, Path]]:
    """The rows of a logged table, and the files beside it, in W&B's own artifacts."""
    for artifact in of_kind(written, "artifact"):
        files = files_of(artifact)
        if f"{name}.table.json" in files:
            text = files[f"{name}.table.json"].read_text(encoding="utf-8")
            content = json.loads(text)
            names = content["columns"]
            rows = [dict(zip(names, row, strict=True)) for row in content["data"]]
            return rows, files
    raise LookupError(name)


def everything_sent(run: Path, offline: Path) -> bytes:
    """The bytes of whatever W&B would send of the one offline record of a run; tables as text."""
    (folder,) = run.glob("wandb/offline-run-*")
    places = [*folder.rglob("*"), *offline.rglob("*")]
    sent = set(filter(Path.is_file, places))
    for files in artifacts_of(of_run(run)).values():
        sent |= set(files.values())
    content = b""
    for path in sent:
        if path.name in ("requirements.txt", "conda-environment.yaml"):
            continue  # what is installed is no word of the data
        raw = path.read_bytes()
        if raw[:4] == b"PAR1":  # compressed
            table = pq.read_table(path)
            cells = json.dumps(table.to_pydict(), default=str)
            raw = f"{table.schema}{cells}".encode()
        content += raw
    return content
