"""The models that are trained: small, as a rate needs many."""

from typing import Any

from attnprobe.runs.composition import composed, resolved
from research.planted import PLANTED

Overrides = tuple[str, ...]

OWN = "model.attention._target_=research.attentions."

EVEN: Overrides = ("model/attention=uniform",)
PAIR: Overrides = ("model/attention=first", f"{OWN}PairAttention", "~model.attention.mass")
GUIDES: dict[str, Overrides] = {
    "equal weights": EVEN,
    "right, leak": PAIR,
    "right, none": (*PAIR, "+model.attention.first=0.475", "+model.attention.second=0.475"),
    "wrong, leak": ("model/attention=first", f"{OWN}LabelAttention"),
    "wrong, none": (
        "model/attention=first",
        f"{OWN}PlacedAttention",
        "+model.attention.where=other",
    ),
    "first word": ("model/attention=first",),
}
"""Attentions that guide: on the words that decide or not; and whether the weights carry the
label."""
GUIDED: Overrides = ("data.plant=ordered_pair", "data.source.train_size=600", "model=average")
"""The model without context that is guided."""
CELLS: dict[str, Overrides] = {
    "pair, lstm": (
        "data.plant=ordered_pair",
        "model=lstm",
        "model.width=16",
        "data.source.train_size=600",
    ),
    "token, average": (
        "data.plant=token",
        "model=average",
        "model.width=24",
        "data.source.train_size=150",
    ),
}
"""The pools that audits are drawn from."""
RECALL: Overrides = (
    "task=qa",
    "data=rules",
    "data.question=question",
    "model/decoder=additive",
    "data.source.train_size=2000",
)
UNIQUE: Overrides = ("data=rules", "data.source.rule=token", "data.source.train_size=600")
NEED: dict[str, Overrides] = {
    "recall of 2": (*RECALL, "data.source.rule=recall2"),
    "recall of 4": (*RECALL, "data.source.rule=recall4"),
    "no question": (*UNIQUE, "data.source.train_size=4000"),
}
"""Validity of necessity: models without context, with learned and with equal weights."""
ALIKE: dict[str, Overrides] = {
    "first": (*UNIQUE, "model/attention=first"),
    "rationale": (*UNIQUE, "model/attention=rationale"),
    "common_word": (*UNIQUE, "model/attention=common_word"),
    "random": (*UNIQUE, "model/attention=random"),
    "position": (*UNIQUE, "model/attention=position"),
    "untrained": UNIQUE,
    "learned": UNIQUE,
    "learned, twins": (*UNIQUE, "data.source.rule=twins"),
}
"""Validity of stability: models without context whose attention is given, the same for every seed
or drawn anew with it, and learned ones."""


def settings_of(draw: int, *overrides: str) -> dict[str, Any]:
    """A small run on planted words; `draw` is of texts, labels and places."""
    shared = (
        *PLANTED,
        "data.counterfactual=null",
        f"data.source.seed={draw}",
        f"data.split_seed={draw}",
        "data.source.validation_size=100",
        "data.source.test_size=300",
        "data.embedding_size=24",
        "data.batch_size=32",
    )
    return resolved(composed([*shared, *overrides]))


def valid_settings(cell: str, *overrides: str) -> dict[str, Any]:
    """A small model without context, of a cell of `NEED` or `ALIKE`."""
    small = (
        "model=average",
        "model.width=24",
        "training.recipe.optimizer.lr=0.01",
        "data.source.test_size=300",
    )
    return resolved(composed([*(NEED | ALIKE)[cell], *small, *overrides]))
