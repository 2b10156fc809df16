"""`python -m research.papers RUNS … --page PAGE`: every published number beside what runs measured.

The page is made of the runs' tables, and with `--record FILE` of what earlier runs measured: their
numbers are there, and those of RUNS join them. A published number without a run says so; data that
nobody can have say that. `--networks PAGE` writes Serrano & Smith's networks: their flips, and the
paper's conclusions under nulls, with a record of its own (`--networks-record FILE`).
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from attnprobe.core.errors import UserError
from research.markdown import put_between_markers, require_parts
from research.papers import networks
from research.papers.cells import CellName, Measured, headline_rows, measured_numbers
from research.papers.page import PARTS, is_on_page, parts_of_page, studies_of
from research.papers.record import read_record, with_record, write_record


def main(arguments: Sequence[str] | None = None) -> None:
    """Carry out the command; a mistake is one line."""
    parser = argparse.ArgumentParser(prog="python -m research.papers", description=__doc__)
    parser.add_argument("runs", nargs="*", help="run directories, or folders above them")
    parser.add_argument("--record", type=Path, help="CSV of earlier runs' numbers; RUNS join it")
    parser.add_argument("--page", type=Path, help="write into this page between its markers")
    parser.add_argument("--networks", type=Path, help="write the networks into this page")
    parser.add_argument(
        "--networks-record", type=Path, help="CSV of earlier networks; those of RUNS join it"
    )
    options = parser.parse_args(arguments)
    if options.networks_record is not None and options.networks is None:
        parser.error("--networks-record goes with --networks PAGE")
    try:
        carry_out(options)
    except UserError as error:
        raise SystemExit(f"research.papers: {error}") from None


def carry_out(options: argparse.Namespace) -> None:
    """Write what the options name, or print the parts of the page."""
    if options.networks is not None:
        require_parts(options.networks, ["networks"])
    if options.page is not None:
        require_parts(options.page, PARTS)
    if options.networks is not None:
        part = networks.networks_part(networks_of(options))
        put_between_markers(options.networks, {"networks": part})
        if options.page is None and options.record is None:
            return
    numbers = numbers_of(options)
    if options.record is not None:
        write_record(numbers, options.record)
        numbers = read_record(options.record)  # with as many digits as the next page has
    parts = parts_of_page(numbers, studies_of(options.runs))
    if options.page is not None:
        put_between_markers(options.page, parts)
    if options.page is None and options.record is None:
        print("\n\n".join(parts.values()))


def networks_of(options: argparse.Namespace) -> list[networks.Network]:
    """The networks of the runs, and of the record where there is one."""
    path = options.networks_record
    recorded = [] if path is None else networks.read_record(path)
    known = networks.with_record(networks.read_networks(options.runs), recorded)
    if path is None:
        return known
    networks.write_record(known, path)
    return networks.read_record(path)  # with as many digits as the next page has


def numbers_of(options: argparse.Namespace) -> dict[CellName, list[Measured]]:
    """The numbers of the page, from runs and from the record."""
    measured = measured_numbers(headline_rows(options.runs))
    record = {} if options.record is None else read_record(options.record)
    numbers = with_record(measured, record)
    return {name: of_setups for name, of_setups in numbers.items() if is_on_page(name)}


if __name__ == "__main__":
    main()
