"""Scores of labels of several pieces, of a language model that is asked by a prompt.

The score of a label is Σ_i log p(its piece i | the prompt, its pieces before i). Each text is run
once for every way in which labels go on after their first piece, with that continuation behind it.
What follows does not change what comes before, so that the attention over the text is the same in
all of these copies: it is read in one, and replaced in all.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from attnprobe.models.pretrained.attention_hooks import Pass, Weights


@dataclass(frozen=True)
class LabelScores:
    """The labels of all classes, in pieces.

    Attributes:
        pieces: of each class's label, one or more.
    """

    pieces: Sequence[Sequence[int]]

    @property
    def longest(self) -> int:
        """Pieces of the longest continuation: of a label without its last piece."""
        return max(map(len, self.pieces)) - 1

    @property
    def continuations(self) -> list[tuple[int, ...]]:
        """What is put behind a text in each of its copies.

        They are the labels without their last pieces, but those that another one begins with.
        """
        beginnings = dict.fromkeys(tuple(label[:-1]) for label in self.pieces)
        return [
            beginning
            for beginning in beginnings
            if not any(
                other != beginning and other[: len(beginning)] == beginning for other in beginnings
            )
        ]

    def first_pieces(self) -> "LabelScores":
        """The labels' first pieces alone."""
        return LabelScores([label[:1] for label in self.pieces])

    def run(
        self,
        network: Any,
        ids: Int[Tensor, "batch pieces"],
        mask: Bool[Tensor, "batch pieces"],
        attention_pass: Pass,
        states: list[Tensor] | None = None,
    ) -> Float[Tensor, "batch classes"]:
        """Run a network on all copies of some texts.

        Args:
            network: a causal language model.
            ids: the texts' pieces, with padding at the end.
            mask: the pieces that are not padding.
            attention_pass: what happens to the attention of the texts.
            states: the texts' states before the first layer and after each are added to this list.

        Returns:
            The score of every label.
        """
        copies = self.copies(ids, mask)

        def select(module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
            return (_at(inputs[0], copies.read), *inputs[1:])

        # of a large vocabulary the logits at every place would not fit
        head = network.get_output_embeddings()
        with PassOfCopies(attention_pass, copies).active(), head.register_forward_pre_hook(select):
            output = network(
                input_ids=copies.ids,
                attention_mask=copies.mask.long(),
                output_hidden_states=states is not None,
            )
        if states is not None:
            states += [state[copies.texts, copies.pieces] for state in output.hidden_states]
        return self.of(output.logits)

    def copies(
        self, ids: Int[Tensor, "batch pieces"], mask: Bool[Tensor, "batch pieces"]
    ) -> "Copies":
        """The texts with each continuation behind them.

        Args:
            ids: their pieces, with padding at the end.
            mask: the pieces that are not padding.
        """
        lengths = mask.sum(1)
        longer = F.pad(torch.where(mask, ids, ids.new_zeros(())), (0, self.longest))
        place = torch.arange(longer.shape[1], device=ids.device)
        copies: list[Tensor] = []
        masks: list[Tensor] = []
        places: list[Tensor] = []
        for continuation in self.continuations:
            step = place - lengths.unsqueeze(1)  # of each place in the continuation
            follows = (step >= 0) & (step < len(continuation))
            behind = ids.new_tensor([*continuation, 0])
            behind = behind[step.clamp(0, len(continuation))]
            copies.append(torch.where(follows, behind, longer))
            masks.append(step < len(continuation))
            read = torch.arange(self.longest + 1, device=ids.device).clamp(max=len(continuation))
            places.append(lengths.unsqueeze(1) - 1 + read)
        return Copies(
            ids=torch.cat(copies),
            mask=torch.cat(masks),
            read=torch.cat(places),
            is_text=mask,
            count=len(copies),
        )

    def of(self, logits: Float[Tensor, "copies read vocabulary"]) -> Float[Tensor, "batch classes"]:
        """The score of every label.

        Args:
            logits: of the next piece, where `Copies.read` says.
        """
        continuations = self.continuations
        log_probability = logits.log_softmax(-1).unflatten(0, (len(continuations), -1))
        scores: list[Tensor] = []
        for label in self.pieces:
            beginning = tuple(label[:-1])
            copy = next(
                number
                for number, continuation in enumerate(continuations)
                if continuation[: len(beginning)] == beginning
            )
            step = torch.arange(len(label), device=logits.device)
            piece = torch.tensor(list(label), device=logits.device)
            scores.append(log_probability[copy][:, step, piece].sum(-1))
        return torch.stack(scores, -1)


@dataclass(frozen=True)
class Copies:
    """Texts, each as often as there are continuations; all texts with one, then all with the next.

    Attributes:
        ids: pieces, 0 at padding.
        mask: pieces that are not padding.
        read: where the pieces of labels are predicted: from the text's last piece on.
        is_text: of the texts alone, the pieces that are not padding.
        count: the number of continuations.
    """

    ids: Int[Tensor, "copies longer"]
    mask: Bool[Tensor, "copies longer"]
    read: Int[Tensor, "copies read"]
    is_text: Bool[Tensor, "batch pieces"]
    count: int

    @property
    def texts(self) -> slice:
        """The first copy of each text."""
        return slice(len(self.is_text))

    @property
    def pieces(self) -> slice:
        """The places that the texts themselves have, with their padding."""
        return slice(self.is_text.shape[1])

    def with_texts(self, column: Tensor, texts: Tensor) -> Tensor:
        """A column of numbers per piece with those of the texts put in, in every copy.

        Args:
            column: `[copies, pieces, …]`.
            texts: the same of the texts alone, `[batch, pieces, …]`.
        """
        width = column.shape[1] - self.is_text.shape[1]
        is_text = F.pad(self.is_text, (0, width)).repeat(self.count, 1)
        wide = F.pad(texts, (0, 0) * (texts.ndim - 2) + (0, width))
        repeated = wide.repeat(self.count, *[1] * (wide.ndim - 1))
        return torch.where(is_text.view(*is_text.shape, *[1] * (column.ndim - 2)), repeated, column)


def _at(
    values: Float[Tensor, "copies pieces size"], places: Int[Tensor, "copies read"]
) -> Float[Tensor, "copies read size"]:
    """The vectors at some places of each text."""
    return values.gather(1, places.unsqueeze(-1).expand(-1, -1, values.shape[-1]))


class PassOfCopies(Pass):
    """A pass over the copies of texts, which asks another pass about the texts alone.

    Args:
        of_texts: records, and may replace, the attention of the texts' own rows to their own
            pieces. Those of the continuations stay the network's.
        copies: the texts.
    """

    def __init__(self, of_texts: Pass, copies: Copies) -> None:
        super().__init__()
        self.of_texts = of_texts
        self.copies = copies

    def weights(
        self,
        weights: Weights,
        module: nn.Module,
        visible: Bool[Tensor, "batch 1 queries keys"],
        values: Tensor | None = None,
    ) -> Weights:
        """See `Pass.weights`."""
        texts = self.copies.texts
        pieces = self.copies.pieces
        is_text = self.copies.is_text
        own = weights[texts, :, pieces, pieces] * is_text[:, None, None]
        used = self.of_texts.weights(
            own,
            module,
            visible[texts, :, pieces, pieces] & is_text[:, None, None],
            None if values is None else values[texts, :, pieces],
        )
        if used is own:
            return weights
        both = is_text.unsqueeze(-1) & is_text.unsqueeze(1)
        more = weights.shape[-1] - both.shape[-1]
        around = (0, more, 0, more)
        is_own = F.pad(both, around).repeat(self.copies.count, 1, 1).unsqueeze(1)
        replaced = F.pad(used, around).repeat(self.copies.count, 1, 1, 1)
        return torch.where(is_own, replaced, weights)
