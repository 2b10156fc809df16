import subprocess
import sys

import pytest

from attnprobe.cli import main as command
from attnprobe.cli.completion import completion

ASKED = """
source "$1"; shift
complete -p attnprobe >/dev/null || exit 3
[[ $COMP_WORDBREAKS != *=* ]] || exit 4
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_shtab_attnprobe attnprobe "${@: -1}" "${@: -2:1}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("ex", {"explain"}),
        ("audit --mi", {"--minutes"}),
        ("run model=l", {"model=lstm"}),
        (
            "run +experiment=serrano_",
            {"+experiment=serrano_erasure", "+experiment=serrano_single_weight"},
        ),
        ("compare --f", {"--fail-if"}),
        ("run model=zz", {""}),
        ("zz", {""}),
    ],
)
def test_bash_completes_commands_options_and_settings(words, found, script, tmp_path):
    given = ["bash", "--norc", "-c", ASKED, "bash", script, "attnprobe", *words.split()]
    answer = subprocess.run(given, capture_output=True, text=True, cwd=tmp_path)
    assert (answer.returncode, set(answer.stdout.strip().split("\n"))) == (0, found), answer.stderr


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    path = tmp_path_factory.mktemp("completion") / "attnprobe.sh"
    asked = [
        sys.executable,
        "-c",
        "from attnprobe.cli.main import main; main()",
        "completion",
        "bash",
    ]
    path.write_text(subprocess.run(asked, capture_output=True, text=True, check=True).stdout)
    return str(path)


def test_zsh_has_its_own_and_another_shell_is_one_line(capsys):
    completion(["zsh"])
    assert "#compdef attnprobe" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        completion(["fish"])
    assert (ended.value.code, capsys.readouterr().err.count("\n")) == (2, 1)


def test_help_of_run_lists_the_settings_where_they_are_asked_for_and_comes_a_page_at_a_time(
    monkeypatch, capsys
):
    def whole():
        print(f"choices\n{command.EVERY_SETTING}\nseed: 0")
        raise SystemExit(0)

    command.show_help(whole, every_setting=False)
    out = capsys.readouterr().out
    assert ("choices" in out, "seed: 0" in out) == (True, False)
    shown = []
    monkeypatch.setattr(command, "pager", shown.append)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    command.show_help(whole, every_setting=True)
    assert shown[0].endswith("seed: 0\n")
