"""The models that are trained: a rule, an encoder and an attention each."""

from typing import Any

from attnprobe.runs.composition import composed, resolved
from research.calibration.study import CONTROLS, ENCODERS, PLANTED
from research.rules import TRIED

OWN = "model.attention._target_=research.attentions."
PLACED = ("model/attention=first", f"{OWN}PlacedAttention")
ATTENTIONS: dict[str, tuple[str, ...]] = CONTROLS | {
    "rationale_40": ("model/attention=rationale", "model.attention.mass=0.4"),
    "first_70": ("model/attention=first", "model.attention.mass=0.7"),
    "last_70": (*PLACED, "+model.attention.where=last", "model.attention.mass=0.7"),
    "common_70": ("model/attention=common_word", "model.attention.mass=0.7"),
    "half": PLACED,
    "rare_right": (*PLACED, "+model.attention.where=one"),
    "rare_wrong": (*PLACED, "+model.attention.where=more"),
}
OF_PLACES = {"first", "last", "random", "position", "half", "rare_right", "rare_wrong"}
"""Attentions on places, under which a model needs context."""
LAYERS = {
    f"transformer_{layers}": (
        *ENCODERS["transformer"],
        f"model.encoder.layers={layers}",
        "data.embedding_size=48",
    )
    for layers in (1, 2, 4)
}
"""Own transformers by how many layers they have, on planted words."""
GIVEN: dict[str, tuple[str, ...]] = {
    "learned": (),
    "supervised": ("training=finetune_supervise",),
    "deceived": ("training=finetune_deceive",),
    "uniform": ("model.given=uniform",),
    "rationale": ("model.given=rationale",),
    "first": ("model.given=first",),
    "random": ("model.given=random",),
    "common_word": ("model.given=common_word",),
}
"""The attention of a pretrained model, on planted words."""
SINGLE_WORD = {
    "third_last",
    "unequal",
    "long",
    "very_long",
    "lexicon",
    "lexicon_noisy",
    "compared",
    "two_questions",
    "reviews_word",
    "reviews_counting",
    *TRIED,
}
"""Rules that a model without context can learn."""
HARDER = {
    "xor",
    "phrase",
    "majority15",
    "order_of_two",
    "last_of_three",
    "compared",
    "negated",
    "two_questions",
    "conjunction",
}
"""Rules that take more texts."""


def is_possible(rule: str, encoder: str, attention: str) -> bool:
    """Whether a model can learn the rule, and in a time that is worth it."""
    if encoder == "average":
        return rule in SINGLE_WORD and attention not in OF_PLACES
    return (rule, encoder) != ("very_long", "transformer")


def settings_of(rule: str, encoder: str, attention: str, draw: int, texts: int) -> dict[str, Any]:
    """A run's settings, with the rule's texts as its data.

    Args:
        rule: of `research.rules`; for a checkpoint and `LAYERS` a kind of planted words.
        encoder: its name, or the folder of a checkpoint.
        attention: of `ATTENTIONS`; of a checkpoint one of `GIVEN`.
        draw: of the texts.
        texts: in the test split.
    """
    if encoder.startswith("/") or encoder in LAYERS:
        return planted_settings(rule, encoder, attention, draw, texts)
    shared = ("data=testbed", "data.embedding_size=48", "data.batch_size=32")
    config = resolved(composed([*shared, *ENCODERS[encoder], *ATTENTIONS[attention]]))
    config["data"]["name"] = rule
    config["data"]["labels"] = None
    config["data"]["source"] = {
        "_target_": "research.rules.RuleSource",
        "rule": rule,
        "seed": draw,
        "train_size": train_size(rule),
        "test_size": 40 if rule == "very_long" else texts,
    }
    return config


def train_size(rule: str) -> int:
    """Training texts of a rule."""
    if rule == "very_long":
        return 600
    return 2000 if rule in HARDER or rule.startswith("reviews_") else 1000


def planted_settings(
    kind: str, encoder: str, attention: str, draw: int, texts: int
) -> dict[str, Any]:
    """Settings of a transformer of `LAYERS`, or of a checkpoint, on planted words of this kind."""
    train = 1000
    if encoder in LAYERS:
        model = (*LAYERS[encoder], *ATTENTIONS[attention])
        if kind != "token":
            train = 2000
    else:
        model = (
            "model=pretrained",
            f"model.path={encoder}",
            "training=finetune",
            "training.recipe.optimizer.lr=1e-4",
            *GIVEN[attention],
        )
    data = (
        *PLANTED,
        "data.counterfactual=null",
        f"data.plant={kind}",
        f"data.source.train_size={train}",
        "data.source.validation_size=100",
        f"data.source.test_size={texts}",
        f"data.source.seed={draw}",
    )
    return resolved(composed([*data, *model]))
