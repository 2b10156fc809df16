"""The tables of docs/results/constructions.md."""

import re
from collections.abc import Iterable, Sequence

from attnprobe.evidence.evidence import Evidence
from attnprobe.evidence.statistics import clopper_pearson
from research.constructions.asking import Outcome
from research.constructions.catalogue import answers_before
from research.constructions.coverage import Coverage, SeedChanges, answer_of
from research.constructions.trained import ENCODERS, TrainedOutcome


def constructions_table(outcomes: Iterable[Outcome]) -> str:
    """A line per construction."""
    lines = [
        "| construction | from | mass | before | before, asked again | design | now | right answer "
        "| own context | by class | reliability | passes | chip |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for outcome in outcomes:
        construction = outcome.construction
        classes = "; ".join(f"{part.share.value:.2f} {part.answer}" for part in outcome.classes)
        cells = [
            construction.name,
            construction.source,
            f"{outcome.mass:.2f}",
            construction.before or "–",
            marked(construction.asked_again, construction.expected),
            construction.paper or "–",
            marked(answer_with_number(outcome), construction.expected),
            construction.expected,
            f"{outcome.own_context:.2f}",
            classes,
            f"{outcome.reliability:.2f}",
            f"{outcome.passes}",
            str(outcome.chip),
        ]
        lines.append(f"| {' | '.join(cells)} |".replace("nan [nan, nan]", "").replace("nan", "–"))
    return "\n".join(lines)


def trained_table(outcomes: Iterable[TrainedOutcome]) -> str:
    """A line per construction, with the answers of both measures about each encoder; and counts."""
    answers_of = {encoder: answers_before(encoder) for encoder in ENCODERS}
    cells_of_line: dict[str, list[str]] = {}
    solved = 0
    right_before = 0
    right_now = 0
    for model in outcomes:
        name = model.construction.name
        expected = model.construction.expected
        mass = f"{model.mass:.2f}".replace("nan", "–")
        cells = cells_of_line.setdefault(name, [name, mass, expected])
        if model.outcome is None:
            cells.append(f"not solved ({model.right:.2f}, {model.right_mixed:.2f})")
            continue
        before = answers_of[model.encoder].get(name, "–")
        now = answer_with_number(model.outcome)
        cells.append(f"{marked(before, expected)} → {marked(now, expected)}")
        solved += 1
        right_before += is_answer(before, expected)
        right_now += is_answer(now, expected)
    lines = [
        f"{solved} networks solved their rule; of these the measure before gives the right answer "
        f"to {right_before}, the present one to {right_now}.",
        "",
        f"| construction | mass | right answer | {' | '.join(ENCODERS)} |",
        f"|---|---|---|{'---|' * len(ENCODERS)}",
    ]
    for cells in cells_of_line.values():
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def answer_with_number(outcome: Outcome) -> str:
    """The answer, and its number with the interval where it has one."""
    line = outcome.line
    number = f" {line.value:.2f} [{line.low:.2f}, {line.high:.2f}]"
    return outcome.answer + number.replace(" nan [nan, nan]", "")


def is_answer(answer: str, expected: str) -> bool:
    """Whether an answer, which its number may follow, is the expected one."""
    return re.match(rf"{expected}\b", answer) is not None


def marked(answer: str, expected: str) -> str:
    """An answer and its number; in bold where another answer is right.

    >>> marked("yes 0.76 [0.66, 0.86]", "no"), marked("not asked", "not asked")
    ('**yes** 0.76 [0.66, 0.86]', 'not asked')
    """
    if is_answer(answer, expected):
        return answer
    return re.sub(r"^(yes|no|open|not asked)\b", r"**\1**", answer)


def coverage_table(coverages: Iterable[Coverage]) -> str:
    """A line per construction, minority, number of texts and of runs; and two for all."""
    coverages = list(coverages)
    lines = [
        "| attention | smaller class | texts | runs | true share | holds | of data sets | width | "
        "yes / no / open / not asked |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for line in coverages:
        answers = " / ".join(str(count) for count in line.answers.values())
        lines.append(
            f"| {line.base} | {100 * line.minority:.0f} % | {line.texts} | {line.runs} | "
            f"{line.truth:.2f} | {interval(line.holds, len(line.shares))} | {len(line.shares)} | "
            f"{line.width:.2f} | {answers} |"
        )
    lines += [
        coverage_of_all("all", coverages),
        coverage_of_all("all that are asked", [line.of_asked for line in coverages]),
    ]
    return "\n".join(lines)


def coverage_of_all(name: str, coverages: Sequence[Coverage]) -> str:
    """The last line of a table, without an interval.

    Lines of one and of three runs share their texts, so that they are fewer samples than they look.
    """
    holding = sum(line.holds for line in coverages)
    data_sets = sum(len(line.shares) for line in coverages)
    return f"| **{name}** | | | | | **{holding / data_sets:.2f}** | {data_sets} | | |"


def null_table(shares: Sequence[Evidence]) -> str:
    """How many orders by chance are a yes."""
    answers = [answer_of(share) for share in shares]
    yes = answers.count("yes")
    share, low, high = clopper_pearson(yes, len(answers))
    counts = ", ".join(f"{answers.count(name)} {name}" for name in ("no", "open", "not asked"))
    return (
        f"Yes of {yes} of {len(answers)}: {100 * share:.1f} % [{100 * low:.1f}, {100 * high:.1f}]; "
        f"{counts}."
    )


def seeds_table(changes: Iterable[SeedChanges]) -> str:
    """What the seed of the probe changes, by how often the attention is right."""
    lines = [
        "| right in | share, least to greatest | answers | seeds with another answer than most |",
        "|---|---|---|---|",
    ]
    for change in changes:
        values = [share.value for share in change.shares]
        answers = ", ".join(
            f"{change.answers.count(name)} {name}" for name in sorted(set(change.answers))
        )
        lines.append(
            f"| {change.right:.0%} of the texts | {min(values):.3f} to {max(values):.3f} | "
            f"{answers} | {change.changed} of {len(values)} |"
        )
    return "\n".join(lines)


def interval(count: int, total: int) -> str:
    """A share with its exact 95 % interval."""
    share, low, high = clopper_pearson(count, total)
    return f"{share:.2f} [{low:.2f}, {high:.2f}]"
