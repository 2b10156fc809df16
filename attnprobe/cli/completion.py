"""attnprobe completion SHELL: what a shell has to know to complete commands, options and
settings."""

import argparse
from collections.abc import Sequence

import shtab

from attnprobe.cli.audit import audit_parser
from attnprobe.cli.compare import compare_parser
from attnprobe.cli.explain import explain_parser
from attnprobe.cli.main import COMMANDS, Parser
from attnprobe.report.__main__ import report_parser
from attnprobe.runs.answers import choices

CHOSEN = ("data", "model", "training", "launcher", "logger", "task")
"""Groups of conf/ of which one is chosen: NAME=CHOICE."""
EPILOG = """examples:
  eval "$(attnprobe completion bash)"        in ~/.bashrc
  attnprobe completion zsh > ~/.zsh/completions/_attnprobe"""


def completion(arguments: Sequence[str]) -> None:
    """Print what the shell needs: every command with its options, and the choices of conf/ where
    settings may follow. In bash a word that holds = is completed as a whole, by every command from
    then on."""
    made = Parser("completion", usage="attnprobe completion SHELL", epilog=EPILOG)
    made.add_argument("shell", metavar="SHELL", choices=["bash", "zsh"], help="bash or zsh")
    shell = made.parse_args(arguments).shell
    grammar = argparse.ArgumentParser(prog="attnprobe")
    names = grammar.add_subparsers()
    settings = [f"{group}={one}" for group in CHOSEN for one in choices(group)]
    settings += [f"+experiment={one}" for one in choices("experiment")]
    settings += [f"probe=[{one}]" for one in choices("probe")]
    parsers = {
        "audit": audit_parser,
        "compare": compare_parser,
        "explain": explain_parser,
        "report": report_parser,
    }
    for name, help_ in COMMANDS.items():
        own = names.add_parser(
            name, help=help_, add_help=False, parents=[parsers[name]()] if name in parsers else []
        )
        for one in own._actions:
            if not one.option_strings or one.dest in ("html", "archive", "output", "file"):
                one.complete = shtab.FILE  # type: ignore[attr-defined]
        if name in ("run", "audit"):
            own.add_argument("settings", nargs="*", choices=settings)
    preamble = 'COMP_WORDBREAKS="${COMP_WORDBREAKS//=/}"' if shell == "bash" else ""
    print(shtab.complete(grammar, shell, preamble=preamble))
