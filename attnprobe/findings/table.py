"""Decide once: every claim about every model of some runs, as one table that page, terminal,
trackers and CI only show.

One row per group of runs (data set × model × settings, seeds pooled) and claim, and one for each
criterion and level that nothing was tested for. Its columns:

data, model, group    whose; `group` is unique in a table: data, model and what sets the settings
apart chip, sentence        may this group's attention be read, and why, in one sentence; the same
in all of its rows criterion, level      what is asked, and of what claim, statement      the
claim's name and sentence; empty where nothing was tested value, low, high, n   its number, 95 %
interval (NaN: none), examples or seeds threshold, smallest   asked for: more than their sum
verdict, reason       one of `attnprobe.evidence.evidence.VERDICTS`, and why it is not decided p
of a primary claim, adjusted for the card's others (Holm) track_record          how often this
verdict was right where the truth is known interval_verdict      what the number says alone, before
the card's corrections answer, ticked        the verdict as yes, no, open or untested; whether a yes
has a track record behind it primary               the verdict on this criterion and level goes by
it: these rows are the card speaks, quantity, source, section   of the claim, and the part of the
page that shows it; `across`: it compares two models"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from attnprobe.evidence import deciding_words
from attnprobe.evidence.claims import Claim, Finding, put_to_test, with_ceilings
from attnprobe.evidence.evidence import Evidence, Measure, over_seeds, values_of
from attnprobe.evidence.reading import importances_in, present, readings
from attnprobe.findings.groups import DOT, Group, Run, grouped, read_runs
from attnprobe.findings.studies.audit import CLAIM as BETTER
from attnprobe.findings.studies.base import StudyReading
from attnprobe.findings.verdicts import (
    CALIBRATION,
    LINES,
    OPEN,
    POOR,
    UNASKED,
    UNTESTED,
    YES,
    answer_of,
    encoder_of,
    guessing,
    is_readable,
    judge,
    mechanism_of,
    row_of,
)
from attnprobe.probes.erasure import removal_share
from attnprobe.results.directory import FINDINGS
from attnprobe.results.files import DERIVED, is_derived, record_of, write_table
from attnprobe.results.fingerprint import fingerprint
from attnprobe.results.numbers import Numbers, numbers_of
from attnprobe.results.writer import OwnFolder

VERSION = 2
"""Raised with every change of the rules or of the columns; claims and track record are compared by
their content."""
ACROSS = "across"
OF = b"attnprobe.of"
COLUMNS = ("data", "model", "group", "chip", "sentence", *UNTESTED)


def findings(
    runs: Any, studies: Sequence[StudyReading] = (), *, tell: Callable[[str], None] = lambda _: None
) -> pd.DataFrame:
    """Put every claim about these runs to the test.

    Args:
        runs: read runs (`attnprobe.findings.groups.read_runs`); or where they are: directories, or
            glob patterns.
        studies: what studies found of some of them, such as necessity and stability; these are rows
            like others.
        tell: called with a line about every step.

    Raises:
        UserError: no finished run there.
    """
    are_read = not isinstance(runs, str | os.PathLike) and all(isinstance(one, Run) for one in runs)
    groups = grouped(list(runs) if are_read else read_runs(runs))
    tables = []
    for group in groups:
        tell(f"claims on {group.title}")
        tested = []
        first = group.runs[0].manifest
        numbers = group.numbers
        for reading in present(numbers):
            own = [
                one
                for claim in reading.claims
                for one in put_to_test((claim,), numbers.rows(reading.probe, claim.metrics))
            ]
            own = with_ceilings(own, [run.numbers for run in group.runs])
            tested += [(f"test-{reading.probe}", finding) for finding in own]
        for place, study in enumerate(studies, start=1):
            if group_of(study, groups) is group:
                tested += [(f"study-{place}", finding) for finding in study.findings]
        why = guessing(group.runs)
        marked = bool(first.get("training", {}).get("data", {}).get("rationale"))
        rows = judge(tested, guessing=why, encoder=encoder_of(first), marked=marked)
        chip, sentence = answer_of(rows, guessing=why, mechanism=mechanism_of(first))
        whose = {"data": group.data, "model": group.model, "group": group.title}
        tables.append(rows.assign(**whose, chip=chip, sentence=sentence))
    for note in dict.fromkeys(group.note for group in groups):
        alike = Numbers.together(group.numbers for group in groups if group.note == note)
        for finding in compare_models(alike):
            model = DOT.join([finding.model, note]) if note else finding.model
            whose = {"data": finding.data, "model": model, "group": f"{finding.data}{DOT}{model}"}
            tables.append(
                pd.DataFrame([row_of(ACROSS, finding) | whose | {"chip": "", "sentence": ""}])
            )
    return pd.concat(tables, ignore_index=True)[list(COLUMNS)]


def group_of(study: StudyReading, groups: Sequence[Group]) -> Group | None:
    """The group with the first of a study's own runs, which the others refer to; None where it is
    not there."""
    bases = {Path(run).resolve() for run in study.runs[:1]}
    return next(
        (group for group in groups if any(run.directory.resolve() in bases for run in group.runs)),
        None,
    )


# Claims that need two models of one data set: does context, or the kind of encoder, change what
# attention is worth? The models are compared within the example. Such findings speak neither for
# nor against reading one model's attention.


CONTEXT_FREE = {
    "flannoenc": ("flanrnn", "flanconv"),
    "hannoenc": ("hanrnn", "hanconv"),
    "average_additive": ("lstm_additive", "cnn_additive"),
    "average_dot": ("lstm_dot", "cnn_dot"),
}
"""Model whose encoder sees one word (or sentence) at a time → the same model with an encoder that
sees the others."""
CONVOLUTIONAL = {"flanconv": "flanrnn", "hanconv": "hanrnn"}


def difference(
    first: str, second: str, metrics: Sequence[str], value: Callable[..., np.ndarray]
) -> Measure:
    """A measure: mean over the examples that both models have of the first one's `value(*columns)`
    minus the second's, each the mean over its seeds; bootstrap interval over the examples. Examples
    where either is NaN are left out."""

    def measure(table: pd.DataFrame) -> Evidence | None:
        of_model = []
        for model in (first, second):
            rows = values_of(table[table["model"] == model], *metrics)
            if rows is None:
                return None
            of_model.append(over_seeds(rows, value(*(rows[one].to_numpy() for one in metrics))))
        evidence = Evidence.of((of_model[0] - of_model[1]).dropna())
        return evidence if evidence.n else None

    return Measure(tuple(metrics), measure)


SERRANO = "Serrano & Smith 2019, section"
TAU = "Kendall's τ-b, the second model's minus the first's, mean of the examples"
COMPARED: dict[str, tuple[str, str, str, str, str, tuple[str, ...], Callable[..., np.ndarray]]] = {
    "order_worse": (
        "erasure",
        "erasure",
        "Attention's order is farther from the smallest set with {first} than with {second}",
        f"{SERRANO} 5: attention is a worse order with contextual encoders",
        "share of the items removed beyond the optimum, "
        "difference of the models, mean of the examples that both can flip, −1 to 1",
        ("removed_fraction_attention", "removed_fraction_optimal", "never_flips"),
        lambda attention, optimal, never: (
            removal_share(attention, never) - removal_share(optimal, never)
        ),
    ),
    "effects_follow_less": (
        "single_weight",
        "erasure",
        "What erasing each item does follows the weights less closely with {first} than with {second}",
        f"{SERRANO} 4, asked of every item",
        TAU.replace("τ-b,", "τ-b of weight and effect,"),
        ("tau_attention_effect",),
        np.negative,
    ),
    "agrees_less": (
        "correlation",
        "agreement",
        "Attention agrees less with the importance “{title}” in {first} than in {second}",
        "Jain & Wallace 2019, section 4.1: agreement is higher where the encoder sees no context",
        f"{TAU}, −2 to 2",
        ("tau_attention_{importance}",),
        np.negative,
    ),
    "needs_more": (
        "erasure",
        "erasure",
        "By attention's order {first} needs more items removed than {second}",
        f"{SERRANO} 5: convolutional models need more removals than recurrent ones",
        "difference of the shares of the items removed, mean of the examples that both can flip, −1 to 1",
        ("removed_fraction_attention", "never_flips"),
        removal_share,
    ),
}
"""Claim → its probe, criterion, statement, source and quantity; the metrics that it compares, and
what of them."""


def comparisons(importances: Mapping[str, str]) -> Iterator[tuple[str, str, str, Claim]]:
    """A probe, two models as the results' column `model` calls them, and a claim about its long
    table of both; with one about the agreement of attention and each of the importances, name →
    title."""
    asked = [("order_worse", "", ""), ("effects_follow_less", "", "")]
    asked += [("agrees_less", name, title) for name, title in importances.items()]
    pairs = [
        (first, second, asked) for second, several in CONTEXT_FREE.items() for first in several
    ]
    pairs += [(first, second, [("needs_more", "", "")]) for first, second in CONVOLUTIONAL.items()]
    for first, second, several in pairs:
        for kind, importance, title in several:
            probe, criterion, statement, source, quantity, metrics, value = COMPARED[kind]
            measure = difference(
                first, second, [one.format(importance=importance) for one in metrics], value
            )
            name = "_".join(filter(None, (importance, kind, first, second)))
            said = statement.format(first=first, second=second, title=title)
            yield probe, first, second, Claim(name, criterion, said, source, measure, quantity)


def compare_models(results: pd.DataFrame | Numbers) -> list[Finding]:
    """Test `comparisons` on each data set of which both models are there; seeds are pooled. The
    findings' `model` names both, such as "flanrnn, flannoenc"."""
    numbers = numbers_of(results)
    models = {(str(one["data"]), str(one["model"])) for one in numbers.runs}
    there = importances_in(numbers.outline("correlation"), "correlation", "tau_attention_")
    findings = []
    every = [*comparisons({name: facts.title for name, facts in there.items()})]
    for data, (probe, first, second, claim) in product(sorted({data for data, _ in models}), every):
        if {(data, first), (data, second)} <= models:
            rows = numbers.rows(probe, claim.metrics)
            evidence = claim.measure(rows[rows["data"] == data])
            if evidence is not None:
                findings.append(Finding(claim, evidence, data, f"{first}, {second}"))
    return findings


# What is kept: a table says which version made it, and of which runs and claims.


def kept_findings(
    runs: Sequence[Run],
    folder: Path | OwnFolder | None,
    studies: Sequence[StudyReading] = (),
    *,
    again: bool = False,
    tell: Callable[[str], None] = lambda _: None,
) -> pd.DataFrame:
    """The table of these runs, as it is stored in the folder, or with the one run or study that it
    is about; computed where there is none of this version and these runs, or `again`. It is in the
    folder afterwards, unless a file of the user is."""
    here = None if folder is None else folder / FINDINGS
    own = _identity(runs, studies)
    table = None
    places = [*(study.directory for study in studies), *(run.directory for run in runs[:1])]
    for path in (
        []
        if again
        else [*([] if here is None else [here]), *(place / FINDINGS for place in places)]
    ):
        with suppress(OSError, pa.ArrowException, ValueError):
            stored = pq.read_table(path, page_checksum_verification=True)
            if (stored.schema.metadata or {}).get(OF) == _sealed(own, stored.to_pandas()):
                table = stored.to_pandas()
                break
    if table is None:
        table = findings(runs, studies, tell=tell)
    if here is not None and (not os.path.lexists(here) or is_derived(here)):
        stored = pa.Table.from_pandas(table, preserve_index=False)
        told = {DERIVED: str(VERSION).encode(), OF: _sealed(own, stored.to_pandas())}
        write_table(stored.replace_schema_metadata(told), here)
    return table


def findings_of(run: Run) -> pd.DataFrame:
    """The table of one run: what is stored with it, computed (and not stored) where that is of
    another version."""
    return kept_findings([run], None)


def findings_of_study(reading: StudyReading) -> pd.DataFrame:
    """The rows about the model of one finished study: what it found together with what its own
    runs' probes did."""
    runs = read_runs(reading.runs)
    group = group_of(reading, grouped(runs))
    assert group is not None  # the study is made of these runs
    table = kept_findings(runs, reading.directory, [reading])
    return table[table["group"] == group.title]


def _sealed(own: str, table: pd.DataFrame) -> bytes:
    return (
        f"{own} {fingerprint([list(table), pd.util.hash_pandas_object(table).tolist()])}".encode()
    )


def _identity(runs: Sequence[Run], studies: Sequence[StudyReading]) -> str:
    """What the table depends on: the claims, the track record, the runs' content, and what the
    studies found."""
    claims = [
        {name: value for name, value in vars(claim).items() if name != "measure"}
        for reading in readings().values()
        for claim in reading.claims
    ]
    known = record_of(CALIBRATION)["sha256"] if CALIBRATION.exists() else ""
    of_runs = [[run.run_id, run.manifest["files"], run.manifest.get("training")] for run in runs]
    places = {run.directory.resolve(): run.run_id for run in runs}
    of_studies = []
    for study in studies:
        found = [
            [one.claim.name, one.claim.smallest, asdict(one.evidence)] for one in study.findings
        ]
        of_studies.append([[places.get(Path(run).resolve()) for run in study.runs[:1]], found])
    return fingerprint([VERSION, claims, known, of_runs, of_studies])


# What page, terminal, notebook and trackers say first.


@dataclass(frozen=True)
class Answer:
    """May the attention of one group be read? Chip and sentence, and what stands behind them: the
    row whose number stands between chance, 0, and the best that is possible, 1 (`gauge`; None where
    none is known well enough to be shown); the rows with a yes or a no, each with what a yes says;
    what a yes would say of the others, those that were not tested with the setting that tests them;
    and what was shown to be better than attention."""

    chip: str
    sentence: str
    gauge: Any = None
    answered: Sequence[tuple[str, Any]] = ()
    open: Sequence[str] = ()
    untested: Sequence[tuple[str, str]] = ()
    instead: Sequence[str] = ()

    @property
    def words(self) -> str:
        return f"{self.chip}. {self.sentence}"


def answer(own: pd.DataFrame) -> Answer:
    """The answer of a table of one group; of a model that may be guessing no more than that."""
    chip = own["chip"].iloc[0]
    sentence = own["sentence"].iloc[0]
    if chip == POOR:
        return Answer(chip, sentence)
    card: list[Any] = [*own[own["primary"]].itertuples(index=False)]
    rows = [(str(LINES.get((row.criterion, row.level), row.statement)), row) for row in card]
    better = own[(own["claim"] == BETTER.name) & (own["answer"] == YES)]
    word = next(row for row in card if (row.criterion, row.level) == deciding_words.LINE)
    return Answer(
        chip,
        sentence,
        gauge=word
        if word.answer != UNASKED and is_readable(word.value, word.low, word.high)
        else None,
        answered=[(name, row) for name, row in rows if row.answer not in (OPEN, UNASKED)],
        open=[name for name, row in rows if row.answer == OPEN],
        untested=[(name, row.reason) for name, row in rows if row.answer == UNASKED],
        instead=[f"{row.statement} (by {row.value:.2f})" for row in better.itertuples(index=False)],
    )


# By name: what a condition of `--fail-if`, or a comparison, calls the numbers and verdicts of one
# group.


def card(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of a group's card by the name that conditions and comparisons use: the criterion,
    `erasure.word` where several levels are asked."""
    rows = table[table["primary"]]
    levels = rows.groupby("criterion")["level"].transform("nunique")
    return rows.set_index(
        rows["criterion"].where(levels == 1, rows["criterion"] + "." + rows["level"])
    )


def named_verdicts(table: pd.DataFrame) -> dict[str, tuple[float, str]]:
    """The number and the verdict of every line and claim that was tested, of a table of one group:
    `agreement`, `erasure.word`, and `criterion.claim`."""
    tested = table[table["claim"] != ""]
    lines = card(table)
    by_claim = tested.set_index(tested["criterion"] + "." + tested["claim"])
    rows = pd.concat([by_claim, lines[lines["claim"] != ""]])[["value", "verdict"]]
    return {str(name): (value, verdict) for name, value, verdict in rows.itertuples()}
