"""The command line: python -m attnprobe.report RUNS… [-o report.html] [--title …] [--no-text]"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from attnprobe.core.errors import UserError
from attnprobe.core.processes import answering_signals


def report_parser(program: str = "attnprobe report") -> argparse.ArgumentParser:
    """The arguments of the command."""
    from attnprobe.report.page.browser import MEGABYTES
    from attnprobe.report.page.build import TITLE

    parser = argparse.ArgumentParser(
        prog=program,
        description="One self-contained HTML page out of finished runs: verdicts, tests, published numbers beside "
        "measured ones, and a browser over the examples. Beside it, figures as PDF and tables as CSV and LaTeX.",
    )
    option = parser.add_argument
    option(
        "runs",
        nargs="+",
        metavar="RUNS",
        help="run directories, directories above runs, or glob patterns",
    )
    option(
        "-o",
        "--output",
        type=Path,
        default=Path("report.html"),
        help="the page (default: report.html)",
    )
    option("--title", default=TITLE, help="heads the page")
    option(
        "--no-text",
        action="store_true",
        help="leave the texts out; positions, numbers and the classes' names stay",
    )
    size = f"about what the page may weigh (default: {MEGABYTES}); above it only some examples get heat maps"
    option("--megabytes", type=float, default=MEGABYTES, metavar="MB", help=size)
    option(
        "--again",
        action="store_true",
        help="decide every claim anew, whatever findings are stored with the runs",
    )
    option(
        "--archive",
        type=Path,
        metavar="FILE.zip",
        help="page, tables, manifests and checksums in one file as well",
    )
    return parser


@answering_signals("attnprobe.report", "writes the whole report")
def main(
    arguments: Sequence[str] | None = None, program: str = "python -m attnprobe.report"
) -> None:
    """Write a report; a mistake of the user ends it with one message and status 2."""
    from attnprobe.findings.studies.base import with_members
    from attnprobe.report.archive import archive_target, write_archive
    from attnprobe.report.page.build import write_report

    asked = report_parser(program).parse_args(arguments)
    try:
        asked.runs = with_members(asked.runs)
        if asked.archive is not None:
            archive_target(asked.archive)
        if asked.output.suffix.lower() not in (".html", ".htm"):
            raise UserError(
                f"--output={asked.output}: expected a name that ends in .html, for example -o report.html"
            )
        if not asked.megabytes > 0:
            raise UserError(
                f"--megabytes={asked.megabytes:g}: expected a number above 0, for example --megabytes 60"
            )
        shown = {
            "title": asked.title,
            "words": not asked.no_text,
            "megabytes": asked.megabytes,
            "again": asked.again,
        }
        page = write_report(asked.runs, asked.output, tell=progress, **shown)
        if asked.archive is not None:
            write_archive(asked.runs, page, asked.archive)
    except UserError as error:
        progress("")
        print(f"attnprobe.report: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    progress("")
    beside = page.with_name(f"{page.stem}_files")
    print(f"report: {page} ({page.stat().st_size / 1e6:.1f} MB); figures and tables: {beside}")
    if asked.archive is not None:
        print(f"archive: {asked.archive} ({asked.archive.stat().st_size / 1e6:.1f} MB)")


def progress(step: str) -> None:
    """One line on a terminal that is written over at every step; nothing into files and pipes."""
    if sys.stderr.isatty():
        print(f"\r\033[K{step}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
