"""The library is the reference: what a model reads, and predicts of it, is compared with it.

At the start of a run a sample of cells goes through the library's own tokenizer and network, one at
a time, as its user would call them. Pieces have to be equal, and probabilities up to rounding.
Where they are not, the run is refused; where a setting asks for the difference, it is said how many
texts it changes and how far predictions move.
"""

import copy
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from inspect import signature
from itertools import chain, islice
from typing import Any

import numpy as np
import regex
import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.core.batch import Task, prediction_distance, probabilities
from attnprobe.core.errors import UserError
from attnprobe.core.sanitise import percent
from attnprobe.data.batching import TextSplit
from attnprobe.data.data_warnings import Check
from attnprobe.data.examples import Ragged
from attnprobe.data.passages import Passages
from attnprobe.data.pieces import PLACEHOLDERS, PieceReader, foreign

CLOSE = 1e-5
"""Largest difference of a probability (of a score: relative to the largest, at least 1)."""
OF_LENGTHS = 6
"""Texts of the sample that are spread over all lengths, the shortest and the longest among them."""
SAMPLE = 20
"""Texts of the sample at most."""
READ = 1000
"""Texts whose pieces are compared at most."""
SEARCHED = 5000
"""Texts at most among which the sample's are found."""
LONGEST = 4096
"""Pieces of a text that is cut here, up to which the library predicts all of it."""
FEATURES = {
    "a line break": r"[\n\r\u2028]",
    "a tab": r"\t",
    "two spaces": r"\S[ \u00a0]{2,}\S",
    "space at an end": r"\A\s|\s\Z",
    "an emoji": r"\p{Extended_Pictographic}",
    "right to left": r"[\p{Hebrew}\p{Arabic}]",
    "no spaces": r"[\p{Han}\p{Hiragana}\p{Thai}]",
    "a mark of its own": r"[\p{M}\p{Cf}]",
    "a control character": r"[\x01-\x08\x0e-\x1f\x7f]",
    "a tag": r"<[^<>\s]+>|\[[A-Z]+\]|<\|",
}
"""What a tokenizer may treat in a way of its own; of each the sample has the first text."""


def copy_sharing_weights(network: Any) -> Any:
    """The same network once more, with the very same tensors.

    Hooks, heads and settings of one are not those of the other.
    """
    tensors = chain(network.parameters(), network.buffers())
    return copy.deepcopy(network, {id(tensor): tensor for tensor in tensors})


def chat_of(tokenizer: Any, message: str) -> str:
    """A chat that begins with this message of its user, up to where the model answers."""
    chat: str = tokenizer.apply_chat_template(
        [{"role": "user", "content": message}], tokenize=False, add_generation_prompt=True
    )
    return chat


@dataclass
class Library:
    """A checkpoint as its user would call it: the library's tokenizer and network, untouched.

    Attributes:
        tokenizer: read for this.
        network: in eval mode, with the library's own choice of attention.
        order: the network's output for each class.
        labels: of a language model, the word that says each class.
        message: of a model that is asked in a chat, what its user says, with a place for the text.
        threshold: of a network that gives one score, that of the second class.
    """

    tokenizer: Any
    network: Any
    order: Sequence[int]
    labels: Sequence[str] = ()
    message: str | None = None
    threshold: float | None = None
    label_ids: list[list[int]] = field(default_factory=list)

    @property
    def adds_special_tokens(self) -> bool:
        """Whether the tokenizer puts its own around a text; a chat has them already."""
        return self.message is None

    def encoding(self, strings: Sequence[str], **settings: Any) -> Any:
        """What the tokenizer makes of a text or a pair."""
        return self.tokenizer(
            *strings,
            truncation=True,
            add_special_tokens=self.adds_special_tokens,
            return_tensors="pt",
            **settings,
        )

    def ids(self, columns: Sequence[Sequence[str]]) -> list[list[int]]:
        """The pieces of many texts or pairs, given as one or two columns of strings."""
        ids: list[list[int]] = self.tokenizer(
            *columns, truncation=True, add_special_tokens=self.adds_special_tokens
        )["input_ids"]
        return ids

    def in_chat(self, cells: Sequence[str]) -> str:
        """The chat in which a user gives these texts."""
        assert self.message is not None
        message = self.message
        for placeholder, cell in zip(PLACEHOLDERS, cells, strict=False):
            message = message.replace(placeholder, cell)
        return chat_of(self.tokenizer, message)

    @torch.no_grad()
    def logits(
        self, encoding: Any, string: str, character: int | None = None
    ) -> Float[Tensor, "classes"]:
        """The logits of the classes.

        Args:
            encoding: of one text.
            string: the text.
            character: of a network that labels every word, where the queried word starts.
        """
        arguments = dict(encoding)
        if "token_type_ids" not in signature(self.network.forward).parameters:
            arguments.pop("token_type_ids", None)
        logits = self.network(**arguments).logits[0]
        if self.threshold is not None:
            z = logits[0] - self.threshold
            return torch.stack([-z, z]) / 2
        if self.labels:
            labels = self._label_ids(string, encoding)
            if all(len(label) == 1 for label in labels):
                return logits[-1][[piece for (piece,) in labels]]
            return torch.stack([self._label_score(arguments, label) for label in labels])
        if logits.ndim == 2:
            assert character is not None
            logits = logits[encoding.char_to_token(0, character)]
        return logits[list(self.order)]

    def computes_in_steps(self) -> bool:
        """Take the library's plainest way to compute attention; False where it was taken before.

        The library's ways agree up to rounding, which in a deep network may be more than `CLOSE`.
        """
        if self.network.config._attn_implementation == "eager":
            return False
        self.network.set_attn_implementation("eager")
        return True

    def _label_score(self, arguments: dict[str, Tensor], label: list[int]) -> Float[Tensor, ""]:
        """The log-probability of a label's pieces after a text.

        Args:
            arguments: the network's, for the text.
            label: the pieces.
        """
        text = arguments["input_ids"]
        ids = torch.cat([text, text.new_tensor([label[:-1]])], dim=1)
        logits = self.network(input_ids=ids, attention_mask=torch.ones_like(ids)).logits[0]
        log_probability = logits[text.shape[1] - 1 :].log_softmax(-1)
        return log_probability[range(len(label)), label].sum()

    def _label_ids(self, string: str, encoding: Any) -> list[list[int]]:
        """The pieces that each label adds to a text."""
        if not self.label_ids:
            length = encoding["input_ids"].shape[1]
            for label in self.labels:
                ids = self.tokenizer(string + label, add_special_tokens=self.adds_special_tokens)
                self.label_ids.append(ids["input_ids"][length:])
        return self.label_ids


@dataclass
class Comparison:
    """What the comparison with the library showed.

    Attributes:
        texts: how many texts were predicted by both.
        read: of how many the pieces were compared.
        largest: the largest difference of two probabilities, 0 to 1 (or of scores).
        changed: of how many of those that were read the pieces differ by a setting.
        moved: how far the prediction of each such text in the sample moves: prediction distances.
        decisions: how many of these predictions are another class.
        settings: the settings that ask for the difference.
        unpredicted: how many such texts of the sample the library was not asked about, because they
            are too long.
        seconds: what it took.
    """

    texts: int = 0
    read: int = 0
    largest: float = 0.0
    changed: int = 0
    moved: list[float] = field(default_factory=list)
    decisions: int = 0
    settings: list[str] = field(default_factory=list)
    unpredicted: int = 0
    seconds: float = 0.0

    def facts(self) -> dict[str, Any]:
        """For the manifest."""
        return {
            "texts": self.texts,
            "texts_read": self.read,
            "largest_difference": self.largest,
            "texts_changed_by_settings": self.changed,
            "settings": self.settings,
            "predictions_moved": self.moved,
            "other_decisions": self.decisions,
            "seconds": round(self.seconds, 2),
        }

    def checks(self) -> list[Check]:
        """For terminal and page: that all is as in the library, or what is not and why."""
        if not self.changed:
            sentence = (
                f"pieces of {self.read:,} and predictions of {self.texts} texts are those of "
                f"transformers on their cells (largest difference {self.largest:.0e})"
            )
            return [Check("library", self.largest, None, False, sentence)]
        share = self.changed / self.read
        sentence = (
            f"{self.changed:,} of {self.read:,} texts ({percent(share)}) are not read as "
            f"transformers reads their cells: {', '.join(self.settings)}"
        )
        if self.moved:
            sentence += (
                f". Of {len(self.moved)} of them predictions move by "
                f"{float(np.median(self.moved)):.2g} in the median, {max(self.moved):.2g} at most, "
                f"and {self.decisions} to another class"
            )
        if self.unpredicted:
            sentence += f"; {self.unpredicted} were too long to be predicted as a whole"
        return [Check("library", share, 0.0, True, sentence)]


@dataclass
class Reference:
    """Compares a model of ours with the library on a split's texts.

    Attributes:
        library: the checkpoint, untouched.
        reader: our reader of pieces.
        predict: our logits of some rows of the split, read and computed as in the run.
        task: what logits mean.
        part: the split, with the pieces that we read.
        place: names the checkpoint in messages.
        result: what the comparison has shown so far.
    """

    library: Library
    reader: PieceReader
    predict: Callable[[Sequence[int]], Float[Tensor, "rows classes"]]
    task: Task
    part: TextSplit
    place: str
    result: Comparison = field(default_factory=Comparison)

    def compare(self) -> Comparison:
        """Compare pieces of up to `READ` texts, and predictions of a sample of them.

        Raises:
            UserError: they differ, and no setting asks for it; names the first difference.
        """
        start = time.perf_counter()
        sample = sample_rows(self._cells(), self._rows_with_special_tokens())
        logits = self.predict(sample)
        for row, ours in zip(sample, logits.double().cpu(), strict=True):
            self._compare_text(row, ours)
        self._compare_pieces()
        self.result.texts = len(sample)
        self.result.seconds = time.perf_counter() - start
        return self.result

    def _cells(self) -> list[str]:
        """The text or the pair in every row's cells, as one string."""
        assert self.part.passages is not None
        return ["\0".join(text.raw for text in pair.texts) for pair in self.part.passages]

    def _rows_with_special_tokens(self) -> list[int]:
        """For each special token that is spelled out in texts, the first row that it is in."""
        pieces = self.part.columns["pieces"]
        words = self.part.columns["piece_word"]
        assert isinstance(pieces, Ragged)
        assert isinstance(words, Ragged)
        special = [*self.reader.control_tokens]
        places = np.flatnonzero(np.isin(pieces.flat, special) & (words.flat >= 0))
        _, first = np.unique(pieces.flat[places], return_index=True)
        rows = np.searchsorted(pieces.offsets, places[first], side="right") - 1
        return rows.tolist()

    def _passages(self, row: int) -> Passages:
        assert self.part.passages is not None
        return self.part.passages[row]

    def _pieces(self, row: int) -> list[int]:
        pieces = self.part.columns["pieces"]
        assert isinstance(pieces, Ragged)
        ids: list[int] = pieces[row].tolist()
        return ids

    def _compare_text(self, row: int, ours: Float[Tensor, "classes"]) -> None:
        """Compare the pieces and the prediction of one text."""
        passages = self._passages(row)
        strings = self.reader.strings(passages)
        as_set = self.library.encoding(strings, **self._settings())
        self._check_pieces(row, as_set["input_ids"][0].tolist())
        expected = self.library.logits(as_set, strings[0], self._character(row))
        difference = self._difference(ours, expected)
        if not difference <= CLOSE and self.library.computes_in_steps():
            expected = self.library.logits(as_set, strings[0], self._character(row))
            difference = self._difference(ours, expected)
        if not difference <= CLOSE:
            raise self._other_prediction(row, ours, expected)
        self.result.largest = max(self.result.largest, difference)

        cells = self._strings_of_cells(row)
        as_is = self.library.encoding(cells)
        if as_is["input_ids"][0].tolist() == self._pieces(row):
            return
        if as_is["input_ids"].shape[1] > LONGEST:
            self.result.unpredicted += 1
            return
        try:
            plain = self.library.logits(as_is, cells[0], self._character(row)).double()
        except Exception as error:  # longer than the network's positions
            foreign(error)
            self.result.unpredicted += 1
            return
        before, after = (probabilities(logits, self.task) for logits in (plain, ours))
        self.result.moved.append(float(prediction_distance(before, after, self.task)))
        self.result.decisions += int(self._decision(ours) != self._decision(plain))

    def _difference(self, ours: Tensor, expected: Tensor) -> float:
        """The largest difference of two probabilities; of scores, relative to the largest."""
        difference = probabilities(ours, self.task) - probabilities(expected.double(), self.task)
        scale = max(1.0, float(expected.abs().max())) if self.task is Task.SCORE else 1.0
        return float(difference.abs().max()) / scale

    def _other_prediction(self, row: int, ours: Tensor, expected: Tensor) -> UserError:
        """The refusal of a network whose prediction of a text is not the library's."""
        unpadded = self.predict([row])[0].double().cpu()
        fault = "the model that would be tested is not the one that its library computes"
        if self._difference(unpadded, expected) <= CLOSE:
            fault = (
                "alone it is the same: this network's predictions change with the padding behind "
                "a text that is shorter than others, which tests of many variants need"
            )
        return UserError(
            f"{self.place}: of text {self._name(row)} transformers predicts "
            f"{_listed(probabilities(expected, self.task))}, and here it is "
            f"{_listed(probabilities(ours, self.task))} of the same {len(self._pieces(row))} "
            f"pieces. {fault.capitalize()}. Expected a classifier of another family; please report "
            f"this one"
        )

    def _settings(self) -> dict[str, Any]:
        """How the library has to be called for what our settings ask for."""
        settings: dict[str, Any] = {"max_length": self.reader.longest}
        if self.reader.special_tokens == "characters":
            settings["split_special_tokens"] = True
        return settings

    def _strings_of_cells(self, row: int) -> list[str]:
        """What a user gives the tokenizer: the cells, in the prompt where there is one."""
        cells = [passage.raw for passage in self._passages(row).texts]
        if self.library.message is not None:
            return [self.library.in_chat(cells)]
        return self.reader.prompted(cells)

    def _character(self, row: int) -> int | None:
        """Where the word that a row asks about starts in its text."""
        queried = self.part.columns.get("asked")
        if not isinstance(queried, Ragged):
            return None
        pieces = self.reader.read([self._passages(row)])[0]
        word = int(pieces.first[int(queried[row].argmax())])
        return int(self._passages(row).texts[0].spans[word, 0])

    def _decision(self, logits: Float[Tensor, "classes"]) -> Any:
        if self.task is Task.MULTI_LABEL:
            return (logits > 0).tolist()
        return int(logits.argmax())

    def _check_pieces(self, row: int, expected: list[int]) -> None:
        """Refuse pieces that are not the library's."""
        ours = self._pieces(row)
        if ours == expected:
            return
        place = 0
        while ours[place : place + 1] == expected[place : place + 1]:
            place += 1
        our_piece = self._token(ours[place : place + 1])
        expected_piece = self._token(expected[place : place + 1])
        raise UserError(
            f"{self.place}: text {self._name(row)} is not read as transformers reads it: piece "
            f"{place} is {our_piece} here and {expected_piece} there. Leave such texts out, and "
            f"please report one with the tokenizer's files"
        )

    def check_removals(self, *, rereads: bool) -> list[Check]:
        """What becomes of a text whose word is removed.

        In how many texts of the sample are the pieces that are left those of the text without its
        first word, and without one in its middle?

        Args:
            rereads: the text without the word is read again; else the other pieces stay.

        Returns:
            One check; none where no text of the sample has two words.
        """
        texts = 0
        other_reading = Counter[str]()
        for row in sample_rows(self._cells()):
            passages = self._passages(row)
            pieces = self.reader.read([passages])[0]
            units = len(pieces.first)
            if units < 2 or pieces.is_cut:
                continue
            texts += 1
            for place, unit in {"first": 0, "middle": units // 2}.items():
                first = int(pieces.first[unit])
                last = int(pieces.last[unit])
                shorter = self.reader.read([passages.without(first, last)])[0]
                remaining = pieces.ids[pieces.word != unit + 1]
                other_reading[place] += not np.array_equal(shorter.ids, remaining)
        if texts == 0:
            return []
        share = other_reading.total() / (2 * texts)
        counts = (
            f"in {other_reading['first']} of {texts} texts if it is the first, in "
            f"{other_reading['middle']} if it is in the middle"
        )
        if rereads:
            sentence = (
                f"a word is removed with its characters, and what is left is read again: other "
                f"pieces than those that were beside it {counts}"
            )
        elif share == 0:
            sentence = (
                f"a word is removed with its pieces; the others are those of the text without it "
                f"(in {texts} texts, without the first word and without one in the middle)"
            )
        else:
            sentence = (
                f"a word is removed with its pieces; the tokenizer reads the text without it "
                f"otherwise {counts} (the word that follows keeps its space): "
                f"model.removal=characters reads it again"
            )
        return [Check("removal", share, None, False, sentence)]

    def _compare_pieces(self) -> None:
        """Compare the pieces of many texts with those of their cells as they are."""
        rows = evenly_spaced(len(self.part), READ)
        inputs = [self._strings_of_cells(row) for row in rows]
        ids = self.library.ids([list(column) for column in zip(*inputs, strict=True)])
        changed: set[str] = set()
        for row, expected in zip(rows, ids, strict=True):
            self.result.read += 1
            if expected == self._pieces(row):
                continue
            reasons = list(self._reasons(row, expected))
            if not reasons:
                self._check_pieces(row, expected)
            self.result.changed += 1
            changed.update(reasons)
        self.result.settings = sorted(changed)

    def _reasons(self, row: int, expected: list[int]) -> Iterator[str]:
        """The settings that change what is read of a text."""
        passages = self._passages(row)
        if any(passage.cell is not None for passage in passages.texts):
            yield "data.clean, token_rules or max_tokens change them"
        is_cut = self.reader.read([passages])[0].is_cut
        if is_cut or len(expected) > self.reader.longest:
            yield f"they are cut at {self.reader.longest} pieces (model.max_pieces)"
        elif self.reader.special_tokens == "characters":
            yield "special tokens in them are read as characters (model.special_tokens)"

    def _token(self, ids: list[int]) -> str:
        tokens = self.library.tokenizer.convert_ids_to_tokens(ids)
        return repr(tokens[0]) if tokens else "nothing"

    def _name(self, row: int) -> str:
        """A row's number in its source, and how its text begins."""
        start = self._passages(row).texts[0].raw[:60]
        return f"{self.part.example_id[row]} ({start!r})"


def _listed(numbers: Float[Tensor, "classes"]) -> str:
    """Probabilities, as many digits as tell them apart."""
    return ", ".join(f"{number:.6f}" for number in numbers[:4].tolist())


def evenly_spaced(count: int, most: int) -> list[int]:
    """Up to `most` of the numbers below `count`, the first and the last among them.

    >>> evenly_spaced(11, 3)
    [0, 5, 10]
    """
    return np.linspace(0, count - 1, min(most, count)).astype(int).tolist()


def sample_rows(cells: Sequence[str], special: Sequence[int] = ()) -> list[int]:
    """Rows of texts of all lengths, and of all that a tokenizer may treat in a way of its own.

    Args:
        cells: the texts.
        special: rows that are to be among them.

    Returns:
        At most `SAMPLE` rows, ascending.

    >>> sample_rows(["long"] * 20 + ["a\\tfilm", "a", "a film, unlike the others"])
    [3, 7, 12, 16, 20, 21, 22]
    """
    order = sorted(range(len(cells)), key=lambda row: (len(cells[row]), row))
    of_lengths = [order[place] for place in evenly_spaced(len(order), OF_LENGTHS)]
    chosen = dict.fromkeys([*of_lengths, *special])
    searched = evenly_spaced(len(cells), SEARCHED)
    for pattern in FEATURES.values():
        matches = (row for row in searched if regex.search(pattern, cells[row]))
        chosen.update(dict.fromkeys(islice(matches, 1)))
    return sorted(islice(chosen, SAMPLE))
