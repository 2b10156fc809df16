"""docs/extending.md as files and commands, which are carried out in a folder of their own."""

import re
import shlex
from pathlib import Path

from hydra import initialize_config_dir

from attnprobe.__main__ import CONFIGURATION
from attnprobe.data.testbed import generate_reviews
from attnprobe.runs import composition as configuration
from attnprobe.runs.run import run
from tests.small_runs import SMALL

PAGE = (Path(__file__).parents[2] / "docs" / "extending.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r'^```\w+ title="(\S+)"\n(.*?)^```$', PAGE, re.M | re.S))
COMMANDS = re.findall(r"^```bash\n(.*?)^```$", PAGE, re.M | re.S)
FOREIGN = ("attnprobe_extra",)
ANY_DATA = tuple(setting for setting in SMALL if not setting.startswith("data.source."))


def reviews():
    return enumerate(generate_reviews(150, seed=0))


def composed(overrides):
    with initialize_config_dir(config_dir=str(CONFIGURATION), version_base="1.3"):
        return configuration.composed(["hydra.searchpath=[file://conf]", *overrides])


def command(part):
    """Settings of the one command of the page that has this part."""
    (line,) = [line for line in COMMANDS if part in line]
    program, option, folder, *overrides = shlex.split(line.removeprefix("python -m "))
    assert (program, option, folder) == ("attnprobe", "--config-dir", "conf")
    return overrides


def carried_out(mine, part, settings=SMALL):
    return run(composed([*settings, *command(part), f"output={mine / 'runs'}"]))
