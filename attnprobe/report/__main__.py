"""The command line: python -m attnprobe.report RUNS… [-o report.html] [--title …] [--no-text]"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from attnprobe.core.clock import CLOCK, Step
from attnprobe.core.errors import UserError, answering_permissions, as_typed
from attnprobe.core.processes import answering_signals
from attnprobe.report.page import MEGABYTES, PAGE_NAME, is_page_name
from attnprobe.results.directory import refuse_missing

TYPED = {"output=… or run_dir=…": "--output FILE.html"}
"""What messages call the place of a run → what this command has for its page."""


def report_parser(program: str = "attnprobe report") -> argparse.ArgumentParser:
    """The arguments of the command."""
    parser = argparse.ArgumentParser(
        prog=program,
        description="One self-contained HTML page out of finished runs: verdicts, tests, published "
        "numbers beside measured ones, and a browser over the examples. Beside it, figures as PDF "
        "and tables as CSV and LaTeX.",
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
    option("--title", default="", help="heads the page, instead of model and data")
    option(
        "--no-text",
        action="store_true",
        help="leave the texts out; positions, numbers and the classes' names stay",
    )
    option(
        "--megabytes",
        type=float,
        default=MEGABYTES,
        metavar="MB",
        help=f"about what the page may weigh (default: {MEGABYTES}); "
        f"above it only some examples get heat maps",
    )
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
    options = report_parser(program).parse_args(arguments)
    try:
        with (
            CLOCK.showing(),
            CLOCK.command(),
            CLOCK.step("load the libraries") as step,
            answering_permissions(),
        ):
            page = _written(options, step)
    except UserError as error:
        message = as_typed(str(error), TYPED)
        print(f"attnprobe.report: {message}", file=sys.stderr)
        raise SystemExit(2) from None
    folder = page.with_name(f"{page.stem}_files")
    print(f"report: {page} ({page.stat().st_size / 1e6:.1f} MB)")
    print(f"figures and tables: {folder}")
    if options.archive is not None:
        print(f"archive: {options.archive} ({options.archive.stat().st_size / 1e6:.1f} MB)")


def _written(options: argparse.Namespace, step: Step) -> Path:
    """Write page and archive, and return the page's path.

    Args:
        options: of the command.
        step: is told what is done.

    Raises:
        UserError: if an option or a run cannot be used.
    """
    if not is_page_name(options.output):
        raise UserError(f"--output={options.output}: expected {PAGE_NAME}")
    if not options.megabytes > 0:
        raise UserError(
            f"--megabytes={options.megabytes:g}: expected a number above 0, "
            f"for example --megabytes 60"
        )
    refuse_missing(options.runs)
    from attnprobe.findings.studies.base import with_members
    from attnprobe.report.archive import archive_target, write_archive
    from attnprobe.report.page.build import write_report

    def tell(words: str) -> None:
        step.title = words

    runs = with_members(options.runs)
    if options.archive is not None:
        archive_target(options.archive)
    page = write_report(
        runs,
        options.output,
        title=options.title,
        words=not options.no_text,
        megabytes=options.megabytes,
        again=options.again,
        tell=tell,
    )
    if options.archive is not None:
        write_archive(runs, page, options.archive)
    return page


if __name__ == "__main__":
    main()
