"""--fail-if "agreement < 0.2": a comparison of a number or verdict, read without evaluating code.

A verdict and its number have one name, that of the page: `agreement`, `erasure.word`; a claim's is
`criterion.claim`, that of a probe's number `probe.metric`, or the metric alone where it is no
verdict's name and one probe has it.
"""

import math
import operator
import re
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

from attnprobe.core.errors import UserError

if TYPE_CHECKING:
    from attnprobe.findings.groups import Run
    from attnprobe.findings.judgement import Card

OPERATORS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
GRAMMAR = re.compile(
    r"\s*(?P<name>[a-z][a-z0-9_]*(\.[a-z0-9_]+)*)\s*(?P<operator><=|>=|==|!=|<|>)\s*"
    r"((?P<number>[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?)|(?P<word>[a-z][a-z ]*[a-z]))\s*"
)
SIDES = ("first.", "change.")
"""What `compare` puts before the names of the first run's numbers, and of the changes."""
MOST_NAMES = 12
"""Names that a mistake is answered with: two runs have thousands."""
NEARLY = 0.8
"""Likeness from which a name is another one misspelt."""
FAILED = 3
"""The exit status where a condition holds."""


@dataclass(frozen=True)
class Condition:
    """A comparison of a number with a number, or of a verdict with a verdict.

    Attributes:
        name: of a verdict, a claim or a number.
        operator: a key of `OPERATORS`; of a verdict == or !=.
        value: a number, or a verdict.
        text: the condition as it was written.
    """

    name: str
    operator: str
    value: float | str
    text: str

    def holds(
        self, numbers: Mapping[str, float], verdicts: Mapping[str, str]
    ) -> tuple[bool, float | str]:
        """Whether it is true, and the value that was compared.

        Args:
            numbers: by name.
            verdicts: by name.

        Raises:
            UserError: its name is not there, means several or is undefined: no condition is passed
                over.
        """
        from attnprobe.evidence.verdicts import Verdict

        if isinstance(self.value, str):
            verdict = verdicts[self._full_name(verdicts, "verdict on")]
            is_equal = self.value in (verdict, Verdict.named(verdict).answer)
            return is_equal == (self.operator == "=="), verdict
        name = self._full_name(numbers, "number called")
        value = numbers[name]
        if math.isnan(value):
            raise self._error(f"{name} is undefined here, so that it cannot be compared")
        return OPERATORS[self.operator](value, self.value), value

    def _full_name(self, names: Iterable[str], kind: str) -> str:
        """The one name that is meant; `kind` says in a message what was looked for."""
        names = list(names)
        if self.name in names:
            return self.name
        from attnprobe.findings.lines import CARD

        side = next((side for side in SIDES if self.name.startswith(side)), "")
        wanted = self.name.removeprefix(side)
        lines = [line for line in CARD if line.criterion == wanted]
        places = [".".join(line.place) for line in lines]
        candidates = []
        for name in names:
            is_on_side = name.startswith(side) if side else not name.startswith(SIDES)
            plain = name.removeprefix(side)
            is_meant = plain in places if lines else plain.partition(".")[2] == wanted
            if is_on_side and is_meant:
                candidates.append(name)
        if len(candidates) == 1 and not lines:
            return candidates[0]
        if candidates:
            problem = f"{self.name!r} may be {' or '.join(candidates)}: name one"
        elif lines:
            tests = dict.fromkeys(line.tested_by for line in lines)
            problem = f"{self.name!r} was not tested here ({' or '.join(tests)} tests it)"
        else:
            problem = f"no {kind} {self.name!r}"
        hint = "." if candidates else self._hint(names)
        raise self._error(f"{problem}{hint} There is {_some_of(names, self.name)}")

    def _hint(self, names: Sequence[str]) -> str:
        near = get_close_matches(self.name, names, 1, 0.7)
        return f"; did you mean {near[0]}?" if near else "."

    def _error(self, problem: str) -> UserError:
        return UserError(f"--fail-if {self.text!r}: {problem}")


def _some_of(names: Sequence[str], wanted: str) -> str:
    """The names that are most like the wanted one, and how many more there are."""
    near = sorted(get_close_matches(wanted, names, MOST_NAMES, 0))
    hidden = len(names) - len(near)
    more = f", and {hidden:,} more" if hidden > 0 else ""
    return f"{', '.join(near) or 'none at all'}{more}"


def condition(text: str) -> Condition:
    """Read a condition.

    Raises:
        ArgumentTypeError: it is none.

    >>> condition("agreement < 0.2")
    Condition(name='agreement', operator='<', value=0.2, text='agreement < 0.2')
    """
    match = GRAMMAR.fullmatch(text)
    if match is None or len(text) > 200:
        raise ArgumentTypeError(
            f"{text[:80]!r}: expected NAME < NUMBER (or <=, >, >=, ==, !=) or "
            f"CRITERION == VERDICT, such as 'agreement < 0.2' or 'erasure.word != yes'"
        )
    if match["word"] is not None:
        if match["operator"] not in ("==", "!="):
            raise ArgumentTypeError(f"{text!r}: a verdict is compared with == or !=")
        return Condition(match["name"], match["operator"], match["word"], text)
    return Condition(match["name"], match["operator"], float(match["number"]), text)


def add_conditions(parser: ArgumentParser, example: str) -> None:
    """Add the option `--fail-if`, which may be repeated.

    Args:
        parser: of a command.
        example: conditions for the help.
    """
    parser.add_argument(
        "--fail-if",
        action="append",
        default=[],
        type=condition,
        metavar="CONDITION",
        help=f"end with status 3 if this holds, such as {example}; may be repeated",
    )


def refuse_mistyped(conditions: Iterable[Condition]) -> None:
    """Refuse conditions that misspell a criterion or a level, before the work begins.

    Which numbers and claims come of it is known at its end alone: other names are judged then.

    Raises:
        UserError: a name is nearly that of a criterion, or of one of its levels.
    """
    from attnprobe.evidence.claims import CRITERIA, LEVELS

    for entry in conditions:
        criterion, _, level = entry.name.partition(".")
        near = get_close_matches(criterion, CRITERIA, 1, NEARLY)
        if near and near[0] != criterion:
            meant = ".".join(filter(None, [near[0], level]))
        elif criterion in CRITERIA and level not in LEVELS:
            (nearest_level,) = get_close_matches(level, LEVELS, 1, NEARLY) or [""]
            meant = f"{criterion}.{nearest_level}" if nearest_level else ""
        else:
            meant = ""
        if meant:
            raise UserError(
                f"--fail-if {entry.text!r}: no verdict on {entry.name!r}; did you mean {meant}?"
            )


def names_in(run: "Run", card: "Card") -> tuple[dict[str, float], dict[str, str]]:
    """The numbers and the verdicts of a run by name.

    Args:
        run: whose headline numbers count.
        card: the findings on its group.
    """
    from attnprobe.findings.headlines import headline

    judgements = card.named_judgements()
    numbers = {name.replace("/", "."): value for name, value in headline(run.numbers).items()}
    numbers |= {name: judgement.value for name, judgement in judgements.items()}
    return numbers, {name: judgement.verdict for name, judgement in judgements.items()}


def judge(
    conditions: Sequence[Condition], numbers: Mapping[str, float], verdicts: Mapping[str, str]
) -> None:
    """Print which conditions hold, or that none does.

    Args:
        conditions: at which the command fails.
        numbers: by name.
        verdicts: by name.

    Raises:
        SystemExit: with status 3 where one holds.
        UserError: one cannot be answered.
    """
    failures = []
    for entry in conditions:
        holds, value = entry.holds(numbers, verdicts)
        if holds:
            words = value if isinstance(value, str) else format(value, ".4g")
            failures.append(f"failed: {entry.text} ({entry.name} is {words})")
    for line in failures:
        print(line)
    if failures:
        raise SystemExit(FAILED)
    if conditions:
        plural = "s" if len(conditions) > 1 else ""
        print(f"passed: none of {len(conditions)} condition{plural} holds")
