"""Any model that answers to `attnprobe.models.trained.TrainedModel`, put to the tests without a
run's data and settings."""

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml

from attnprobe.core.batch import probabilities
from attnprobe.core.errors import UserError
from attnprobe.data.batching import TextSplit
from attnprobe.data.examples import Ragged
from attnprobe.data.vocabulary import UNKNOWN
from attnprobe.importance.base import built_in
from attnprobe.models.performance import Performance
from attnprobe.models.trained import TrainedModel
from attnprobe.probes.adversarial import Adversarial
from attnprobe.probes.base import Probe, ProbeRunner
from attnprobe.probes.erasure import Erasure
from attnprobe.probes.permutation import Permutation
from attnprobe.probes.single_weight import SingleWeight
from attnprobe.probes.skill import Skill
from attnprobe.probes.swaps import Swaps
from attnprobe.results.directory import CONFIG, TRAINED
from attnprobe.results.files import write_text
from attnprobe.results.fingerprint import fingerprint
from attnprobe.results.writer import OwnRunDirectory
from attnprobe.runs.collecting import (
    PlaygroundCollector,
    PredictionCollector,
    made_with,
    whole_rows,
    write_results,
)

AT_ONCE = 32
SPLIT = "test"  # texts in a batch


@dataclass(frozen=True)
class Audit:
    """What an audit left: a run directory, as `attnprobe.read_results` and `attnprobe compare` take
    it, and its page (None where none was asked for)."""

    run: Path
    page: Path | None


def audit_model(
    model: TrainedModel,
    texts: Sequence[Sequence[str]],
    labels: Sequence[int],
    *,
    vocabulary: Mapping[str, int] | None = None,
    classes: Sequence[str] | None = None,
    data: str = "texts",
    name: str = "own_model",
    output: str | os.PathLike = "audit",
    seed: int = 0,
    epsilon: float = 0.01,
    probes: Sequence[Probe] | None = None,
    page: bool = True,
) -> Audit:
    """Put the attention of any model to the tests. Arguments that are not listed are as in
    `audit_tensors`.

    Args:
        model: a trained one; it is put into eval mode and examined in its `precision`, and is as it
            was afterwards.
        texts: the words of every text, one or more.
        labels: class numbers from 0.
        vocabulary: word → the number that stands for it in `Batch.ids`; 1 stands for words that are
            not there, 0 for padding, 2 and 3 for the markers before and after every text.
        name: what the model is called.

    Raises:
        UserError: labels or texts cannot be used, a test does not fit the model, or the folder is
            somebody else's.
    """
    split = split_of(texts, labels, vocabulary or {}, classes, model.classes)
    probes = default_probes(epsilon) if probes is None else probes
    for probe in probes:
        probe.refuse(model)
        probe.prepare({"validation": split, SPLIT: split})
    facts = {"data": {"name": data}, "model": {"name": name}, "seed": seed}
    texts_and_labels = hashlib.sha256(
        np.ascontiguousarray(split.words.flat).tobytes() + split.labels.tobytes()
    )
    texts_and_labels.update("\0".join(split.spelling).encode("utf-8", "surrogatepass"))
    run_id = f"{data}-{name}-seed{seed}-{fingerprint([facts, texts_and_labels.hexdigest()])}"
    directory = OwnRunDirectory(Path(output) / "run")
    directory.refuse_foreign()
    directory.path.parent.mkdir(parents=True, exist_ok=True)
    importances = {one: built_in(one) for probe in probes for one in probe.uses}
    runner = ProbeRunner(list(probes), seed, None, importances, split.classes)
    listeners = (runner, PredictionCollector(), PlaygroundCollector(split, epsilon))
    performance = Performance(model.task, model.classes)
    trains = model.training
    kind = next((one.dtype for one in model.parameters()), torch.float32)
    model.eval().to(model.precision)
    trainer: Any = None  # the callbacks ask it for nothing
    listener: Any
    try:  # an earlier audit stays until this one is measured: a model that fails leaves it as it was
        with torch.no_grad():
            for first in range(0, len(split), AT_ONCE):
                batch = split[range(first, min(first + AT_ONCE, len(split)))]
                outputs = {"outputs": model.predict_step(batch)}
                performance.update(
                    probabilities(outputs["outputs"].logits, model.task), batch.labels
                )
                for listener in listeners:
                    listener.on_test_batch_end(trainer, model, outputs, batch, first)
    finally:
        model.to(kind).train(trains)
    found = {name: value.double().cpu().numpy() for name, value in performance.compute().items()}
    directory.clear()
    directory.mark()
    try:
        write_text(yaml.safe_dump(facts, allow_unicode=True), directory.place(CONFIG))
        directory.finish_training(
            {"training": facts, "training_fingerprint": fingerprint(facts), "curve": []}
        )
        names = {"run_id": run_id, "experiment": "outside", "data": data, "model": name}
        identity: dict[str, Any] = names | {"seed": seed, "split": SPLIT}
        rows = {"performance": whole_rows(found | {"examples": np.array(len(split))})}
        tables = write_results(
            directory, split, listeners, rows, lambda probe: identity | {"probe": probe}, {}
        )
        content = identity | {
            "classes": list(split.classes),
            "counts": {SPLIT: {"kept": len(split)}},
            "tables": tables,
            "training": facts,
            "training_fingerprint": fingerprint(facts),
            **made_with(),
        }
        directory.finish(content, directory.read_listing(TRAINED)["files"])
    except BaseException:
        directory.discard()
        raise
    if not page:
        return Audit(directory.path, None)
    from attnprobe.report.page.build import write_report

    return Audit(directory.path, write_report(directory.path, Path(output) / "report.html"))


def default_probes(epsilon: float, *, gradient: bool = True) -> list[Probe]:
    """The tests that change nothing but the attention, and swaps of words; `gradient`: the
    attention's is available."""
    of_gradient = ["attention_gradient", "gradient_attention"] if gradient else []
    return [
        Permutation(),
        Adversarial(epsilon=epsilon, restarts=0),
        SingleWeight(importances=["attention", *of_gradient]),
        Erasure(importances=["attention", "ascending", "contribution", *of_gradient]),
        Skill(words=False),
        Swaps(),
    ]


def split_of(
    texts: Sequence[Sequence[str]],
    labels: Sequence[int],
    vocabulary: Mapping[str, int],
    classes: Sequence[str] | None,
    count: int,
) -> TextSplit:
    """The texts as a split, numbered from 0."""
    if len(labels) != len(texts) or not len(texts):
        raise UserError(
            f"{len(labels)} labels for {len(texts)} texts: expected one for each, and at least one text"
        )
    if classes is not None and len(classes) != count:
        raise UserError(f"classes has {len(classes)} names: expected {count}, one for each class")
    numbers = np.asarray([int(one) for one in labels], np.int64)
    if numbers.min() < 0 or numbers.max() >= count:
        raise UserError(
            f"labels from {numbers.min()} to {numbers.max()}: expected class numbers from 0 to {count - 1}"
        )
    if empty := [number for number, text in enumerate(texts) if not len(text)]:
        raise UserError(f"text {empty[0]} has no word: leave it out")
    known: dict[str, int] = {}
    words = [
        np.array([known.setdefault(str(word), len(known)) for word in text], np.int32)
        for text in texts
    ]
    return TextSplit(
        np.arange(len(texts)),
        Ragged.of(words, np.int32),
        np.array([vocabulary.get(word, UNKNOWN) for word in known], np.int64),
        {"labels": numbers},
        list(known),
        [str(one) for one in (range(count) if classes is None else classes)],
    )
