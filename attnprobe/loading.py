"""A finished run taken up again: its classifier, its text pipeline, and what it says about new text."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf
from safetensors import safe_open
from safetensors.torch import load_file

from attnprobe.batch import Batch, Outputs, Task, probabilities
from attnprobe.data.text import TextPipeline
from attnprobe.data.vocabulary import Vocabulary
from attnprobe.errors import UserError
from attnprobe.models.classifier import AttentionClassifier
from attnprobe.models.hierarchical import by_sentence, words_per_sentence
from attnprobe.results import read_manifest

TRUSTED = ("attnprobe", "torch")
"""Packages whose classes a run directory may ask to be constructed."""


@dataclass(frozen=True)
class TrainedRun:
    """A trained classifier with everything that new text needs.

    Attributes:
        classifier: in eval mode, on the CPU.
        pipeline: text → batch; holds the vocabulary and the classes' names.
        config: the run's resolved settings.
        directory: where it was read from.
    """

    classifier: AttentionClassifier
    pipeline: TextPipeline
    config: dict[str, Any]
    directory: Path

    @property
    def vocabulary(self) -> Vocabulary:
        """Word ↔ id."""
        return self.pipeline.vocabulary

    @property
    def classes(self) -> Sequence[str]:
        """Names of the classes, in the order of the logits."""
        return self.pipeline.classes

    def outputs(
        self,
        texts: Sequence[str | Sequence[str]],
        questions: Sequence[str] | None = None,
        candidates: Sequence[Sequence[str]] | None = None,
    ) -> tuple[Batch, Outputs]:
        """One forward pass over new texts, in this order; the arguments are those of `TextPipeline.batch_of`.

        Raises:
            UserError: no text, a text without any word, or questions that are missing or not asked for.
        """
        batch = self.pipeline.batch_of(texts, questions, candidates)
        with torch.no_grad():
            return batch, self.classifier(batch)

    def explain(
        self,
        texts: Sequence[str | Sequence[str]],
        questions: Sequence[str] | None = None,
        candidates: Sequence[Sequence[str]] | None = None,
    ) -> pd.DataFrame:
        """Prediction and attention for new texts.

        Args:
            texts: raw texts.
            questions: one per text, where the run was trained with questions (`task=qa`).
            candidates: names of the classes that each text may be answered with; None: all.

        Returns:
            one row per text: `text`, `prediction` (name of the class; multi-label: list of names), `probability` (of
            every class, by name), and `tokens` and `attention` as lists of the same length; the attention sums to 1. A
            hierarchical model attends to sentences: its `tokens` are whole sentences, and `words` and `word_attention`
            hold the words of each.

        Raises:
            UserError: no text, a text without any word, or questions that are missing or not asked for.
        """
        batch, outputs = self.outputs(texts, questions, candidates)
        probability = probabilities(outputs.logits, self.classifier.task)
        rows = []
        for row, text in enumerate(texts):
            numbers = probability[row].tolist()
            chosen = [name for name, p in zip(self.classes, numbers, strict=True) if p > 0.5]
            multi_label = self.classifier.task is Task.MULTI_LABEL
            rows.append(
                {
                    "text": text,
                    "prediction": chosen if multi_label else self.classes[int(probability[row].argmax())],
                    "probability": dict(zip(self.classes, numbers, strict=True)),
                    "tokens": self.pipeline.tokens(text),
                    "attention": outputs.attention[row][outputs.content[row]].tolist(),
                }
            )
            if outputs.word_attention is not None:
                lengths = words_per_sentence(batch)[row]
                words = by_sentence(rows[-1]["tokens"], lengths)
                weights = outputs.word_attention[row][batch.content[row]].tolist()
                rows[-1] |= {"words": words, "word_attention": by_sentence(weights, lengths)}
                rows[-1]["tokens"] = [" ".join(sentence) for sentence in words]
        return pd.DataFrame(rows)


def load_run(directory: str | os.PathLike, *, trusted: Sequence[str] = TRUSTED) -> TrainedRun:
    """The trained classifier, vocabulary and settings of a finished run, ready for new text.

    Args:
        directory: a run directory with its manifest.
        trusted: packages whose classes the run's settings may name. A run directory from somebody else is data, not
            code: anything beyond these is refused. Add your own package's name for models of your own.

    Raises:
        UserError: no finished run there, or its settings name a class outside `trusted`.
    """
    directory = Path(directory)
    if read_manifest(directory) is None:
        raise UserError(
            f"{directory} holds no finished run (no manifest.json): expected a run directory such as "
            f"runs/testbed/lstm_additive-seed0-…; train one with `python -m attnprobe`"
        )
    config = OmegaConf.to_container(OmegaConf.load(directory / "config.yaml"), resolve=True)
    assert isinstance(config, dict)
    for target in targets(config["model"]):
        if target.split(".")[0] not in trusted:
            raise UserError(
                f"{directory}/config.yaml asks for {target}, which is outside the trusted packages "
                f"({', '.join(trusted)}): if you trust it, load_run(…, trusted=[…, '{target.split('.')[0]}'])"
            )
    pipeline = TextPipeline.load(directory)
    classifier = construct(config["model"], weights_shape(directory), classes=len(pipeline.classes), task=pipeline.task)
    classifier.load_state_dict(load_file(directory / "model.safetensors"))
    return TrainedRun(classifier.eval(), pipeline, {str(key): value for key, value in config.items()}, directory)


def weights_shape(directory: Path) -> torch.Tensor:
    """Zero word vectors of the saved ones' shape, to be overwritten by them."""
    with safe_open(directory / "model.safetensors", framework="pt") as weights:
        return torch.zeros(weights.get_slice("embedding.weight").get_shape())


def targets(content: Any) -> list[str]:
    """All `_target_` values of nested settings."""
    if isinstance(content, Mapping):
        own = [str(content["_target_"])] if "_target_" in content else []
        return own + [target for value in content.values() for target in targets(value)]
    if isinstance(content, (list, tuple)):
        return [target for value in content for target in targets(value)]
    return []


def construct(model: Mapping[str, Any], embeddings: torch.Tensor, **facts: Any) -> AttentionClassifier:
    """An untrained classifier as conf/model describes it; `facts` follow from the data and the recipe."""
    question = model.get("question_encoder")
    return AttentionClassifier(
        embeddings=embeddings,
        encoder=instantiate(model["encoder"]),
        attention=instantiate(model["attention"]),
        decoder=instantiate(model["decoder"]),
        question_encoder=None if question is None else instantiate(question),
        **facts,
    )
