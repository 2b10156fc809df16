import doctest
import re
import shlex
from pathlib import Path

from attnprobe.runs.run import run
from tests.small_runs import composed

PAGE = Path(__file__).parents[2] / "docs" / "design.md"


def test_the_text_goes_through_the_house(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    [command] = re.findall(r"^```bash\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    words = shlex.split(command.replace("\\\n", " "))
    program = words[:3]
    overrides = words[3:]
    assert program == ["python", "-m", "attnprobe"]
    run(composed(*overrides, "figures=false"))
    done = doctest.testfile(str(PAGE), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert done.attempted > 20
    assert not done.failed, capsys.readouterr().out
    # and it stays two pages
    assert len(PAGE.read_text(encoding="utf-8").split()) < 1200
