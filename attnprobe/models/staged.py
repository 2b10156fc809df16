"""A user's own module by its three stages: encode, attend, decode."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pickle import UnpicklingError
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attnprobe.core.batch import Batch, Outputs, Task, probabilities
from attnprobe.core.errors import UserError
from attnprobe.core.printing import tell
from attnprobe.core.readout import Readout
from attnprobe.core.settings import Checked, Name
from attnprobe.data.batching import TextSplit
from attnprobe.data.examples import Ragged
from attnprobe.models.recipe import Recipe
from attnprobe.models.trained import TrainedModel

LINEAR_WITHIN = 1e-9
"""Largest relative difference, in float64, at which a decoder counts as linear."""
APART_WITHIN = 1e-3
"""Largest difference of a text's logits beside other texts and without them, by the largest logit:
the module may be examined in float32."""
SUM_WITHIN = 1e-5
"""Largest distance from 1 of what looks like probabilities, in float32."""
MARKER = 3
"""What stands before and after a text whose own module has no markers; the module never sees it."""


class StagedType(Checked):
    """Metaclass of modules of users: settings can name one, and Python constructs it unchecked."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """Construct an instance, whose arguments are its author's affair."""
        return type.__call__(cls, *args, **kwargs)


class Staged(metaclass=StagedType):
    """Mix-in: three methods by which a `LightningModule` of one's own joins the tests.

        class Mine(attnprobe.Staged, LightningModule):
            def encode(self, ids): ...
            def attend(self, hidden, content): ...
            def decode(self, hidden, attention): ...

    They are asked in float64, in eval mode, and without the trainer's autocast. What reads other
    batches than `(ids, labels)` or `attnprobe.Batch` overrides `read` as well.

    Attributes:
        class_names: names of the classes; empty: their numbers.
        words: the word of each id, for pages and tables; empty: the ids.
        padding: the id after a text's end.
        unknown: the id that masks a word; None: `padding`.
        task: one class per text, or any subset of the labels.
        precision: what it is examined in, where float64 is too much for it.
    """

    device: Any  # the module's own, as Lightning has it
    task: Task = Task.SINGLE_LABEL
    class_names: Sequence[str] = ()
    words: Sequence[str] = ()
    padding: int = 0
    unknown: int | None = None
    precision: torch.dtype = torch.float64

    def encode(self, ids: Int[Tensor, "batch seq"]) -> Float[Tensor, "batch seq hidden"]:
        """The states of every text; what they are at padding does not matter."""
        raise NotImplementedError

    def attend(
        self, hidden: Float[Tensor, "batch seq hidden"], content: Bool[Tensor, "batch seq"]
    ) -> Float[Tensor, "batch seq"]:
        """The attention: sums to 1 over `content`, the words, and is 0 elsewhere."""
        raise NotImplementedError

    def decode(
        self, hidden: Float[Tensor, "batch seq hidden"], attention: Float[Tensor, "batch seq"]
    ) -> Float[Tensor, "batch classes"]:
        """The logits under an attention, the module's own or another."""
        raise NotImplementedError

    def logits(self, batch: Batch) -> Float[Tensor, "batch classes"]:
        """What the three stages say of a batch of a `TextDataModule`."""
        hidden = self.encode(batch.ids)
        return self.decode(hidden, self.attend(hidden, batch.content))

    def read(self, batch: Any, rows: Int[Tensor, "batch"]) -> Batch:
        """A batch of the test loader as probes read it.

        Args:
            batch: an `attnprobe.Batch`, or ids `[batch, seq]` and labels `[batch]`.
            rows: of its texts in the data set, which number them.

        Raises:
            UserError: it is neither.
        """
        if isinstance(batch, Batch):
            return batch
        is_pair = isinstance(batch, list | tuple) and len(batch) == 2
        if not is_pair or not all(isinstance(part, Tensor) for part in batch):
            raise UserError(
                f"{type(self).__name__}.read: a batch of {type(batch).__name__}, expected "
                f"(ids, labels) or an attnprobe.Batch: override read(batch, rows), which returns "
                f"attnprobe.models.staged.text_batch(ids, labels, rows, content)"
            )
        ids, labels = batch
        return text_batch(ids, labels, rows.to(ids.device), ids != self.padding)

    def split_of(self, dataset: Any, collate: Callable[[list[Any]], Any]) -> TextSplit:
        """All texts of a test loader's data set.

        Args:
            dataset: of the loader.
            collate: the loader's, which makes a batch of examples.
        """
        numbers: list[np.ndarray] = []
        labels: list[np.ndarray] = []
        for row in range(len(dataset)):
            batch = self.read(collate([dataset[row]]), torch.tensor([row]))
            numbers.append(batch.ids[batch.content].cpu().numpy())
            labels.append(batch.labels.cpu().numpy())
        ids = np.unique(np.concatenate(numbers))
        known = len(self.words)
        return TextSplit(
            example_id=np.arange(len(numbers)),
            words=Ragged.of([np.searchsorted(ids, text) for text in numbers], np.int32),
            vocabulary_id=ids,
            columns={"labels": np.concatenate(labels)},
            spelling=[self.words[word] if word < known else str(word) for word in ids.tolist()],
            classes=[str(name) for name in self.class_names],
        )


def text_batch(
    ids: Int[Tensor, "batch seq"],
    labels: Int[Tensor, "batch"],
    rows: Int[Tensor, "batch"],
    content: Bool[Tensor, "batch seq"],
) -> Batch:
    """Texts without markers as a batch of this package, whose texts have one at either end.

    Args:
        ids: of the words, padded at the end.
        labels: class numbers.
        rows: which number the texts.
        content: which of the ids are words.

    Raises:
        UserError: a text has no word, or something else before its last one.
    """
    lengths = content.sum(1, keepdim=True)
    begins_with_words = torch.arange(ids.shape[1], device=ids.device) < lengths
    is_unreadable = (lengths == 0).squeeze(1) | (content != begins_with_words).any(1)
    if bool(is_unreadable.any()):
        text = int(is_unreadable.nonzero()[0])
        words = "".join("w" if is_word else "-" for is_word in content[text, :40].tolist())
        raise UserError(
            f"text {int(rows[text])} has {int(lengths[text])} words, at the w of {words}: expected "
            f"at least one, from the first id on, and padding after the last one. Leave texts "
            f"without words out, and pad the others at the end"
        )
    marked = nn.functional.pad(ids.masked_fill(~content, 0), (1, 1))
    place = torch.arange(marked.shape[1], device=ids.device)
    is_marker = (place == 0) | (place == lengths + 1)
    return Batch(
        ids=marked.masked_fill(is_marker, MARKER),
        mask=place <= lengths + 1,
        content=nn.functional.pad(content, (1, 1)),
        labels=labels,
        example_id=rows,
    )


class StagedModel(TrainedModel):
    """A module by its three stages, as probes read a model.

    The decoder is tried out: where its logits are linear in the attention, within `LINEAR_WITHIN`,
    its position logits stand for it, and the exact solvers apply.

    Args:
        module: in eval mode when it is asked.

    Attributes:
        has_markers: every text of a batch stands between markers that the module reads, too, as it
            does where a `TextDataModule` serves the batches.
    """

    def __init__(self, module: Any) -> None:
        super().__init__(max(2, len(module.class_names)), module.task, None, None)
        self.module = module
        self.precision = module.precision
        self.mask = module.padding if module.unknown is None else module.unknown
        self.has_markers = True
        # its own flag alone: whether the module trains is its trainer's affair
        self.training = False
        self._reads_texts_apart = False

    def inputs(self, batch: Batch) -> Float[Tensor, "batch tokens embed"]:
        """The word vectors: what the module's first embedding makes of the ids."""
        embedded: list[Tensor] = []

        def keep(vectors: Tensor) -> Tensor:
            embedded.append(vectors)
            return vectors

        with self._embedding(keep):
            self.module.encode(self._ids(batch))
        vectors = embedded[0]
        return vectors if self.has_markers else nn.functional.pad(vectors, (0, 0, 1, 1))

    def outputs_from(
        self,
        batch: Batch,
        inputs: Float[Tensor, "batch tokens embed"] | None = None,
        attention: Float[Tensor, "batch seq"] | None = None,
    ) -> Outputs:
        """Encode, attend, decode; see `Model.outputs_from`."""
        content = self._unmarked(batch.content)
        if inputs is None:
            states = self.module.encode(self._ids(batch))
        else:
            with self._embedding(lambda _: self._unmarked(inputs)):
                states = self.module.encode(self._ids(batch))
        # what is returned is on the way to the logits, so that it can be differentiated by
        hidden = self._marked(states)
        if attention is None:
            weights = self.module.attend(self._unmarked(hidden), content)
            self._check_attention(weights, content)
            attention = self._marked(weights)
        logits = _two_classes(self.module.decode(self._unmarked(hidden), self._unmarked(attention)))
        self.classes = logits.shape[-1]
        return Outputs(
            logits=logits,
            attention=attention,
            scores=attention.log(),
            hidden=hidden,
            content=batch.content,
        )

    def readout(self, batch: Batch, outputs: Outputs) -> Readout:
        """The map from attention to prediction, by the module's `decode`.

        Raises:
            UserError: what the module says of a text depends on the other texts of its batch, or is
                no prediction.
        """
        self._check_logits(batch, outputs.logits)
        if not self._reads_texts_apart and len(batch) > 1:
            self._check_texts_are_apart(batch)
            self._warn_of_probabilities(outputs.logits)
            self._reads_texts_apart = True
        hidden = outputs.hidden.detach()
        attention = outputs.attention.detach()
        readout = Readout(
            attention=attention / attention.sum(-1, keepdim=True),
            content=outputs.content,
            example_id=batch.example_id,
            task=self.task,
            decode=partial(self._decode, hidden),
            recorded=outputs.logits.detach(),
            activations=2 * hidden.numel(),
        )
        position_logits, bias = self._linear_parts(readout.logits, attention)
        if position_logits is None:
            return replace(readout, unattended=bias)
        return replace(
            readout, position_logits=position_logits, decode=None, unattended=bias, activations=0
        )

    @torch.no_grad()
    def _linear_parts(
        self, decode: Callable[[Tensor], Tensor], attention: Float[Tensor, "batch seq"]
    ) -> tuple[Tensor | None, Tensor]:
        """Position logits, where the decoder is linear, and the logits under no attention."""
        bias = decode(torch.zeros_like(attention))
        alone = torch.eye(attention.shape[1], dtype=attention.dtype, device=attention.device)
        position_logits = decode(alone[:, None].expand(-1, len(attention), -1)).transpose(0, 1)
        # neither of the two weights is the module's own, and they do not sum to 1
        for weights in (attention.flip(-1) / 2, attention.square() + 0.25):
            expected = bias + torch.einsum("bs,bsc->bc", weights, position_logits - bias[:, None])
            scale = position_logits.abs().amax(dim=(1, 2)).clamp(min=1)[:, None]
            if bool(((decode(weights) - expected).abs() > LINEAR_WITHIN * scale).any()):
                return None, bias
        return position_logits, bias

    def _decode(
        self, hidden: Float[Tensor, "batch seq hidden"], attention: Float[Tensor, "*samples seq"]
    ) -> Float[Tensor, "*samples classes"]:
        """Decode attentions `[..., batch, seq]`, each text's with its own states."""
        hidden = self._unmarked(hidden)
        weights = self._unmarked(attention, axis=-1)
        states = hidden.expand(*attention.shape[:-2], *hidden.shape)
        logits = self.module.decode(
            states.reshape(-1, *hidden.shape[1:]), weights.reshape(-1, weights.shape[-1])
        )
        return _two_classes(logits).reshape(*attention.shape[:-1], -1)

    def _ids(self, batch: Batch) -> Int[Tensor, "batch seq"]:
        """The ids as the module reads them."""
        if self.has_markers:
            return batch.ids
        ids = self._unmarked(batch.ids)
        return ids.masked_fill(~self._unmarked(batch.content), self.module.padding)

    def _unmarked(self, values: Tensor, axis: int = 1) -> Tensor:
        """Without the positions of the markers, where the module has none."""
        return values if self.has_markers else values.narrow(axis, 1, values.shape[axis] - 2)

    def _marked(self, values: Tensor) -> Tensor:
        """With them again, as zeros."""
        if self.has_markers:
            return values
        return nn.functional.pad(values, (0, 0, 1, 1) if values.ndim == 3 else (1, 1))

    def _check_attention(self, attention: Tensor, content: Tensor) -> None:
        """Refuse what is no attention over the words."""
        name = f"{type(self.module).__name__}.attend"
        if attention.shape != content.shape:
            raise UserError(
                f"{name} returned the shape {list(attention.shape)}: expected "
                f"{list(content.shape)}, a weight per word"
            )
        outside = float(attention.detach().masked_fill(content, 0).abs().max())
        total = attention.detach().sum(-1)
        if outside > 0 or not bool((total - 1).abs().max() < 1e-4):
            raise UserError(
                f"{name} returned weights that sum to {float(total.min()):.4g} up to "
                f"{float(total.max()):.4g}, and up to {outside:.4g} where there is no word: "
                f"expected 1, and 0 outside of content. "
                f"scores.masked_fill(~content, -torch.inf).softmax(-1) is one"
            )

    def _check_logits(self, batch: Batch, logits: Float[Tensor, "batch classes"]) -> None:
        """Refuse logits of which no probabilities follow."""
        is_undefined = probabilities(logits, self.task).isnan().any(-1)
        if not bool(is_undefined.any()):
            return
        row = int(is_undefined.nonzero()[0])
        raise UserError(
            f"{type(self.module).__name__}.decode returned the logits {_in_short(logits[row])} for "
            f"text {int(batch.example_id[row])}: expected numbers, and -inf at most for classes "
            f"that are ruled out while another is not. Look for a division by 0 or a logarithm of 0"
        )

    def _warn_of_probabilities(self, logits: Float[Tensor, "batch classes"]) -> None:
        """Warn where several texts' logits look like the result of a softmax."""
        if self.task is not Task.SINGLE_LABEL:
            return
        is_share = (logits >= 0) & (logits <= 1)
        sums_to_one = (logits.sum(-1) - 1).abs() < SUM_WITHIN
        if bool(is_share.all()) and bool(sums_to_one.all()):
            tell(
                f"warning: {type(self.module).__name__}.decode returns numbers from 0 to 1 that "
                f"sum to 1: it is expected to return logits, of which the softmax is taken. If "
                f"these are probabilities, return their logarithm"
            )

    @torch.no_grad()
    def _check_texts_are_apart(self, batch: Batch) -> None:
        """Refuse a module that reads the second half of a batch otherwise without the first."""
        half = slice(len(batch) // 2, None)
        together = self.outputs_from(batch).logits[half]
        without_others = self.outputs_from(batch.rows(half)).logits
        largest = together.nan_to_num(0, 0, 0).abs().max().clamp(min=1)
        most = APART_WITHIN * float(largest)
        # what is infinite or undefined both times is no difference
        is_same = torch.isclose(together, without_others, rtol=0, atol=most, equal_nan=True)
        if bool(is_same.all()):
            return
        row = int((~is_same.all(-1)).nonzero()[0])
        number = int(batch.example_id[half][row])
        raise UserError(
            f"{type(self.module).__name__} has the logits {_in_short(together[row])} for text "
            f"{number} in its batch, and {_in_short(without_others[row])} without the texts before "
            f"it: expected the same, as every number is of one text. Look for a recurrent layer "
            f"without batch_first=True, dropout that eval() does not turn off, or a mean over the "
            f"batch"
        )

    @contextmanager
    def _embedding(self, change: Callable[[Tensor], Tensor]) -> Iterator[None]:
        """Within it the vectors of the module's first embedding go through `change`.

        Raises:
            UserError: the module has no embedding, so that nothing can be differentiated by words.
        """
        embeddings = [part for part in self.module.modules() if isinstance(part, nn.Embedding)]
        if not embeddings:
            raise UserError(
                f"{type(self.module).__name__} has no nn.Embedding: importances that differentiate "
                f"by the words cannot be used with it"
            )
        handle = embeddings[0].register_forward_hook(lambda _, __, vectors: change(vectors))
        try:
            yield
        finally:
            handle.remove()


class OwnModel(StagedModel):
    """A user's own module for the command: `model=own`.

    Args:
        name: what it is called in tables and paths.
        module: with the stages.
        path: its weights, a checkpoint of Lightning's (`trainer.save_checkpoint`).
        class_names: names of the data's classes, in the order of the logits.
        task: one class per text, or any subset of the labels.
        trains: it would be trained here, which it cannot be.
        offline: the weights come from a run that is read again, and not from `path`.
        in_order: `class_names` are in the order that the data's settings give; they always are.
        class_weight: of a training that there is none of.
        recipe: see `TrainedModel`.

    Raises:
        UserError: the weights are missing, or not the module's; or it was to be trained.
    """

    def __init__(
        self,
        *,
        name: Name,
        module: Staged,
        path: str,
        class_names: Sequence[str],
        task: Task = Task.SINGLE_LABEL,
        trains: bool = False,
        offline: bool = False,
        in_order: bool = False,
        class_weight: Float[Tensor, "classes"] | None = None,
        recipe: Recipe | None = None,
    ) -> None:
        if trains and not offline:
            raise UserError(
                f"model={name} is a module of your own, which your own trainer trains: expected "
                f"training=none"
            )
        module.task = task
        module.class_names = class_names
        super().__init__(module)
        self.recipe = recipe
        self.class_names = class_names
        if not offline:
            self._load(path)
        self.eval()

    def _load(self, path: str) -> None:
        """Take the weights of a checkpoint; nothing in it is executed."""
        expected = "expected a checkpoint of Lightning's, as trainer.save_checkpoint writes it"
        try:
            content = torch.load(path, map_location="cpu", weights_only=True)
            weights = content["state_dict"]
        except FileNotFoundError:
            raise UserError(f"model.path={path}: there is no such file: {expected}") from None
        except (OSError, KeyError, TypeError, RuntimeError, UnpicklingError) as error:
            reason = " ".join(str(error).split())[:200]
            raise UserError(f"model.path={path}: {expected} ({reason})") from None
        try:
            self.module.load_state_dict(weights)
        except RuntimeError as error:
            reason = " ".join(str(error).split())[:300]
            raise UserError(
                f"model.path={path} has not the weights of model.module "
                f"({type(self.module).__name__}): give model.module the arguments that it was "
                f"trained with ({reason})"
            ) from None


def _in_short(logits: Float[Tensor, "classes"]) -> str:
    """The logits of the first classes, for a message."""
    return ", ".join(f"{logit:.3g}" for logit in logits[:4].tolist())


def _two_classes(logits: Float[Tensor, "batch classes"]) -> Float[Tensor, "batch classes"]:
    """A single logit s as [0, s]."""
    if logits.shape[-1] > 1:
        return logits
    return torch.cat([torch.zeros_like(logits), logits], -1)
