"""Evidence to keep: page, tables, and what says how they came about, in one zip with checksums."""

import hashlib
import zipfile
from pathlib import Path

from attnprobe.core.errors import UserError
from attnprobe.findings.studies.base import STUDY
from attnprobe.results.directory import (
    CONFIG,
    MANIFEST,
    Places,
    RunDirectory,
    directories_with,
    find_runs,
    is_run_name,
)
from attnprobe.results.files import UNSIGNED
from attnprobe.results.writer import OwnFolder, own_target, write_signed

EPOCH = (1980, 1, 1, 0, 0, 0)
"""The time of every entry: the same evidence gives the same bytes."""
README = """Evidence of an audit by attnprobe {version}.

report.html          the page: open it in a browser; it needs no network
report_files/        its figures (PDF) and tables (CSV, LaTeX)
runs/, studies/      settings, manifest (versions, counts, checksums of every file of the run)
                     and tables of each run; the tables are parquet files, read by
                     attnprobe.read_results
SHA256SUMS           sha256sum --check SHA256SUMS finds out whether anything was changed since
"""


def write_archive(places: Places, page: Path, archive: Path) -> Path:
    """Put a report and what it was made of into one zip.

    Texts of examples are in it only as far as the page shows them.

    Args:
        places: of the report's runs.
        page: the report.
        archive: the zip.

    Returns:
        Its path.

    Raises:
        UserError: no finished run at these places, or no archive may be written there
            (`archive_target`).
    """
    from attnprobe import __version__

    entries = {"report.html": page}  # name in the archive → file
    folder = OwnFolder(page.with_name(f"{page.stem}_files"))
    entries |= {f"report_files/{name}": folder.path / name for name in folder.last}
    for directory, name in numbered_names(find_runs(places)).items():
        run = RunDirectory(directory)
        for file in filter(is_run_name, run.manifest()["files"]):
            if file == CONFIG or file.startswith("tables/"):
                entries[f"runs/{name}/{file}"] = run.file(file)
        entries[f"runs/{name}/{MANIFEST}"] = run / MANIFEST
    studies = numbered_names(directories_with(STUDY, places))
    entries |= {f"studies/{name}/{STUDY}": directory / STUDY for directory, name in studies.items()}
    digests = {
        name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in entries.items()
    }
    texts = {
        "README.txt": README.format(version=__version__),
        "SHA256SUMS": "".join(f"{digest}  {name}\n" for name, digest in sorted(digests.items())),
    }

    def write(path: Path) -> None:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as zipped:
            zipped.comment = UNSIGNED
            for name, text in texts.items():
                zipped.writestr(zipfile.ZipInfo(name, EPOCH), text, zipfile.ZIP_DEFLATED)
            for name, file in sorted(entries.items()):
                content = file.read_bytes()
                zipped.writestr(zipfile.ZipInfo(name, EPOCH), content, zipfile.ZIP_DEFLATED)

    write_signed(archive_target(archive), write)
    return archive


def archive_target(archive: Path) -> Path:
    """Where an archive is to be written.

    Raises:
        UserError: if its name does not end in .zip, or a file is there that attnprobe did not
            write.
    """
    if archive.suffix.lower() != ".zip":
        raise UserError(
            f"--archive={archive}: expected a name that ends in .zip, "
            f"for example --archive evidence.zip"
        )
    return own_target(archive)


def numbered_names(directories: list[Path]) -> dict[Path, str]:
    """Each directory's own name, with a number before it where several share one.

    What is not printed stands as _.
    """
    names = [_printable(directory.name) for directory in directories]
    numbered = {}
    for place, (directory, name) in enumerate(zip(directories, names, strict=True), start=1):
        numbered[directory] = name if names.count(name) == 1 else f"{place}-{name}"
    return numbered


def _printable(name: str) -> str:
    characters = []
    for character in name:
        is_plain = character.isprintable() and character != "\\"
        characters.append(character if is_plain else "_")
    return "".join(characters)
