"""attnprobe completion SHELL: the completion script of a shell."""

import argparse
from collections.abc import Sequence

import shtab

from attnprobe.cli.audit import audit_parser
from attnprobe.cli.bench import bench_parser
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
    """Print what the shell needs: every command with its options, and the choices of conf/.

    In bash a word that holds = is completed as a whole, by every command from then on.

    Args:
        arguments: what follows the command's name.
    """
    parser = Parser("completion", usage="attnprobe completion SHELL", epilog=EPILOG)
    parser.add_argument("shell", metavar="SHELL", choices=["bash", "zsh"], help="bash or zsh")
    shell = parser.parse_args(arguments).shell
    preamble = 'COMP_WORDBREAKS="${COMP_WORDBREAKS//=/}"' if shell == "bash" else ""
    print(shtab.complete(grammar(), shell, preamble=preamble))


def grammar() -> argparse.ArgumentParser:
    """All commands as subcommands of one parser."""
    parser = argparse.ArgumentParser(prog="attnprobe")
    commands = parser.add_subparsers()
    settings = chosen_settings()
    parsers = {
        "audit": audit_parser,
        "bench": bench_parser,
        "compare": compare_parser,
        "explain": explain_parser,
        "report": report_parser,
    }
    for name, about in COMMANDS.items():
        parents = [parsers[name]()] if name in parsers else []
        command = commands.add_parser(name, help=about, add_help=False, parents=parents)
        for action in command._actions:
            takes_file = action.dest in ("html", "archive", "output", "file")
            if takes_file or not action.option_strings:
                action.complete = shtab.FILE  # type: ignore[attr-defined]
        if name in ("run", "audit"):
            command.add_argument("settings", nargs="*", choices=settings)
    return parser


def chosen_settings() -> list[str]:
    """Every choice of conf/ as a setting is typed."""
    settings = [f"{group}={choice}" for group in CHOSEN for choice in choices(group)]
    settings += [f"+experiment={choice}" for choice in choices("experiment")]
    return settings + [f"probe=[{choice}]" for choice in choices("probe")]
