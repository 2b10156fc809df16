"""Every call of the package that removes, renames or opens for writing stands in a known place.

A new one fails here, so that whoever writes it says what keeps it within what attnprobe wrote.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import attnprobe

PACKAGE = Path(attnprobe.__file__).parent
CHANGES = {
    *("unlink", "rmdir", "rmtree", "remove", "removedirs", "rename", "renames", "move", "copy"),
    *("copyfile", "copytree", "mkdir", "makedirs", "touch", "symlink", "symlink_to", "link"),
    *("hardlink_to", "write_bytes", "truncate", "ftruncate", "pwrite", "chmod", "savefig"),
    *("save_file", "save_pretrained", "to_csv", "to_parquet", "to_json", "to_excel", "ZipFile"),
    *("ParquetWriter", "CSVLogger", "TensorBoardLogger", "ModelCheckpoint", "dump", "FileLock"),
    *("NamedTemporaryFile", "mkstemp", "mkdtemp", "TemporaryDirectory", "extractall"),
}
"""Functions and methods that change a file, a folder, or a name in one."""
HELPERS = {
    *("write_text", "write_table", "write_json", "write_sealed", "write_atomically"),
    *("write_signed", "write_page", "write_own_page"),
}
"""The project's own, which replace what is in the place that they are given."""


def calls(tree: ast.AST, scope: str = "") -> Iterator[tuple[str, ast.Call]]:
    """Every call below a node with the dotted name of the function that it stands in."""
    for node in ast.iter_child_nodes(tree):
        inner = scope
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = f"{scope}.{node.name}".lstrip(".")
        if isinstance(node, ast.Call):
            yield scope, node
        yield from calls(node, inner)


def name_of(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def is_of(call: ast.Call, module: str) -> bool:
    return isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) == module


def changes_disk(call: ast.Call) -> bool:
    """Whether a call may change a file, as far as its name and arguments tell."""
    name = name_of(call)
    if name in (
        "remove",
        "link",
        "copy",
        "move",
        "truncate",
        "dump",
    ):  # lists and tensors have some
        return is_of(call, "os") or is_of(call, "shutil") or is_of(call, "pickle")
    if name in CHANGES or name in HELPERS:
        return True
    if name == "replace":  # of a string it takes two, of a dataclass no positional arguments
        return is_of(call, "os") or (
            isinstance(call.func, ast.Attribute) and len(call.args) == 1 and not call.keywords
        )
    if name == "open":
        modes = [*call.args[: 2 if isinstance(call.func, ast.Name) else 1]]
        modes += [keyword.value for keyword in call.keywords]
        texts = [ast.unparse(mode) for mode in modes]
        return is_of(call, "os") or any(
            set(text.strip("'\"")) & set("wax+") for text in texts if text[0] in "'\""
        )
    return False


def places() -> set[str]:
    """`file: function: call` of each."""
    found = set()
    for path in sorted(PACKAGE.rglob("*.py")):
        for scope, call in calls(ast.parse(path.read_text(encoding="utf-8"))):
            if changes_disk(call):
                file = path.relative_to(PACKAGE).as_posix()
                found.add(f"{file}: {scope}: {name_of(call)}")
    return found


PROVED = "its target is proved to be attnprobe's own: by a digest, a seal, or the run's lists"
WITHIN = "within the run's folder, by a checked name"
BESIDE = "the file's own name with the process's number, which no other process has"
GIVEN = "a path that its callers, which are in this table, have proved"
NOTHING = "changes no file of a user: memory, a system's temporary folder, or an empty folder"
BY_DEVELOPERS = "docs of a checkout, by a command of developers"
KNOWN = {
    "cli/bench.py: as_json: to_json": NOTHING,
    "cli/bench.py: write_rows: write_atomically": PROVED,
    "cli/bench.py: write_rows: write_table": BESIDE,
    "cli/compare.py: write_tables: write_text": PROVED,
    "cli/explain.py: explain: write_page": PROVED,
    "cli/explain.py: write_page: write_own_page": PROVED,
    "core/printing.py: ending_with_reader: open": NOTHING,
    "data/local_files.py: _read_sheet: ZipFile": NOTHING,
    "data/pipeline.py: TextPipeline.save: write_json": GIVEN,
    "data/text.py: _load_jieba: TemporaryDirectory": NOTHING,
    "findings/bench/folder.py: BenchFolder.add: to_parquet": BESIDE,
    "findings/bench/folder.py: BenchFolder.add: write_atomically": "a folder that research makes",
    "findings/bench/folder.py: BenchFolder.add: write_table": BESIDE,
    "findings/stored.py: kept_findings: write_table": PROVED,
    "models/pretrained/attention_hooks.py: Pass.weights: replace": NOTHING,
    "models/pretrained/word_vectors.py: WordVectors.save.write: open": BESIDE,
    "models/pretrained/word_vectors.py: WordVectors.save: write_atomically": GIVEN,
    "plots/style.py: rendered: savefig": NOTHING,
    "plots/style.py: save: write_atomically": GIVEN,
    "plots/style.py: save: write_bytes": GIVEN,
    "probes/__main__.py: main: write_text": BY_DEVELOPERS,
    "report/archive.py: write_archive.write: ZipFile": BESIDE,
    "report/archive.py: write_archive: write_signed": PROVED,
    "report/figures.py: write_figures_of_texts: write_atomically": PROVED,
    "report/page/build.py: write_report: write_page": PROVED,
    "report/publish.py: write_study: write_text": PROVED,
    "report/tables.py: Table.write: write_text": GIVEN,
    "report/tables.py: csv_table: rename": NOTHING,
    "report/tables.py: csv_table: to_csv": NOTHING,
    "report/tables.py: write_paper: write_text": GIVEN,
    "report/tracking.py: _remove_unsent: rmtree": WITHIN,
    "report/tracking.py: _wordless_examples: write_table": NOTHING,
    "report/tracking.py: artifacts: write_sealed": NOTHING,
    "report/tracking.py: log_results: TemporaryDirectory": NOTHING,
    "results/files.py: _remove_leftovers: unlink": BESIDE,
    "results/files.py: open_log: mkdir": NOTHING,
    "results/files.py: open_log: open": "refuses links, and what has another name elsewhere",
    "results/files.py: open_regular: open": NOTHING,
    "results/files.py: sign: open": BESIDE,
    "results/files.py: synchronise: open": NOTHING,
    "results/files.py: write_atomically: mkdir": NOTHING,
    "results/files.py: write_atomically: replace": GIVEN,
    "results/files.py: write_atomically: unlink": BESIDE,
    "results/files.py: write_json: write_text": GIVEN,
    "results/files.py: write_sealed: write_json": GIVEN,
    "results/files.py: write_table.write: ParquetWriter": BESIDE,
    "results/files.py: write_table.write: write_table": BESIDE,
    "results/files.py: write_table: write_atomically": GIVEN,
    "results/files.py: write_text: write_atomically": GIVEN,
    "results/files.py: write_text: write_bytes": BESIDE,
    "results/lock.py: _acquire: mkdir": NOTHING,
    "results/lock.py: _sign: pwrite": "an empty file, or one that holds an owner and nothing else",
    "results/lock.py: held: FileLock": "opens without truncating, and follows no link",
    "results/lock.py: held: rmdir": NOTHING,
    "results/lock.py: held: unlink": "the file that `_sign` has signed",
    "results/playground.py: write_playground: write_table": GIVEN,
    "results/table.py: Rows.write: write_table": GIVEN,
    "results/writer.py: OwnFolder.close: write_sealed": PROVED,
    "results/writer.py: OwnRunDirectory._clean: rmdir": NOTHING,
    "results/writer.py: OwnRunDirectory._clean: unlink": WITHIN,
    "results/writer.py: OwnRunDirectory._commit: write_sealed": WITHIN,
    "results/writer.py: OwnRunDirectory._install: mkdir": WITHIN,
    "results/writer.py: OwnRunDirectory._install: replace": PROVED,
    "results/writer.py: OwnRunDirectory._remove: unlink": PROVED,
    "results/writer.py: OwnRunDirectory._remove_all: rmdir": NOTHING,
    "results/writer.py: OwnRunDirectory._set_aside: rename": WITHIN,
    "results/writer.py: OwnRunDirectory._remember: write_sealed": WITHIN,
    "results/writer.py: OwnRunDirectory.discard: rmdir": NOTHING,
    "results/writer.py: OwnRunDirectory.discard: unlink": WITHIN,
    "results/writer.py: OwnRunDirectory.finish_training: write_sealed": WITHIN,
    "results/writer.py: OwnRunDirectory.folder: mkdir": WITHIN,
    "results/writer.py: OwnRunDirectory.mark: mkdir": NOTHING,
    "results/writer.py: OwnRunDirectory.mark: write_text": WITHIN,
    "results/writer.py: OwnRunDirectory.place: mkdir": WITHIN,
    "results/writer.py: write_page: write_bytes": BESIDE,
    "results/writer.py: write_page: write_signed": PROVED,
    "results/writer.py: write_signed: write_atomically": PROVED,
    "runs/collecting.py: PredictionCollector.write: write_table": GIVEN,
    "runs/forecasts.py: _figure_cost: savefig": NOTHING,
    "runs/launching.py: Cluster.start: mkdir": NOTHING,
    "runs/run.py: carry_out: write_text": WITHIN,
    "runs/run.py: train: write_atomically": WITHIN,
    "runs/run.py: train: write_bytes": BESIDE,
    "runs/run.py: train: write_text": WITHIN,
    "runs/studies.py: _plan: write_json": "where nothing is yet",
    "runs/studies.py: carry_out_study: write_sealed": PROVED,
    "runs/trackers.py: CsvTracker.opened: CSVLogger": WITHIN,
    "runs/trackers.py: TensorBoardTracker.opened: TensorBoardLogger": WITHIN,
    "runs/training.py: fit: ModelCheckpoint": WITHIN,
    "runs/write_run.py: WriteRun._write: mkdir": NOTHING,
    "runs/write_run.py: WriteRun._write: write_text": WITHIN,
}
"""What keeps each call from a file that attnprobe did not write."""


def test_every_call_that_changes_a_file_is_in_a_known_place():
    assert places() == KNOWN.keys()


def test_the_walk_sees_what_it_is_to_see():
    source = """
def write(path, other):
    path.unlink()
    path.replace(other)
    path.open("a")
    open(path, mode="r+")
    os.replace(path, other)
    text.replace("a", "b")
    replace(value, name=1)
    path.open("rb")
    parts.remove(1)
"""
    every_call = [call for _, call in calls(ast.parse(source))]
    seen = [name_of(call) for call in every_call if changes_disk(call)]
    assert seen == ["unlink", "replace", "open", "open", "replace"]
