"""--fail-if "agreement < 0.2": a comparison of one of a run's numbers or verdicts, read without evaluating any code."""

import operator
import re
from argparse import ArgumentTypeError
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from attnprobe.errors import UserError

OPERATORS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
GRAMMAR = re.compile(
    r"\s*(?P<name>[a-z][a-z0-9_]*(\.[a-z0-9_]+)*)\s*(?P<operator><=|>=|==|!=|<|>)\s*"
    r"((?P<number>[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?)|(?P<word>[a-z][a-z ]*[a-z]))\s*"
)
SHORT = {
    "agreement": "correlation.tau_attention_leave_one_out",
    "farthest": "adversarial.optimum_jsd",
    "accuracy": "performance.accuracy",
}
"""Names for numbers that a condition is often about."""
FAILED = 3
"""The exit status where a condition holds."""


@dataclass(frozen=True)
class Condition:
    """A comparison: `name operator value`.

    Attributes:
        name: of a number (`correlation.tau_attention_gradient`, or a short name of `SHORT`) or of a criterion.
        operator: one of `OPERATORS`.
        value: a number, or a verdict such as `fails` (with == and != only).
        text: as it was written.
    """

    name: str
    operator: str
    value: float | str
    text: str

    def found(self, numbers: Mapping[str, float], verdicts: Mapping[str, str]) -> float | str:
        """What it is about.

        Raises:
            UserError: there is no such number or verdict, or it is undefined: a condition is never passed over.
        """
        if isinstance(self.value, str):
            if self.name not in verdicts:
                raise UserError(f"--fail-if {self.text!r}: no verdict on {self.name!r}{self.near(verdicts)}")
            return verdicts[self.name]
        name = SHORT.get(self.name, self.name)
        keys = [key for key in numbers if key == name] or [key for key in numbers if key.split(".", 1)[-1] == name]
        if len(keys) != 1:
            known = {*numbers, *(alias for alias, full in SHORT.items() if full in numbers)}
            raise UserError(f"--fail-if {self.text!r}: no number called {self.name!r}{self.near(known)}")
        if numbers[keys[0]] != numbers[keys[0]]:
            raise UserError(f"--fail-if {self.text!r}: {keys[0]} is undefined here, so that it cannot be compared")
        return numbers[keys[0]]

    def holds(self, value: float | str) -> bool:
        """Whether it is true of what was found."""
        if isinstance(self.value, str) or isinstance(value, str):
            return (value == self.value) == (self.operator == "==")
        return OPERATORS[self.operator](value, self.value)

    def near(self, known: Collection[str]) -> str:
        """What else could have been meant."""
        close = get_close_matches(self.name, known, 1, 0.7)
        hint = f"; did you mean {close[0]}?" if close else "."
        return f"{hint} There is {', '.join(sorted(known)) or 'none at all'}"


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
            f"{text[:80]!r}: expected NAME < NUMBER (or <=, >, >=, ==, !=) or CRITERION == VERDICT, such as "
            f"'agreement < 0.2' or 'erasure.word != meets'"
        )
    if match["word"] is not None:
        if match["operator"] not in ("==", "!="):
            raise ArgumentTypeError(f"{text!r}: a verdict is compared with == or !=")
        return Condition(match["name"], match["operator"], match["word"], text)
    return Condition(match["name"], match["operator"], float(match["number"]), text)


def judge(conditions: Sequence[Condition], numbers: Mapping[str, float], verdicts: Mapping[str, str]) -> None:
    """End with status 3 where a condition holds, after naming each that does; say that none does otherwise.

    Raises:
        UserError: one cannot be judged.
    """
    if not conditions:
        return
    values = {one: one.found(numbers, verdicts) for one in conditions}
    for one, value in values.items():
        if one.holds(value):
            print(f"failed: {one.text} ({one.name} is {value if isinstance(value, str) else format(value, '.4g')})")
    if any(one.holds(value) for one, value in values.items()):
        raise SystemExit(FAILED)
    print(f"passed: none of {len(conditions)} condition{'s' if len(conditions) > 1 else ''} holds")
