"""A finished run loaded again: its classifier, its text pipeline, and what it says about new
text."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from attnprobe.core.batch import Batch, Outputs, Task, probabilities
from attnprobe.core.errors import UserError
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
from attnprobe.report.notebook import EXPLAINED, SENTENCE, Explanation
from attnprobe.results.directory import CONFIG, PIPELINE, VOCABULARY, WEIGHTS, RunDirectory
from attnprobe.results.files import damaged
from attnprobe.results.saved_settings import read_settings
from attnprobe.results.table import IMPORTANCES
from attnprobe.runs.build import construct, importances_of
from attnprobe.runs.validation import built_model, built_part, check_saved, is_whole

BESIDE_ATTENTION = ("gradient", "leave_one_out")
"""Importances beside the attention where neither the call nor the run names any."""


@dataclass(frozen=True)
class TrainedRun:
    """A trained classifier (in eval mode, on the CPU) with everything that new text needs: the
    pipeline from text to batch, which holds the vocabulary and the classes' names, and the run's
    resolved settings."""

    classifier: TrainedModel
    pipeline: TextPipeline
    config: dict[str, Any]
    directory: Path

    @property
    def vocabulary(self) -> Vocabulary:
        return self.pipeline.vocabulary

    @property
    def classes(self) -> Sequence[str]:
        """Names of the classes, in the order of the logits."""
        return self.pipeline.classes

    @cached_property
    def sentence(self) -> str:
        """May its attention be read, and why; empty where it has no tables."""
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
        """One forward pass over new texts, in this order; arguments and errors are those of
        `TextPipeline.batch_of`."""
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
                second texts, where it reads pairs (`data.text2`); the number of the word that is
                asked about, from 0, where every word has a class.
            candidates: names of the classes that each text may be answered with; None: all.
            importance: names of importances, built-in ones, an installed package's, or those that
                the run has settings for; None: the run's own list (`gradient` and `leave_one_out`
                where it has none), as far as defined here.

        Returns:
            a DataFrame with one row per text: `text`, `question` (where there is one), `prediction`
            (name of the class; multi-label: list of names), `probability` (of every class, by
            name), and lists of the same length:

            - `tokens`, and `attention`, which sums to 1. A hierarchical model attends to sentences:
              its `tokens` are whole sentences, and `words` and `word_attention` hold the words of
              each.
            - every importance, by its name (`attnprobe.importance`): `gradient`, |word vector ·
              ∂ŷ/∂word vector|, as shares that sum to 1; `leave_one_out`, the TVD (0 to 1) between
              the predictions without the token and with it; …
            - `flipping_set`: True for the fewest positions whose erasure from the attention changes
              the decision, to `flips_to`; missing and all False where it is proved that no erasure
              does. Both are left out where that optimum is not known: several labels, questions,
              candidates (`attnprobe.exact`).

        Raises:
            UserError: texts or questions cannot be read, or an importance is unknown or does not
                suit this model.
        """
        batch, outputs = self.outputs(texts, questions, candidates)
        probability = probabilities(outputs.logits, self.classifier.task)
        readout = self.classifier.readout(batch, outputs)
        several = self.classifier.task is Task.MULTI_LABEL
        flipping = None
        if readout.position_logits is not None and not several:
            flipping = smallest_flipping_set(
                readout.attention, readout.position_logits, readout.content
            )
        seconds = [None] * len(texts) if questions is None else questions
        tokens = [
            self.pipeline.tokens(text, second) for text, second in zip(texts, seconds, strict=True)
        ]
        parts = self.config.get("importance") or {}
        known = sorted({*parts, *built_in_names()})
        if importance is not None and (
            not isinstance(importance, list | tuple | set | frozenset)
            or not all(name in known for name in importance)
        ):
            raise UserError(
                f"importance={importance!r}: expected a list of any of {', '.join(known)}, or None"
            )
        names = (
            (self.config.get("importances") or BESIDE_ATTENTION)
            if importance is None
            else importance
        )
        configured = {
            name: built_part(f"importance.{name}", parts[name], Importance)
            for name in dict.fromkeys(names)
            if name in parts
        }
        chosen = importances_of(names, configured)
        seed = int(self.config.get("seed", 0))
        words = self.vocabulary.words
        subject = Subject(
            self.classifier, batch, outputs, readout, words, chosen, seed, self.classes
        )
        for name, one in list(chosen.items()):
            try:
                one.refuse(self.classifier)
                one.prepare_texts(texts, tokens)
                is_defined = one.is_defined(subject)
            except UserError:
                if importance is not None:
                    raise
                is_defined = False
            if not is_defined:
                del chosen[name]
        measured = {
            name: subject.cached(one.scores) for name, one in chosen.items() if name != "attention"
        }
        for name, scores in measured.items():
            if chosen[name].shares:  # the unit says nothing: shares of the text's sum
                measured[name] = normalised(scores.double(), outputs.content)
        rows = []
        for number, text in enumerate(texts):
            content = outputs.content[number]
            row: dict[str, Any] = {"text": text}
            if questions is not None:
                row["question"] = questions[number]
            if batch.asked is not None:
                place = int(batch.asked[number][content].argmax())
                row["question"] = f"{tokens[number][place]} (word {place + 1})"
            by_name = dict(zip(self.classes, probability[number].tolist(), strict=True))
            likeliest = self.classes[int(probability[number].argmax())]
            row["prediction"] = (
                [name for name, p in by_name.items() if p > 0.5] if several else likeliest
            )
            row["probability"] = by_name
            row |= {
                "tokens": tokens[number],
                "attention": outputs.attention[number][content].tolist(),
            }
            row |= {name: values[number][content].tolist() for name, values in measured.items()}
            if flipping is not None:
                other = int(flipping.flips_to[number])
                row["flipping_set"] = flipping.members[number][readout.content[number]].tolist()
                row["flips_to"] = self.classes[other] if other >= 0 else None
            if outputs.word_attention is not None:
                weights = outputs.word_attention[number][batch.content[number]].tolist()
                lengths = words_per_sentence(batch)[number]
                sentences = cut_into_sentences(row["tokens"], lengths)
                row["tokens"] = [" ".join(sentence) for sentence in sentences]
                row |= {"words": sentences, "word_attention": cut_into_sentences(weights, lengths)}
            rows.append(row)
        explanation = Explanation(rows)
        explanation.attrs[SENTENCE] = self.sentence
        explanation.attrs[IMPORTANCES] = {
            EXPLAINED: {name: one.facts for name, one in chosen.items()}
        }
        return explanation


def load_run(directory: str | os.PathLike, *, trusted: Sequence[str] = ()) -> TrainedRun:
    """The trained classifier, vocabulary and settings of a finished run, ready for new text.

    Args:
        directory: a run directory with its manifest.
        trusted: packages besides attnprobe whose encoders, attentions, … the run's settings may
            name: yours, for models of your own. A run directory from somebody else is data, and not
            code: see docs/faq.md for what is checked.

    Raises:
        UserError: no finished run there, or its settings name anything but a class of the kind that
            belongs at that place.
        DamagedRun: one of its files is missing, cut off or changed; it is named.
    """
    run = RunDirectory(directory)
    run.verify([CONFIG, VOCABULARY, PIPELINE, WEIGHTS])
    config = checked_settings(run.path, trusted)
    pipeline = TextPipeline.load(run.path)
    try:
        weights = load_file(run / WEIGHTS)
        model = built_model(config["model"])
        if is_whole(
            config["model"]
        ):  # its own tokenizer is read from where its settings say, never over the network
            known = {
                "class_names": pipeline.classes,
                "task": pipeline.task,
                "trains": True,
                "offline": True,
            }
            known |= {"tags": True} if pipeline.tags else {}
            classifier: TrainedModel = model(**known)
            pipeline = replace(pipeline, pieces=classifier.reader, tags=classifier.tags)
        else:
            # zero word vectors of the saved ones' shape, to be overwritten by them
            embeddings = torch.zeros_like(weights["embedding.weight"])
            classifier = construct(
                model, embeddings, classes=len(pipeline.classes), task=pipeline.task
            )
        classifier.load_state_dict(weights)
    except (SafetensorError, OSError, RuntimeError) as error:
        raise damaged(run / WEIGHTS, " ".join(str(error).split())[:200]) from None
    return TrainedRun(classifier.eval(), pipeline, config, run.path)


def checked_settings(directory: Path, trusted: Sequence[str]) -> dict[str, Any]:
    """A run's settings, of which every class has been checked and none is constructed yet."""
    try:
        config = read_settings(directory)
    except OSError:
        raise UserError(
            f"{directory} holds no config.yaml: expected a run directory as it was written"
        ) from None
    check_saved(config, RunDirectory(directory) / CONFIG, trusted)
    model = config.get("model")
    absent = [
        part
        for part in ("encoder", "attention", "decoder")
        if not isinstance(model, dict) or part not in model
    ]
    if absent and not is_whole(model):
        raise UserError(
            f"{directory}/config.yaml: model.{absent[0]} is missing: it is damaged or not of a run"
        )
    return config
