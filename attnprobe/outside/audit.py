"""Any model that answers to `attnprobe.models.trained.TrainedModel`, put to the tests.

Without a run's data and settings.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch.utils.data import DataLoader

from attnprobe.core.errors import UserError
from attnprobe.data.batching import TextSplit
from attnprobe.data.examples import Ragged
from attnprobe.data.vocabulary import UNKNOWN
from attnprobe.models.trained import TrainedModel
from attnprobe.probes.adversarial import Adversarial
from attnprobe.probes.base import SPLIT, Probe, ProbeRunner
from attnprobe.probes.erasure import Erasure
from attnprobe.probes.labels import Labels
from attnprobe.probes.permutation import Permutation
from attnprobe.probes.single_weight import SingleWeight
from attnprobe.probes.skill import Skill
from attnprobe.probes.swaps import Swaps
from attnprobe.runs.training import run_test_loop
from attnprobe.runs.write_run import WriteRun

BATCH_SIZE = 32


@dataclass(frozen=True)
class Audit:
    """What an audit left.

    Attributes:
        run: a run directory, as `attnprobe.read_results` and `attnprobe compare` take it.
        page: the report; None where none was wanted.
    """

    run: Path
    page: Path | None


def audit_model(
    model: TrainedModel,
    texts: Sequence[Sequence[str]],
    labels: Sequence[int] | Sequence[Sequence[int]],
    *,
    vocabulary: Mapping[str, int] | None = None,
    classes: Sequence[str] | None = None,
    label_names: Sequence[str] | None = None,
    data: str = "texts",
    name: str = "own_model",
    output: str | os.PathLike = "audit",
    seed: int = 0,
    epsilon: float = 0.01,
    probes: Sequence[Probe] | None = None,
    page: bool = True,
) -> Audit:
    """Put the attention of any model to the tests.

    Args:
        model: a trained one; it is put into eval mode and examined in its `precision`, and is as it
            was afterwards.
        texts: the words of every text, one or more.
        labels: class numbers from 0; with `label_names` a list of 0 and 1 for every text, one per
            label.
        vocabulary: word → the number that stands for it in `Batch.ids`; 1 stands for words that are
            not there, 0 for padding, 2 and 3 for the markers before and after every text. With
            `label_names` also the number of each label, as `Batch.question[:, 1]` has it.
        classes: names of the classes.
        label_names: names of the labels of a model with an attention per label. Each text becomes a
            row per label, the labels of a text one after the other, and the model says no or yes to
            the label in `Batch.question`. None: a text has one attention.
        data: what these texts are called, in tables and page.
        name: what the model is called.
        output: the folder of `run/` and `report.html`. What another audit left there is replaced;
            anything else is refused.
        seed: of random orders and random attentions.
        epsilon: TVD from 0 to 1 within which another attention's prediction counts as the same.
        probes: other tests than `default_probes`.
        page: False writes none.

    Raises:
        UserError: labels or texts cannot be used, a test does not fit the model, or the folder is
            somebody else's.
    """
    asked = None
    answers: Sequence[Any] = labels
    if label_names is not None:
        asked = TextsByLabel.of(texts, labels, label_names)
        texts = asked.texts
        answers = asked.labels
        classes = ("no", "yes") if classes is None else classes
    split = split_of(texts, answers, vocabulary or {}, classes, model.classes)
    if asked is not None:
        split = asked.in_split(split, vocabulary or {})
    if probes is None:
        probes = default_probes(epsilon)
        if asked is not None:
            probes.append(Labels())
    runner = ProbeRunner(probes, seed)
    runner.prepare(model, {"validation": split, SPLIT: split})
    directory = Path(output) / "run"
    writer = WriteRun(directory, data=data, model=name, epsilon=epsilon)
    rows = range(len(split))
    batches = [list(rows[first : first + BATCH_SIZE]) for first in rows[::BATCH_SIZE]]
    loader = DataLoader(split, sampler=batches, batch_size=None)
    callbacks = [*runner.callbacks(), writer]
    run_test_loop(model, loader, accelerator="cpu", callbacks=callbacks)
    if not page:
        return Audit(directory, None)
    from attnprobe.report.page.build import write_report

    return Audit(directory, write_report(directory, Path(output) / "report.html"))


def default_probes(epsilon: float, *, gradient: bool = True) -> list[Probe]:
    """The tests that change nothing but the attention, and swaps of words.

    Args:
        epsilon: of the adversary.
        gradient: whether the gradient by the attention is available.
    """
    gradients = ["attention_gradient", "gradient_attention"] if gradient else []
    return [
        Permutation(),
        Adversarial(epsilon=epsilon, restarts=0),
        SingleWeight(importances=["attention", *gradients]),
        Erasure(importances=["attention", "ascending", "contribution", *gradients]),
        Skill(words=False),
        Swaps(),
    ]


@dataclass(frozen=True)
class TextsByLabel:
    """Texts of a model with an attention per label, as a row per text and label.

    Attributes:
        texts: of each row.
        labels: of each row: 1 where the text has the label.
        names: of the labels.
    """

    texts: list[Sequence[str]]
    labels: list[int]
    names: Sequence[str]

    @classmethod
    def of(
        cls, texts: Sequence[Sequence[str]], labels: Sequence[Any], names: Sequence[str]
    ) -> "TextsByLabel":
        """All texts, each asked for all labels.

        Raises:
            UserError: a name is there twice, or a text lacks a 0 or 1 for every label.
        """
        if not names or len(set(names)) < len(names):
            raise UserError(f"label_names={list(names)}: expected one or more names, each once")
        if len(labels) != len(texts):
            raise UserError(
                f"{len(labels)} lists of labels for {len(texts)} texts: expected one for each"
            )
        asked = cls([], [], names)
        for number, (text, text_labels) in enumerate(zip(texts, labels, strict=True)):
            answers = list(np.atleast_1d(text_labels))
            if len(answers) != len(names) or not set(answers) <= {0, 1}:
                raise UserError(
                    f"labels of text {number} are {answers!s:.60}: expected 0 or 1 for each of the "
                    f"{len(names)} label_names"
                )
            asked.texts.extend([text] * len(names))
            asked.labels.extend(int(answer) for answer in answers)
        return asked

    def in_split(self, split: TextSplit, vocabulary: Mapping[str, int]) -> TextSplit:
        """The split of these rows, with the label that each asks for and the number of its text.

        Args:
            split: the rows without it.
            vocabulary: label → the number that stands for it in a batch; where it is not there it
                gets one of its own.
        """
        rows = np.arange(len(split))
        first = len(split.spelling)
        spare = max([3, *vocabulary.values(), *split.vocabulary_id.tolist()]) + 1
        numbers = [vocabulary.get(name, spare + place) for place, name in enumerate(self.names)]
        questions = (first + rows % len(self.names))[:, None]
        columns = dict(split.columns)
        columns["question"] = Ragged.of(list(questions), np.int32)
        columns["text_number"] = rows // len(self.names)
        return replace(
            split,
            columns=columns,
            spelling=[*split.spelling, *self.names],
            vocabulary_id=np.concatenate([split.vocabulary_id, numbers]),
        )


def split_of(
    texts: Sequence[Sequence[str]],
    labels: Sequence[int],
    vocabulary: Mapping[str, int],
    classes: Sequence[str] | None,
    count: int,
) -> TextSplit:
    """The texts as a split, numbered from 0.

    Args:
        texts: words of each.
        labels: class numbers.
        vocabulary: word → id.
        classes: names; None: their numbers.
        count: of classes.

    Raises:
        UserError: if labels or texts cannot be used.
    """
    if len(labels) != len(texts) or not len(texts):
        raise UserError(
            f"{len(labels)} labels for {len(texts)} texts: "
            f"expected one for each, and at least one text"
        )
    if classes is not None and len(classes) != count:
        raise UserError(f"classes has {len(classes)} names: expected {count}, one for each class")
    for number, label in enumerate(labels):
        if isinstance(label, str) or not float(label).is_integer():
            raise UserError(
                f"label {label!s:.60} of text {number}: expected a class number, from 0 to "
                f"{count - 1}; classes=[…] names the classes"
            )
    numbers = np.asarray([int(label) for label in labels], np.int64)
    if numbers.min() < 0 or numbers.max() >= count:
        raise UserError(
            f"labels from {numbers.min()} to {numbers.max()}: "
            f"expected class numbers from 0 to {count - 1}"
        )

    spelling: dict[str, int] = {}
    words = []
    for number, text in enumerate(texts):
        if isinstance(text, str):
            raise UserError(
                f"text {number} is the string {text[:40]!r}: expected its words, as text.split() "
                f"gives them"
            )
        if not len(text):
            raise UserError(f"text {number} has no word: leave it out")
        words.append(
            np.array([spelling.setdefault(str(word), len(spelling)) for word in text], np.int32)
        )
    names = range(count) if classes is None else classes
    return TextSplit(
        np.arange(len(texts)),
        Ragged.of(words, np.int32),
        np.array([vocabulary.get(word, UNKNOWN) for word in spelling], np.int64),
        {"labels": numbers},
        list(spelling),
        [str(name) for name in names],
    )
