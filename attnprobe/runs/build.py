"""From a run's settings to its parts: the untrained classifier, and the importances."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from attnprobe.core.errors import UserError
from attnprobe.data.module import TextDataModule
from attnprobe.importance.base import Importance, built_in
from attnprobe.models.base import Unit
from attnprobe.models.classifier import AttentionClassifier
from attnprobe.models.trained import TrainedModel
from attnprobe.runs.configuration import Configuration, Stages


def untrained(parts: Configuration, data: TextDataModule) -> TrainedModel:
    """The classifier that a run's settings describe, with weights from torch's generator.

    A model with a tokenizer of its own reads the data's words with it, and looks at itself on a few
    of the texts.

    Args:
        parts: of the run's settings.
        data: set up; a whole model's classes and pieces are put into them.
    """
    facts: dict[str, Any] = {
        "task": data.task,
        "class_weight": data.class_weight,
        "recipe": parts.training.recipe,
    }
    classifier: TrainedModel
    if isinstance(parts.model, Stages):
        embeddings = data.embeddings()
        classifier = construct(parts.model, embeddings, classes=len(data.classes), **facts)
        classifier.attention.read_training_texts(data)
    else:
        if parts.data.settings.labels is not None:
            facts["in_order"] = True
        classifier = parts.model(
            class_names=list(data.classes), trains=parts.training.epochs > 0, **facts
        )
        if classifier.reader is not None:
            refuse_question(data.settings.question)
        data.take_classes(classifier.class_names, classifier.matched)

    classifier.look_at(data)
    if classifier.recipe is not None:
        # a recipe that does not suit the model is refused here
        with torch.random.fork_rng(devices=[]):
            classifier.recipe.objective.given(classifier, data.splits["test"].sample())
    return classifier


def refuse_question(question: str | None) -> None:
    """Refuse data that ask questions, which no sequence classifier of a library reads."""
    if question is not None:
        raise UserError(
            f"data.question={question}: that is for models that answer questions (task=qa, "
            f"task=labels). A pretrained model reads a second text as one of a pair: "
            f"data.question=null data.text2={question}"
        )


def construct(stages: Stages, embeddings: torch.Tensor, **facts: Any) -> AttentionClassifier:
    """An untrained classifier of three stages.

    Args:
        stages: of the run's settings.
        embeddings: word vectors `[vocabulary, embed]`.
        facts: what follows from the data and the recipe.
    """
    return AttentionClassifier(
        embeddings=embeddings,
        encoder=stages.encoder,
        attention=stages.attention,
        decoder=stages.decoder,
        question_encoder=stages.question_encoder,
        unit=Unit(stages.unit),
        **facts,
    )


def importances_of(
    names: Iterable[str], configured: Mapping[str, Importance]
) -> dict[str, Importance]:
    """The importances of these names; one that is not configured is built in, with its defaults."""
    return {
        name: configured[name] if name in configured else built_in(name)
        for name in dict.fromkeys(names)
    }
