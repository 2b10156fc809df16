"""attnprobe audit FILE: the settings of an audit of one's own file, written out and carried out."""

import argparse
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from attnprobe.cli.conditions import add_conditions, judge, names_in, refuse_mistyped
from attnprobe.cli.main import Parser, answering
from attnprobe.core.printing import WIDTH
from attnprobe.core.sanitise import quoted

USAGE = """attnprobe audit FILE --text COLUMN --label COLUMN [options]
                       [NAME=VALUE ...]"""
EPILOG = """examples:
  attnprobe audit reviews.csv --text review --label stars
  attnprobe audit reviews.csv --text review --label stars --model cnn \\
    --minutes 10 training.epochs=4
  attnprobe audit reviews.csv --text review --label stars --model my_bert
  attnprobe audit Umsätze.xlsx --text "Kommentar (frei)" --label Note \\
    --language de
  attnprobe audit my_folder --text text --label label \\
    --fail-if "agreement < 0.2" --archive evidence.zip

FILE is a .csv, .tsv, .jsonl, .parquet or .xlsx file, or a folder with train.*,
validation.* and test.*. Separators, encodings and decimal marks are found out
and said. Everything else is a setting of attnprobe run, NAME=VALUE."""


@dataclass(frozen=True)
class Option:
    """An option of the command that stands for one setting.

    Attributes:
        flag: as it is typed.
        setting: what it stands for.
        value: what its value is called in the help.
        about: help.
    """

    flag: str
    setting: str
    value: str
    about: str

    @property
    def attribute(self) -> str:
        """Its name among the parsed arguments."""
        return self.flag.removeprefix("--")


OPTIONS = (
    Option("--text", "data.text", "COLUMN", "column of the texts; doc.body for one within another"),
    Option("--label", "data.label", "COLUMN", "column of the labels"),
    Option(
        "--text2",
        "data.text2",
        "COLUMN",
        "column of the second texts, for a model that reads pairs",
    ),
    Option(
        "--language", "data.language", "CODE", "of the texts: en (default), de, zh, ja, ar, ..."
    ),
    Option("--by", "data.slice", "COLUMN", "column by whose values the answer is divided, too"),
    Option(
        "--minutes", "study.minutes", "N", "time limit, met by fewer texts and tests (default: 30)"
    ),
    Option("--output", "output", "FOLDER", "where results go (default: runs)"),
)


def minutes(text: str) -> float:
    """A number of minutes as typed.

    Raises:
        ArgumentTypeError: it is none.
    """
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(
            f"{text!r}: expected a number above 0, such as --minutes 10"
        )
    return number


def audit_parser() -> argparse.ArgumentParser:
    """The arguments of the command."""
    parser = Parser("audit", usage=USAGE, epilog=EPILOG)
    parser.add_argument("file", metavar="FILE", help="your texts and their labels")
    for option in OPTIONS:
        parser.add_argument(
            option.flag,
            metavar=option.value,
            help=option.about,
            type=minutes if option.flag == "--minutes" else str,
            required=option.flag in ("--text", "--label"),
        )
    parser.add_argument(
        "--model",
        help="what is trained: lstm (default), cnn, average, transformer, ... (conf/model); or "
        "your own classifier of Hugging Face's transformers, examined as it is: its folder, or "
        "OWNER/NAME on the hub",
    )
    add_conditions(parser, "'agreement < 0.2' or 'erasure.word != yes'")
    parser.add_argument(
        "--archive",
        type=Path,
        metavar="FILE.zip",
        help="page, tables, manifests and checksums in one file",
    )
    parser.add_argument("--dry-run", action="store_true", help="only check and print the settings")
    return parser


def audit(arguments: Sequence[str]) -> None:
    """Print the settings, carry the audit out, archive and judge it.

    Args:
        arguments: what follows the command's name.
    """
    options, settings = audit_parser().parse_known_args(arguments)
    for word in settings:
        if word.startswith("-") or "=" not in word:
            audit_parser().error(
                f"{word}: expected an option of this command, or a setting NAME=VALUE"
            )
    if options.fail_if:
        with answering():
            refuse_mistyped(options.fail_if)
    overrides = overrides_of(options, settings)
    print(f"settings: {command_lines(overrides)}", flush=True)
    if options.archive is not None:
        with answering():
            from attnprobe.report.archive import archive_target

            archive_target(options.archive)
    study = carried_out(overrides, settings, dry_run=options.dry_run)
    if study is None:
        print("nothing was run: the settings, the files and their columns can be used")
        return
    with answering():
        from attnprobe.findings.changes import run_at
        from attnprobe.findings.stored import card_of_study
        from attnprobe.findings.studies.base import read_study
        from attnprobe.report.archive import write_archive
        from attnprobe.report.publish import PAGE

        if options.archive is not None:
            places = [*read_study(study).runs, study]
            print(f"archive: {write_archive(places, study / PAGE, options.archive)}")
        if options.fail_if:
            judge(options.fail_if, *names_in(run_at(study), card_of_study(read_study(study))))


def carried_out(overrides: Sequence[str], settings: Sequence[str], *, dry_run: bool) -> Path | None:
    """Carry out the study; returns its directory, or None of a dry run.

    Args:
        overrides: all settings.
        settings: those of them that were typed as settings: a mistake in any other is answered with
            its option's name.
        dry_run: check everything that can be checked before work begins, and no more.
    """
    from attnprobe import __main__ as hydra_command

    sys.argv = ["attnprobe", *overrides]
    typed = {setting.split("=")[0] for setting in settings}
    for option in OPTIONS:
        if option.setting not in typed:
            hydra_command.TYPED[f"{option.setting}=null"] = f"leave {option.flag} out"
            hydra_command.TYPED[f"{option.setting}="] = f"{option.flag} "
    if dry_run:
        hydra_command.DRY_RUN.append(True)
    try:
        hydra_command.main()
    finally:
        hydra_command.TYPED.clear()
        hydra_command.DRY_RUN.clear()
    return None if dry_run else hydra_command.RESULTS[-1]


def command_lines(overrides: Sequence[str]) -> str:
    r"""The command of these settings, on several lines as a shell reads them.

    >>> print(command_lines(["+experiment=audit", "data=files", "data.path=" + "a" * 40]))
    attnprobe run +experiment=audit data=files \
      data.path=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
    """
    lines = ["attnprobe run"]
    room = WIDTH - len("settings: ") - len(" \\")
    for word in map(in_shell, overrides):
        if len(lines[-1]) + 1 + len(word) <= room:
            lines[-1] += f" {word}"
        else:
            lines.append(f"  {word}")
    return " \\\n".join(lines)


def in_shell(word: str) -> str:
    """A word of a command as it is typed.

    >>> print(in_shell("data.path='März 24.csv'"), in_shell("data.path=a.csv"), in_shell("a='$b'"))
    "data.path='März 24.csv'" data.path=a.csv 'a='"'"'$b'"'"''
    """
    plain = "'" not in word or any(mark in word for mark in '"$`\\!')
    return shlex.quote(word) if plain else f'"{word}"'


def overrides_of(options: argparse.Namespace, settings: Sequence[str]) -> list[str]:
    """The settings that Hydra is given.

    Args:
        options: the command's own.
        settings: what was typed beside them; the last word is theirs.
    """
    overrides = ["+experiment=audit", "data=files", f"data.path={quoted(options.file)}"]
    for option in OPTIONS:
        value = getattr(options, option.attribute)
        if isinstance(value, float):
            overrides.append(f"{option.setting}={value:g}")
        elif value is not None:
            overrides.append(f"{option.setting}={quoted(value)}")
    if options.model is not None:
        trains = any(setting.startswith("training=") for setting in settings)
        overrides += model_overrides(options.model, trains=trains)
    return [*overrides, *settings]


def model_overrides(model: str, *, trains: bool) -> list[str]:
    """The settings that `--model` stands for.

    Args:
        model: a choice of conf/model, or a checkpoint: its folder, or its name on the hub.
        trains: the settings choose how it is trained; else a checkpoint is taken as it is.
    """
    from attnprobe.runs.answers import choices

    is_checkpoint = "/" in model or Path(model).is_dir()
    if model in choices("model") or not is_checkpoint:
        return [f"model={model}"]
    checkpoint = ["model=pretrained", f"model.path={quoted(model)}"]
    return checkpoint if trains else [*checkpoint, "training=none"]
