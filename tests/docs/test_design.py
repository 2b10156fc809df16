import doctest
import importlib
import re
import shlex
from pathlib import Path

import pytest

from attnprobe.runs.run import run
from tests.small_runs import composed
from tests.walk import WALKS, Walk, files_on

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "design.md"
TEXT = PAGE.read_text(encoding="utf-8")
NAMED_PLACES = sorted(set(re.findall(r"`([\w/]+(?:\.py|/))`", TEXT)))
CARRIERS = [carrier for walk in WALKS for carrier in walk.carriers]


def test_the_text_goes_through_the_house(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    [command] = re.findall(r"^```bash\n(.*?)^```", TEXT, re.M | re.S)
    words = shlex.split(command.replace("\\\n", " "))
    program = words[:3]
    overrides = words[3:]
    assert program == ["python", "-m", "attnprobe"]
    run(composed(*overrides, "figures=false"))
    done = doctest.testfile(str(PAGE), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert done.attempted > 20
    assert not done.failed, capsys.readouterr().out


def test_it_stays_two_pages():
    assert len(TEXT.split()) < 1200


@pytest.mark.parametrize("place", NAMED_PLACES)
def test_a_file_or_room_that_the_page_names_is_there(place):
    assert (ROOT / place).exists() or (ROOT / "attnprobe" / place).exists()


@pytest.mark.parametrize("carrier", CARRIERS)
def test_a_type_on_the_way_exists_and_is_explained_on_the_page(carrier):
    module, _, name = carrier.rpartition(".")
    assert getattr(importlib.import_module(module), name).__module__ == module
    assert f"`{name}`" in TEXT or f"`{name}`s" in TEXT


def test_a_file_is_on_the_way_where_it_defines_or_imports_the_type(tmp_path):
    package = tmp_path / "house"
    sources = {
        "home.py": "class Letter: ...",
        "renamed.py": "from house.home import Letter as Post",
        "by_module.py": "from house import home\ndef open(letter: home.Letter): ...",
        "whole_name.py": "import house.home\nx = house.home.Letter()",
        "same_name.py": "from elsewhere import Letter",
        "attribute_only.py": "def open(letter): return letter.stamp",
        "module_only.py": "from house import home\nhome.other()",
    }
    package.mkdir()
    for name, source in sources.items():
        (package / name).write_text(source)

    [paths] = files_on(Walk("a letter", ("house.home.Letter",)), package).values()

    names = {path.name for path in paths}
    assert names == {"home.py", "renamed.py", "by_module.py", "whole_name.py"}
