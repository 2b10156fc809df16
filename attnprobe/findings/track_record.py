"""How often a verdict was right on models whose attention is known to be right or wrong.

`calibration.parquet` has a row per trained model: what is known of its attention (`truth`), the
chip that this package gave it, and its answer to every claim (`research.words`);
`calibration_labels.parquet` has the same of models with an attention for each label
(`research.labels`). All rates of the project are of these rows, by `rates`: those that verdicts
cite, README's, and those of docs/.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import scipy

from attnprobe.core.sanitise import percent_ends
from attnprobe.evidence.statistics import CONFIDENCE, Interval, clopper_pearson
from attnprobe.evidence.verdicts import Answer, Chip, Verdict
from attnprobe.findings.lines import WORDS
from attnprobe.findings.mechanisms import PER_LABEL
from attnprobe.findings.members import CLAIM as SEEDS_ATTEND_ALIKE
from attnprobe.results.files import record_of

CALIBRATION = Path(__file__).parent / "calibration.parquet"
LABEL_CALIBRATION = Path(__file__).parent / "calibration_labels.parquet"
NONE = "No track record exists for this kind of model and measurement."
FALSE_ALARMS = 0.05
"""Share of wrong attentions of which a test may say yes."""
FALSE_NOES = 0.1
"""Share of right attentions of which a test may say no."""
FEWEST_KINDS = 2
"""Kinds of model that have to agree, at least, before something is inferred of another one."""
WITHOUT_CONTEXT = "average"
"""The encoder whose states are its words, so that what is known of words is known of states."""

AUDITS = Path(__file__).parent / "audits.csv"
"""How often audits of some seeds said yes of a claim about trained models, by the true effect
(`research.models`)."""
POWER_OF_SEEDS = 0.8
"""Share of the audits that have to say yes for so many seeds to be said to show an effect."""


@dataclass(frozen=True)
class OneCheckpoint:
    """The one checkpoint that was measured of a family of pretrained models.

    Attributes:
        words: what it is, for the page.
        measured: how its attention was measured (`Evidence.record`).
    """

    words: str
    measured: str


CHECKPOINTS = {
    "bert": OneCheckpoint("MiniLM fine-tuned on the same rules, asked in bfloat16", "bfloat16")
}
"""Family → its checkpoint, whose record is cited; no verdict depends on it."""


# What was said of every model

CHIP = "chip"
"""The claim under which the chip stands among the answers."""
LABEL = "label"
"""The claim under which the answers about single labels stand."""
YES = "yes"
NO = "no"
OPEN = "open"
UNASKED = "not asked"
ANSWERS = (YES, NO, OPEN, UNASKED)
"""What a model may be told; a denominator has all of them."""
ANSWER_OF_VERDICT = {
    Verdict.MEETS: YES,
    Verdict.FAILS: NO,
    Verdict.NO_DIFFERENCE: NO,
    Verdict.CANNOT_DECIDE: OPEN,
    Verdict.TOO_RARE: OPEN,
    Verdict.NOT_INFORMATIVE: UNASKED,
    Verdict.NOT_MEANINGFUL: UNASKED,
    Verdict.NOT_TESTED: UNASKED,
}
ANSWER_OF_CHIP = {Chip.READ: YES, Chip.CARE: YES, Chip.NO: NO, Chip.POOR: UNASKED}
"""Chip → answer; *Not shown* is open, or not asked, as the line of words says."""
CHIPS_OF_ANSWER = {
    YES: f"“{Chip.READ}” or “{Chip.CARE}”",
    NO: f"“{Chip.NO}”",
    OPEN: "this answer",
}
"""Answer → what was said to a model that is counted under it."""
ABOUT_MODEL = (
    "rule",
    "kind",
    "encoder",
    "family",
    "attention",
    "standing",
    "draw",
    "mode",
    "rightness",
    "truth",
)
"""Columns of a model that its answers carry along."""
ABOUT_ANSWER = ("criterion", "level", "claim", "primary", "answer", "value", "low", "high")

_USES_RECORD: ContextVar[bool] = ContextVar("uses_record", default=True)


@contextmanager
def without_record() -> Iterator[None]:
    """Within it nothing is known of how often a verdict is right: the record itself is made so."""
    token = _USES_RECORD.set(False)
    try:
        yield
    finally:
        _USES_RECORD.reset(token)


def digest_of_record() -> str:
    """Stands for the content of the record that verdicts go by; empty where there is none."""
    if not _USES_RECORD.get():
        return ""
    return "".join(record_of(path)["sha256"] for path in _shipped_tables())


def _shipped_tables() -> list[Path]:
    """The files of the record that are there."""
    return [path for path in (CALIBRATION, LABEL_CALIBRATION) if path.exists()]


def calibration() -> pd.DataFrame:
    """The answers of the shipped models (`answers_of`); no row within `without_record`."""
    if _USES_RECORD.get() and _shipped_tables():
        return _shipped_answers()
    return pd.DataFrame(columns=[*ABOUT_MODEL, *ABOUT_ANSWER])


@cache
def _shipped_answers() -> pd.DataFrame:
    tables = [answers_of(pq.read_table(path)) for path in _shipped_tables()]
    return pd.concat(tables, ignore_index=True)


def of_same_sort(answers: pd.DataFrame, encoder: str) -> pd.DataFrame:
    """The answers of models with an attention for each label, or of those without, as this one.

    Args:
        answers: see `answers_of`.
        encoder: kind of the model.
    """
    is_per_label = answers["family"].astype(str).str.endswith(PER_LABEL)
    return answers[is_per_label == encoder.endswith(PER_LABEL)]


def units_of(encoder: str) -> str:
    """What intervals of the rates of this kind of model are over."""
    return "draws of texts" if encoder.endswith(PER_LABEL) else "rules"


def answers_of(models: pa.Table) -> pd.DataFrame:
    """What was said of each model.

    Args:
        models: a row per model, whose `answers` are a list of a struct per claim.

    Returns:
        A row per model and claim, and one per model for its chip (`CHIP`). Its `answer` is of
        `ANSWERS`; its other columns are `ABOUT_MODEL` and the rest of `ABOUT_ANSWER`. The `family`
        of a model whose kind has no name, such as a single head of a checkpoint, is NaN: two
        such models are not of one kind.
    """
    table = models.select([*ABOUT_MODEL, "chip"]).to_pandas()
    table["family"] = table["family"].mask(table["family"] == "")
    lists = models["answers"].combine_chunks()
    claims = pa.Table.from_struct_array(lists.flatten()).to_pandas()
    claims["model"] = lists.value_parent_indices().to_numpy()
    answer_of = {str(verdict): ANSWER_OF_VERDICT[verdict] for verdict in Verdict}
    claims["answer"] = claims["verdict"].map(answer_of)

    is_criterion = claims["criterion"] == WORDS.criterion
    is_level = claims["level"] == WORDS.level
    words = claims[claims["primary"] & is_criterion & is_level]
    word_answers = words.set_index("model")["answer"]
    chips = pd.DataFrame({"model": table.index, "claim": CHIP, "criterion": "", "level": ""})
    chips["primary"] = False
    chips["answer"] = [
        _answer_of_chip(chip, word_answers.get(model, UNASKED))
        for model, chip in table["chip"].items()
    ]
    chips[["value", "low", "high"]] = np.nan
    columns = ["model", *ABOUT_ANSWER]
    answers = pd.concat([chips[columns], claims[columns]], ignore_index=True)
    return answers.join(table.drop(columns="chip"), on="model").drop(columns="model")


def _answer_of_chip(chip: str, word_answer: str) -> str:
    """What a chip says; *Not shown* is open where the answer about words is.

    A model that could not be asked has none.
    """
    if not chip:
        return UNASKED
    if chip == Chip.UNSHOWN:
        return OPEN if word_answer == OPEN else UNASKED
    return ANSWER_OF_CHIP[Chip(chip)]


# How often it is right


@dataclass(frozen=True)
class Rate:
    """How often some models were told an answer.

    Attributes:
        count: models that were told so.
        models: all that were asked, with those that got no answer.
        rules: of the models.
        over_models: share of the models, 0 to 1, with its exact 95 % interval.
        over_rules: mean of the rules' shares, with its interval (`mean_of_rules`).
    """

    count: int
    models: int
    rules: int
    over_models: Interval
    over_rules: Interval

    def words(self, units: str = "rules") -> str:
        """Such as `95 % [83, 99] of 40 models of 12 rules`, the interval over rules.

        Args:
            units: what the rules are called (`units_of`).
        """
        _, low, high = self.over_rules
        share = f"{100 * self.over_models.value:.0f} %"
        return f"{share} {percent_ends(low, high)} of {self.models} models of {self.rules} {units}"


def rate(answers: pd.DataFrame, answer: str = YES) -> Rate:
    """How often the models of these rows were told an answer; every other answer counts against it.

    Args:
        answers: a row per model, with `rule` and `answer`.
        answer: of `ANSWERS`.
    """
    is_told = answers["answer"] == answer
    shares = is_told.groupby(answers["rule"].astype(str)).mean().to_numpy()
    count = int(is_told.sum())
    return Rate(
        count=count,
        models=len(answers),
        rules=len(shares),
        over_models=clopper_pearson(count, len(answers)),
        over_rules=mean_of_rules(shares),
    )


def mean_of_rules(shares: Sequence[float] | np.ndarray) -> Interval:
    """The mean of the rules' shares, with a 95 % interval over rules.

    Models of one rule are alike, so that rules are the units: the interval is Clopper and
    Pearson's of as many trials as there are rules, with the sum of their shares as the number of
    successes. Where every share is 0 or 1 it is exact. Shares in between scatter less than coin
    flips of the same mean, so that it is rather too wide there (as a test simulates); Student's
    interval has no width where all are 0, and is too short where few are not.

    Args:
        shares: of each rule's models, 0 to 1.

    Returns:
        Mean, low and high, 0 to 1; NaN where there is no rule.

    >>> tuple(round(number, 3) for number in mean_of_rules([0] * 12))
    (0.0, 0.0, 0.265)
    """
    rules = len(shares)
    if rules == 0:
        return Interval(np.nan, np.nan, np.nan)
    total = float(np.sum(shares))
    tail = (1 - CONFIDENCE) / 2
    low = scipy.stats.beta.ppf(tail, total, rules - total + 1) if total > 0 else 0.0
    high = scipy.stats.beta.ppf(1 - tail, total + 1, rules - total) if total < rules else 1.0
    return Interval(total / rules, float(low), float(high))


def rates(answers: pd.DataFrame, by: Sequence[str] = ()) -> pd.DataFrame:
    """How often right and wrong attentions were told what.

    Args:
        answers: of one claim in one mode, a row per model.
        by: columns by whose values the models are grouped.

    Returns:
        A row per group and truth (`right`, `wrong`): `models`, `rules`, a count per answer, the
        share of yes as `yes share`, `low`, `high` over models, and `rule low`, `rule high`.
    """
    decided = answers[answers["truth"].isin(["right", "wrong"])]
    columns = [*by, "truth"]
    rows = []
    for key, group in decided.groupby(columns, observed=True):
        row = dict(zip(columns, key, strict=True))
        yes = rate(group)
        row |= {"models": yes.models, "rules": yes.rules}
        for answer in ANSWERS:
            row[answer] = int((group["answer"] == answer).sum())
        row |= {
            "yes share": yes.over_models.value,
            "low": yes.over_models.low,
            "high": yes.over_models.high,
            "rule low": yes.over_rules.low,
            "rule high": yes.over_rules.high,
        }
        rows.append(row)
    headings = ["models", "rules", *ANSWERS, "yes share", "low", "high", "rule low", "rule high"]
    return pd.DataFrame(rows, columns=[*columns, *headings])


def answers_to(claim: str, answers: pd.DataFrame, mode: str = "") -> pd.DataFrame:
    """The rows about one claim.

    Args:
        claim: its name, or `CHIP`.
        answers: see `answers_of`.
        mode: `run` or `audit`; empty: single runs where they ask it, else audits.
    """
    rows = answers[answers["claim"] == claim]
    if mode:
        return rows[rows["mode"] == mode]
    runs = rows[rows["mode"] == "run"]
    return rows if runs.empty else runs


# What verdicts cite


@dataclass(frozen=True)
class TrackRecord:
    """How a claim's test fared on one kind of model.

    Attributes:
        words: both rates, for the page.
        yes_tells: whether a yes tells anything. It does not where the whole interval, over rules,
            of its rate on wrong attention is above `FALSE_ALARMS`.
        no_tells: whether a no tells anything. It does not where the whole interval, over rules, of
            its rate on right attention is above `FALSE_NOES`.
        shown_on: on which models that was shown.
        supports: whether both rates are known, so that a yes may have a tick.
    """

    words: str = NONE
    yes_tells: bool = True
    no_tells: bool = True
    shown_on: str = "this kind of model"
    supports: bool = False

    def tells(self, verdict: Verdict) -> bool:
        """Whether a verdict, a yes or a no, tells anything."""
        return self.yes_tells if verdict.answer is Answer.YES else self.no_tells


def track_record(
    criterion: str,
    level: str,
    encoder: str,
    claim: str,
    measured: str = "",
    *,
    answers: pd.DataFrame | None = None,
) -> TrackRecord:
    """How often this criterion's test said yes on right and on wrong attention.

    A kind of model that was not measured has no rates. But where a yes, or a no, was shown to say
    nothing on every kind that was, two at least, it is not taken to say something on the next one.

    Args:
        criterion: of the claim.
        level: of the claim. At the level of states the rate on wrong attention is known without
            context alone, since else nobody knows which states decide.
        encoder: kind of model, such as `lstm`.
        claim: name of the claim that decides.
        measured: how, where that was not as usual, such as `200 passes` (`Evidence.record`). Such
            a measurement has no record, but for a checkpoint's that was measured so.
        answers: instead of those of the shipped models.
    """
    checkpoint = CHECKPOINTS.get(encoder)
    if measured and (checkpoint is None or measured != checkpoint.measured):
        return TrackRecord()
    all_answers = calibration() if answers is None else answers
    rows = answers_to(claim, of_same_sort(all_answers, encoder))
    rows = rows[(rows["criterion"] == criterion) & (rows["level"] == level)]
    own_record = _record_of_kind(encoder, rows[rows["family"] == encoder], level)
    if own_record is None:
        return _inferred_record(_records_by_kind(rows, level))
    if checkpoint is not None:
        return TrackRecord(own_record.words)
    return own_record


def _records_by_kind(rows: pd.DataFrame, level: str) -> dict[str, TrackRecord]:
    """Kind of model → its record, where it has one."""
    records = {}
    for kind, models in rows.groupby("family", observed=True):
        record = _record_of_kind(str(kind), models, level)
        if record is not None:
            records[str(kind)] = record
    return records


def _record_of_kind(kind: str, models: pd.DataFrame, level: str) -> TrackRecord | None:
    """The record of one kind of model; None where a rate is missing that the level needs."""
    right = models[models["truth"] == "right"]
    wrong = models[models["truth"] == "wrong"]
    is_unknown = level == "state" and kind != WITHOUT_CONTEXT
    if right.empty or (wrong.empty and not is_unknown):
        return None

    models_of_kind = CHECKPOINTS[kind].words if kind in CHECKPOINTS else "models of this kind"
    units = units_of(kind)
    words = (
        f"Track record on {models_of_kind}, intervals over {units}: on right attention this test "
        f"said yes in {rate(right).words(units)}"
    )
    no_tells = not rate(right, NO).over_rules.low > FALSE_NOES
    if is_unknown:
        words += ". On wrong attention it is unknown: a state may decide where its word does not."
        return TrackRecord(words, no_tells=no_tells)
    on_wrong = rate(wrong)
    return TrackRecord(
        f"{words}, on wrong attention in {on_wrong.words(units)}.",
        yes_tells=not on_wrong.over_rules.low > FALSE_ALARMS,
        no_tells=no_tells,
        supports=True,
    )


def _inferred_record(records: Mapping[str, TrackRecord]) -> TrackRecord:
    """What the measured kinds of model say of one that was not measured."""
    measured = {kind: record for kind, record in records.items() if kind not in CHECKPOINTS}
    if len(measured) < FEWEST_KINDS:
        return TrackRecord()
    return TrackRecord(
        yes_tells=any(record.yes_tells for record in measured.values()),
        no_tells=any(record.no_tells for record in measured.values()),
        shown_on=f"every kind of model that was measured ({', '.join(sorted(measured))})",
    )


def errors_of(
    chip: Chip,
    word_verdict: Verdict,
    encoder: str,
    *,
    is_audit: bool,
    answers: pd.DataFrame | None = None,
) -> str:
    """How often such an answer was wrong on models whose attention is known, as a sentence.

    A yes is wrong on wrong attention, a no on right attention; an open answer is not wrong, and
    the share of right attention is told that it leaves open. Rates are of all kinds of model.

    Args:
        chip: the answer.
        word_verdict: on the line of words, by which *Not shown* is open, or not asked.
        encoder: kind of the model, such as `lstm`; it is said where none of it was tried.
        is_audit: whether several trainings stand behind the answer; else a single one.
        answers: instead of those of the shipped models.

    Returns:
        The sentence; empty where the record counts such an answer as none: the model may be
        guessing, equal weights do as well, or these texts cannot say.
    """
    answer = _answer_of_chip(chip, ANSWER_OF_VERDICT[word_verdict])
    if answer == UNASKED:
        return ""
    truth = "wrong" if answer == YES else "right"
    all_answers = calibration() if answers is None else answers
    same_sort = of_same_sort(all_answers, encoder)
    rows = answers_to(CHIP, same_sort, "audit" if is_audit else "run")
    rows = rows[rows["truth"] == truth]
    if rows.empty:
        return "How often this answer is wrong is not known: no model was tried."
    told = rate(rows, answer)
    low, high = (100 * end for end in told.over_rules[1:])
    asked = "an audit" if is_audit else "a single run"
    unmeasured = "" if encoder in set(rows["family"]) else ", none of them of this kind"
    remark = ", which leaves the question open" if answer == OPEN else ""
    return (
        f"Of {told.models} models whose attention is known to be {truth}{unmeasured}, {told.count} "
        f"got {CHIPS_OF_ANSWER[answer]} in {asked}: {100 * told.over_models.value:.0f} % "
        f"[{low:.0f}, {high:.0f}] over {told.rules} {units_of(encoder)}{remark}."
    )


def record_of_seeds(claim: str, *, table: pd.DataFrame | None = None) -> str:
    """From which effect on audits of so many seeds mostly show a claim about trained models.

    An effect counts as shown where at least `POWER_OF_SEEDS` of the audits of this effect, and of
    all larger ones, said yes.

    Args:
        claim: its name.
        table: rates instead of the shipped ones.

    Returns:
        Sentences for the page; empty where nothing was measured of the claim.
    """
    audits = pd.read_csv(AUDITS) if table is None else table
    audits = audits[audits["claim"] == claim]
    if audits.empty:
        return ""

    effect = "nearness" if claim == SEEDS_ATTEND_ALIKE.name else "gain"
    sentences = [
        f"With {seeds} seeds {_power_of_seeds(rows, effect)}"
        for seeds, rows in audits.groupby("seeds")
    ]
    false_alarms = audits["yes"][audits["effect"] == 0].max()
    return (
        f"Track record, audits drawn from {audits['models'].max()} small models. "
        f"{'. '.join(sentences)}. Without one at most {100 * false_alarms:.0f} % said yes."
    )


def _power_of_seeds(audits: pd.DataFrame, effect: str) -> str:
    """Which effects the audits of one number of seeds show, in words.

    Args:
        audits: a row per true effect, with the share of them that said yes.
        effect: what the effect is called.
    """
    effects = audits["effect"]
    largest_missed = effects[audits["yes"] < POWER_OF_SEEDS].max()  # NaN: none was missed
    detectable = effects[~(effects <= largest_missed)]
    if not detectable.empty:
        return f"a {effect} below {detectable.min():.2f} cannot be shown"
    largest = audits.sort_values("effect").iloc[-1]
    return (
        f"even a {effect} of {largest['effect']:.2f} is shown in only {100 * largest['yes']:.0f} %"
    )
