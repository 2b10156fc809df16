"""attnprobe COMMAND …: the commands, their help, and what a typo is answered with."""

import argparse
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from difflib import get_close_matches
from importlib import import_module
from io import StringIO
from pydoc import pager

from attnprobe import __version__
from attnprobe.core.clock import CLOCK
from attnprobe.core.printing import WIDTH, ending_with_reader
from attnprobe.core.sanitise import visible

COMMANDS = {
    "audit": (
        "train a classifier on your file, or take yours, and test whether its attention may be "
        "read as an explanation"
    ),
    "run": "one experiment, with every setting of conf/ (the same as python -m attnprobe)",
    "compare": "two runs on the same texts: what changed in numbers, verdicts and examples",
    "report": "one self-contained HTML page out of finished runs, or a zip of evidence",
    "explain": "what a trained run says about texts of yours, word by word",
    "bench": "how well scores of words find those that decide, on models where these are known",
    "vectors": "word vectors of a pretrained encoder, for every word of a corpus",
    "completion": "shell completion script (bash or zsh) for commands, options and settings",
}
"""Name → what it does.

`run` and `report` have command lines of their own; each other one is the function of that name in
the module of that name here."""


def _listed(name: str, about: str) -> str:
    """A command with what it does, on as many lines as it takes."""
    return textwrap.fill(about, WIDTH, initial_indent=f"    {name:<12}", subsequent_indent=" " * 16)


LISTED = "\n".join(_listed(name, about) for name, about in COMMANDS.items())
HELP = f"""usage: attnprobe COMMAND ...

May I read this classifier's attention as an explanation?

commands:
{LISTED}

examples:
  attnprobe audit reviews.csv --text review --label stars
  attnprobe run +experiment=jain_adversarial data=sst model=cnn
  attnprobe report runs -o report.html --archive evidence.zip
  attnprobe compare runs/reviews/lstm_additive-seed0-* \\
    runs/reviews/lstm_additive-seed1-*
  attnprobe explain runs/reviews/lstm_additive-seed0-* "a film that is not good"
  attnprobe bench scores.parquet --data bench

settings (NAME=VALUE after audit and run; each group is a folder of conf/):
  data       what is read: testbed (built in), files (yours), sst, imdb, ...
  model      what is trained: lstm, cnn, average, transformer, pretrained, ...
             with model/attention=additive|dot|uniform|...
  training   how: epochs, learning rate, early stopping
  probe      the tests, such as probe=[permutation,adversarial]
  +experiment, importances, seed, trainer, logger, launcher, output
  attnprobe run --help lists every choice,
  attnprobe run --help settings every value

exit status: 0 done, 1 failed, 2 a mistake in the command,
             3 a --fail-if condition holds
documentation: docs/README.md"""

EVERY_SETTING = "Every setting with its value"
"""What the second part of the help of `run` (conf/config.yaml) begins with."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Carry out one command; a mistake ends with one line and status 2.

    Args:
        arguments: the command and what follows it; None: those of this process.
    """
    if arguments is None:
        CLOCK.begin_with_process()
        arguments = sys.argv[1:]
    name, *rest = arguments or ["--help"]
    with ending_with_reader():
        carry_out(name, rest)


def carry_out(name: str, rest: Sequence[str]) -> None:
    """Carry out one command.

    Args:
        name: of the command.
        rest: what follows it.
    """
    if name in ("-h", "--help"):
        print(HELP)
    elif name == "--version":
        print(f"attnprobe {__version__}")
    elif name == "run":
        run(rest)
    elif name == "report":
        import_module("attnprobe.report.__main__").main(rest, program="attnprobe report")
    elif name in COMMANDS:
        command = getattr(import_module(f"attnprobe.cli.{name}"), name)
        command(rest)
    elif "=" in name or name in ("-m", "--multirun"):
        stop(f"{name}: expected a command first; settings go with run: attnprobe run {name} …")
    else:
        near = get_close_matches(name, COMMANDS, 1)
        hint = f"; did you mean {near[0]}?" if near else "."
        stop(
            f"{name}: there is no such command{hint} Known: {', '.join(COMMANDS)}; "
            f"attnprobe --help has examples"
        )


def run(arguments: Sequence[str]) -> None:
    """Hand the arguments on to `python -m attnprobe`, or show its help."""
    module = import_module("attnprobe.__main__")
    if "--help" in arguments:
        sys.argv = ["attnprobe", *(word for word in arguments if word != "settings")]
        show_help(module.main, every_setting="settings" in arguments)
        return
    sys.argv = ["attnprobe", *arguments]
    script = sys.modules["__main__"]
    if script.__spec__ is None:
        # Lightning starts a training's further processes as this one seems to have been started:
        # the script that a console has called does not take these arguments
        script.__spec__ = module.__spec__
    module.main()


def show_help(print_help: Callable[[], None], *, every_setting: bool) -> None:
    """Show the help of `run`, in a terminal a page at a time.

    Args:
        print_help: prints all of it and exits.
        every_setting: also show the second part, every setting with its value.
    """
    text = StringIO()
    with redirect_stdout(text):
        try:
            print_help()
        except SystemExit as ended:
            if ended.code:
                raise
    page = text.getvalue()
    if not every_setting:
        choices = page.partition(EVERY_SETTING)[0]
        page = f"{choices}attnprobe run --help settings lists every setting with its value"
    if sys.stdout.isatty():
        pager(page)
    else:
        print(page)


def stop(message: str) -> None:
    """End with one line and status 2."""
    print(f"attnprobe: {visible(message)}", file=sys.stderr)
    raise SystemExit(2)


@contextmanager
def answering(typed: Mapping[str, str] | None = None) -> Iterator[None]:
    """A command shows its clock; a mistake of the user's or a signal ends it with one line.

    Args:
        typed: how a setting begins → what the command calls it that has an option for it.
    """
    from attnprobe.core.errors import UserError, answering_permissions, as_typed
    from attnprobe.core.processes import answering_signals

    with answering_signals("attnprobe", "restarts it"):
        try:
            with CLOCK.showing(), CLOCK.command(), answering_permissions():
                yield
        except UserError as error:
            stop(as_typed(str(error), typed or {}))


class Parser(argparse.ArgumentParser):
    """A command's arguments; a mistake in them is one line without the usage."""

    def __init__(self, command: str, **kwargs: str) -> None:
        super().__init__(
            prog=f"attnprobe {command}",
            description=textwrap.fill(COMMANDS[command][0].upper() + COMMANDS[command][1:], WIDTH),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
            **kwargs,  # type: ignore[arg-type]
        )

    def parse_known_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def]
        """Answer an unknown option before argparse misses the one that was meant."""
        known = list(self._option_string_actions)
        for word in sys.argv[1:] if args is None else args:
            name = word.partition("=")[0]
            if name == "--":
                break
            if name.startswith("--") and name not in known:
                near = get_close_matches(name, known, 1)
                hint = f"; did you mean {near[0]}?" if near else "."
                long = ", ".join(option for option in known if option.startswith("--"))
                self.error(f"{visible(name)}: there is no such option{hint} Known: {long}")
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> None:  # type: ignore[override]
        """End with one line and status 2."""
        command = self.prog.removeprefix("attnprobe ")
        stop(f"{command}: {message}; attnprobe {command} --help says more")
