import subprocess
import sys
from contextlib import redirect_stdout

import pytest

from attnprobe.cli import main as cli
from attnprobe.cli.completion import completion

COMPLETE = """
source "$1"; shift
complete -p attnprobe >/dev/null || exit 3
[[ $COMP_WORDBREAKS != *=* ]] || exit 4
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_shtab_attnprobe attnprobe "${@: -1}" "${@: -2:1}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.mark.parametrize(
    ("words", "completions"),
    [
        ("ex", {"explain"}),
        ("audit --mi", {"--minutes"}),
        ("run model=ls", {"model=lstm"}),
        (
            "run +experiment=serrano_",
            {"+experiment=serrano_erasure", "+experiment=serrano_single_weight"},
        ),
        ("compare --f", {"--fail-if"}),
        ("run model=zz", {""}),
        ("zz", {""}),
    ],
)
def test_bash_completes_commands_options_and_settings(words, completions, script, tmp_path):
    command = ["bash", "--norc", "-c", COMPLETE, "bash", script, "attnprobe", *words.split()]
    bash = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert bash.returncode == 0, bash.stderr
    assert set(bash.stdout.strip().split("\n")) == completions


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    """What `attnprobe completion bash` prints, as a file that a shell can read."""
    path = tmp_path_factory.mktemp("completion") / "attnprobe.sh"
    with path.open("w") as file, redirect_stdout(file):
        cli.main(["completion", "bash"])
    return str(path)


def test_zsh_has_a_script_of_its_own(capsys):
    completion(["zsh"])
    assert "#compdef attnprobe" in capsys.readouterr().out


def test_another_shell_is_one_line(capsys):
    with pytest.raises(SystemExit) as ended:
        completion(["fish"])
    assert ended.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


def print_help():
    """Print help of two parts and exit, as Hydra does."""
    print(f"choices\n{cli.EVERY_SETTING}\nseed: 0")
    raise SystemExit(0)


def test_help_of_run_leaves_the_settings_out(capsys):
    cli.show_help(print_help, every_setting=False)
    page = capsys.readouterr().out
    assert "choices" in page
    assert "seed: 0" not in page


def test_help_of_run_comes_a_page_at_a_time_in_a_terminal(monkeypatch):
    pages = []
    monkeypatch.setattr(cli, "pager", pages.append)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    cli.show_help(print_help, every_setting=True)
    assert pages[0].endswith("seed: 0\n")
