"""Scores that the user brings: from any other tool, one list of numbers per text, in a file."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.data.files import find_path
from attnprobe.data.module import TextDataModule
from attnprobe.errors import UserError
from attnprobe.importance.base import Importance, Subject
from attnprobe.importance.scored_texts import BY_NUMBER, BY_TEXT, BY_TOKENS, ScoredTexts, Scores


@dataclass(frozen=True)
class File(Importance):
    """One score per word from a parquet or JSON-lines file (also `.jsonl.gz`), one row per text.

    A row says which text it is about by `example_id` (as in the tables and in `attnprobe.read_examples`), by `tokens` (the
    words, as there) or by `text` (as in the data). `tokens` beside `example_id` are compared with the run's own, so that
    scores of another tokenisation are noticed. A row whose list is null says that its text has no scores: undefined.

    Whatever leaves a doubt is refused: a text without a row, an `example_id` that no text of the split has, two rows about
    one text, a list of another length than the text, a score that is not a finite number. Rows by `tokens` or `text` may be
    about other texts as well: one file serves all splits, and rows that are drawn from.

    Attributes:
        path: the file, in the working directory or in `ATTNPROBE_DATA_DIR`.
        column: the column with the lists of numbers.
        title: in figures, tables and pages.
        colour: in figures, `#RRGGBB`.
        signed: below 0 speaks against the decision.
    """

    name: ClassVar[str] = "file"
    of_words: ClassVar[bool] = True
    path: str | None = None
    column: str = "scores"
    # facts of every other importance, and the user's to say of this one
    title: str = "scores from a file"  # type: ignore[misc]
    colour: str = "#661100"  # type: ignore[misc]
    signed: bool = False  # type: ignore[misc]
    _scores: dict[int, Scores | None] = field(default_factory=dict, init=False, repr=False, compare=False)

    def files(self) -> dict[str, Path]:
        """The file, by the setting that names it."""
        if self.path is None:
            raise UserError(
                f"importance {self.name} has no path: name the file with your scores, for example "
                f"importance.{self.name}.path=scores.parquet"
            )
        return {"path": find_path(self.path)}

    def prepare(self, data: TextDataModule, split: str) -> None:
        """Read the file and find every text's scores."""
        rows, part = self._rows(BY_NUMBER, BY_TOKENS, BY_TEXT), data.splits[split]
        if rows.key == BY_TEXT:  # the original text is gone by now, its tokens are not
            rows = rows.tokenised(data.pipeline.tokens)
        texts = {number: part.tokens_at(row) for row, number in enumerate(part.example_id.tolist())}
        keys = {number: number if rows.key == BY_NUMBER else tuple(words) for number, words in texts.items()}
        self._take(rows.matched(texts, keys, f"the {split} split", others=rows.key != BY_NUMBER))

    def prepare_texts(self, texts: Sequence[str | Sequence[str]], tokens: Sequence[Sequence[str]]) -> None:
        """Read the file and find every text's scores; it may hold those of other texts as well."""
        rows, words = self._rows(BY_TOKENS, BY_TEXT), dict(enumerate(tokens))
        given: Sequence[str | Sequence[str]] = tokens if rows.key == BY_TOKENS else texts
        keys = {number: one if isinstance(one, str) else tuple(one) for number, one in enumerate(given)}
        self._take(rows.matched(words, keys, "those to explain", others=True))

    def _take(self, scores: dict[int, Scores | None]) -> None:
        self._scores.clear()
        self._scores.update(scores)

    def scores(self, subject: Subject) -> Float[Tensor, "batch seq"]:
        """The file's numbers; NaN in a text whose list is null."""
        content = subject.batch.content
        scores = torch.zeros(content.shape, dtype=torch.float64, device=content.device)
        for row, number in enumerate(subject.batch.example_id.tolist()):
            values = self._scores[number]
            scores[row, content[row]] = torch.nan if values is None else torch.tensor(values, device=content.device)
        return scores

    def _rows(self, *keys: str) -> ScoredTexts:
        return ScoredTexts.read(self.files()["path"], self.column, keys)
