"""Models of the bench: trained as a user's run, and the sets of words that its verdict goes by."""

from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import torch

from attnprobe.core.randomness import Draws
from attnprobe.data.module import TextDataModule
from attnprobe.evidence import deciding_words
from attnprobe.findings.bench.folder import BenchFolder, BenchModel, BenchText
from attnprobe.importance.base import Subject
from attnprobe.models.trained import TrainedModel
from attnprobe.probes.swaps import PASSES_OF_PAIR, Swaps
from attnprobe.runs.composition import composed
from attnprobe.runs.run import run
from research.words.cells import Cell
from research.words.truth import batches, facts_of_model, model_of_run


def name_of(cell: Cell) -> str:
    """Tells the model apart from all others of a bench."""
    return cell.name.removesuffix(f"--{cell.mode}")


def settings_of(cell: Cell, directory: Path, texts: int | None = None) -> list[str]:
    """The settings of its training, as a user types them: no probe, as the bench keeps the passes.

    Args:
        cell: the model.
        directory: of the run.
        texts: in the test split; None: as many as the calibration has.
    """
    settings = [
        setting for setting in cell.command_line(directory) if setting != deciding_words.TESTED_BY
    ]
    if texts is not None:
        settings.append(f"data.source.test_size={texts}")
    return [*settings, "probe=[]", f"run_dir='{directory}'"]


def make_model(
    bench: BenchFolder, cell: Cell, half: str, probe: Swaps, texts: int | None = None
) -> BenchModel:
    """Train a model, keep sets of words of its texts, and store both.

    Args:
        bench: to which it is added.
        cell: the model.
        half: which part of the rules it is of: `development`, `first` or `second`.
        probe: that says how many passes a text gets.
        texts: see `settings_of`.
    """
    name = name_of(cell)
    directory = bench.run(name)
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        run(composed(settings_of(cell, directory, texts)), sweep=True)
    classifier, data = model_of_run(directory)
    facts = facts_of_model(classifier, data)
    examples = []
    passes = 0
    if facts.is_solved:
        examples = list(texts_of(classifier, data, probe, cell.draw))
        passes = PASSES_OF_PAIR * len(examples[0].sets.kept)
    model = BenchModel(
        name=name,
        rule=cell.rule.name,
        kind=cell.rule.kind,
        encoder=cell.encoder_name,
        attention=cell.attention,
        draw=cell.draw,
        half=half,
        classes=classifier.classes,
        texts=len(examples),
        passes=passes,
        accuracy=facts.balanced_accuracy,
        follows=facts.follows,
        is_solved=facts.is_solved,
    )
    bench.add(model, examples)
    return model


def texts_of(
    classifier: TrainedModel, data: TextDataModule, probe: Swaps, seed: int
) -> Iterator[BenchText]:
    """The test texts with the sets of words that a run with the probe would keep.

    Args:
        classifier: in eval mode.
        data: of its run.
        probe: that keeps them.
        seed: of the run.
    """
    probe.prepare(data.splits)
    draws = Draws(seed, probe.name)
    for batch in batches(data):
        assert batch.rationale is not None
        with torch.no_grad():
            outputs = classifier(batch)
        subject = Subject(classifier, batch, outputs, classifier.readout(batch, outputs))
        decisions = outputs.logits.argmax(-1).tolist()
        for row, sets in probe.sets_of_words(subject, draws).items():
            content = batch.content[row]
            number = int(batch.example_id[row])
            yield BenchText(
                example_id=number,
                words=tuple(data.splits["test"].tokens(number)),
                deciding=batch.rationale[row, content].numpy(),
                attention=outputs.attention[row, content].double().numpy(),
                label=int(batch.labels[row]),
                prediction=decisions[row],
                sets=sets,
            )
