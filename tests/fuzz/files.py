"""Generated data files, read as a run reads them. Each ends in a data set or one line."""

import gzip
import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from attnprobe.data.module import TextDataModule
from attnprobe.data.sources import FileSource

CELLS: tuple[Any, ...] = (
    "a b",
    "",
    " ",
    None,
    0,
    1,
    -1,
    1.5,
    float("nan"),
    float("inf"),
    True,
    [],
    [1],
    [1, 0],
    [True, False],
    [[0, 1]],
    [[0]],
    [[0, 1, 2]],
    [[1, 0]],
    [["a", "b"]],
    ["a"],
    [None],
    {},
    {"a": 1},
    "\x00",
    "\x1b[31m",
    "\u2028",
    "=1+1",
    "a" * 3000,
    "1",
    "x",
    10**20,
    [[-1, 9]],
    [0.5, 0.5],
)
ENDINGS = (".csv", ".tsv", ".jsonl", ".json", ".parquet", ".csv.gz", ".tsv.gz", ".jsonl.gz")


def write(path: Path, source: random.Random) -> dict[str, Any]:
    """Write a generated file; returns the settings to read it with."""
    kind = source.choice(("mask", "spans", "sentences", None))
    rows = []
    for number in range(source.choice((0, 1, 2, 30, 30, 30))):
        words = source.choices("abcde", k=source.randint(1, 4))
        marks = {"mask": [1] * len(words), "spans": [[0, 1]], "sentences": [0], None: None}
        rows.append({"text": " ".join(words), "label": number % 2, "extra": marks[kind]})
    odd = source.choice(("text", "label", "extra", None))
    if odd is not None:
        everywhere = source.random() < 0.5
        cell = source.choice(CELLS)
        for row in rows if everywhere else source.sample(rows, min(1, len(rows))):
            row[odd] = cell
            if source.random() < 0.02:
                row.pop(source.choice(list(row)))
    content = encoded(rows, path.name, source)
    if source.random() < 0.25:
        content = damaged(content, source)
    if path.name.endswith(".gz") and source.random() < 0.95:
        content = gzip.compress(content)
    path.write_bytes(content)

    settings: dict[str, Any] = {"tokenizer": "whitespace", "multi_label": source.random() < 0.1}
    if kind is not None:
        settings["rationale"] = "extra"
        settings["rationale_kind"] = kind
        settings["sentences"] = "rule" if kind == "sentences" else None
    elif source.random() < 0.2:
        settings[source.choice(("question", "candidates", "rationale"))] = "extra"
    if source.random() < 0.1:
        settings["sentences"] = "column"
    return settings


def encoded(rows: list[dict[str, Any]], name: str, source: random.Random) -> bytes:
    """The rows in the form that the file's name says."""
    if name.endswith(".parquet"):
        sink = pa.BufferOutputStream()
        try:
            pq.write_table(pa.Table.from_pylist(rows), sink)
        except (pa.ArrowException, OverflowError):
            return b"PAR1 not a table PAR1"
        return sink.getvalue().to_pybytes()
    if ".json" in name:
        if name.endswith(".json") and source.random() < 0.5:
            return json.dumps(rows).encode()
        return "\n".join(json.dumps(row) for row in rows).encode()
    separator = "\t" if ".tsv" in name else ","
    names = sorted({name for row in rows for name in row})
    lines = [separator.join(names)]
    for row in rows:
        lines.append(separator.join(str(row.get(name, "")) for name in names))
    text = source.choice(("\n", "\r\n", "\r")).join(lines)
    return text.encode(source.choice(("utf-8", "utf-8-sig", "latin-1", "utf-16")), errors="replace")


def damaged(content: bytes, source: random.Random) -> bytes:
    """The bytes cut off, emptied, or with some of them replaced."""
    place = source.randrange(len(content) + 1)
    junk = bytes(source.randrange(256) for _ in range(source.randint(0, 5)))
    replaced = content[:place] + junk + content[place + len(junk) :]
    return source.choice((content[:place], replaced, junk + content, b"", b"\n\n"))


def case(number: int, folder: Path, seed: int = 0) -> tuple[str, Callable[[], None]]:
    """The file of this number, which a run is to read."""
    source = random.Random(f"{seed}-{number}")
    path = folder / f"rows-{os.getpid()}{source.choice(ENDINGS)}"
    settings = write(path, source)

    def attempt() -> None:
        TextDataModule("fuzz", FileSource(path), **settings).setup("fit")

    return f"{path.name}, {settings}", attempt
