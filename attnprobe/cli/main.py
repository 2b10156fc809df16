"""attnprobe COMMAND …: the commands, their help, and what a typo is answered with."""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from difflib import get_close_matches
from importlib import import_module
from io import StringIO
from pydoc import pager

from attnprobe import __version__
from attnprobe.core.sanitise import visible

COMMANDS = {
    "audit": "train a classifier on your file, or take yours, and test whether its attention may be read as an explanation",
    "run": "one experiment, with every setting of conf/ (the same as python -m attnprobe)",
    "compare": "two runs on the same texts: what changed in numbers, verdicts and examples",
    "report": "one self-contained HTML page out of finished runs, or a zip of evidence",
    "explain": "what a trained run says about texts of yours, word by word",
    "completion": "what bash or zsh has to know to complete commands, options and settings",
}
"""Name → what it does. `run` and `report` have command lines of their own; each other one is the
function of that name in the module of that name here."""
HELP = f"""usage: attnprobe COMMAND ...

May I read this classifier's attention as an explanation?

commands:
{"".join(f"    {name:<12}{about}{chr(10)}" for name, about in COMMANDS.items())}
examples:
  attnprobe audit reviews.csv --text review --label stars
  attnprobe run +experiment=jain_adversarial data=sst model=cnn
  attnprobe report runs -o report.html --archive evidence.zip
  attnprobe compare runs/reviews/lstm_additive-seed0-* runs/reviews/lstm_additive-seed1-*
  attnprobe explain runs/reviews/lstm_additive-seed0-* "a film that is not good"

settings (NAME=VALUE after audit and run; each group is a folder of conf/):
  data       what is read: testbed (built in), files (yours), sst, imdb, agnews, ...
  model      what is trained: lstm, cnn, average, transformer, pretrained, ... with model/attention=additive|dot|uniform|...
  training   how: epochs, learning rate, early stopping
  probe      the tests, such as probe=[permutation,adversarial]
  +experiment, importances, seed, trainer, logger, launcher, output
  attnprobe run --help lists every choice, attnprobe run --help settings every value

exit status: 0 done, 1 failed, 2 a mistake in the command, 3 a --fail-if condition holds
documentation: docs/README.md"""

EVERY_SETTING = "Every setting with its value"
"""What the second part of the help of `run` (conf/config.yaml) begins with."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Carry out one command; a mistake ends with one line and status 2."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    name = given[0] if given else ""
    if not given or name in ("-h", "--help"):
        print(HELP)
    elif name == "--version":
        print(f"attnprobe {__version__}")
    elif name == "run":
        asks = "--help" in given
        sys.argv = ["attnprobe", *(one for one in given[1:] if not (asks and one == "settings"))]
        hydra_command = import_module("attnprobe.__main__").main
        if asks:
            show_help(hydra_command, every_setting="settings" in given)
        else:
            hydra_command()
    elif name == "report":
        import_module("attnprobe.report.__main__").main(given[1:], program="attnprobe report")
    elif name in COMMANDS:
        getattr(import_module(f"attnprobe.cli.{name}"), name)(given[1:])
    elif "=" in name or name in ("-m", "--multirun"):
        stop(f"{name}: expected a command first; settings go with run: attnprobe run {name} …")
    else:
        near = get_close_matches(name, COMMANDS, 1)
        hint = f"; did you mean {near[0]}?" if near else "."
        stop(
            f"{name}: there is no such command{hint} Known: {', '.join(COMMANDS)}; attnprobe --help has examples"
        )


def show_help(print_help: Callable[[], None], *, every_setting: bool) -> None:
    """Show the help that is printed, the settings' values where they are asked for; in a terminal a
    page at a time."""
    text = StringIO()
    with redirect_stdout(text):
        try:
            print_help()
        except SystemExit as ended:
            if ended.code:
                raise
    shown = text.getvalue()
    if not every_setting:
        shown = f"{shown.partition(EVERY_SETTING)[0]}attnprobe run --help settings lists every setting with its value"
    (pager if sys.stdout.isatty() else print)(shown)


def stop(message: str) -> None:
    """End with one line and status 2."""
    print(f"attnprobe: {visible(message)}", file=sys.stderr)
    raise SystemExit(2)


@contextmanager
def answering() -> Iterator[None]:
    """A mistake of the user's ends with one line and status 2; a signal with one line, too."""
    from attnprobe.core.errors import UserError
    from attnprobe.core.processes import answering_signals

    with answering_signals("attnprobe", "does it again"):
        try:
            yield
        except UserError as error:
            stop(str(error))


class Parser(argparse.ArgumentParser):
    """A command's arguments; a mistake in them is one line without the usage."""

    def __init__(self, command: str, **kwargs: str) -> None:
        super().__init__(
            prog=f"attnprobe {command}",
            description=COMMANDS[command][0].upper() + COMMANDS[command][1:],
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
            **kwargs,  # type: ignore[arg-type]
        )

    def error(self, message: str) -> None:  # type: ignore[override]
        """One line and status 2."""
        stop(
            f"{self.prog.split(' ', 1)[1]}: {message}; attnprobe {self.prog.split(' ', 1)[1]} --help says more"
        )
