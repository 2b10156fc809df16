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
from pandas.testing import assert_frame_equal

from attnprobe.__main__ import carried_out
from attnprobe.cli.conditions import names_in
from attnprobe.cli.main import main
from attnprobe.evidence.verdicts import Verdict
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
from tests.invented_runs import without_pictures
from tests.small_runs import seal, small_run

TEXT = "a film that is not good"


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """A run with attention on the first word, taken to be no guesser, and what it printed."""
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as printed:
        patch.setattr(Group, "guessing", "")
        output = tmp_path_factory.mktemp("first")
        settings = ("model=average", "model/attention=first", "data.source.test_size=60")
        config = small_run(output, *settings, probes="[skill,permutation]")
        carried_out(config, [], sweep=False)
    (path,) = output.rglob(MANIFEST)
    return read_run(path.parent), printed.getvalue()


@pytest.fixture(scope="module")
def card(first):
    """What is decided about the run."""
    run, _ = first
    return stored.card_of_run(run)


@pytest.fixture(scope="module")
def page(first, tmp_path_factory):
    """The page about the run, without its figures."""
    run, _ = first
    with without_pictures():
        return write_report(run.directory, tmp_path_factory.mktemp("page") / "page.html")


def text_of(page):
    return unescape(page.read_text(encoding="utf-8").replace("\N{NO-BREAK SPACE}", " "))


def test_the_sentence_says_what_attention_is_that_was_not_learned(card):
    assert MECHANISMS["FirstAttention"] in card.sentence


def test_the_table_has_its_columns_and_each_claim_once(card):
    table = Findings((card,)).table()
    assert tuple(table.columns) == COLUMNS
    assert not table.loc[table["claim"] != "", "claim"].duplicated().any()


def test_a_table_that_is_read_back_is_what_was_decided(card):
    table = Findings((card,)).table()
    findings = Findings.of_table(table)
    assert_frame_equal(findings.table(), table)
    assert [type(line.verdict) for line in findings.judgements] == [Verdict] * len(table)


def test_a_run_prints_its_answer(first, card):
    _, printed = first
    assert f"answer {card.summary.words}" in " ".join(printed.split())


def test_explain_says_the_same_sentence(first, card, capsys):
    run, _ = first
    main(["explain", str(run.directory), TEXT])
    assert f"what the tests say: {card.summary.words}" in " ".join(capsys.readouterr().out.split())


def test_a_notebook_says_the_same_sentence(first, card):
    run, _ = first
    explanation = load_run(run.directory).explain([TEXT])
    assert card.summary.words in unescape(explanation._repr_html_())


def test_compare_says_the_same_sentence(first, card, capsys):
    run, _ = first
    assert compare_runs(run, run).sentences == (card.summary.words, card.summary.words)
    main(["compare", str(run.directory), str(run.directory)])
    assert f"B: {card.summary.words}" in " ".join(capsys.readouterr().out.split())


def test_the_page_begins_with_the_same_sentence(page, card):
    line = re.search(r'(?s)<p class="verdict-line">(.*?)</p>', text_of(page))[1]
    assert re.findall(r">([^<>\s][^<>]*)<", line) == [card.chip, card.sentence]


@pytest.fixture(scope="module")
def tested(card):
    """The lines that were tested, by name."""
    lines = {name: line for name, line in card.named_lines().items() if line.is_tested}
    assert {"erasure.state", "erasure.word", "exclusivity"} & set(lines)
    return lines


def test_the_pages_badges_are_the_answers(page, tested):
    heads = (
        r'(?s)<summary>\s*<span class="badge (\w+)(?:(?!<summary>).)*?'
        r'<h4>(\w+)(?: <span class="level">of (\w+)s</span>)?:'
    )
    badges = {}
    for answer, criterion, level in re.findall(heads, text_of(page)):
        badges[criterion.lower(), level or "model"] = answer
    for line in tested.values():
        assert badges[line.place] == line.answer


def test_the_pages_table_has_the_verdicts(page, tested):
    path = page.with_name("page_files") / "verdicts.csv"
    verdicts = pd.read_csv(path).set_index(["criterion", "level"])["verdict"]
    for line in tested.values():
        assert verdicts[line.place] == line.verdict


def test_conditions_know_the_verdicts_and_numbers_by_name(first, card, tested):
    run, _ = first
    numbers, verdicts = names_in(run, card)
    for name, line in tested.items():
        assert verdicts[name] == line.verdict
        assert numbers[name] == line.value


def test_compare_shows_the_answers_and_numbers(first, tested, capsys):
    run, _ = first
    main(["compare", str(run.directory), str(run.directory)])
    printed = " ".join(capsys.readouterr().out.split())
    compared = compare_runs(run, run).verdicts.set_index("criterion")
    for name, line in tested.items():
        assert compared.loc[name, "first"] == line.answer
        assert compared.loc[name, "second_value"] == line.value
        assert f"{line.answer} {line.value:.3f}" in printed


def test_a_tracker_gets_the_verdicts(first, card, tested):
    run, _ = first
    summary = summary_of(compare(run.numbers), card, run.quality, [])
    for line in tested.values():
        assert summary[f"verdict/{line.criterion}/{line.level}"] == line.verdict


@pytest.fixture
def runs(make_run):
    """Two seeds of one model."""
    return [read_run(make_run(f"run{seed}", seed=seed)) for seed in range(2)]


@pytest.fixture
def decisions(monkeypatch):
    """How often anything was decided, as a list that grows."""
    decide = stored.decide
    computed = []

    def counted(runs, *arguments, **settings):
        computed.append(runs)
        return decide(runs, *arguments, **settings)

    monkeypatch.setattr(stored, "decide", counted)
    return computed


@pytest.fixture
def times(decisions, tmp_path):
    """How often these findings are decided when they are asked for; they are right in any case."""

    def count(runs, folder=tmp_path / "stored", **settings):
        before = len(decisions)
        kept = stored.kept_findings(runs, folder, **settings).table()
        assert_frame_equal(kept, findings(runs), check_dtype=False)
        return len(decisions) - before

    return count


def test_stored_findings_are_used(runs, times):
    assert times(runs) == 1
    assert times(runs) == 0


def test_stored_findings_are_decided_anew_where_that_is_asked_for(runs, times):
    assert times(runs) == 1
    assert times(runs, again=True) == 1
    assert times(runs) == 0


def test_findings_on_other_runs_are_decided_anew(runs, times):
    assert times(runs) == 1
    assert times(runs[:1]) == 1
    assert times(runs) == 1


def test_findings_of_another_version_are_decided_anew(runs, times, tmp_path, monkeypatch):
    assert times(runs) == 1
    assert pq.read_schema(tmp_path / "stored" / FINDINGS).metadata[DERIVED] == b"4"
    monkeypatch.setattr(stored, "VERSION", 5)
    assert times(runs) == 1
    assert times(runs) == 0


def test_findings_on_a_run_that_was_changed_are_decided_anew(runs, times):
    assert times(runs) == 1
    first, second = runs
    seal(first.directory, **first.manifest | {"training": {"epochs": 9}})
    assert times([read_run(first.directory), second]) == 1


def test_findings_that_were_tampered_with_are_decided_anew(runs, times, tmp_path):
    assert times(runs) == 1
    path = tmp_path / "stored" / FINDINGS
    content = pq.read_table(path)
    forged = content.set_column(0, "data", pa.array(["another"] * len(content)))
    pq.write_table(forged, path)
    assert times(runs) == 1


def test_a_file_of_the_users_is_left_as_it_is(runs, times, tmp_path):
    assert times(runs) == 1
    path = tmp_path / "stored" / FINDINGS
    path.write_bytes(b"of the user's")
    assert times(runs) == 1
    assert path.read_bytes() == b"of the user's"


def test_findings_beside_a_single_run_are_used(runs, times, tmp_path):
    run = runs[1]
    stored.kept_findings([run], run.directory)
    assert times([run], tmp_path / "elsewhere") == 0


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


def test_seeds_are_one_group_and_another_model_is_another(make_run, tmp_path):
    make_run("a0", seed=0)
    make_run("a1", seed=1)
    make_run("b", model="cnn_additive")
    groups = findings(tmp_path)["group"].unique().tolist()
    assert groups == ["sst · cnn_additive", "sst · lstm_additive"]


def test_runs_that_were_read_and_their_places_have_the_same_findings(make_run, tmp_path):
    make_run("a")
    assert_frame_equal(findings(read_runs(tmp_path)), findings(tmp_path))
