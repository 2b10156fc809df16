"""What is decided, as it is stored and shown: a judgement per claim, a card per model.

Every step from a number to the page has a dataclass: `Evidence` → `Finding` (a claim with its
evidence) → `Judgement` (the finding after everything that speaks on its verdict) → `Card` (one
model's judgements, its chip and its sentence) → `Summary` (what is shown first). `Findings` holds
the cards of some runs. Its table, `findings.parquet`, is read back here, and nowhere else.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pandas as pd

from attnprobe.core.errors import UserError
from attnprobe.evidence.claims import Claim, Finding
from attnprobe.evidence.verdicts import Answer, Chip, Verdict
from attnprobe.findings.lines import LINES, STATES, WORDS, Place
from attnprobe.findings.studies.criteria.alternative import CLAIM as ANOTHER_IS_BETTER

ACROSS = "across"
"""The part of the page that shows comparisons of two models."""
WIDEST = 0.5
"""Widest interval, of a number from 0 to 1, with which the number is still shown."""


@dataclass(frozen=True)
class Judgement:
    """A claim about one model, as it was decided; or a line of the card without a test.

    Attributes:
        criterion: what is asked; one of `attnprobe.evidence.claims.CRITERIA`.
        level: of what it is asked; one of `attnprobe.evidence.claims.LEVELS`.
        claim: the claim's name; empty where nothing was tested.
        statement: the claim's sentence; empty where nothing was tested.
        value: the claim's number, in the unit of `quantity`; NaN where nothing was tested.
        low: lower end of the number's 95 % interval; NaN where there is no interval.
        high: upper end of the interval.
        n: examples, or seeds, behind the number.
        part: the part of the texts that the number is of, such as a class; empty: all of them.
        threshold: the claim holds for a number above `threshold + smallest`.
        smallest: smallest difference from the threshold that is of interest.
        verdict: what is decided, with the card's corrections.
        reason: why nothing is decided; of an untested line the setting that adds the test.
        p: p-value of a primary claim, adjusted for the card's other claims (Holm); else NaN.
        track_record: how often this verdict was right where the truth is known.
        interval_verdict: what the number says alone, before the card's corrections.
        primary: whether the judgement is a line of the card; else it is a detail.
        speaks: `for` reading attention as an explanation where the claim holds, or `neither`.
        quantity: what the number is, with its unit.
        source: paper and section that make the claim.
        section: the part of the page that shows it.
        ticked: whether a track record stands behind a yes.
        data: name of the data set.
        model: name of the model; of a comparison, of both models.
        group: whose judgement it is: data, model, and what sets the settings apart from others.
    """

    criterion: str
    level: str
    claim: str = ""
    statement: str = ""
    value: float = np.nan
    low: float = np.nan
    high: float = np.nan
    n: int = 0
    part: str = ""
    threshold: float = np.nan
    smallest: float = np.nan
    verdict: Verdict = Verdict.NOT_TESTED
    reason: str = ""
    p: float = np.nan
    track_record: str = ""
    interval_verdict: Verdict = Verdict.NOT_TESTED
    primary: bool = True
    speaks: str = "for"
    quantity: str = ""
    source: str = ""
    section: str = ""
    ticked: bool = False
    data: str = ""
    model: str = ""
    group: str = ""

    @classmethod
    def of(cls, finding: Finding) -> "Judgement":
        """The judgement on a claim by its number alone."""
        claim = finding.claim
        evidence = finding.evidence
        is_above = evidence.low > claim.threshold + claim.smallest
        # a number that is above, and yet no yes, would be a riddle
        is_kept_from_yes = is_above and finding.verdict is Verdict.CANNOT_DECIDE
        return cls(
            criterion=claim.criterion,
            level=claim.level,
            claim=claim.name,
            statement=claim.statement,
            value=evidence.value,
            low=evidence.low,
            high=evidence.high,
            n=evidence.n,
            part=evidence.part,
            threshold=claim.threshold,
            smallest=claim.smallest,
            verdict=finding.verdict,
            reason=evidence.no_yes if is_kept_from_yes else evidence.unasked,
            interval_verdict=finding.verdict,
            primary=False,
            speaks=claim.speaks,
            quantity=claim.quantity,
            source=claim.source,
            section=finding.section,
            data=finding.data,
            model=finding.model,
        )

    @property
    def place(self) -> Place:
        """Criterion and level: the line of the card that it belongs to."""
        return self.criterion, self.level

    @property
    def answer(self) -> Answer:
        """Yes, no, open or untested: what the verdict comes to."""
        return self.verdict.answer

    @property
    def is_tested(self) -> bool:
        """Whether there is a number."""
        return self.verdict is not Verdict.NOT_TESTED

    @property
    def asked(self) -> float:
        """What the number has to be above."""
        return self.threshold + self.smallest

    @property
    def yes(self) -> str:
        """What a yes says, in the words of the card."""
        line = LINES.get(self.place)
        return self.statement if line is None else line.yes

    @property
    def is_readable(self) -> bool:
        """Whether a number from 0 to 1 is known well enough to be shown.

        Below 0 it is worse than chance.
        """
        return self.high - self.low <= WIDEST and -1 <= self.value <= 1


@dataclass(frozen=True)
class Summary:
    """May the attention of one model be read? What page, terminal, notebook and trackers say first.

    Attributes:
        chip: the answer.
        sentence: the reason, in at most 24 words.
        gauge: the line whose number stands between chance, 0, and the best that is possible, 1;
            None where none is known well enough to be shown.
        answered: the lines with a yes or a no, but for that about states.
        open: the lines that were tested and are not decided.
        untested: the lines without a test.
        instead: what was shown to be better than attention, a sentence each.
    """

    chip: Chip
    sentence: str
    gauge: Judgement | None = None
    answered: Sequence[Judgement] = ()
    open: Sequence[Judgement] = ()
    untested: Sequence[Judgement] = ()
    instead: Sequence[str] = ()

    @property
    def words(self) -> str:
        """Chip and sentence, on one line."""
        return f"{self.chip}. {self.sentence}"


@dataclass(frozen=True)
class Card:
    """Everything that is decided about the model of one group of runs.

    Attributes:
        chip: may its attention be read?
        sentence: why, in at most 24 words.
        judgements: the lines of the card, then the details.
    """

    chip: Chip
    sentence: str
    judgements: tuple[Judgement, ...]

    @property
    def group(self) -> str:
        """Data, model, and what sets the settings apart from those of other groups."""
        return self.judgements[0].group

    @property
    def lines(self) -> tuple[Judgement, ...]:
        """A judgement per criterion and level."""
        return tuple(judgement for judgement in self.judgements if judgement.primary)

    @property
    def is_tested(self) -> bool:
        """Whether any claim was put to the test."""
        return any(judgement.is_tested for judgement in self.judgements)

    @property
    def summary(self) -> Summary:
        """What is shown first; of a model that may be guessing, chip and sentence alone."""
        if self.chip is Chip.POOR:
            return Summary(self.chip, self.sentence)

        word = next(line for line in self.lines if line.place == WORDS.place)
        # an attention can be right about states and wrong about words, which the chip is about
        shown = [line for line in self.lines if line.place != STATES.place]
        better = [
            judgement
            for judgement in self.judgements
            if judgement.claim == ANOTHER_IS_BETTER.name and judgement.answer is Answer.YES
        ]
        return Summary(
            self.chip,
            self.sentence,
            gauge=word if word.is_tested and word.is_readable else None,
            answered=[line for line in shown if line.verdict.is_decided],
            open=[line for line in shown if line.answer is Answer.OPEN],
            untested=[line for line in shown if line.answer is Answer.UNTESTED],
            instead=[f"{method.statement} (by {method.value:.2f})" for method in better],
        )

    def named_lines(self) -> dict[str, Judgement]:
        """The lines by the names that conditions and comparisons use.

        Returns:
            Criterion, or `criterion.level` where several levels are asked → line.
        """
        criteria = [line.criterion for line in self.lines]
        named = {}
        for line in self.lines:
            has_several_levels = criteria.count(line.criterion) > 1
            name = f"{line.criterion}.{line.level}" if has_several_levels else line.criterion
            named[name] = line
        return named

    def named_judgements(self) -> dict[str, Judgement]:
        """Every tested judgement by its name.

        Returns:
            `criterion.claim` → judgement, and the tested lines by the names of `named_lines`.
        """
        claims = {
            f"{judgement.criterion}.{judgement.claim}": judgement
            for judgement in self.judgements
            if judgement.is_tested
        }
        lines = {name: line for name, line in self.named_lines().items() if line.is_tested}
        return claims | lines


def find_judgement(claim: Claim, judgements: Iterable[Judgement]) -> Judgement | None:
    """The judgement on a claim; None where it was not put to the test."""
    for judgement in judgements:
        if judgement.claim == claim.name:
            return judgement
    return None


def judgement_on(claim: Claim, judgements: Iterable[Judgement]) -> Judgement:
    """The judgement on a claim.

    Raises:
        UserError: the claim was not put to the test.
    """
    judgement = find_judgement(claim, judgements)
    if judgement is not None:
        return judgement
    raise UserError(
        f"{claim.name}: no number for this claim, which the answer goes by; expected one beside "
        "the others on its line. Probe the run again with this version of attnprobe"
    )


@dataclass(frozen=True)
class Findings:
    """Everything that is decided about some runs.

    Attributes:
        cards: one per group of runs.
        across: comparisons of two models of one data set.
    """

    cards: tuple[Card, ...]
    across: tuple[Judgement, ...] = ()

    @property
    def judgements(self) -> list[Judgement]:
        """The rows of the table, in order."""
        judgements = [judgement for card in self.cards for judgement in card.judgements]
        return [*judgements, *self.across]

    def card_of(self, group: str) -> Card:
        """The card of a group of runs, by its title.

        Raises:
            KeyError: no such group.
        """
        return {card.group: card for card in self.cards}[group]

    def table(self) -> pd.DataFrame:
        """A row per judgement; `COLUMNS` are its columns."""
        rows = [
            _row(judgement, card.chip, card.sentence)
            for card in self.cards
            for judgement in card.judgements
        ]
        rows += [_row(comparison, "", "") for comparison in self.across]
        return pd.DataFrame(rows, columns=list(COLUMNS))

    @classmethod
    def of_table(cls, table: pd.DataFrame) -> "Findings":
        """Read a table back.

        Raises:
            ValueError: the table names a verdict or a chip that does not exist.
        """
        is_across = table["section"] == ACROSS
        cards = [
            Card(
                Chip(rows["chip"].iloc[0]),
                str(rows["sentence"].iloc[0]),
                tuple(_judgements_in(rows)),
            )
            for _, rows in table[~is_across].groupby("group", sort=False)
        ]
        return cls(tuple(cards), tuple(_judgements_in(table[is_across])))


COLUMNS = (
    "data",
    "model",
    "group",
    "chip",
    "sentence",
    "criterion",
    "level",
    "claim",
    "statement",
    "value",
    "low",
    "high",
    "n",
    "part",
    "threshold",
    "smallest",
    "verdict",
    "reason",
    "p",
    "track_record",
    "interval_verdict",
    "primary",
    "speaks",
    "quantity",
    "source",
    "section",
    "answer",
    "ticked",
)
"""Columns of the table: chip and sentence are the same in all rows of a group, the others are
attributes of `Judgement`."""


def table_of(judgements: Iterable[Judgement], columns: Sequence[str]) -> pd.DataFrame:
    """Judgements as a table of some of their attributes."""
    return pd.DataFrame(
        [[_plain(getattr(judgement, name)) for name in columns] for judgement in judgements],
        columns=list(columns),
    )


def _row(judgement: Judgement, chip: str, sentence: str) -> dict[str, object]:
    cells: dict[str, object] = {"chip": str(chip), "sentence": sentence}
    for name in COLUMNS:
        if name not in cells:
            cells[name] = _plain(getattr(judgement, name))
    return cells


def _plain(value: object) -> object:
    """A word of the vocabulary as a plain string, as files hold it."""
    return str(value) if isinstance(value, str) else value


def _judgements_in(rows: pd.DataFrame) -> list[Judgement]:
    names = [field.name for field in fields(Judgement)]
    judgements = []
    records: list[dict[str, Any]] = rows[names].to_dict("records")  # type: ignore[assignment]
    for record in records:
        record["verdict"] = Verdict.named(record["verdict"])
        record["interval_verdict"] = Verdict.named(record["interval_verdict"])
        judgements.append(Judgement(**record))
    return judgements
