"""Folders of strangers: nothing outside of them is ever created, changed or removed.

    python -m tests.faults.hostile_folders [--folders 300] [--seed 0]

Each folder is drawn at random: a run's, a study's or a page's, finished or killed half-way, with
journals, lists, locks and files that name, link or hard-link what is in a user's home. Every step
by which a command writes there is taken. What is outside must be as it was, and every step must
end well or in one line.
"""

import argparse
import hashlib
import os
import random
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path

import pyarrow as pa

from attnprobe.core.errors import UserError
from attnprobe.results.directory import CONFIG, CURVES, FINDINGS, MANIFEST, MARKER, STAGING, TRAINED
from attnprobe.results.files import open_log, record_of, write_sealed, write_table, write_text
from attnprobe.results.lock import held, locked
from attnprobe.results.writer import (
    CHECKPOINTS,
    JOURNAL,
    LISTED,
    LOCK,
    OwnFolder,
    OwnRunDirectory,
    own_sealed,
    write_page,
)

TABLE = "tables/permutation.parquet"
VICTIMS = (".bashrc", "thesis.docx", "notes/manifest.json", "notes/metrics.csv", "notes/.attnprobe")
FOLDERS = ("empty", "notes")


def make_home(home: Path) -> None:
    """Files and folders of a user, whose SHA-256 a stranger may know."""
    for folder in FOLDERS:
        (home / folder).mkdir(parents=True)
    for name in VICTIMS:
        (home / name).write_text(f"the user's {name}\n", encoding="utf-8")


def state_of(home: Path) -> dict[str, tuple[int, str]]:
    """Every path below a folder with its kind and content; not the number of its hard links."""
    state = {}
    for path in sorted(home.rglob("*")):
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        mode = path.lstat().st_mode
        state[path.relative_to(home).as_posix()] = (mode, hashlib.sha256(content).hexdigest())
    return state


class Stranger:
    """Draws what lies in a folder."""

    def __init__(self, seed: int, home: Path, folder: Path) -> None:
        self.draw = random.Random(seed)
        self.home = home
        self.folder = folder

    def victim(self) -> Path:
        """A file of the user."""
        return self.home / self.draw.choice(VICTIMS)

    def name(self) -> str:
        """A name for a list: of a run, of the user's file, or of nothing."""
        victim = self.victim()
        upwards = os.path.relpath(victim, self.folder)
        names = [
            str(victim),
            upwards,
            f"tables/../{upwards}",
            f"{self.home}/empty/x",
            TABLE,
            CONFIG,
        ]
        names += [f"figures/../../{self.home.name}/.bashrc", "a\0b", "", ".", "..", "x" * 5000]
        names += ["tables/\ud800.parquet".encode("utf-8", "replace").decode(), "c:\\x", "wandb/x"]
        return self.draw.choice(names)

    def record(self) -> object:
        """What is listed of a file: the user's own digest, mostly."""
        others = [5, None, {}, [], "x", {"sha256": 1, "bytes": "1"}, [{}], {"sha256": "0" * 64}]
        return self.draw.choice([record_of(self.victim())] * 8 + others)

    def listing(self) -> object:
        """The content of a journal or a list."""
        files = {self.name(): self.record() for _ in range(self.draw.randint(1, 4))}
        journal = {name: [record] for name, record in files.items()}
        names = {"files": [*files], "last": [*files], "records": files}
        outside = {"files": ["../x"], "last": [3]}
        contents: list[object] = [journal, {"files": files}, names]
        contents += [5, None, [], "x", {"files": 5}, {"files": [{}]}, outside]
        return self.draw.choice(contents)

    def put(self, path: Path) -> None:
        """Something in a place: a list, a link, a hard link, a folder, a pipe, or bytes."""
        path.parent.mkdir(parents=True, exist_ok=True)
        if os.path.lexists(path):
            return
        kinds: list[Callable[[], object]] = [
            lambda: path.symlink_to(self.victim()),
            lambda: path.symlink_to(self.home / self.draw.choice(FOLDERS)),
            lambda: path.symlink_to(self.home / "not there yet"),
            lambda: path.symlink_to(path),
            lambda: path.hardlink_to(self.victim()),
            path.mkdir,
            lambda: os.mkfifo(path),
            lambda: path.write_bytes(self.draw.randbytes(self.draw.randint(0, 300))),
            lambda: path.write_text("process 1 on here\nand more\n"),
        ]
        self.draw.choice(kinds)()

    def write_list(self, path: Path) -> None:
        """A list with a seal, or with none."""
        path.parent.mkdir(parents=True, exist_ok=True)
        content = self.listing()
        if isinstance(content, dict) and self.draw.random() < 0.9:
            write_sealed(content, path)
        else:
            path.write_text(str(content), encoding="utf-8")

    def fill(self) -> None:
        """The folder of a run, and of a page beside it."""
        self.folder.mkdir()
        if self.draw.random() < 0.85:
            (self.folder / MARKER).write_text("")
        lists = (f"{STAGING}{JOURNAL}", MANIFEST, TRAINED, f"{STAGING}{MANIFEST}", "study.json")
        for name in lists:
            if self.draw.random() < 0.5:
                self.write_list(self.folder / name)
        if self.draw.random() < 0.5:
            self.write_list(self.folder / "page_files" / LISTED)
        partial = f".{MANIFEST}.{os.getpid()}.partial"
        places = [LOCK, MARKER, STAGING.rstrip("/"), TABLE, "tables", CONFIG, FINDINGS, "figures"]
        places += [f"{STAGING}{name}" for name in (TABLE, CONFIG, "tables", "figures", partial)]
        places += [f"{STAGING}{CURVES}metrics.csv", f"{STAGING}{CURVES}", f"{STAGING}{CHECKPOINTS}"]
        places += [f"{STAGING}{CHECKPOINTS}best.ckpt", partial, "page.html", "logs", "logs/a.log"]
        places += ["page_files", "page_files/a.csv", f"page_files/{LOCK}", "wandb", "study.json"]
        for name in self.draw.sample(places, self.draw.randint(1, 8)):
            path = self.folder / name.rstrip("/")
            parents = path.relative_to(self.folder).parents
            if all(
                not os.path.lexists(self.folder / p) or is_plain(self.folder / p) for p in parents
            ):
                self.put(path)


def is_plain(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def train_and_measure(folder: Path) -> None:
    """All that a run does in its folder, in its order."""
    with locked(folder):
        run = OwnRunDirectory(folder)
        run.settle()
        run.refuse_foreign()
        if not run.is_trained:
            run.clear()
        run.mark()
        try:
            (run.folder(CURVES) / "metrics.csv").write_text("epoch\n0\n")
            (run.folder(CHECKPOINTS) / "best.ckpt").write_bytes(b"weights")
            write_text("a: 1\n", run.place(CONFIG))
            run.finish_training({"curve": []})
            write_table(pa.table({"a": [1]}), run.place(TABLE))
            run.folder("figures/")
            run.checked("wandb/")
            run.finish({"tables": {}}, run.read_listing(TRAINED)["files"])
        except BaseException:
            if not run.is_trained:
                run.discard()
            raise


def replace_run(folder: Path) -> None:
    """What `on_finished=replace` does until it has trained."""
    with locked(folder):
        run = OwnRunDirectory(folder)
        run.refuse_foreign()
        run.replace()
        run.mark()
        try:
            write_text("a: 1\n", run.place(CONFIG))
            run.finish_training({"curve": []})
        except BaseException:
            if not run.is_trained:
                run.discard()
            raise


def discard_run(folder: Path) -> None:
    """What a command that failed leaves."""
    run = OwnRunDirectory(folder)
    run.discard()


def write_report(folder: Path) -> None:
    """A page and the folder beside it."""
    files = OwnFolder(folder / "page_files").path
    with held(files):
        own = OwnFolder(files)
        write_text("a\n", own / "a.csv")
        own.close()
        write_page("<html></html>", folder / "page.html")


def append_to_log(folder: Path) -> None:
    """A job's log."""
    with open_log(folder / "logs" / "a.log") as log:
        log.write(b"a line\n")


def write_study(folder: Path) -> None:
    """A study's list of its runs."""
    write_sealed({"members": []}, own_sealed(folder / "study.json"))


STEPS = (train_and_measure, write_report, append_to_log, write_study, replace_run, discard_run)


def outcome_of(seed: int, base: Path) -> tuple[Counter[str], list[str]]:
    """Fill one folder, take every step, and look at what is outside.

    Args:
        seed: of the folder.
        base: an empty folder.

    Returns:
        How often a step ended well or was refused; and what was wrong.
    """
    home = base / "home"
    make_home(home)
    before = state_of(home)
    folder = base / "r"
    stranger = Stranger(seed, home, folder)
    stranger.fill()
    endings: Counter[str] = Counter()
    wrong = []
    steps = stranger.draw.sample(STEPS, len(STEPS))
    for step in steps:
        try:
            with redirect_stderr(StringIO()):
                step(folder)
            endings["done"] += 1
        except UserError:
            endings["refused"] += 1
        except Exception:
            wrong.append(f"seed {seed}, {step.__name__}: {traceback.format_exc()}")
        after = state_of(home)
        if after != before:
            changed = sorted({*after.items()} ^ {*before.items()})
            wrong.append(f"seed {seed}, {step.__name__}: outside changed: {changed}")
            before = after
    others = {path.name for path in base.iterdir()} - {"home", "r"}
    if others:
        wrong.append(f"seed {seed}: created outside: {others}")
    return endings, wrong


def campaign(folders: int, first_seed: int = 0) -> tuple[Counter[str], list[str]]:
    """The outcomes of several folders together."""
    endings: Counter[str] = Counter()
    wrong: list[str] = []
    for seed in range(first_seed, first_seed + folders):
        with tempfile.TemporaryDirectory(prefix="attnprobe-hostile-") as base:
            one_folder, one_wrong = outcome_of(seed, Path(base))
            endings += one_folder
            wrong += one_wrong
    return endings, wrong


def main() -> None:
    """Print the outcomes, and end with status 1 where something was wrong."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--folders", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    endings, wrong = campaign(options.folders, options.seed)
    print(*wrong, sep="\n")
    print(f"{options.folders} folders: {dict(endings)}, wrong {len(wrong)}")
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()
