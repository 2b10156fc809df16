"""A pretrained encoder's states of texts of any length, which it reads in windows.

PLM-ICD: Huang et al. 2022.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from annotated_types import Ge
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from attnprobe.core.batch import Batch
from attnprobe.core.errors import UserError, reason_of
from attnprobe.core.settings import Dropout
from attnprobe.data.pieces import UNLIMITED, PieceReader
from attnprobe.models.encoders import TextEncoder
from attnprobe.models.pretrained.checkpoint import (
    LARGE,
    LONGEST,
    longest_text,
    open_encoder,
)

STATES_ALIKE = 1e-4
"""Largest difference of states from pieces and from their vectors, as a share of the largest."""


class PretrainedEncoder(TextEncoder):
    """The last states of a checkpoint of `transformers`, one per word.

    A text is read in windows, each between the special tokens that the tokenizer puts around a
    text; a text that fits into one is read as the library reads it. A word's state is the mean of
    its pieces' states in the window in which it has most context: the one whose middle is nearest
    to the word's. Of two that are as near it is the earlier one.

    Args:
        input_size: of the data's word vectors, which are not read.
        path: a folder as `save_pretrained` writes it, or a name on the hub.
        window: pieces of a window, special tokens included; None: 512, or what the checkpoint takes
            if that is less.
        overlap: share of a window that the next one reads again, 0 to below 1. A word that is
            longer than that is read as far as it stands in its window.
        offline: a name on the hub is looked up in its cache alone.

    Raises:
        UserError: the checkpoint cannot be opened, is no encoder, or takes no such window.

    Note:
        Huang et al. attend over pieces, in windows of 128 that do not overlap. Here attention is
        over words, as everywhere.
    """

    pretrained = True

    def __init__(
        self,
        input_size: int,
        path: str,
        *,
        window: Annotated[int, Ge(8)] | None = None,
        overlap: Dropout = 0.25,
        offline: bool = False,
    ) -> None:
        super().__init__()
        tokenizer, network = open_encoder(path, offline=offline)
        if network.config.is_encoder_decoder:
            raise UserError(
                f"model.path={path}: {network.config.model_type} is an encoder with a decoder: "
                f"expected an encoder of texts, such as BERT or RoBERTa"
            )
        longest = longest_text(path, tokenizer, network)
        if window is not None and window > longest:
            raise UserError(
                f"model.encoder.window={window}: this model takes at most {longest} pieces at once"
            )
        self.path = path
        self.network: Any = network.train()
        self.network.config.use_cache = False
        self.reader = PieceReader(
            tokenizer, UNLIMITED, network.get_input_embeddings().num_embeddings
        )
        self.mask = tokenizer.mask_token_id
        self.window = window or min(longest, LONGEST)
        self.overlap = overlap
        if sum(weights.numel() for weights in network.parameters()) >= LARGE:
            self.precision = torch.float32
        self.size = self._checked_size(tokenizer.all_special_ids)

    def _checked_size(self, special: Sequence[int]) -> int:
        """Read two pieces, by their numbers and by their vectors.

        What their states do not depend on, such as a pooler, is not trained.

        Args:
            special: pieces that stand for no part of a text, which are not read.

        Returns:
            The features of a state.

        Raises:
            UserError: the network does not give each piece a state, or not the same by both ways.
        """
        ordinary = [piece for piece in range(len(special) + 2) if piece not in special]
        pieces = torch.tensor([ordinary[:2]])
        parameters = list(self.network.parameters())
        self.network.eval()
        try:
            expected: Tensor = self.network(input_ids=pieces).last_hidden_state
            vectors = self.network.get_input_embeddings()(pieces)
            states = self._read(vectors, torch.ones_like(pieces, dtype=torch.bool))
            gradients = torch.autograd.grad(states.sum(), parameters, allow_unused=True)
        except Exception as error:  # a network of another kind may raise anything
            reason = reason_of(error)
            raise UserError(
                f"model.path={self.path}: its states cannot be computed ({reason}): expected an "
                f"encoder of texts, such as BERT or RoBERTa"
            ) from error
        finally:
            self.network.train()
        for weights, gradient in zip(parameters, gradients, strict=True):
            weights.requires_grad_(gradient is not None)
        tolerance = STATES_ALIKE * float(expected.detach().abs().max())
        has_shape = states.shape == expected.shape
        if not has_shape or float((states - expected).detach().abs().max()) > tolerance:
            raise UserError(
                f"model.path={self.path}: {self.network.config.model_type} reads more than the "
                f"vectors of its pieces, which attnprobe changes one by one: expected an encoder "
                f"such as BERT or RoBERTa"
            )
        return states.shape[-1]

    def check(self, batch: Batch) -> None:
        """Refuse pairs of texts: there is no window that holds all of both.

        Raises:
            UserError: texts are pairs.
        """
        if batch.segment is not None:
            raise UserError(
                "data.text2: this model reads one text, in windows: expected data.text2=null"
            )

    def inputs(self, batch: Batch) -> Float[Tensor, "batch pieces embed"]:
        """The vectors of the pieces."""
        vectors: Tensor = self.network.get_input_embeddings()(batch.pieces)
        return vectors

    def states(
        self, embeddings: Float[Tensor, "batch pieces embed"], batch: Batch
    ) -> tuple[Float[Tensor, "batch seq hidden"], Bool[Tensor, "batch seq"], None]:
        """Read every window, and take each word's state from one of them.

        Args:
            embeddings: vectors of the texts' pieces.
            batch: the texts.

        Returns:
            As of `TextEncoder.states`.
        """
        windows = Windows.of(batch, self.window, self.overlap)
        vectors = embeddings[windows.text.unsqueeze(1), windows.place]
        states = self._read(vectors, windows.mask)
        return windows.mean_states(states, batch), batch.content, None

    def _read(
        self,
        vectors: Float[Tensor, "windows pieces embed"],
        mask: Bool[Tensor, "windows pieces"],
    ) -> Float[Tensor, "windows pieces hidden"]:
        """The network's last states."""
        output = self.network(inputs_embeds=vectors, attention_mask=mask.long())
        states: Tensor = output.last_hidden_state
        return states


@dataclass(frozen=True)
class Windows:
    """The windows of a batch of texts.

    Attributes:
        text: the row in the batch that each is of.
        place: where the pieces that it reads stand in the text; 0 at padding.
        mask: what is no padding.
        word: the word, as its position in the batch, whose state each piece is part of; −1: none,
            as it is a special token, or another window has the word's state.
    """

    text: Int[Tensor, "windows"]
    place: Int[Tensor, "windows pieces"]
    mask: Bool[Tensor, "windows pieces"]
    word: Int[Tensor, "windows pieces"]

    @classmethod
    def of(cls, batch: Batch, size: int, overlap: float) -> "Windows":
        """The windows of texts that stand in pieces.

        Args:
            batch: the texts.
            size: pieces of a window at most, the special tokens around a text included.
            overlap: share of its other pieces that the next window reads again at least.

        Raises:
            UserError: special tokens alone fill a window.
        """
        assert batch.piece_word is not None
        texts = []
        places: list[Tensor] = []
        words: list[Tensor] = []
        for text, word in enumerate(batch.piece_word.cpu()):
            place, word_read = windows_of_text(word[word != -2], size, overlap)
            texts += [text] * len(place)
            places += place.unbind()
            words += word_read.unbind()
        device = batch.ids.device
        word = pad_sequence(words, batch_first=True, padding_value=-2).to(device)
        return cls(
            text=torch.tensor(texts, device=device),
            place=pad_sequence(places, batch_first=True).to(device),
            mask=word != -2,
            word=word.clamp(min=-1),
        )

    def mean_states(
        self, states: Float[Tensor, "windows pieces hidden"], batch: Batch
    ) -> Float[Tensor, "batch seq hidden"]:
        """Each word's mean state in its window; zero where no word is."""
        is_read = self.word >= 0
        place = (self.text.unsqueeze(1) * batch.ids.shape[1] + self.word)[is_read]
        total = states.new_zeros(batch.ids.numel(), states.shape[-1])
        total = total.index_add(0, place, states[is_read])
        count = place.bincount(minlength=len(total)).clamp(min=1)
        return (total / count.unsqueeze(1)).view(*batch.ids.shape, -1)


def windows_of_text(
    word: Int[Tensor, "pieces"], size: int, overlap: float
) -> tuple[Int[Tensor, "windows read"], Int[Tensor, "windows read"]]:
    """The windows of one text, which read equally many pieces.

    Args:
        word: the word that each piece belongs to, −1 for the special tokens around the text.
        size: see `Windows.of`.
        overlap: see `Windows.of`.

    Returns:
        `Windows.place` and `Windows.word`.

    Raises:
        UserError: special tokens alone fill a window.
    """
    place = torch.arange(len(word))
    of_words = (word >= 0).nonzero().squeeze(-1)
    if not len(of_words):  # all words were taken out
        return place.unsqueeze(0), word.unsqueeze(0)
    first = int(of_words[0])
    end = int(of_words[-1]) + 1
    special = len(word) - (end - first)
    room = size - special
    if room < 1:
        raise UserError(
            f"model.encoder.window={size}: {special} special tokens around a text leave no room "
            f"for it: expected a larger window"
        )
    starts = window_starts(end - first, room, overlap)
    nearest = nearest_windows(word[first:end], starts, room)
    window_of_piece = F.pad(nearest, (first, len(word) - end), value=-1)

    number = torch.arange(len(starts)).unsqueeze(1)
    before = place[:first].expand(len(starts), -1)
    inner = first + torch.tensor(starts).unsqueeze(1) + place[: min(room, end - first)]
    after = place[end:].expand(len(starts), -1)
    read = torch.cat([before, inner, after], 1)
    return read, torch.where(window_of_piece[read] == number, word[read], -1)


def window_starts(pieces: int, room: int, overlap: float) -> list[int]:
    """Where windows of `room` pieces start; the last one ends with the text.

    >>> window_starts(10, 4, 0.5)
    [0, 2, 4, 6]
    >>> window_starts(9, 4, 0.0)
    [0, 4, 5]
    >>> window_starts(3, 4, 0.0)
    [0]
    """
    last = max(0, pieces - room)
    step = max(1, room - round(overlap * room))
    return [*range(0, last, step), last]


def nearest_windows(
    word: Int[Tensor, "pieces"], starts: Sequence[int], room: int
) -> Int[Tensor, "pieces"]:
    """For each piece the window whose middle is nearest to the middle of the piece's word.

    Args:
        word: the word that each piece belongs to.
        starts: where the windows start.
        room: pieces of a window.

    >>> nearest_windows(torch.tensor([1, 2, 3, 3, 3, 4]), [0, 2], 4).tolist()
    [0, 0, 1, 1, 1, 1]
    """
    _, number, count = word.unique_consecutive(return_inverse=True, return_counts=True)
    middle_of_word = count.cumsum(0) - (count + 1) / 2
    middle_of_window = torch.tensor(starts) + (room - 1) / 2
    distance = (middle_of_word.unsqueeze(1) - middle_of_window).abs()
    return distance.argmin(1)[number]
