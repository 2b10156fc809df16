import hashlib
import os
import zipfile

import pytest

from attnprobe.cli.main import main
from attnprobe.core.errors import UserError
from attnprobe.report.archive import numbered_names
from attnprobe.results.files import write_text
from attnprobe.results.writer import LISTED, OwnFolder, own_target
from tests.invented_runs import invented_run

OURS = '<!doctype html><meta name="generator" content="attnprobe 1.0">'


@pytest.mark.parametrize("kind", ["file", "empty file", "link", "folder", "pipe"])
def test_what_is_not_ours_is_left_as_it_is(tmp_path, kind):
    path = tmp_path / "numbers.csv"
    behind = tmp_path / "elsewhere"
    behind.write_text(OURS, encoding="utf-8")
    {
        "file": lambda: path.write_text("notes about attnprobe", encoding="utf-8"),
        "empty file": path.touch,
        "link": lambda: path.symlink_to(behind),
        "folder": path.mkdir,
        "pipe": lambda: os.mkfifo(path),
    }[kind]()
    before = path.lstat()
    for write in (own_target, lambda path: OwnFolder(path.parent) / path.name):
        with pytest.raises(
            UserError, match=r"numbers\.csv is there and attnprobe did not write it: .*Move it away"
        ):
            write(path)
    assert path.lstat() == before
    assert behind.read_text(encoding="utf-8") == OURS


def test_what_is_ours_is_replaced_and_a_folder_knows_what_the_last_call_wrote(tmp_path):
    page = tmp_path / "page.html"
    write_text(OURS, own_target(page))
    assert own_target(page) == page
    for names in (["a.csv", "b.csv"], ["b.csv"]):
        folder = OwnFolder(tmp_path / "files")
        for name in names:
            write_text(name, folder / name)
        folder.close()
    again = OwnFolder(tmp_path / "files")
    assert (again.known, again.last) == ({"a.csv", "b.csv"}, ["b.csv"])
    (tmp_path / "link").symlink_to(tmp_path / "files")
    with pytest.raises(UserError, match="is no folder"):
        OwnFolder(tmp_path / "link")
    (tmp_path / "files" / LISTED).write_text("{}", encoding="utf-8")
    with pytest.raises(UserError):
        OwnFolder(tmp_path / "files")


def test_what_was_changed_since_the_list_was_closed_is_left_as_it_is(tmp_path):
    def written(name, text, *, closes=True):
        folder = OwnFolder(tmp_path / "files")
        write_text(text, folder / name)
        if closes:
            folder.close()

    written("a.tex", "first")
    written("b.tex", "second")
    written(
        "a.tex", "third", closes=False
    )  # killed: nobody knows whose it is, and the next call goes on
    written("a.tex", "fourth")
    (tmp_path / "files" / "a.tex").write_text("edited", encoding="utf-8")
    for name in ("a.tex", "b.tex"):
        with pytest.raises(
            UserError, match=r"a\.tex was changed since attnprobe wrote it: it was left as it is"
        ):
            written(name, "fifth")
    assert (tmp_path / "files" / "a.tex").read_text(encoding="utf-8") == "edited"
    (tmp_path / "files" / "a.tex").unlink()
    written("a.tex", "sixth")


def test_an_archive_of_a_run_whose_name_has_two_lines_can_be_checked(tmp_path, capsys):
    invented_run(tmp_path / "runs", probes=("performance",)).rename(tmp_path / "a\nb")
    main(
        [
            "report",
            str(tmp_path / "a\nb"),
            "-o",
            str(tmp_path / "p.html"),
            "--archive",
            str(tmp_path / "p.zip"),
        ]
    )
    with zipfile.ZipFile(tmp_path / "p.zip") as zipped:
        sums = dict(
            reversed(line.split("  ")) for line in zipped.read("SHA256SUMS").decode().splitlines()
        )
        assert all(
            hashlib.sha256(zipped.read(name)).hexdigest() == digest for name, digest in sums.items()
        )
        assert {"runs/a_b/manifest.json", "runs/a_b/config.yaml"} <= {*sums}
    names = numbered_names([tmp_path / "a\nb", tmp_path / "a\\b", tmp_path / "c"])
    assert list(names.values()) == ["1-a_b", "2-a_b", "c"]


def test_a_report_replaces_its_own_page_and_figures_and_no_other(tmp_path, capsys):
    run = invented_run(tmp_path, probes=("performance",))
    page = tmp_path / "page.html"
    archive = tmp_path / "kept.zip"
    for _ in range(2):
        main(["report", str(run), "-o", str(page), "--archive", str(archive)])
    assert capsys.readouterr().out.count("archive: ") == 2
    own = tmp_path / "page_files" / "mine.txt"
    for path, text in ((own, "mine"), (archive, "no archive"), (page, "no page")):
        path.write_text(text, encoding="utf-8")
    for arguments in (
        ["-o", str(page)],
        ["-o", str(tmp_path / "new.html"), "--archive", str(archive)],
    ):
        with pytest.raises(SystemExit) as ended:
            main(["report", str(run), *arguments])
        assert ended.value.code == 2
        assert "attnprobe did not write it" in capsys.readouterr().err
    assert [path.read_text(encoding="utf-8") for path in (own, archive, page)] == [
        "mine",
        "no archive",
        "no page",
    ]
