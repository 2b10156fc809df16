"""One model trained and asked by the code of a user's run, and what is kept of it."""

import shutil
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass, field
from io import StringIO
from math import isnan
from pathlib import Path
from time import perf_counter
from typing import Any

from attnprobe.core.errors import UserError
from attnprobe.findings.groups import read_run
from attnprobe.findings.judgement import Card, Judgement
from attnprobe.findings.mechanisms import encoder_of
from attnprobe.findings.stored import card_of_run, card_of_study
from attnprobe.findings.studies.base import STUDY, read_study
from attnprobe.findings.track_record import without_record
from attnprobe.results.directory import RunDirectory
from attnprobe.results.files import read_sealed
from attnprobe.runs.composition import composed
from attnprobe.runs.run import run
from attnprobe.runs.studies import carry_out_study
from research.words.cells import Cell
from research.words.truth import facts_of_run

FAILED = "failed"
"""The `truth` of a model that could not be trained or asked; `sentence` says why."""


@dataclass(frozen=True)
class AskedModel:
    """A model, and what the product says of it.

    Attributes:
        card: all that is said.
        directories: of its runs; the card is about the model of the first one.
        further_answers: to what is no claim of the card, as `answer_of` has them.
    """

    card: Card
    directories: list[Path]
    further_answers: list[dict[str, Any]] = field(default_factory=list)


def row_of_cell(cell: Cell, scratch: Path, *, keeps_runs: bool = False) -> dict[str, Any]:
    """Train a model of the calibration, and ask it (`row_of_model`).

    Args:
        cell: the model.
        scratch: folder of its runs.
        keeps_runs: the runs stay there.
    """
    ask = audited if cell.mode == "audit" else asked_once
    return row_of_model(
        identity(cell),
        scratch / cell.name,
        lambda folder: ask(cell, folder),
        avoids_reason=cell.built.avoids_reason,
        keeps_runs=keeps_runs,
    )


def row_of_model(
    identity: Mapping[str, Any],
    folder: Path,
    ask: Callable[[Path], AskedModel],
    *,
    avoids_reason: bool,
    keeps_runs: bool = False,
) -> dict[str, Any]:
    """Train a model, ask it, and remove its runs.

    It is asked without a track record, which would otherwise be a record of itself.

    Args:
        identity: which model it is, as a row has it.
        folder: of its runs.
        ask: trains and asks it in that folder.
        avoids_reason: see `research.words.truth.Facts.truth`.
        keeps_runs: the runs stay there.

    Returns:
        What a row of a folder holds (`research.words.rows`); of a model that cannot be trained the
        `truth` is `FAILED`.
    """
    row = dict(identity)
    began = perf_counter()
    try:
        with redirect_stdout(StringIO()), redirect_stderr(StringIO()), without_record():
            model = ask(folder)
        seconds = perf_counter() - began
        row |= facts(model.directories[0], avoids_reason=avoids_reason)
        row |= costs(model.directories, seconds)
        row |= answers(model.card)
        row["answers"] += model.further_answers
    except UserError as error:
        row |= {"truth": FAILED, "chip": "", "sentence": str(error), "answers": []}
    finally:
        if not keeps_runs:
            shutil.rmtree(folder, ignore_errors=True)
    return row


def asked_once(cell: Cell, output: Path) -> AskedModel:
    """One run, as `attnprobe run` makes it."""
    directory = run(composed(cell.command_line(output)), sweep=True)
    return AskedModel(card_of_run(read_run(directory)), [directory])


def audited(cell: Cell, output: Path) -> AskedModel:
    """A whole study, as `attnprobe audit` makes it."""
    directory = carry_out_study(cell.command_line(output), composed)
    reading = read_study(directory)
    members = read_sealed(directory / STUDY)["members"]
    base = reading.runs[0].resolve()
    directories = [(directory / member["directory"]).resolve() for member in members]
    further = [each for each in directories if each != base]
    return AskedModel(card_of_study(reading), [base, *further])


def identity(cell: Cell) -> dict[str, Any]:
    """Which model it is."""
    return {
        "rule": cell.rule.name,
        "kind": cell.rule.kind,
        "spec": asdict(cell.rule),
        "encoder": cell.encoder_name,
        "attention": cell.attention,
        "standing": cell.built.standing,
        "draw": cell.draw,
        "mode": cell.mode,
    }


def facts(directory: Path, *, avoids_reason: bool) -> dict[str, Any]:
    """What is known of a run's model, and what the track record calls its encoder."""
    model_facts = facts_of_run(directory)
    return {
        "family": encoder_of(RunDirectory(directory).manifest()),
        **asdict(model_facts),
        "truth": model_facts.truth(avoids_reason=avoids_reason),
    }


def costs(directories: list[Path], seconds: float) -> dict[str, Any]:
    """Seconds of all trainings and of everything else, and passes of a text.

    Args:
        directories: of the runs.
        seconds: that all took.
    """
    manifests = [RunDirectory(directory).manifest() for directory in directories]
    training = sum(manifest["seconds"]["until_trained"] for manifest in manifests)
    passes = []
    for table in manifests[0]["tables"].values():
        settings = (table or {}).get("settings") or {}
        passes.append(settings.get("passes", 0))
    return {
        "training_seconds": round(training, 1),
        "asking_seconds": round(seconds - training, 1),
        "passes": max(passes, default=0),
    }


def answers(card: Card) -> dict[str, Any]:
    """What the product says: chip, sentence, and its answer to every claim that was tested."""
    tested = [answer_of(judgement) for judgement in card.judgements if judgement.is_tested]
    return {"chip": str(card.chip), "sentence": card.sentence, "answers": tested}


def answer_of(judgement: Judgement) -> dict[str, Any]:
    """One claim's answer; numbers that are not known are None."""
    numbers = {name: getattr(judgement, name) for name in ("value", "low", "high", "p")}
    return {
        "claim": judgement.claim,
        "criterion": judgement.criterion,
        "level": judgement.level,
        "primary": judgement.primary,
        "verdict": str(judgement.verdict),
        "interval_verdict": str(judgement.interval_verdict),
        "answer": str(judgement.answer),
        **{name: None if isnan(number) else number for name, number in numbers.items()},
        "n": judgement.n,
        "reason": judgement.reason,
    }
