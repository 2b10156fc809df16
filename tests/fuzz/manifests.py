"""Generated changes of a run's manifest, sealed again by whoever made them: a report of it and of a sound run beside it is
written, with it or without it, or there is one line."""

import os
import random
import shutil
from pathlib import Path
from typing import Any

from matplotlib import pyplot as plt

from attnprobe.core.errors import UserError
from attnprobe.core.sanitise import visible
from attnprobe.report.page.build import write_report
from attnprobe.results.files import read_sealed, write_sealed
from attnprobe.runs.load import load_run
from attnprobe.runs.run import run
from tests.runs import small_run

VALUES: tuple[Any, ...] = (
    None, 3, -1, 1e400, float("nan"), 10**30, True, "", "x", "../../x", "/etc/passwd", "\x1b[31m", "a\nb",
    "<script>alert(1)", [], ["a", 3], {}, {"a": {}}, "builtins.eval", "a" * 100_000, [[[[[[]]]]]],
)  # fmt: skip


def templates(folder: Path) -> list[Path]:
    """Two sound runs."""
    return [run(small_run(folder / "runs", f"seed={seed}", probes="[permutation,swaps]")) for seed in range(2)]


def failure(number: int, sound: list[Path], folder: Path, seed: int = 0) -> str | None:
    """What a report and `load_run` end in, where that is neither an answer nor one line; or what happens to the other run."""
    source = random.Random(f"{seed}-{number}")
    place = folder / f"case{os.getpid()}"
    shutil.rmtree(place, ignore_errors=True)
    runs = [Path(shutil.copytree(one, place / one.name)) for one in sound]
    done = changed(runs[0] / "manifest.json", source)
    before = {path: path.read_bytes() for path in sorted(runs[1].rglob("*")) if path.is_file()}
    wrong = [_one_line(done, write_report, [str(one) for one in runs], place / "page.html"),
             _one_line(done, load_run, runs[0])]  # fmt: skip
    plt.close("all")
    page = place / "page.html"
    if not page.is_file():
        wrong.append(f"{done}: one odd manifest ends the report of the other run")
    elif "<script>alert" in page.read_text():
        wrong.append(f"{done}: what the manifest says is code on the page")
    if any(path.read_bytes() != content for path, content in before.items()):
        wrong.append(f"{done}: the other run's files changed")
    return next((one for one in wrong if one), None)


def _one_line(done: str, work: Any, *arguments: Any) -> str | None:
    try:
        work(*arguments)
    except UserError as error:
        line = str(error)
        return None if line.strip() and visible(line).isprintable() and "\n" not in line else f"{done}: {line!r}"
    except Exception as error:
        return f"{done}: {work.__name__}: {type(error).__name__}: {str(error)[:200]}"
    return None


def changed(path: Path, source: random.Random) -> str:
    """Change one to three entries at any depth, and seal the manifest; returns what."""
    content = read_sealed(path)
    said = []
    for _ in range(source.choice((1, 1, 3))):
        place: Any = content
        while isinstance(place, dict) and place:
            key = source.choice(list(place))
            if source.random() < 0.4 or not isinstance(place[key], dict):
                break
            place = place[key]
        if not isinstance(place, dict) or not place:
            continue
        if source.random() < 0.3:
            del place[key]
            said.append(f"no {key}")
        else:
            place[key] = source.choice(VALUES)
            said.append(f"{key}={str(place[key])[:40]!r}")
    write_sealed(content, path)
    return "; ".join(said)
