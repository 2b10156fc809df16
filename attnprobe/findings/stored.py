"""The findings that are stored: which version decided, and on which runs and claims."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from attnprobe.findings.groups import Run, grouped, read_runs
from attnprobe.findings.judgement import Card, Findings
from attnprobe.findings.studies.base import StudyReading
from attnprobe.findings.table import decide, group_of
from attnprobe.findings.track_record import digest_of_record
from attnprobe.readings.registry import readings
from attnprobe.results.directory import FINDINGS
from attnprobe.results.files import DERIVED, is_derived, write_table
from attnprobe.results.fingerprint import fingerprint
from attnprobe.results.writer import OwnFolder

VERSION = 4
"""Raised with every change of the rules or of the columns; claims and track record are compared by
their content."""
OF = b"attnprobe.of"
"""Key of the file's metadata: what the table depends on, and a digest of its content."""


def kept_findings(
    runs: Sequence[Run],
    folder: Path | OwnFolder | None,
    studies: Sequence[StudyReading] = (),
    *,
    again: bool = False,
    tell: Callable[[str], None] = lambda _: None,
) -> Findings:
    """The findings on these runs: stored ones where they are of this version, else computed.

    Args:
        runs: what they are about.
        folder: where they are stored. They are in the folder afterwards, unless a file of the user
            is in their place. Findings beside the first run, or in a study's directory, are found
            as well.
        studies: as of `attnprobe.findings.table.findings`.
        again: decide anew, whatever is stored.
        tell: called with a line about every step.
    """
    target = None if folder is None else folder / FINDINGS
    identity = _identity(runs, studies)

    findings = None
    if not again:
        paths = [] if target is None else [target]
        paths += [study.directory / FINDINGS for study in studies]
        paths += [run.directory / FINDINGS for run in runs[:1]]
        findings = _stored(paths, identity)
    if findings is None:
        findings = decide(runs, studies, tell=tell)

    if target is not None and (not os.path.lexists(target) or is_derived(target)):
        table = pa.Table.from_pandas(findings.table(), preserve_index=False)
        metadata = {
            DERIVED: str(VERSION).encode(),
            OF: _seal(identity, table.to_pandas()),
        }
        write_table(table.replace_schema_metadata(metadata), target)
    return findings


def _stored(paths: Sequence[Path], identity: str) -> Findings | None:
    """The first sound table with this identity; those that are damaged are named."""
    for path in dict.fromkeys(paths):
        try:
            stored = pq.read_table(path, page_checksum_verification=True)
            table = stored.to_pandas()
            seal = (stored.schema.metadata or {}).get(OF, b"")
            if seal == _seal(identity, table):
                return Findings.of_table(table)
            is_damaged = seal.startswith(identity.encode())
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, pa.ArrowException, ValueError):
            is_damaged = True
        if is_damaged:
            print(
                f"attnprobe: {path} is damaged: what it said is decided anew from the tables",
                file=sys.stderr,
                flush=True,
            )
    return None


def card_of_run(run: Run) -> Card:
    """The card of one run.

    It is stored with the run, or computed (and not stored) where that is of another version.
    """
    (card,) = kept_findings([run], None).cards
    return card


def card_of_study(reading: StudyReading) -> Card:
    """The card of the model of one finished study.

    It has what the study found together with what its own runs' probes did.
    """
    runs = read_runs(reading.runs)
    group = group_of(reading, grouped(runs))
    assert group is not None  # the study is made of these runs
    return kept_findings(runs, reading.directory, [reading]).card_of(group.title)


def _seal(identity: str, table: pd.DataFrame) -> bytes:
    """What the table depends on, with a digest of its content: either change shows."""
    content = fingerprint([list(table), pd.util.hash_pandas_object(table).tolist()])
    return f"{identity} {content}".encode()


def _identity(runs: Sequence[Run], studies: Sequence[StudyReading]) -> str:
    """A digest of all that the table depends on.

    That is the claims, the track record, the runs' content, and what the studies found.
    """
    contents = [[run.run_id, run.manifest["files"], run.manifest.get("training")] for run in runs]
    run_ids = {run.directory.resolve(): run.run_id for run in runs}
    studied = [_identity_of_study(study, run_ids) for study in studies]
    return fingerprint([VERSION, list(_claims()), digest_of_record(), contents, studied])


def _claims() -> Iterator[dict[str, Any]]:
    """The claims of every reading, without their measures: functions cannot be compared."""
    for reading in readings().values():
        for claim in reading.claims:
            yield {name: value for name, value in vars(claim).items() if name != "measure"}


def _identity_of_study(study: StudyReading, run_ids: dict[Path, str]) -> list[Any]:
    """What a study found, and of which run.

    Args:
        study: the study.
        run_ids: the id of the run in each directory.
    """
    findings = [
        [finding.claim.name, finding.claim.smallest, asdict(finding.evidence)]
        for finding in study.findings
    ]
    examined = [run_ids.get(Path(run).resolve()) for run in study.runs[:1]]
    return [examined, findings]
