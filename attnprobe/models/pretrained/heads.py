"""Other heads as those of classifiers: of a causal language model the pieces that may come next; of one score two classes,
below and above a threshold."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn

from attnprobe.core.errors import UserError
from attnprobe.data.pieces import TEXT, PieceReader

STAND_IN = "x"
"""The text with which the pieces after it are looked at."""
CLOSE = 1e-5
"""Largest difference of a class's logit and the language model's own, relative to the largest (at least 1)."""


def label_pieces(reader: PieceReader, labels: Mapping[str, str], classes: Sequence[str]) -> list[int]:
    """The piece that says each class, in their order: that of its label after the prompt. `labels` has the word that says
    each class as it follows the prompt, with the space before it."""
    if set(labels) != set(classes):
        raise UserError(
            f"model.labels names the classes {', '.join(labels)}, the data have {', '.join(classes)}: expected the word that "
            f'says each of the data\'s, such as \'model.labels={{{classes[0]}: " good", {classes[-1]}: " bad"}}\''
        )
    read = reader.tokenizer
    before = read(asked := reader.prompt.replace(TEXT, STAND_IN)).input_ids

    def after(label: str) -> list[int]:
        found: list[int] = read(asked + label).input_ids
        return found[len(before) :] if found[: len(before)] == before else []

    def spelled(piece: int) -> str | None:
        """What is to be typed for a piece; None where nothing gives it."""
        typed = [one for one in (read.decode([piece]), " " + read.decode([piece])) if one.strip()]
        return next((one for one in typed if after(one) == [piece]), None)

    pieces = {name: after(str(labels[name])) for name in classes}
    for name, found in pieces.items():
        if not found:
            raise UserError(
                f"model.labels: {labels[name]!r} ({name}) gives no piece after the prompt {reader.prompt[-20:]!r}: expected "
                f"a prompt that ends without a space, and labels that begin with one"
            )
        if len(found) > 1:
            shown = " ".join(repr(read.decode([piece])) for piece in found)
            first = {name: spelled(some[0]) for name, some in pieces.items() if some}
            serving = ", ".join(f'{name}: "{piece}"' for name, piece in first.items())
            instead = f"the first pieces would serve: 'model.labels={{{serving}}}'"
            if len({*first.values()} - {None}) < len(classes):
                instead = "two classes begin with the same piece, or with none that can be typed: choose other words"
            raise UserError(
                f"model.labels: {labels[name]!r} ({name}) is {len(found)} pieces ({shown}), and one is read. Expected a word "
                f"of one piece; {instead}"
            )
    order = [pieces[name][0] for name in classes]
    if len(set(order)) < len(order):
        twice = next(name for name in classes if order.count(pieces[name][0]) > 1)
        raise UserError(f"model.labels: the piece {labels[twice]!r} says two classes: expected another one for each")
    if read.unk_token_id in order:
        raise UserError(
            f"model.labels: {labels[classes[order.index(read.unk_token_id)]]!r} is no piece of this tokenizer"
        )
    return order


def keep_labels_only(network: Any, reader: PieceReader, pieces: Sequence[int]) -> None:
    """Leave of the language model's head the rows of these pieces, in place, and see that the logits are its own."""
    where = f"model.path={reader.tokenizer.name_or_path}: "
    asked = reader.tokenizer(reader.prompt.replace(TEXT, STAND_IN))
    if len(asked.input_ids) + 1 >= reader.longest:
        raise UserError(
            f"model.prompt has {len(asked.input_ids) - 1} pieces without a text, and this model takes {reader.longest} in all"
        )
    if asked.sequence_ids(0)[-1] is None and not reader.prompt.endswith(str(reader.tokenizer.eos_token)):
        raise UserError(
            f"{where}its tokenizer ends every text with {reader.tokenizer.decode(asked.input_ids[-1:])!r}, and the class is "
            f"read from the prompt's last piece: save it without that (add_eos_token=False)"
        )
    head = network.get_output_embeddings()
    if not isinstance(head, nn.Linear):
        raise UserError(
            f"{where}expected a causal language model whose head is linear, but it is {type(head).__name__}"
        )

    def logits(ids: Sequence[int]) -> Tensor:
        with torch.no_grad():
            result: Tensor = network(input_ids=torch.tensor([ids]), use_cache=False).logits[0, len(asked.input_ids) - 1]
        return result

    network.eval()
    own = logits(asked.input_ids)[list(pieces)]
    fewer = nn.Linear(head.in_features, len(pieces), head.bias is not None, dtype=head.weight.dtype)
    for name, parameter in fewer.named_parameters():
        parameter.data.copy_(head.get_parameter(name).data[list(pieces)])
    network.set_output_embeddings(fewer)
    limit = CLOSE * max(1.0, float(own.abs().max()))
    for ids, why in (
        (asked.input_ids, "after its head has lost all other rows"),
        ([*asked.input_ids, pieces[0]], "before another piece (is it a causal language model?)"),
    ):
        if not (apart := float((logits(ids) - own).abs().max())) <= limit:
            raise UserError(f"{where}it cannot be asked by a prompt: its logits differ by {apart:.2g} {why}")


def classes_of_score(network: Any, reader: PieceReader, threshold: float) -> None:
    """Give a network that scores texts two outputs instead, in place: −z/2 and z/2 of z = score − threshold."""
    where = f"model.path={reader.tokenizer.name_or_path}: "
    asked = reader.tokenizer(STAND_IN, return_tensors="pt", return_token_type_ids=False)
    heads = [one for one in network.named_modules() if isinstance(one[1], nn.Linear) and one[1].out_features == 1]
    network.eval()
    with torch.no_grad():
        own = network(**asked).logits
    if not heads or own.shape != (1, 1):
        raise UserError(f"{where}model.threshold needs a score that a linear module gives, last of all")
    name, head = heads[-1]
    two = ScoreHead(head.in_features, 2, dtype=head.weight.dtype)
    with torch.no_grad():
        bias = -threshold if head.bias is None else float(head.bias) - threshold
        two.weight.copy_(torch.stack([-head.weight[0] / 2, head.weight[0] / 2]))
        two.bias.copy_(torch.tensor([-bias / 2, bias / 2]))
    network.set_submodule(name, two)
    network.config.num_labels = network.num_labels = 2
    with torch.no_grad():
        apart = network(**asked).logits[0] - torch.stack([threshold - own[0, 0], own[0, 0] - threshold]) / 2
    if not float(apart.abs().max()) <= CLOSE * max(1.0, float(own.abs().max()), abs(threshold)):
        raise UserError(
            f"{where}model.threshold needs a score that a linear module gives, last of all: with two outputs in the place of "
            f"{name} it differs by {float(apart.abs().max()):.2g}"
        )


class ScoreHead(nn.Linear):
    """The last module of a network whose score is examined, in units of `unit`."""

    def __init__(self, *sizes: Any, **facts: Any) -> None:
        super().__init__(*sizes, **facts)
        self.register_buffer("unit", torch.ones(()))

    unit: Tensor

    def measure_in(self, unit: float) -> None:
        """Divide the score by this."""
        with torch.no_grad():
            for one in (self.weight, self.bias):
                one.div_(unit / self.unit)
            self.unit.fill_(unit)


def last_of(logits: Tensor, last: Int[Tensor, "batch"]) -> Tensor:
    """Of logits at every piece those at the last one; those of a classifier as they are."""
    return logits if logits.ndim == 2 else logits[torch.arange(len(last), device=last.device), last]
