"""Other heads as those of classifiers: a language model's next piece; classes below and above a
threshold of one score."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from attnprobe.core.errors import UserError
from attnprobe.data.pieces import TEXT, PieceReader

STAND_IN = "x"
"""The text with which the pieces after it are looked at."""
CLOSE = 1e-5
"""Largest difference of a class's logit and the language model's own, relative to the largest (at
least 1)."""


def label_pieces(
    reader: PieceReader, labels: Mapping[str, str], classes: Sequence[str]
) -> list[int]:
    """The piece that says each class, in their order: that of its label after the prompt. `labels`
    has the word that says each class as it follows the prompt, with the space before it."""
    if set(labels) != set(classes):
        raise UserError(
            f"model.labels names the classes {', '.join(labels)}, the data have {', '.join(classes)}: expected the word that "
            f'says each of the data\'s, such as \'model.labels={{{classes[0]}: " good", {classes[-1]}: " bad"}}\''
        )
    read = reader.tokenizer
    order = []
    before = read(asked := reader.prompt.replace(TEXT, STAND_IN)).input_ids
    for name in classes:
        word = str(labels[name])
        found: list[int] = read(asked + word).input_ids
        added = found[len(before) :] if found[: len(before)] == before else []
        if not added:
            raise UserError(
                f"model.labels: {word!r} ({name}) gives no piece after the prompt {reader.prompt[-20:]!r}: expected "
                f"a prompt that ends without a space, and labels that begin with one"
            )
        if len(added) > 1:
            shown = " ".join(repr(read.decode([piece])) for piece in added)
            raise UserError(
                f"model.labels: {word!r} ({name}) is {len(added)} pieces ({shown}), and one is read: expected a word of one "
                f"piece, such as the first of these if it is no other class's"
            )
        if added[0] in order:
            raise UserError(
                f"model.labels: the piece {word!r} says two classes: expected another one for each"
            )
        if added[0] == read.unk_token_id:
            raise UserError(
                f"model.labels: {word!r} is no piece of this tokenizer: expected one that it knows"
            )
        order += added
    return order


def keep_labels_only(network: Any, reader: PieceReader, pieces: Sequence[int]) -> None:
    """Leave of the language model's head the rows of these pieces, in place, and see that the
    logits are its own."""
    where = f"model.path={reader.tokenizer.name_or_path}: "
    asked = reader.tokenizer(reader.prompt.replace(TEXT, STAND_IN))
    if len(asked.input_ids) + 1 >= reader.longest:
        raise UserError(
            f"model.prompt has {len(asked.input_ids) - 1} pieces without a text, and this model takes {reader.longest} in all"
        )
    if asked.sequence_ids(0)[-1] is None and not reader.prompt.endswith(
        str(reader.tokenizer.eos_token)
    ):
        raise UserError(
            f"{where}its tokenizer ends every text with {reader.tokenizer.decode(asked.input_ids[-1:])!r}, and the class is "
            f"read from the prompt's last piece: save it without that (add_eos_token=False)"
        )
    head = network.get_output_embeddings()
    if not isinstance(head, nn.Linear):
        raise UserError(
            f"{where}expected a causal language model whose head is linear, but it is {type(head).__name__}"
        )

    network.eval()
    last = len(asked.input_ids) - 1
    with torch.no_grad():
        own = network(input_ids=torch.tensor([asked.input_ids]), use_cache=False).logits[
            0, last, list(pieces)
        ]
    fewer = nn.Linear(head.in_features, len(pieces), head.bias is not None, dtype=head.weight.dtype)
    for name, parameter in fewer.named_parameters():
        parameter.data.copy_(head.get_parameter(name).data[list(pieces)])
    network.set_output_embeddings(fewer)
    for more, why in (
        ([], "after its head has lost all other rows"),
        (pieces[:1], "before another piece (is it a causal language model?)"),
    ):
        with torch.no_grad():
            found = network(
                input_ids=torch.tensor([[*asked.input_ids, *more]]), use_cache=False
            ).logits[0, last]
        apart = float((found - own).abs().max())
        if not apart <= CLOSE * max(1.0, float(own.abs().max())):
            raise UserError(
                f"{where}it cannot be asked by a prompt: its logits differ by {apart:.2g} {why}"
            )


def classes_of_score(network: Any, reader: PieceReader, threshold: float) -> None:
    """Give a network that scores texts two outputs instead, in place: −z/2 and z/2 of z = score −
    threshold."""
    where = f"model.path={reader.tokenizer.name_or_path}: "
    asked = reader.tokenizer(STAND_IN, return_tensors="pt", return_token_type_ids=False)
    heads = [
        one
        for one in network.named_modules()
        if isinstance(one[1], nn.Linear) and one[1].out_features == 1
    ]
    network.eval()
    with torch.no_grad():
        own = network(**asked).logits
    if not heads or own.shape != (1, 1):
        raise UserError(
            f"{where}model.threshold needs a score that a linear module gives, last of all"
        )
    name, head = heads[-1]
    two = ScoreHead(head.in_features, 2, dtype=head.weight.dtype)
    two.register_buffer("unit", torch.ones(()))
    with torch.no_grad():
        bias = -threshold if head.bias is None else float(head.bias) - threshold
        two.weight.copy_(torch.stack([-head.weight[0] / 2, head.weight[0] / 2]))
        two.bias.copy_(torch.tensor([-bias / 2, bias / 2]))
    network.set_submodule(name, two)
    network.config.num_labels = network.num_labels = 2
    with torch.no_grad():
        apart = (
            network(**asked).logits[0]
            - torch.stack([threshold - own[0, 0], own[0, 0] - threshold]) / 2
        )
    if not float(apart.abs().max()) <= CLOSE * max(1.0, float(own.abs().max()), abs(threshold)):
        raise UserError(
            f"{where}model.threshold needs a score that a linear module gives, last of all: with two outputs in the place of "
            f"{name} it differs by {float(apart.abs().max()):.2g}"
        )


class ScoreHead(nn.Linear):
    """The last module of a network whose score is examined, in units of `unit`."""

    unit: Tensor
