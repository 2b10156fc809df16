"""What a run's manifest says of its model: the kind of its encoder, and what its attention is."""

from collections.abc import Mapping

MECHANISMS = {
    "PositionAttention": "by the position alone",
    "RandomAttention": "drawn at random",
    "FirstAttention": "put on the first word",
    "CommonWordAttention": "put on the commonest word",
    "LexiconAttention": "counted from the labels",
    "RationaleAttention": "put on the marked words",
    "ColumnAttention": "taken from the data",
    "UniformAttention": "the same on every word",
    "ImposedAttention": "imposed by a teacher",
}
"""What attention that knows nothing of the words is, or was made to be, by its class."""
SITE_OF_RECORD = "layer -1, heads all, pooled"
"""Where the attention of pretrained models was examined for their track record."""
LABEL_DECODER = "LabelDecoder"
PER_LABEL = " per label"
"""What the kind of a model ends in that has an attention for each label."""


def encoder_of(manifest: Mapping[str, object]) -> str:
    """The kind of a run's encoder, as the track record calls it.

    Returns:
        The encoder's class in short, such as `lstm` for `LSTMEncoder`; `lstm per label` where each
        label has an attention. Of a pretrained model its family, where it is examined as it was for
        its record. Empty where the kind is not known, or its attention was looked at over
        sentences, which has no record.
    """
    facts = manifest.get("model_facts")
    if isinstance(facts, Mapping) and facts.get("site") == SITE_OF_RECORD:
        return str(facts.get("family", ""))
    if model_setting(manifest, "unit") == "sentence":
        return ""
    encoder = _class_of(manifest, "encoder").removesuffix("Encoder").lower()
    is_per_label = _class_of(manifest, "decoder") == LABEL_DECODER
    return encoder + PER_LABEL if encoder and is_per_label else encoder


def mechanism_of(manifest: Mapping[str, object]) -> str:
    """What a run's attention is known to be, whatever a test finds (`MECHANISMS`).

    Empty where it was learned.
    """
    control = model_setting(manifest, "given")  # of a whole model, by the control's name
    if control:
        class_name = f"{control.title().replace('_', '')}Attention"
    else:
        class_name = _class_of(manifest, "attention")
    return MECHANISMS.get(class_name, "")


def model_setting(manifest: Mapping[str, object], *keys: str) -> str:
    """One of the settings of a run's model; empty where it is none, or no text."""
    part: object = manifest.get("training", {})
    for key in ("model", *keys):
        part = part.get(key, {}) if isinstance(part, Mapping) else {}
    return part if isinstance(part, str) else ""


def _class_of(manifest: Mapping[str, object], part: str) -> str:
    """The class of a part of a run's model, without its module."""
    return model_setting(manifest, part, "_target_").rpartition(".")[2]
