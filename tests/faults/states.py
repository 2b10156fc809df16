"""What a folder holds, apart from times: two folders with the same state have the same tables, byte for byte."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

TIMES = ("seconds", "finished", "plan", "words", "checksum")
"""Keys of JSON files that hold times, words about times, or a checksum of these."""
NUMBER = re.compile(r"\.\d+\.partial$")
TOLD = re.compile(rb"\d{4}-\d\d-\d\d \d\d:\d\d UTC|: about [\w .]+ on this machine|This test took [^<]*")
"""When a page was made, as it says itself; how long its study was going to take, and how long its tests took."""
MINE = "mine.txt"
"""A file of the user's; there is one in every folder that the commands find."""


def state(folder: Path, skipped: tuple[str, ...] = ("runs/logs/",)) -> dict[str, str]:
    """Digest of every file, by name; process numbers in names are left out, and times in manifests.

    A lock that nobody holds says nothing, whether it was removed or not; nor does what is made of the tables by whoever
    reads them.
    """
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if (
            not path.is_file()
            or path.name == MINE
            or re.fullmatch(r"findings\.parquet|\.findings\.parquet\.\d+\.partial", path.name)
            or path.suffix == ".lock"
            or name.startswith(skipped)
        ):
            continue
        content = path.read_bytes()
        if path.suffix == ".json":
            content = without_times(content)
        elif path.suffix == ".html":
            content = TOLD.sub(b"", content)
        found[NUMBER.sub(".N.partial", name)] = hashlib.sha256(content).hexdigest()
    return found


def without_times(content: bytes) -> bytes:
    """A JSON file without them; a damaged one as it is."""
    try:
        return json.dumps(timeless(json.loads(content)), sort_keys=True).encode()
    except ValueError:
        return content


def timeless(content: Any) -> Any:
    if isinstance(content, dict):
        return {key: timeless(value) for key, value in content.items() if key not in TIMES}
    return [timeless(one) for one in content] if isinstance(content, list) else content


def counted(folder: Path) -> set[tuple[str, str, str]]:
    """What counts as measured: (table, its settings, digest of its file) of every table that a manifest lists."""
    found = set()
    for manifest in folder.rglob("manifest.json"):
        if manifest.parent.name == ".attnprobe.new":  # prepared, and not true
            continue
        content = json.loads(manifest.read_bytes())
        for name, entry in content["tables"].items():
            path = manifest.parent / entry.get("file", f"tables/{name}.parquet")
            prepared = manifest.parent / ".attnprobe.new" / path.relative_to(manifest.parent)  # true, and not moved yet
            digests = [hashlib.sha256(one.read_bytes()).hexdigest() for one in (path, prepared) if one.is_file()]
            listed = content.get("files", {}).get(f"tables/{name}.parquet", {}).get("sha256")
            digest = listed if listed in digests else (digests or ["missing"])[0]
            found.add((str(path.relative_to(folder)), json.dumps(entry["settings"], sort_keys=True), digest))
    return found


def leave_mine(folder: Path) -> None:
    for path in [folder, *(one for one in folder.rglob("*") if one.is_dir())]:
        (path / MINE).write_text(f"mine {path.name}\n")


def mine(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob(MINE)}
