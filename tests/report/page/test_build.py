import html
import itertools
import json
import re
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest
from matplotlib.figure import Figure
from pandas.testing import assert_frame_equal

from attnprobe.evidence.claims import CRITERIA, Claim, Finding, put_to_test
from attnprobe.evidence.evidence import Evidence
from attnprobe.findings.headlines import compare, headline
from attnprobe.findings.lines import LINES
from attnprobe.findings.quality import quality_of
from attnprobe.findings.studies.base import StudyFigure, StudyReading
from attnprobe.readings.registry import readings
from attnprobe.report.__main__ import main
from attnprobe.report.figures import draw_figures
from attnprobe.report.page import build
from attnprobe.report.studies.drawing import draw
from attnprobe.results.directory import RunDirectory
from attnprobe.results.numbers import read_numbers
from attnprobe.results.table import read_results
from attnprobe.results.writer import OwnRunDirectory
from attnprobe.runs.run import run
from tests.invented_runs import invented_run
from tests.report.page.conftest import EVERYTHING
from tests.small_runs import SMALL_ADVERSARY, seal, small_run

HOSTILE = "</script><script>alert(1)</script>"


class Page(HTMLParser):
    def __init__(self, path: Path):
        super().__init__()
        self.elements: list[tuple[str, dict]] = []
        self.headings: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_data(self, data):
        if self.elements and self.elements[-1][0] in ("h1", "h2", "h3"):
            self.headings.append(data.strip())

    def all(self, *tags):
        return [attributes for name, attributes in self.elements if name in tags]


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> Path:
    base = tmp_path_factory.mktemp("three")
    invented_run(base, "a", probes=EVERYTHING, count=20)
    invented_run(base, "b", probes=EVERYTHING, seed=1, count=20)
    invented_run(base, "c", model="cnn_additive", count=20)
    return build.write_report(base, base / "out" / "report.html")


@pytest.fixture(scope="module")
def page(report) -> Page:
    return Page(report)


def test_the_page_fetches_nothing(page):
    sources = [a.get("src", "data:") for a in page.all("script", "img")]
    assert page.all("link", "iframe") == []
    assert [source for source in sources if not source.startswith("data:")] == []
    policy = next(
        a["content"] for a in page.all("meta") if a.get("http-equiv") == "Content-Security-Policy"
    )
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_ids_are_unique_and_what_refers_to_them_finds_them(page):
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))

    references = set()
    for link in page.all("a"):
        if link["href"].startswith("#"):
            references.add(link["href"].removeprefix("#"))
    for _, attributes in page.elements:
        for reference in ("aria-labelledby", "for"):
            if reference in attributes:
                references.add(attributes[reference])
    assert references <= set(ids)


@pytest.mark.parametrize("landmark", ["main", "nav", "header", "footer"])
def test_a_screen_reader_finds_landmarks(page, landmark):
    assert page.all(landmark)


def test_headings_begin_at_the_first_level_and_leave_none_out(page):
    headings = [name for name, _ in page.elements if name in ("h1", "h2", "h3", "h4")]
    levels = [int(name[1]) for name in headings]
    assert levels[0] == 1
    for level, following in itertools.pairwise(levels):
        assert following <= level + 1


def test_tables_have_captions_and_pictures_alternatives(page):
    assert len(page.all("table")) == len(page.all("caption"))
    assert all(image["alt"] for image in page.all("img"))


def test_the_files_beside_the_page_are_linked_and_there(page, report):
    targets = [anchor["href"] for anchor in page.all("a")]
    links = [target for target in targets if not target.startswith("#")]
    files = [report.parent / link for link in links]
    assert {file.suffix for file in files} == {".pdf", ".csv", ".tex"}
    assert all(file.is_file() for file in files)
    headlines = pd.read_csv(report.parent / "report_files/headlines.csv")
    assert set(headlines["model"]) == {"lstm_additive", "cnn_additive"}


def test_every_test_has_its_title(page):
    titles = {readings()[probe].title for probe in EVERYTHING if readings()[probe].headlines}
    assert titles <= set(page.headings)


@pytest.mark.parametrize("criterion", CRITERIA)
def test_every_criterion_has_its_lines(report, criterion):
    levels = sum(place[0] == criterion for place in LINES)
    heads = re.findall(rf"<h4>{criterion.capitalize()}\b", report.read_text(encoding="utf-8"))
    assert len(heads) == 2 * levels  # two groups


@pytest.fixture(scope="module")
def small_directory(tmp_path_factory) -> Path:
    """A real run of the probes that have claims, small."""
    overrides = (*SMALL_ADVERSARY, "probe.erasure.wins=false")
    probes = "[permutation,adversarial,gradient,leave_one_out,correlation,single_weight,erasure]"
    return run(small_run(tmp_path_factory.mktemp("runs"), *overrides, probes=probes))


def test_a_run_draws_the_figures_that_are_drawn_of_it_later(tmp_path):
    """Without its repeated texts: so they may be taken for these."""
    overrides = (*SMALL_ADVERSARY, "figures=true")
    directory = run(small_run(tmp_path, *overrides, probes="[adversarial]"))
    later = draw_figures(directory, tmp_path / "later")
    assert {path.name: path.read_bytes() for path in later} == {
        path.name: path.read_bytes() for path in (directory / "figures").iterdir()
    }
    assert "adversarial_heatmaps.png" in {path.name for path in later}


def test_headlines_name_every_metric_that_they_need(small_directory):
    whole = read_results(small_directory)
    numbers = read_numbers(small_directory)
    assert_frame_equal(compare(whole), compare(numbers))
    assert headline(whole) == headline(numbers)


@pytest.mark.parametrize("probe", sorted(readings()))
def test_claims_and_tables_name_every_metric_that_they_need(small_directory, probe):
    reading = readings()[probe]
    whole = read_results(small_directory)
    numbers = read_numbers(small_directory)
    expected = put_to_test(reading.claims, whole[whole["probe"] == reading.probe])
    findings = []
    for claim in reading.claims:
        findings += put_to_test((claim,), numbers.rows(reading.probe, claim.metrics))
    # as words: NaN is not itself
    assert [str(finding.evidence) for finding in expected] == [
        str(finding.evidence) for finding in findings
    ]
    for table in reading.tables:
        assert_frame_equal(
            table.build(whole), table.build(numbers.rows(reading.probe, table.metrics))
        )


@pytest.mark.usefixtures("no_pictures")
def test_a_real_runs_page_begins_with_answer_model_data_quality_and_warnings(
    small_directory, tmp_path
):
    """And all checks of the data are below."""
    path = build.write_report(small_directory, tmp_path / "report.html")
    section_ids = {a.get("id") for a in Page(path).all("section")}
    probes = ("permutation", "adversarial", "erasure", "correlation")
    assert {f"test-{probe}" for probe in probes} <= section_ids
    first, below = (
        " ".join(html.unescape(re.sub(r"<[^>]+>", " ", section)).split())
        for section in re.findall(
            r'<section id="(?:sheet|data)".*?</section>', path.read_text(encoding="utf-8"), re.S
        )
    )
    manifest = RunDirectory(small_directory).manifest()
    assert "LSTM, a recurrent model, with additive attention" in first
    assert f"weights sha256 {manifest['files']['model.safetensors']['sha256'][:12]}." in first
    assert "190 of 190 rows used, 30 of them to test. 2 classes: negative, positive." in first
    assert f"Tested on {manifest['finished'][:10]}." in first
    assert quality_of(small_directory).in_short() in first.replace("\N{NO-BREAK SPACE}%", " %")
    checks = manifest["data_section"]["checks"]
    assert all((check["name"] in first) >= check["warns"] for check in checks)
    assert all(check["sentence"] in below for check in checks)


def test_hostile_words_stay_words(make_run, tmp_path):
    run_ = make_run(
        "a",
        count=20,
        words=[HOSTILE, "&amp;", "\"'"],
        names=[HOSTILE, "<b>\x1b[31m"],
        data="<i>x",
        model="a&b",
    )
    path = build.write_report(run_, tmp_path / "report.html", title="<img src=x onerror=alert(1)>")
    page = Page(path)
    assert "i" not in {name for name, _ in page.elements}
    assert all("onerror" not in a for _, a in page.elements)
    text = path.read_text(encoding="utf-8")
    assert text.count("<script") == text.count("</script>") == len(page.all("script"))
    index = json.loads(re.search(r'id="browser-index">(.*?)</script>', text, re.S)[1])
    assert index["runs"][0]["classes"] == [HOSTILE, "<b>\x1b[31m"]
    assert "\x1b" not in text
    assert r"\x1b[31m" in text


def test_no_text_leaves_every_word_out(make_run, tmp_path, capsys):
    run_ = make_run("a", words=["sesame"], probes=EVERYTHING)
    main([str(run_), "-o", str(tmp_path / "report.html"), "--no-text", "--title", "Quiet"])
    assert "report: " in capsys.readouterr().out
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<h1>Quiet</h1>" in text
    assert "sesame" not in text
    assert not [path for path in (tmp_path / "report_files").iterdir() if "heatmaps" in path.name]


@pytest.mark.usefixtures("no_pictures")
@pytest.mark.parametrize(
    ("is_trained", "state"),
    [(False, "has not been trained"), (True, "is trained, and not examined")],
)
def test_a_run_that_was_killed_is_named_and_left_out(make_run, tmp_path, capsys, is_trained, state):
    make_run("whole", probes=EVERYTHING)
    killed = OwnRunDirectory(tmp_path / "killed")
    killed.mark()
    if is_trained:
        killed.place("config.yaml").write_text("a: 1\n")
        killed.finish_training({})
    message = f"{killed.path} {state}: its command, given again, finishes it"
    main([str(tmp_path), "-o", str(tmp_path / "report.html")])
    assert f"attnprobe: left out: {message}" in capsys.readouterr().err
    assert message in (tmp_path / "report.html").read_text(encoding="utf-8")
    with pytest.raises(SystemExit, match="2"):
        main([str(killed.path), "-o", str(tmp_path / "other.html")])
    assert f"no finished run at {killed.path}: {message}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no finished run at nowhere: nowhere does not exist"),
        (["-o", "page.pdf"], "--output=page.pdf: expected a name that ends in .html"),
        (["--megabytes", "0"], "--megabytes=0: expected a number above 0"),
    ],
)
def test_a_mistake_ends_with_one_message_and_status_2(
    capsys, tmp_path, monkeypatch, arguments, message
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="2"):
        main(["nowhere", *arguments])
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_is_not_there_is_refused_beside_one_that_is(make_run, tmp_path, capsys):
    page = tmp_path / "report.html"
    directory = make_run("whole")
    missing = f"{tmp_path}/no/*"
    with pytest.raises(SystemExit, match="2"):
        main([str(directory), missing, "-o", str(page)])
    error = capsys.readouterr().err
    assert f"no finished run at {missing}: {missing} does not exist" in error
    assert not page.exists()


def test_a_page_that_cannot_be_written_is_answered_by_the_commands_own_option(make_run, capsys):
    with pytest.raises(SystemExit, match="2"):
        main([str(make_run("whole")), "-o", "/proc/page.html"])
    error = capsys.readouterr().err
    assert "cannot write to /proc/page_files" in error
    assert "Choose a writable place with --output FILE.html" in error


@dataclass(frozen=True)
class Plotted(StudyFigure):
    figure: Figure


@draw.register
def draw_plotted(figure: Plotted) -> Figure:
    return figure.figure


def study_of(place, claim, run_dir, value, **parts):
    claim = Claim(
        "needed",
        "necessity",
        claim,
        "Somebody 2019",
        lambda _: None,
        "lost",
        speaks="for",
        primary=True,
    )
    finding = Finding(
        claim, Evidence(value, value - 0.1, value + 0.1, 50), "files", "lstm_additive"
    )
    facts = {
        "title": "Is it needed?",
        "about": "Weights were frozen.",
        "data": "files",
        "model": "lstm_additive",
    }
    return StudyReading(**facts | parts, directory=place, findings=[finding], runs=[run_dir])


@pytest.mark.usefixtures("no_pictures")
def test_a_study_is_shown_and_speaks_of_its_own_runs_and_of_no_others(
    make_run, tmp_path, monkeypatch
):
    """Two audits of two CSVs with one name, one of them with other settings too: three cards, two
    of them with a study."""
    figure = Figure(figsize=(2, 1))
    studies = []
    figure.subplots().plot([0, 1])
    parts = {
        "readings": {"needed": "It lost 0.2. That is above 0."},
        "figures": [Plotted("needed", "What was lost.", figure)],
        "tables": {"Every seed": pd.DataFrame({"seed": [0], "lost": [0.25]})},
        "notes": ["One seed only."],
    }
    for name, value, more in (("a", 0.2, parts), ("b", -0.2, {})):
        training = {"data": {"path": f"{name}.csv"}, "epochs": 8}
        run_dir = make_run(name, data="files", probes=EVERYTHING, training=training)
        roundabout_path = tmp_path / "b" / ".." / run_dir.name
        studies.append(study_of(tmp_path, f"<Of> {name}", roundabout_path, value, **more))
    other_training = {"data": {"path": "a.csv"}, "epochs": 2}
    make_run("c", data="files", probes=EVERYTHING, training=other_training)
    monkeypatch.setattr(build, "find_studies", lambda places: (studies, []))
    report = build.write_report(tmp_path, tmp_path / "report.html", words=False)
    text = report.read_text(encoding="utf-8")
    for part in (
        "Is it needed?",
        "Weights were frozen.",
        "&lt;Of&gt; a",
        "It lost 0.2. That is above 0.",
        "Every seed",
        "0.250",
        "What was lost.",
        "One seed only.",
        'href="#study-1"',
    ):
        assert part in text
    assert (tmp_path / "report_files/study1-needed.pdf").is_file()
    cards = re.split(r'<details class="card" id="card-\d+"', text)[1:]
    assert dict(map(necessity_on, cards)) == {
        "data.path=a.csv, epochs=8": "yes",
        "data.path=b.csv, epochs=8": "no",
        "data.path=a.csv, epochs=2": "untested",
    }
    linked_studies = [re.findall("&gt; ([ab])</a>", card) for card in cards]
    assert sorted(linked_studies) == [[], ["a"], ["b"]]


def necessity_on(card):
    """The settings that a card's title ends with, and its answer on necessity."""
    title = re.search(r"<h3>(.*?)</h3>", card)[1]
    _, _, settings = title.rpartition(" · ")
    badge = r'(?s)<summary>\s*<span class="badge (\w+)"(?:(?!<summary>).)*<h4>Necessity:'
    answer = re.search(badge, card)[1]
    return settings, answer


@pytest.mark.usefixtures("no_pictures")
def test_runs_without_claims_have_no_empty_card(make_run, tmp_path):
    make_run("bare", probes=("performance",))
    text = build.write_report(tmp_path, tmp_path / "report.html").read_text(encoding="utf-8")
    assert "No claim could be put to the test" in text
    assert 'class="card"' not in text
    # the sheet says which model, which data, and how good it is, also where nothing was asked of
    # its attention
    assert re.search(r"<dt>Accuracy</dt>\s*<dd>", text)
    assert "Whether this attention points at the words that decide was not tested" in text
    make_run("more", model="cnn_additive")
    text = build.write_report(tmp_path, tmp_path / "report.html").read_text(encoding="utf-8")
    assert text.count('class="card"') == 1
    assert "Not put to the test by themselves: sst · lstm_additive." in text


@pytest.mark.usefixtures("no_pictures")
def test_several_seeds_are_one_mean_with_their_range_and_notes_of_all_runs_are_said_once(
    make_run, tmp_path
):
    runs = [make_run(f"run{seed}", seed=seed, probes=EVERYTHING) for seed in range(2)]
    for place, run_ in enumerate(runs):
        manifest = RunDirectory(run_).manifest()
        for probe in ("leave_one_out", "correlation"):
            manifest["tables"][probe]["notes"] = {
                "removals_checked": 64,
                "largest_error": [3e-7, 1e-9][place],
            }
        seal(run_, **manifest)
    text = build.write_report(runs, tmp_path / "report.html").read_text(encoding="utf-8")
    table = read_results(tmp_path)
    accuracy = table[table["metric"] == "accuracy"]["value"]
    assert accuracy.min() < accuracy.max()
    assert f"{accuracy.mean():.3f}" in text
    assert f"({accuracy.min():.3f} to {accuracy.max():.3f})" in text
    note = (
        "128 texts without a word were read again in full. The largest difference in TVD was 3e-7."
    )
    assert text.count(note) == 1
    assert (
        text.index('id="test-leave_one_out"')
        < text.index(note)
        < text.index('id="test-correlation"')
    )


def sections_of(path):
    """A page's sections by their ids."""
    text = path.read_text(encoding="utf-8")
    return {
        section[1]: section[0]
        for section in re.finditer(r'<section id="(\w+)".*?(?=<section id="|</main>)', text, re.S)
    }


@pytest.mark.usefixtures("no_pictures")
@pytest.mark.parametrize("count", [2, 4])
def test_several_models_begin_with_all_answers_and_each_leads_to_what_it_rests_on(
    make_run, tmp_path, count
):
    """Of more than three models the sheets are on their cards; nothing is said twice or lost."""
    for number in range(count):
        for seed in range(2):
            make_run(f"{number}-{seed}", model=f"m{number}", seed=seed, count=20)
    sections = sections_of(build.write_report(tmp_path, tmp_path / "report.html"))
    sheet = sections["sheet"]
    verdicts = sections["verdicts"]
    table = re.search(r"<thead>(.*?)</thead>\s*<tbody>(.*?)</tbody>", sheet, re.S)
    head, body = table.groups()
    links = re.findall(r'<a href="(#card-\d+)">(\w+)</a>', body)
    columns = len(re.findall("<th ", head))
    rows = re.findall(r"<tr>(.*?)</tr>", body, re.S)
    _, *cards = re.split(r'<details class="card" id="card-\d+"', verdicts)
    assert len(links) == len(rows) == len(cards) == count
    for number in range(count):
        assert links[number] == (f"#card-{number + 1}", f"m{number}")
        assert len(re.findall("<t[hd]", rows[number])) == columns
        assert f" m{number}</h3>" in cards[number]

    has_sheets_on_cards = count > 3
    assert sheet.count("<b>To do</b>") == (0 if has_sheets_on_cards else 2)
    assert verdicts.count("<b>To do</b>") == (4 if has_sheets_on_cards else 0)
