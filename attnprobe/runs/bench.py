"""Where scores for the bench come from: a file, what is known, or an importance of this package."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import torch

from attnprobe.core.errors import UserError
from attnprobe.core.sanitise import visible
from attnprobe.core.settings import nearest
from attnprobe.findings.bench.folder import BenchFolder, BenchModel, BenchText
from attnprobe.findings.bench.scores import KNOWN, FileScores, Scorer, TextScores
from attnprobe.importance.base import Subject, built_in, classes, names
from attnprobe.importance.baselines import TrainingWords
from attnprobe.runs.load import checked_settings, load_run
from attnprobe.runs.validation import configured

TRUSTED = ("research",)
"""Packages besides this one that the settings of the bench's models name: where the texts are
from."""
OF_FILE = "file"
"""The importance that reads scores of a run's own texts; the bench reads files itself."""


@dataclass
class ImportanceScores:
    """Importances, computed on the models of a bench.

    Attributes:
        bench: with the run directories of the models.
    """

    bench: BenchFolder
    _model: str = field(default="", init=False)
    _subject: Subject | None = field(default=None, init=False, repr=False)

    def scores(
        self, importance: str, model: BenchModel, texts: Sequence[BenchText]
    ) -> list[TextScores]:
        """The scores of a model's texts; NaN where they are undefined.

        Args:
            importance: its name.
            model: of the bench; the last one is kept, as what importances share.
            texts: of the model.

        Raises:
            UserError: the importance is not defined for the model, or the model's run is missing.
        """
        if not self.is_defined(importance, model, texts):
            raise UserError(
                f"importance {importance} is not defined for the model {model.name}: leave it out, "
                "or ask about other models with --models PATTERN, such as '*--transformer--*'"
            )
        subject = self._subject_of(model, texts)
        if isinstance(subject.importance(importance), TrainingWords):
            counted = training_words(importance, self.bench.stored_run(model.name), subject)
            subject = replace(subject, importances={importance: counted})
        scores = subject.scores(importance).detach().cpu().double()
        content = subject.batch.content.cpu()
        return [row[is_word].numpy() for row, is_word in zip(scores, content, strict=True)]

    def is_defined(self, importance: str, model: BenchModel, texts: Sequence[BenchText]) -> bool:
        """Whether the model can be scored at all; see `scores`."""
        subject = self._subject_of(model, texts)
        method = built_in(importance)
        try:
            method.refuse(subject.classifier)
        except UserError:
            return False
        return method.is_defined(subject)

    def _subject_of(self, model: BenchModel, texts: Sequence[BenchText]) -> Subject:
        if self._subject is None or self._model != model.name:
            self._subject = subject_of(self.bench.stored_run(model.name), texts)
            self._model = model.name
        return self._subject


def subject_of(run: Path, texts: Sequence[BenchText]) -> Subject:
    """The model of a run, and texts that went through it.

    Args:
        run: directory of the model.
        texts: of the model.

    Raises:
        UserError: no finished run is there.
    """
    trained = load_run(run, trusted=TRUSTED)
    batch = trained.pipeline.batch_of([list(text.words) for text in texts])
    rationale = torch.zeros_like(batch.content)
    rationale[batch.content] = torch.cat([torch.from_numpy(text.deciding) for text in texts])
    numbers = torch.tensor([text.example_id for text in texts])
    batch = replace(batch, example_id=numbers, rationale=rationale)
    with torch.no_grad():
        outputs = trained.classifier(batch)
    return Subject(
        trained.classifier,
        batch,
        outputs,
        trained.classifier.readout(batch, outputs),
        words=trained.vocabulary.words,
        seed=int(trained.config.get("seed", 0)),
        classes=trained.classes,
    )


def training_words(importance: str, run: Path, subject: Subject) -> TrainingWords:
    """An importance that counts the training texts of a model, which its run does not hold.

    They are made again from the settings of the run, as for its training.

    Args:
        importance: its name.
        run: directory of the model.
        subject: of the model.

    Raises:
        UserError: other texts are made today than those that the model was trained on, or the run's
            settings name a class that is not trusted.
    """
    data = configured(checked_settings(run, TRUSTED)).data
    data.setup("test")
    if list(data.vocabulary.words) != list(subject.words or ()):
        raise UserError(
            f"importance {importance} counts the training texts, and those made from the settings "
            f"of {run} have other words than the model knows: expected the bench of this version; "
            f"leave {importance} out, or make the bench again"
        )
    method = classes()[importance]()
    assert isinstance(method, TrainingWords)
    method.prepare(data, "test")
    return method


def sources_of(
    asked: Sequence[str], bench: BenchFolder, models: Sequence[BenchModel]
) -> dict[str, Scorer]:
    """Where the scores come from that a user asks about.

    Args:
        asked: files, names of `KNOWN`, or names of importances.
        bench: with the texts.
        models: that are asked about.

    Raises:
        UserError: there is no such file or importance, or a file does not fit the bench.
    """
    importances = ImportanceScores(bench)
    available = importances_of_bench()
    file_names = Counter(Path(name).name for name in dict.fromkeys(asked))
    sources: dict[str, Scorer] = {}
    for name in asked:
        if name in KNOWN:
            sources[name] = KNOWN[name]
        elif name in available:
            sources[name] = partial(importances.scores, name)
        elif "." in name or "/" in name:
            file_name = Path(name).name
            called = file_name if file_names[file_name] == 1 else name
            sources[called] = FileScores.read(name, bench, models)
        else:
            known = list(dict.fromkeys([*KNOWN, *available]))
            raise UserError(
                f"{visible(name)}: expected a file of scores (.parquet, .jsonl), or one of "
                f"{', '.join(known)}{nearest(name, known)}"
            )
    return sources


def importances_of_bench() -> list[str]:
    """The importances that need nothing but a model, its training texts and a text."""
    return [name for name in names() if name != OF_FILE]
