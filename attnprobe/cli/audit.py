"""attnprobe audit FILE: the settings of an audit of one's own file, written out and carried out."""

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from attnprobe.cli.conditions import add_conditions, judge, names_in
from attnprobe.cli.main import Parser, answering
from attnprobe.core.sanitise import quoted

USAGE = "attnprobe audit FILE --text COLUMN --label COLUMN [options] [NAME=VALUE ...]"
EPILOG = """examples:
  attnprobe audit reviews.csv --text review --label stars
  attnprobe audit reviews.csv --text review --label stars --model cnn --minutes 10 training.epochs=4
  attnprobe audit reviews.csv --text review --label stars --model my_bert
  attnprobe audit Umsätze.xlsx --text "Kommentar (frei)" --label Note --language de
  attnprobe audit my_folder --text text --label label --fail-if "agreement < 0.2" --archive evidence.zip

FILE is a .csv, .tsv, .jsonl, .parquet or .xlsx file, or a folder with train.*, validation.* and test.*. Separators, encodings
and decimal marks are found out and said. Everything else is a setting of attnprobe run, NAME=VALUE."""


OPTIONS = {
    "--text": ("data.text", "COLUMN", "column of the texts; doc.body for one within another"),
    "--label": ("data.label", "COLUMN", "column of the labels"),
    "--text2": ("data.text2", "COLUMN", "column of the second texts, for a model that reads pairs"),
    "--language": ("data.language", "CODE", "of the texts: en (default), de, zh, ja, ar, ..."),
    "--minutes": ("study.minutes", "N", "what it may take, by fewer texts (default: 30)"),
    "--output": ("output", "FOLDER", "where results go (default: runs)"),
}
"""Option → the setting that it stands for, what its value is, and help."""


def audit_parser() -> argparse.ArgumentParser:
    """The arguments of the command."""
    made = Parser("audit", usage=USAGE, epilog=EPILOG)
    made.add_argument("file", metavar="FILE", help="your texts and their labels")
    for option, (_, value, help_) in OPTIONS.items():
        kind = float if option == "--minutes" else str
        required = option in ("--text", "--label")
        made.add_argument(option, metavar=value, help=help_, type=kind, required=required)
    made.add_argument(
        "--model",
        help="what is trained: lstm (default), cnn, average, transformer, ... (conf/model); or your own classifier of "
        "Hugging Face's transformers, examined as it is: its folder, or OWNER/NAME on the hub",
    )
    add_conditions(made, "'agreement < 0.2' or 'erasure.word != yes'")
    made.add_argument(
        "--archive",
        type=Path,
        metavar="FILE.zip",
        help="page, tables, manifests and checksums in one file",
    )
    made.add_argument("--dry-run", action="store_true", help="only print the settings")
    return made


def audit(arguments: Sequence[str]) -> None:
    """Print the settings, and carry the audit out."""
    asked, settings = audit_parser().parse_known_args(arguments)
    for one in settings:
        if one.startswith("-") or "=" not in one:
            audit_parser().error(
                f"{one}: expected an option of this command, or a setting NAME=VALUE"
            )
    overrides = overrides_of(asked, settings)
    print(f"settings: attnprobe run {' '.join(map(in_shell, overrides))}", flush=True)
    if asked.dry_run:
        return
    if asked.archive is not None:
        with answering():
            from attnprobe.report.archive import archive_target, write_archive

            archive_target(asked.archive)
    from attnprobe import __main__ as hydra_command

    sys.argv = ["attnprobe", *overrides]
    given = {one.split("=")[0] for one in settings}
    hydra_command.TYPED.update(
        {f"{one}=": f"{option} " for option, (one, *_) in OPTIONS.items() if one not in given}
    )
    hydra_command.main()
    study = hydra_command.RESULTS[-1]
    with answering():
        from attnprobe.findings.changes import run_at
        from attnprobe.findings.stored import card_of_study
        from attnprobe.findings.studies.base import read_study
        from attnprobe.report.publish import PAGE

        if asked.archive is not None:
            print(
                f"archive: {write_archive([*read_study(study).runs, study], study / PAGE, asked.archive)}"
            )
        if asked.fail_if:
            judge(asked.fail_if, *names_in(run_at(study), card_of_study(read_study(study))))


def in_shell(word: str) -> str:
    """A word of a command as it is typed.

    >>> print(in_shell("data.path='März 24.csv'"), in_shell("data.path=a.csv"), in_shell("a='$b'"))
    "data.path='März 24.csv'" data.path=a.csv 'a='"'"'$b'"'"''
    """
    plain = "'" not in word or any(mark in word for mark in '"$`\\!')
    return shlex.quote(word) if plain else f'"{word}"'


def overrides_of(asked: argparse.Namespace, settings: Sequence[str]) -> list[str]:
    """The settings that Hydra is given."""
    overrides = ["+experiment=audit", "data=files", f"data.path={quoted(asked.file)}"]
    for option, (setting, *_) in OPTIONS.items():
        value = getattr(asked, option.removeprefix("--"))
        if value is not None:
            overrides.append(
                f"{setting}={value:g}" if option == "--minutes" else f"{setting}={quoted(value)}"
            )
    if asked.model is not None:
        from attnprobe.runs.answers import choices

        if asked.model in choices("model") or not (
            "/" in asked.model or Path(asked.model).is_dir()
        ):
            overrides.append(f"model={asked.model}")
        else:  # a checkpoint
            trains = any(one.startswith("training=") for one in settings)
            overrides += [
                "model=pretrained",
                f"model.path={quoted(asked.model)}",
                *["training=none"][trains:],
            ]
    return [*overrides, *settings]
