"""What changes in the verdicts of single-label models when every class counts.

`python -m research.classes FOLDER` trains three models and prints three tables: what each test says
of the predicted class alone, of all classes, and of the class where it says least; the same share
by class; and what must go to take a prediction from a class, or to bring one to it.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pandas as pd

from attnprobe.findings.groups import read_run
from attnprobe.findings.table import findings
from attnprobe.probes.classes import class_table
from attnprobe.probes.swaps import share_by_output
from attnprobe.results.pivot import named
from attnprobe.runs.composition import composed, composing
from attnprobe.runs.run import run
from research.markdown import markdown

Build = Callable[[pd.DataFrame], pd.DataFrame]
"""From the rows of a probe to a table."""
MODELS = {
    "LSTM on SST": (
        "data=sst",
        "model=lstm",
        "data.most={train: 4000, validation: 400, test: 400}",
        "training.epochs=4",
    ),
    "LSTM on AG News": (
        "data=agnews",
        "model=lstm",
        "data.most={train: 4000, validation: 400, test: 400}",
        "training.epochs=4",
    ),
    "CNN on 20 Newsgroups": (
        "data=newsgroups",
        "model=cnn",
        "data.most={train: 6000, validation: 400, test: 300}",
        "data.max_length=120",
        "training.epochs=10",
    ),
}
"""Name → the command line of its run, without what all have in common."""
COMMON = (
    "probe=[erasure,single_weight,swaps,classes]",
    "probe.erasure.importances=[attention]",
    "probe.single_weight.importances=[attention]",
    "probe.swaps.texts=100",
    "probe.swaps.most_passes=400",
    "trainer.accelerator=cpu",
    "figures=false",
    "logger=none",
)
TESTS = {
    "words: share on words that decide": (
        "weight_is_on_deciding_words",
        "weight_is_on_deciding_words_of_all_classes",
        "weight_is_on_deciding_words_of_each_class",
    ),
    "erasure: random order beyond attention's": (
        "attention_beats_random",
        "attention_beats_random_over_classes",
        "attention_beats_random_in_every_class",
    ),
    "erasure: attention beyond the middle of random and best": (
        "attention_closer_to_optimal_than_to_random",
        "attention_closer_to_optimal_than_to_random_over_classes",
        "attention_closer_to_optimal_than_to_random_in_every_class",
    ),
    "one weight: top flips or turns more than another": (
        "top_flips_more_than_random",
        "top_turns_more_over_classes",
        "top_turns_more_in_every_class",
    ),
    "one weight: JSD, top less another": (
        "delta_js_is_positive",
        "top_does_more_over_classes",
        "top_does_more_in_every_class",
    ),
}
"""Test → the claims about the predicted class, all classes, and the class where it holds least."""
HEADINGS = ("predicted class", "every class", "class where it is least")


def main(arguments: Sequence[str] | None = None) -> None:
    """Train what is not there yet, and print the tables."""
    parser = argparse.ArgumentParser(prog="python -m research.classes")
    parser.add_argument("folder", type=Path, help="where the runs are written")
    folder = parser.parse_args(arguments).folder
    directories = {name: trained(name, folder) for name in MODELS}
    print(markdown(verdicts(directories)), end="\n\n")
    for build, probe in ((share_by_output, "swaps"), (class_table, "classes")):
        print(markdown(by_class(directories, probe, build).round(3)), end="\n\n")


def trained(name: str, folder: Path) -> Path:
    """The run of a model."""
    directory = folder / name.replace(" ", "_")
    with composing():
        run(composed([*MODELS[name], *COMMON, f"run_dir={directory}", "on_finished=skip"]))
    return directory


def verdicts(directories: dict[str, Path]) -> pd.DataFrame:
    """A row per model and test: number, interval and verdict of every claim."""
    rows = []
    for name, directory in directories.items():
        table = findings(directory).set_index("claim")
        for test, claims in TESTS.items():
            cells = [cell(table, claim) for claim in claims]
            rows.append({"model": name, "test": test, **dict(zip(HEADINGS, cells, strict=True))})
    return pd.DataFrame(rows)


def cell(table: pd.DataFrame, claim: str) -> str:
    """What is said to one claim, in a few words."""
    if claim not in table.index:
        return "as the predicted class"
    row = table.loc[claim]
    part = f"{row['part']}: " if row.get("part") else ""
    return f"{part}{row['value']:.2f} [{row['low']:.2f}, {row['high']:.2f}] {row['verdict']}"


def by_class(directories: dict[str, Path], probe: str, build: Build) -> pd.DataFrame:
    """A table of a probe for each model, classes called by name."""
    return pd.concat(list(tables_of(directories, probe, build)), ignore_index=True)


def tables_of(directories: dict[str, Path], probe: str, build: Build) -> Iterator[pd.DataFrame]:
    """The table of each model."""
    for directory in directories.values():
        finished = read_run(directory)
        rows = finished.numbers.rows(probe)
        yield build(named(rows, [finished.manifest.get("classes", [])]))


if __name__ == "__main__":
    main()
