"""A finished run loaded again: its classifier, its text pipeline, and explanations of new text."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from attnprobe.core.batch import Batch, Outputs, Task, probabilities
from attnprobe.core.errors import UserError
from attnprobe.core.readout import Readout
from attnprobe.core.settings import defer
from attnprobe.data.pipeline import TextPipeline
from attnprobe.data.vocabulary import Vocabulary
from attnprobe.exact import smallest_flipping_set
from attnprobe.findings.groups import read_run
from attnprobe.findings.stored import card_of_run
from attnprobe.importance.base import Importance, Subject
from attnprobe.importance.base import names as built_in_names
from attnprobe.measures import normalised
from attnprobe.models.hierarchical import cut_into_sentences, words_per_sentence
from attnprobe.models.trained import TrainedModel
from attnprobe.report.notebook import BESIDE, EXPLAINED, SENTENCE, Explanation
from attnprobe.results.directory import (
    CONFIG,
    PIPELINE,
    TRAINED,
    VOCABULARY,
    WEIGHTS,
    RunDirectory,
)
from attnprobe.results.files import damaged, record_of
from attnprobe.results.saved_settings import read_settings
from attnprobe.results.table import IMPORTANCES
from attnprobe.runs.build import construct, importances_of
from attnprobe.runs.validation import built_model, built_part, check_saved, is_whole

DEFAULT_IMPORTANCES = ("gradient", "leave_one_out")
"""Shown beside the attention where neither the call nor the run names importances."""


@dataclass(frozen=True)
class TrainedRun:
    """A trained classifier with everything that new text needs.

    Attributes:
        classifier: in eval mode, on the CPU.
        pipeline: from text to batch, with the vocabulary and the names of the classes.
        config: the run's resolved settings.
        directory: of the run.
    """

    classifier: TrainedModel
    pipeline: TextPipeline
    config: dict[str, Any]
    directory: Path

    @property
    def vocabulary(self) -> Vocabulary:
        """The words that the classifier knows."""
        return self.pipeline.vocabulary

    @property
    def classes(self) -> Sequence[str]:
        """Names of the classes, in the order of the logits."""
        return self.pipeline.classes

    @cached_property
    def sentence(self) -> str:
        """Whether its attention may be read, and why; empty where the run has no tables."""
        try:
            return card_of_run(read_run(self.directory)).summary.words
        except UserError:
            return ""

    def outputs(
        self,
        texts: Sequence[str | Sequence[str]],
        questions: Sequence[str] | None = None,
        candidates: Sequence[Sequence[str]] | None = None,
    ) -> tuple[Batch, Outputs]:
        """Pass forward over new texts, which keep their order.

        Args:
            texts: see `TextPipeline.batch_of`.
            questions: see there.
            candidates: see there.

        Raises:
            UserError: if the texts cannot be read.
        """
        batch = self.pipeline.batch_of(texts, questions, candidates)
        with torch.no_grad():
            return batch, self.classifier(batch)

    def explain(
        self,
        texts: Sequence[str | Sequence[str]],
        questions: Sequence[str] | None = None,
        candidates: Sequence[Sequence[str]] | None = None,
        *,
        importance: Sequence[str] | None = None,
    ) -> Explanation:
        """Prediction, attention and importance for new texts; a notebook shows them as heat maps.

        Args:
            texts: raw texts.
            questions: one per text, where the run was trained with questions (`task=qa`); the
                second texts, where it reads pairs (`data.text2`); the number of the queried word,
                from 0, where every word has a class.
            candidates: names of the classes that each text may be answered with; None: all.
            importance: names of importances: built-in ones, those of an installed package, or those
                that the run has settings for. None: those of the run's list that are defined for
                these texts (`gradient` and `leave_one_out` where it has no list).

        Returns:
            a DataFrame with one row per text: `text`, `question` (where there is one), `prediction`
            (name of the class; multi-label: list of names), `probability` (of every class, by
            name), and lists of the same length:

            - `tokens`, and `attention`, which sums to 1. A hierarchical model attends to sentences:
              its `tokens` are whole sentences, and `words` and `word_attention` hold the words of
              each. `unseen`, where there are any: True at words that a mask of the network hides
              from this attention.
            - `first_words`, of a pair that the attention reads whole: a number, how many of the
              words are its first text's.
            - every importance, by its name (`attnprobe.importance`): `gradient`, |word vector ·
              ∂ŷ/∂word vector|, as shares that sum to 1; `leave_one_out`, the TVD (0 to 1) between
              the predictions without the token and with it; …
            - `flipping_set`: True for the fewest positions whose erasure from the attention changes
              the decision, to `flips_to`. Where no erasure does, which is proved then, `flips_to`
              is missing and `flipping_set` all False. Both columns are left out where that optimum
              is not known: several labels, questions, candidates (`attnprobe.exact`).

        Raises:
            UserError: if texts or questions cannot be read, or an importance is unknown or does not
                suit this model.
        """
        batch, outputs = self.outputs(texts, questions, candidates)
        readout = self.classifier.readout(batch, outputs)
        second_texts = [None] * len(texts) if questions is None else questions
        tokens = [
            self.pipeline.tokens(text, second_text)
            for text, second_text in zip(texts, second_texts, strict=True)
        ]
        importances = self._importances(importance)
        subject = Subject(
            self.classifier,
            batch,
            outputs,
            readout,
            words=self.vocabulary.words,
            importances=importances,
            seed=int(self.config.get("seed", 0)),
            classes=self.classes,
        )
        _drop_undefined(subject, importances, texts, tokens, are_named=importance is not None)

        columns: dict[str, Sequence[Any]] = {"text": texts}
        if batch.asked is not None:
            columns["question"] = _queried_words(batch.asked, outputs.text, tokens)
        elif questions is not None:
            columns["question"] = questions
        columns |= self._prediction_columns(outputs)
        columns["tokens"] = tokens
        if self.pipeline.attend_to == "both" and batch.segment is not None:
            columns["first_words"] = (batch.segment == 0).sum(-1).tolist()
        columns["attention"] = _rows_of(outputs.attention, outputs.text)
        if outputs.unseen is not None and bool(outputs.unseen.any()):
            columns["unseen"] = _rows_of(outputs.unseen, outputs.text)
        columns |= _importance_columns(subject)
        columns |= self._flipping_columns(readout)
        if outputs.word_attention is not None:
            columns |= _sentence_columns(batch, outputs.word_attention, tokens)

        rows = [
            dict(zip(columns, values, strict=True))
            for values in zip(*columns.values(), strict=True)
        ]
        explanation = Explanation(rows)
        explanation.attrs[SENTENCE] = self.sentence
        if self.pipeline.attend_to == "second":
            explanation.attrs[BESIDE] = "text"
        facts = {name: method.facts for name, method in importances.items()}
        explanation.attrs[IMPORTANCES] = {EXPLAINED: facts}
        return explanation

    def _importances(self, names: Sequence[str] | None) -> dict[str, Importance]:
        """Importances by name, with the run's settings; see `explain`.

        Raises:
            UserError: if a name is unknown.
        """
        settings = self.config.get("importance") or {}
        if names is None:
            names = self.config.get("importances") or DEFAULT_IMPORTANCES
        else:
            available = sorted({*settings, *built_in_names()})
            is_list = isinstance(names, list | tuple | set | frozenset)
            if not is_list or not all(name in available for name in names):
                raise UserError(
                    f"importance={names!r}: expected a list of any of {', '.join(available)}, "
                    f"or None"
                )
        configured = {
            name: built_part(f"importance.{name}", settings[name], Importance)
            for name in dict.fromkeys(names)
            if name in settings
        }
        return importances_of(names, configured)

    def _prediction_columns(self, outputs: Outputs) -> dict[str, list[Any]]:
        """Every text's prediction, and the probability of every class."""
        task = self.classifier.task
        predictions: list[Any] = []
        class_probabilities = []
        for probability in probabilities(outputs.logits, task):
            shares = dict(zip(self.classes, probability.tolist(), strict=True))
            class_probabilities.append(shares)
            if task is Task.MULTI_LABEL:
                likely = [name for name, share in shares.items() if share > 0.5]
                predictions.append(likely)
            else:
                predictions.append(self.classes[int(probability.argmax())])
        return {"prediction": predictions, "probability": class_probabilities}

    def _flipping_columns(self, readout: Readout) -> dict[str, list[Any]]:
        """Every text's smallest flipping set; no columns where that optimum is not known."""
        is_multi_label = self.classifier.task is Task.MULTI_LABEL
        if readout.position_logits is None or is_multi_label:
            return {}
        flipping = smallest_flipping_set(
            readout.attention, readout.position_logits, readout.content
        )
        classes = [
            self.classes[number] if number >= 0 else None for number in flipping.flips_to.tolist()
        ]
        return {"flipping_set": _rows_of(flipping.members, readout.content), "flips_to": classes}


def _rows_of(values: Tensor, content: Tensor) -> list[list[Any]]:
    """Each text's values at its content positions."""
    return [row[mask].tolist() for row, mask in zip(values, content, strict=True)]


def _queried_words(queried: Tensor, content: Tensor, tokens: Sequence[Sequence[str]]) -> list[str]:
    """Each text's queried word with its position, as in `bank (word 3)`."""
    words = []
    for text_queried, text_content, text_tokens in zip(queried, content, tokens, strict=True):
        position = int(text_queried[text_content].argmax())
        words.append(f"{text_tokens[position]} (word {position + 1})")
    return words


def _drop_undefined(
    subject: Subject,
    importances: dict[str, Importance],
    texts: Sequence[str | Sequence[str]],
    tokens: Sequence[Sequence[str]],
    *,
    are_named: bool,
) -> None:
    """Leave out the importances that are not defined for these texts, in place.

    Args:
        subject: the classifier and the texts.
        importances: the subject's, by name.
        texts: as they came.
        tokens: of each text.
        are_named: the caller named them: one that does not suit the model is an error.

    Raises:
        UserError: see `are_named`.
    """
    for name, method in list(importances.items()):
        try:
            method.refuse(subject.classifier)
            method.prepare_texts(texts, tokens)
            is_defined = method.is_defined(subject)
        except UserError:
            if are_named:
                raise
            is_defined = False
        if not is_defined:
            del importances[name]


def _importance_columns(subject: Subject) -> dict[str, list[list[float]]]:
    """Each text's scores, by importance; the attention has a column already.

    Scores without a meaningful unit become shares of the text's sum.
    """
    columns = {}
    for name, method in subject.importances.items():
        if name == "attention":
            continue
        scores = subject.cached(method.scores)
        if method.shares:
            scores = normalised(scores.double(), subject.outputs.content)
        columns[name] = _rows_of(scores, subject.outputs.text)
    return columns


def _sentence_columns(
    batch: Batch, word_attention: Tensor, tokens: Sequence[Sequence[str]]
) -> dict[str, list[Any]]:
    """Columns of a hierarchical model, whose tokens are sentences: their words, with weights."""
    lengths = words_per_sentence(batch)
    weights = _rows_of(word_attention, batch.content)
    words = [
        cut_into_sentences(text_tokens, text_lengths)
        for text_tokens, text_lengths in zip(tokens, lengths, strict=True)
    ]
    return {
        "tokens": [[" ".join(sentence) for sentence in sentences] for sentences in words],
        "words": words,
        "word_attention": [
            cut_into_sentences(text_weights, text_lengths)
            for text_weights, text_lengths in zip(weights, lengths, strict=True)
        ],
    }


def load_run(directory: str | os.PathLike, *, trusted: Sequence[str] = ()) -> TrainedRun:
    """Load a finished run: its classifier, vocabulary and settings, ready for new text.

    Args:
        directory: of the run.
        trusted: packages besides attnprobe whose encoders, attentions, … the run's settings may
            name: yours, for models of your own. A run directory from somebody else is data, and not
            code: see docs/faq.md for what is checked.

    Raises:
        UserError: if no finished run is there, or its settings name anything but a class of the
            kind that belongs at that place.
        DamagedRun: if one of its files is missing, cut off or changed; it is named.
    """
    run = RunDirectory(directory)
    run.verify([CONFIG, VOCABULARY, PIPELINE, WEIGHTS])
    config = checked_settings(run.path, trusted)
    pipeline = TextPipeline.load(run.path)
    try:
        weights = load_file(run / WEIGHTS)
        model = built_model(_with_checkpoint(config["model"], run))
        # a tokenizer is read from where the settings say, but never over the network
        if is_whole(config["model"]):
            arguments: dict[str, Any] = {
                "class_names": pipeline.classes,
                "task": pipeline.task,
                "trains": True,
                "offline": True,
            }
            if pipeline.tags:
                arguments["tags"] = True
            classifier: TrainedModel = model(**arguments)
        else:
            if model.encoder.func.pretrained:
                settings = model.encoder.keywords | {"offline": True}
                encoder = defer("model.encoder", model.encoder.func, settings)
                model = replace(model, encoder=encoder)
            embeddings = zero_vectors(weights)
            classifier = construct(
                model, embeddings, classes=len(pipeline.classes), task=pipeline.task
            )
        if classifier.reader is not None:
            pipeline = replace(pipeline, pieces=classifier.reader, tags=classifier.tags)
        classifier.load_state_dict(weights)
    except (SafetensorError, OSError, RuntimeError) as error:
        raise damaged(run / WEIGHTS, " ".join(str(error).split())[:200]) from None
    return TrainedRun(classifier.eval(), pipeline, config, run.path)


def _with_checkpoint(model: Mapping[str, Any], run: RunDirectory) -> Mapping[str, Any]:
    """The settings of a run's model, with the path at which the folder of its checkpoint is now.

    A relative path begins in the folder in which the run was made, whatever folder it is loaded
    from.

    Raises:
        UserError: the folder is gone, or a file of it has changed since.
    """
    records = _checkpoint_records(run)
    if not records:
        return model

    path = Path(str(model.get("path")))
    made_in = run.path / str(run.read_listing(TRAINED).get("made_in", ""))
    folder = next((place for place in (made_in / path, path) if place.is_dir()), None)
    if folder is None:
        raise UserError(
            f"model.path={path}: there is no such folder in {Path.cwd()}, and {run.path} reads its "
            f"tokenizer from there: put it back, or change to the folder in which the run was made"
        )
    for name, record in records.items():
        file = folder / name
        if not file.is_file() or record_of(file.resolve()) != record:
            raise UserError(
                f"model.path={path}: {file} is not what it was when {run.path} was made, which "
                f"reads its tokenizer from there: put the old content back"
            )
    changed = {**model, "path": str(folder)}
    if "path" in (model.get("encoder") or {}):
        changed["encoder"] = {**model["encoder"], "path": str(folder)}
    return changed


def _checkpoint_records(run: RunDirectory) -> dict[str, Any]:
    """What the files of a run's checkpoint were when it was trained, by name.

    Without its weights, of which the run has its own; none of a checkpoint of the hub.
    """
    if not run.is_trained:
        return {}
    records = {}
    for setting, record in run.read_listing(TRAINED).get("inputs", {}).items():
        part, _, name = setting.partition("/")
        is_weights = Path(name).suffix == Path(WEIGHTS).suffix
        if part == "model.path" and name and not is_weights:
            records[name] = record
    return records


def zero_vectors(weights: Mapping[str, Tensor]) -> Tensor:
    """Word vectors of the saved ones' shape, to be overwritten by them; of any where none are."""
    for part in ("embedding", "question_embedding"):
        if f"{part}.weight" in weights:
            return torch.zeros_like(weights[f"{part}.weight"])
    return torch.zeros(1, 1)


def checked_settings(directory: Path, trusted: Sequence[str]) -> dict[str, Any]:
    """A run's settings, with every class checked and none constructed yet.

    Args:
        directory: of the run.
        trusted: see `load_run`.

    Raises:
        UserError: if there are no settings, they name anything but a class of the kind that belongs
            at that place, or a part of the model is missing.
    """
    try:
        config = read_settings(directory)
    except OSError:
        raise UserError(
            f"{directory} holds no config.yaml: expected a run directory as it was written"
        ) from None
    check_saved(config, RunDirectory(directory) / CONFIG, trusted)

    model = config.get("model")
    if is_whole(model):
        return config
    for part in ("encoder", "attention", "decoder"):
        if not isinstance(model, dict) or part not in model:
            raise UserError(
                f"{directory}/config.yaml: model.{part} is missing: it is damaged or not of a run"
            )
    return config
