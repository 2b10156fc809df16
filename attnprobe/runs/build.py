"""From a run's settings to its parts: the untrained classifier, and the importances."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from hydra.utils import instantiate

from attnprobe.data.module import TextDataModule
from attnprobe.importance.base import Importance, built_in
from attnprobe.models.classifier import AttentionClassifier
from attnprobe.models.trained import TrainedModel


def untrained(config: Mapping[str, Any], data: TextDataModule) -> TrainedModel:
    """The classifier that a run's settings describe, for data that are set up. Its weights come
    from torch's generator.

    A model with a tokenizer of its own reads the data's words with it, and looks at itself on a few
    of the texts."""
    facts = {
        "task": data.task,
        "class_weight": data.class_weight,
        "recipe": instantiate(config["training"]["recipe"]),
    }
    trains = config["training"]["epochs"] > 0
    classifier: TrainedModel
    if is_whole(config["model"]):
        named = {} if config["data"].get("labels") is None else {"in_order": True}
        classifier = instantiate(config["model"])(
            class_names=list(data.classes), trains=trains, **named, **facts
        )
        data.take_classes(classifier.class_names, classifier.matched)
    else:
        classifier = construct(
            config["model"], data.embeddings(), classes=len(data.classes), **facts
        )
        classifier.attention.read_training_texts(data)
    if classifier.reader is not None:
        data.read_pieces(classifier.reader)
    sample = data.splits["test"].sample()
    classifier.prepare(sample)
    if note := classifier.read_texts(data.loader("test")):
        data.notes += (note,)
    if classifier.recipe is not None:
        with torch.random.fork_rng(
            devices=[]
        ):  # a recipe that does not suit the model is refused here
            classifier.recipe.objective.given(classifier, sample)
    return classifier


def is_whole(model: Any) -> bool:
    """Whether settings name the class of a whole model, and not those of its parts."""
    return isinstance(model, Mapping) and "_target_" in model


def construct(
    model: Mapping[str, Any], embeddings: torch.Tensor, **facts: Any
) -> AttentionClassifier:
    """An untrained classifier of three stages as conf/model describes it; `facts` follow from the
    data and the recipe."""
    question = model.get("question_encoder")
    return AttentionClassifier(
        embeddings=embeddings,
        encoder=instantiate(model["encoder"]),
        attention=instantiate(model["attention"]),
        decoder=instantiate(model["decoder"]),
        question_encoder=None if question is None else instantiate(question),
        **facts,
    )


def importances_of(names: Iterable[str], parts: Mapping[str, Any]) -> dict[str, Importance]:
    """The importances of these names, from a run's settings of importances; one without is built
    in, with its defaults."""
    return {
        name: instantiate(parts[name]) if name in parts else built_in(name)
        for name in dict.fromkeys(names)
    }
