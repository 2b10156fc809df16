"""Commands of the command line, each in a process forked from one that has imported nothing heavy.

A process of its own for each would import Hydra, and compose the same choices of conf/, again."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from attnprobe.runs.launching import safe_path

HEAVY = ("torch", "lightning", "transformers")
SERVER = f"""
import json
import os
import sys

import attnprobe.__main__
from attnprobe.cli.main import main
from attnprobe.runs.composition import CONFIGURATION, composed
from hydra import initialize_config_dir
from tests.remembered import composing_once


def carry_out(words):
    os.chdir(words.pop(0))
    for stream, path in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(words.pop(0), os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
    sys.argv = ["attnprobe", *words]
    status = 0
    try:
        main(words)
    except SystemExit as ended:
        status = ended.code
    return {{"status": status, "heavy": [name for name in {HEAVY} if name in sys.modules]}}


def carry_out_apart(words):
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        ended = carry_out(words)
        os.write(writing, json.dumps(ended).encode())
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answers:
        print(answers.read(), flush=True)
    os.waitpid(child, 0)


with composing_once():
    with initialize_config_dir(config_dir=str(CONFIGURATION), version_base="1.3"):
        composed([])
        composed(["+experiment=audit", "data=files"])
    for line in sys.stdin:
        carry_out_apart(json.loads(line))
"""


class Ended(NamedTuple):
    """How a command ended.

    Attributes:
        status: of the process.
        stderr: what it said.
        heavy: those of `HEAVY` that it imported.
    """

    status: int
    stderr: str
    heavy: list[str]


class LightCommands:
    """A process that forks one for each command."""

    def __init__(self, process: subprocess.Popen[str], outputs: Path) -> None:
        self.process = process
        self.outputs = outputs

    def carry_out(self, words: Sequence[str], folder: Path) -> Ended:
        """Carry out `attnprobe` with these words in a folder."""
        streams = [str(self.outputs / name) for name in ("stdout", "stderr")]
        assert self.process.stdin
        assert self.process.stdout
        print(json.dumps([str(folder), *streams, *words]), file=self.process.stdin, flush=True)
        ended = json.loads(self.process.stdout.readline())
        stderr = (self.outputs / "stderr").read_text(encoding="utf-8")
        return Ended(ended["status"], stderr, ended["heavy"])


@contextmanager
def light_commands(outputs: Path) -> Iterator[LightCommands]:
    """Commands in processes that are forked, until the end of a `with` block.

    Args:
        outputs: folder of what the commands print.
    """
    command = [sys.executable, "-c", SERVER]
    environment = os.environ | safe_path()
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        yield LightCommands(process, outputs)
        assert process.stdin
        process.stdin.close()
