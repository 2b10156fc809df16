"""Files that are never seen half-written."""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq


def write_atomically(path: Path, write: Any) -> None:
    """Call `write(temporary_path)` and move the result into place, so that no half-written file is ever seen."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        write(temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_table(table: pa.Table, path: Path) -> None:
    """Write a parquet file; the same table gives the same bytes."""
    write_groups(table.schema, [table], path)


def write_groups(schema: pa.Schema, groups: Iterable[pa.Table], path: Path) -> None:
    """Write a parquet file a row group at a time, as they come; the same groups give the same bytes."""

    def write(temporary: Path) -> None:
        with pq.ParquetWriter(temporary, schema, compression="zstd", compression_level=6) as writer:
            for group in groups:
                writer.write_table(group)

    write_atomically(path, write)


def write_json(content: Any, path: Path) -> None:
    """Write indented JSON."""
    text = json.dumps(content, indent=2, ensure_ascii=False, sort_keys=False) + "\n"
    write_atomically(path, lambda p: Path(p).write_text(text, encoding="utf-8"))
