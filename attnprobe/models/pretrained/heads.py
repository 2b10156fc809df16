"""Make classifiers of other heads: a language model's next piece; one score and a threshold."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from attnprobe.core.errors import UserError
from attnprobe.data.pieces import TEXT, PieceReader

STAND_IN = "x"
"""The text in whose place prompts are tried out."""
CLOSE = 1e-5
"""Largest difference of a logit before another piece, relative to the largest (at least 1)."""


def label_pieces(
    reader: PieceReader,
    labels: Mapping[str, str],
    classes: Sequence[str],
    data_classes: Sequence[str],
) -> list[list[int]]:
    """Find the pieces that stand for each class: those of its label, after the prompt.

    Args:
        reader: the tokenizer and the prompt.
        labels: the word for each class as it follows the prompt, with the space before it.
        classes: names of the classes, those that only the labels name included.
        data_classes: names of the data's classes.

    Returns:
        The pieces of each class, in their order.

    Raises:
        UserError: the labels are not those of the classes, the tokenizer does not know one, or one
            is the beginning of another, or the same.
    """
    if set(labels) != set(classes):
        example = f'{data_classes[0]}: " good", {data_classes[-1]}: " bad"'
        raise UserError(
            f"model.labels names the classes {', '.join(labels)}, the data have "
            f"{', '.join(data_classes)}: expected the word that says each of the data's, such as "
            f"'model.labels={{{example}}}'"
        )
    pieces: list[list[int]] = []
    for name in classes:
        word = str(labels[name])
        label = _pieces_of_label(reader, name, word)
        if reader.tokenizer.unk_token_id in label:
            raise UserError(
                f"model.labels: {word!r} has a piece that this tokenizer does not know: expected "
                f"a word that it knows"
            )
        for number, other in enumerate(pieces):
            shorter = min(len(label), len(other))
            if label[:shorter] != other[:shorter]:
                continue
            if len(label) == len(other):
                raise UserError(
                    f"model.labels: {word!r} says two classes: expected another word for each"
                )
            raise UserError(
                f"model.labels: of {str(labels[classes[number]])!r} and {word!r} one begins with "
                f"the other, which is never less probable: expected labels that differ before the "
                f"shorter one ends"
            )
        pieces.append(label)
    return pieces


def _pieces_of_label(reader: PieceReader, name: str, word: str) -> list[int]:
    """The pieces that this word of class `name` adds to the prompt."""
    prompt = reader.prompt.replace(TEXT, STAND_IN)
    before = reader.tokenizer(prompt, **reader.settings).input_ids
    after: list[int] = reader.tokenizer(prompt + word, **reader.settings).input_ids
    if len(after) == len(before) or after[: len(before)] != before:
        raise UserError(
            f"model.labels: {word!r} ({name}) gives no piece after the prompt "
            f"{reader.prompt[-20:]!r}: expected a prompt that ends without a space, and labels "
            f"that begin with one"
        )
    return after[len(before) :]


def keep_labels_only(network: Any, reader: PieceReader, pieces: Sequence[int]) -> None:
    """Leave only the rows of these pieces in a language model's head, in place.

    Args:
        network: a causal language model.
        reader: its tokenizer and the prompt.
        pieces: a piece per class.

    Raises:
        UserError: its head is not linear.
    """
    head = network.get_output_embeddings()
    if not isinstance(head, nn.Linear):
        raise UserError(
            f"model.path={reader.tokenizer.name_or_path}: expected a causal language model whose "
            f"head is linear, but it is {type(head).__name__}"
        )

    label_head = nn.Linear(
        head.in_features,
        len(pieces),
        head.bias is not None,
        dtype=head.weight.dtype,
    )
    for name, parameter in label_head.named_parameters():
        parameter.data.copy_(head.get_parameter(name).data[list(pieces)])
    network.set_output_embeddings(label_head)


def refuse_what_sees_ahead(network: Any, reader: PieceReader, pieces: Sequence[int]) -> None:
    """Refuse a network that cannot be asked by this prompt.

    Args:
        network: a causal language model.
        reader: its tokenizer and the prompt.
        pieces: that labels begin with.

    Raises:
        UserError: the prompt does not fit, or the prediction after it changes with a later piece.
    """
    prompt = _prompt_pieces(reader)
    network.eval()
    expected = _logits_after_prompt(network, prompt, prompt)[list(pieces)]
    logits = _logits_after_prompt(network, prompt, [*prompt, *pieces[:1]])[list(pieces)]
    difference = float((logits - expected).abs().max())
    if not difference <= CLOSE * max(1.0, float(expected.abs().max())):
        raise UserError(
            f"model.path={reader.tokenizer.name_or_path}: it cannot be asked by a prompt: its "
            f"logits differ by {difference:.2g} before another piece (is it a causal language "
            f"model?)"
        )


def _prompt_pieces(reader: PieceReader) -> list[int]:
    """The prompt around a stand-in for the text, in pieces.

    Raises:
        UserError: it does not fit, or the tokenizer adds something to its end.
    """
    encoding = reader.tokenizer(reader.prompt.replace(TEXT, STAND_IN), **reader.settings)
    pieces: list[int] = encoding.input_ids
    if len(pieces) + 1 >= reader.longest:
        raise UserError(
            f"model.prompt has {len(pieces) - 1} pieces without a text, and this model takes "
            f"{reader.longest} in all"
        )
    adds_end = encoding.sequence_ids(0)[-1] is None
    if adds_end and not reader.prompt.endswith(str(reader.tokenizer.eos_token)):
        raise UserError(
            f"model.path={reader.tokenizer.name_or_path}: its tokenizer ends every text with "
            f"{reader.tokenizer.decode(pieces[-1:])!r}, and the class is read from the prompt's "
            f"last piece: save it without that (add_eos_token=False)"
        )
    return pieces


@torch.no_grad()
def _logits_after_prompt(network: Any, prompt: list[int], ids: list[int]) -> Tensor:
    """The logits at the prompt's last piece, of a text that begins with the prompt."""
    logits: Tensor = network(input_ids=torch.tensor([ids]), use_cache=False).logits
    return logits[0, len(prompt) - 1]


def classes_of_score(network: Any, reader: PieceReader, threshold: float) -> None:
    """Give a network that scores texts two outputs instead, in place.

    They are −z/2 and z/2 of z = score − threshold. That they are what the library makes of its
    score is seen when a run begins (`attnprobe.models.pretrained.reference`).

    Raises:
        UserError: no linear module gives one number.
    """
    text = reader.tokenizer(STAND_IN, return_tensors="pt", return_token_type_ids=False)
    heads = {
        name: module
        for name, module in network.named_modules()
        if isinstance(module, nn.Linear) and module.out_features == 1
    }
    network.eval()
    with torch.no_grad():
        score = network(**text).logits
    if not heads or score.shape != (1, 1):
        raise UserError(
            f"model.path={reader.tokenizer.name_or_path}: model.threshold needs a score that a "
            f"linear module gives, last of all"
        )

    name, head = list(heads.items())[-1]
    score_head = ScoreHead(head.in_features, 2, dtype=head.weight.dtype)
    score_head.register_buffer("unit", torch.ones(()))
    with torch.no_grad():
        bias = -threshold if head.bias is None else float(head.bias) - threshold
        half = head.weight[0] / 2
        score_head.weight.copy_(torch.stack([-half, half]))
        score_head.bias.copy_(torch.tensor([-bias / 2, bias / 2]))
    network.set_submodule(name, score_head)
    network.config.num_labels = network.num_labels = 2


class ScoreHead(nn.Linear):
    """The last module of a network whose score is examined, in units of `unit`."""

    unit: Tensor
