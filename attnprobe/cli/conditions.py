"""--fail-if "agreement < 0.2": a comparison of one of a run's numbers or verdicts, read without
evaluating any code.

A verdict and its number have one name, that of the page: `agreement`, `erasure.word`; a claim's is
`criterion.claim`, that of a probe's number `probe.metric`, or the metric alone where it is no
verdict's name and one probe has it."""

import operator
import re
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable, Mapping, Sequence
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
FAILED = 3
"""Names that a mistake is answered with, as two runs have thousands; the exit status where a
condition holds."""


@dataclass(frozen=True)
class Condition:
    """A comparison of a verdict, claim or number by its name with a number, or (with == and !=
    only) with a verdict."""

    name: str
    operator: str
    value: float | str
    text: str  # as it was written

    def holds(
        self, numbers: Mapping[str, float], verdicts: Mapping[str, str]
    ) -> tuple[bool, float | str]:
        """Whether it is true, and what was compared; a `UserError` where that is not there, is
        several or undefined: no condition is passed over."""
        from attnprobe.evidence.verdicts import Verdict
        from attnprobe.findings.lines import CARD

        names: Mapping[str, float | str] = verdicts if isinstance(self.value, str) else numbers
        name = self.name
        problem = ""
        if name not in names:  # the one name that is meant
            side = next((one for one in SIDES if name.startswith(one)), "")
            own = [
                one.removeprefix(side)
                for one in names
                if one.startswith(side) and (side or not one.startswith(SIDES))
            ]
            wanted = name.removeprefix(side)
            criterion = [".".join(line.place) for line in CARD if line.criterion == wanted]
            meant = [
                one
                for one in own
                if one in criterion or (not criterion and one.partition(".")[2] == wanted)
            ]
            if len(meant) == 1 and not criterion:
                name = side + meant[0]
            elif meant:
                problem = f"{name!r} may be {' or '.join(side + one for one in meant)}: name one"
            elif criterion:
                by = dict.fromkeys(line.tested_by for line in CARD if line.criterion == wanted)
                problem = f"{name!r} was not tested here ({' or '.join(by)} tests it)"
            else:
                problem = f"no {'verdict on' if names is verdicts else 'number called'} {name!r}"
            close = [] if meant else get_close_matches(name, names, 1, 0.7)
            near = sorted(get_close_matches(name, names, MOST_NAMES, 0))
            more = f", and {len(names) - len(near):,} more" if len(names) > len(near) else ""
            hint = f"; did you mean {close[0]}?" if close else "."
            problem = (
                problem and f"{problem}{hint} There is {', '.join(near) or 'none at all'}{more}"
            )
        if not problem and names[name] != names[name]:
            problem = f"{name} is undefined here, so that it cannot be compared"
        if problem:
            raise UserError(f"--fail-if {self.text!r}: {problem}")
        value = names[name]
        if isinstance(self.value, str) or isinstance(value, str):
            return (self.value in (value, Verdict(value).answer)) == (self.operator == "=="), value
        return OPERATORS[self.operator](value, self.value), value


def condition(text: str) -> Condition:
    """Read a condition.

    >>> condition("agreement < 0.2")
    Condition(name='agreement', operator='<', value=0.2, text='agreement < 0.2')
    """
    match = GRAMMAR.fullmatch(text)
    if match is None or len(text) > 200:
        raise ArgumentTypeError(
            f"{text[:80]!r}: expected NAME < NUMBER (or <=, >, >=, ==, !=) or CRITERION == VERDICT, such as "
            f"'agreement < 0.2' or 'erasure.word != yes'"
        )
    if match["word"] is not None:
        if match["operator"] not in ("==", "!="):
            raise ArgumentTypeError(f"{text!r}: a verdict is compared with == or !=")
        return Condition(match["name"], match["operator"], match["word"], text)
    return Condition(match["name"], match["operator"], float(match["number"]), text)


def add_conditions(parser: ArgumentParser, example: str) -> None:
    """The option `--fail-if`, as often as wanted."""
    parser.add_argument(
        "--fail-if",
        action="append",
        default=[],
        type=condition,
        metavar="CONDITION",
        help=f"end with status 3 if this holds, such as {example}; may be repeated",
    )


def names_in(run: "Run", card: "Card") -> tuple[dict[str, float], dict[str, str]]:
    """The numbers and the verdicts of a run by name, from its headline numbers and the findings on
    its group."""
    from attnprobe.findings.headlines import headline

    judgements = card.named_judgements()
    numbers = {name.replace("/", "."): value for name, value in headline(run.numbers).items()}
    numbers |= {name: judgement.value for name, judgement in judgements.items()}
    return numbers, {name: judgement.verdict for name, judgement in judgements.items()}


def judge(
    conditions: Sequence[Condition], numbers: Mapping[str, float], verdicts: Mapping[str, str]
) -> None:
    """End with status 3 where a condition holds, after naming each that does; say that none does
    otherwise."""
    judged = [(one, *one.holds(numbers, verdicts)) for one in conditions]
    failed = [(one, value) for one, holds, value in judged if holds]
    for one, value in failed:
        print(
            f"failed: {one.text} ({one.name} is {value if isinstance(value, str) else format(value, '.4g')})"
        )
    if failed:
        raise SystemExit(FAILED)
    if conditions:
        print(
            f"passed: none of {len(conditions)} condition{'s' if len(conditions) > 1 else ''} holds"
        )
