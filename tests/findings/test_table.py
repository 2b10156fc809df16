"""One table decides, and everything shows it: the same verdict and first sentence everywhere,
stored and found again."""

import io
import re
from contextlib import redirect_stdout
from dataclasses import replace
from html import unescape

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from attnprobe.__main__ import carried_out
from attnprobe.cli.conditions import names_in
from attnprobe.cli.main import main
from attnprobe.findings import findings, stored
from attnprobe.findings.changes import compare_runs
from attnprobe.findings.groups import Group, read_run, read_runs
from attnprobe.findings.headlines import compare
from attnprobe.findings.judgement import COLUMNS, Findings
from attnprobe.findings.mechanisms import MECHANISMS
from attnprobe.report.page.build import write_report
from attnprobe.report.tracking import summary_of
from attnprobe.results.directory import FINDINGS, MANIFEST
from attnprobe.results.files import DERIVED
from attnprobe.runs.load import load_run
from tests.small_runs import seal, small_run

TEXT = "a film that is not good"


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """A run whose attention was put on the first word, taken to be no guesser, and what it
    printed."""
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as printed:
        patch.setattr(Group, "guessing", "")
        output = tmp_path_factory.mktemp("first")
        settings = ("model=average", "model/attention=first", "data.source.test_size=60")
        config = small_run(output, *settings, probes="[skill,permutation]")
        carried_out(config, [], sweep=False)
    (path,) = output.rglob(MANIFEST)
    return read_run(path.parent), printed.getvalue()


def test_everything_says_the_same_first_sentence_and_verdicts(first, tmp_path, capsys, no_pictures):
    run, printed = first
    card = stored.card_of_run(run)
    found = Findings((card,)).table()
    sentence = f"{card.chip}. {card.sentence}"
    assert MECHANISMS["FirstAttention"] in sentence
    assert card.sentence in " ".join(printed.split())
    assert tuple(found.columns) == COLUMNS
    assert not found.loc[found["claim"] != "", "claim"].duplicated().any()
    assert f"{card.group}: {card.chip}\n" in printed
    main(["explain", str(run.directory), TEXT])
    assert f"what the tests say: {sentence}\n" in capsys.readouterr().out
    assert sentence in unescape(load_run(run.directory).explain([TEXT])._repr_html_())
    assert compare_runs(run, run).sentences == (sentence, sentence)
    main(["compare", str(run.directory), str(run.directory)])
    shown = capsys.readouterr().out
    assert f"B: {sentence}\n" in shown
    page = write_report(run.directory, tmp_path / "page.html")
    text = unescape(page.read_text(encoding="utf-8").replace("\N{NO-BREAK SPACE}", " "))
    line = re.search(r'<p class="verdict-line">(.*?)</p>', text)[1]
    assert re.findall(r">([^<> ][^<>]*)<", line) == [card.chip, card.sentence]

    tested = {name: line for name, line in card.named_lines().items() if line.is_tested}
    assert {"erasure.state", "erasure.word", "exclusivity"} & set(tested)
    numbers, verdicts = names_in(run, card)
    csv = pd.read_csv(tmp_path / "page_files" / "verdicts.csv").set_index(["criterion", "level"])
    sent = summary_of(compare(run.numbers), card, run.quality, [])
    compared = compare_runs(run, run).verdicts.set_index("criterion")
    heads = r'<summary><span class="badge (\w+)[^\n]*\n<h4>(\w+)(?: <span class="level">of (\w+)s</span>)?:'
    badges = {
        (of.lower(), level or "model"): answer for answer, of, level in re.findall(heads, text)
    }
    for name, line in tested.items():
        assert badges[line.place] == line.answer
        assert verdicts[name] == line.verdict
        assert compared.loc[name, "first"] == line.answer
        assert numbers[name] == compared.loc[name, "second_value"] == line.value
        assert csv.loc[line.place, "verdict"] == line.verdict
        assert sent[f"verdict/{line.criterion}/{line.level}"] == line.verdict
        assert f"{line.answer} {line.value:.3f}" in " ".join(shown.split())


def test_a_stored_table_is_used_until_version_runs_or_claims_change(
    make_run, tmp_path, monkeypatch
):
    runs = [read_run(make_run(f"run{seed}", seed=seed)) for seed in range(2)]
    computed = []
    real = stored.decide
    monkeypatch.setattr(
        stored, "decide", lambda *given, **named: computed.append(given) or real(*given, **named)
    )

    def times(some, folder=tmp_path / "here", **settings):
        before = len(computed)
        kept = stored.kept_findings(some, folder, **settings)
        pd.testing.assert_frame_equal(kept.table(), real(some).table(), check_dtype=False)
        return len(computed) - before

    assert [times(runs), times(runs), times(runs, again=True), times(runs)] == [1, 0, 1, 0]
    assert [times(runs[:1]), times(runs)] == [1, 1]  # of other runs
    assert pq.read_schema(tmp_path / "here" / FINDINGS).metadata[DERIVED] == b"2"
    monkeypatch.setattr(stored, "VERSION", 3)
    assert [times(runs), times(runs)] == [1, 0]
    seal(runs[0].directory, **runs[0].manifest | {"training": {"epochs": 9}})
    assert times([read_run(runs[0].directory), runs[1]]) == 1
    file = tmp_path / "here" / FINDINGS
    content = pq.read_table(file)
    pq.write_table(content.set_column(0, "data", pa.array(["another"] * len(content))), file)
    assert times(runs) == 1
    file.write_bytes(b"of the user's")
    assert times(runs) == 1
    assert file.read_bytes() == b"of the user's"
    # beside a single run it is found as well
    stored.kept_findings(runs[1:], runs[1].directory)
    assert times(runs[1:], tmp_path / "elsewhere") == 0


def test_report_again_decides_anew(make_run, tmp_path, monkeypatch, no_pictures):
    run = make_run()
    page = tmp_path / "page.html"
    real = stored.decide

    def decide(runs, studies, *, tell):
        decided = real(runs, studies, tell=tell)
        cards = [replace(card, sentence="What nobody decided.") for card in decided.cards]
        return replace(decided, cards=tuple(cards))

    with monkeypatch.context() as patched:
        patched.setattr(stored, "decide", decide)
        main(["report", str(run), "-o", str(page)])
    main(["report", str(run), "-o", str(page)])
    assert "What nobody decided." in page.read_text(encoding="utf-8")
    main(["report", str(run), "-o", str(page), "--again"])
    assert "What nobody decided." not in page.read_text(encoding="utf-8")


def test_seeds_are_one_group_and_settings_are_another(make_run, tmp_path):
    for name, settings in {
        "a0": {"seed": 0},
        "a1": {"seed": 1},
        "b": {"model": "cnn_additive"},
    }.items():
        make_run(name, **settings)
    found = findings(read_runs(tmp_path))
    assert found["group"].unique().tolist() == ["sst · cnn_additive", "sst · lstm_additive"]
    pd.testing.assert_frame_equal(found, findings(tmp_path))
