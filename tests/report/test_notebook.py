import re
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest

from attnprobe.report import notebook
from attnprobe.report.notebook import Explanation, Strip, page, strips_html

HOSTILE = [
    "<script>alert(1)</script>",
    '" onmouseover="x',
    "&amp;",
    "\u202eabc",
    "\x00\x1b[31m",
    "\ud800",
    "مرحبا",
    "👩‍👩‍👧",
]


class Reader(HTMLParser):
    """What a browser would make of a fragment: (tag, attributes, text) of every element."""

    def __init__(self, html):
        super().__init__()
        self.elements = []
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.elements.append([tag, dict(attributes), ""])

    def handle_data(self, content):
        self.elements[-1][2] += content

    def of(self, tag):
        return [(attributes, text) for name, attributes, text in self.elements if name == tag]


def tokens_of(strip):
    reader = Reader(strips_html([strip]))
    return [(attributes, text.strip()) for attributes, text in reader.of("i")]


def explained(count=3, **columns):
    row = {
        "prediction": "<b>good</b>",
        "probability": {"bad": 0.25, "<b>good</b>": 0.75},
        "tokens": ["a", "film"],
        "attention": [0.25, 0.75],
    }
    rows = []
    for n in range(count):
        extra = {name: values[n] for name, values in columns.items()}
        rows.append({**row, "text": f"text {n}", **extra})
    explanation = Explanation(rows)
    titles = {"gradient": "gradient", "leave_one_out": "leave-one-out"}
    importances = {name: {"title": titles[name]} for name in titles if name in columns}
    explanation.attrs["importances"] = {"explain": importances}
    return explanation


def test_the_words_of_a_strip_stand_in_the_order_of_their_script():
    # the browser finds the script of the whole strip, as no word of it has a direction of its own
    html = strips_html([Strip("attention", [0.5, 0.5], ["فيلم", "good"])])
    assert re.findall(r'<(\w+)[^>]* dir="(\w+)"', html) == [("span", "auto")]


def test_depth_is_the_root_of_the_weight_and_the_tooltip_its_number():
    tokens = tokens_of(Strip("attention", [0.0, 0.01, 0.25, 1.0, 0.0001, np.nan], list("abcdef")))
    assert [
        (
            text,
            attributes.get("style"),
            attributes["title"].split(" — ")[1],
            attributes.get("class"),
        )
        for attributes, text in tokens
    ] == [
        ("a", None, "0.000", None),
        ("b", "--w:0.10", "0.010", None),
        ("c", "--w:0.50", "0.250", None),
        ("d", "--w:1.00", "1.000", "much"),
        ("e", "--w:0.01", "1.0e-04", None),
        ("f", None, "undefined", "undefined"),
    ]


def test_a_set_and_the_largest_are_told_by_more_than_colour():
    strip = Strip("erased: bad", [1.0, 0.0], ["good", "film"], is_set=True)
    tokens = tokens_of(strip)
    assert [attributes.get("class") for attributes, _ in tokens] == ["member", None]
    assert [attributes["title"] for attributes, _ in tokens] == [
        "0: good — erased",
        "1: film — kept",
    ]
    assert 'aria-label="erased: bad: good"' in strips_html([strip])
    strip = Strip("attention", [0.1, 0.5, np.nan, 0.2, 0.2], list("abcde"))
    label = "attention: largest b 0.500, d 0.200, e 0.200; 5 in all"
    assert f'aria-label="{label}"' in strips_html([strip])
    undefined = Strip("gradient", [np.nan], ["a"])
    assert 'aria-label="gradient: undefined; 1 in all"' in strips_html([undefined])
    without_words = tokens_of(Strip("attention", [0.5, 0.2, 0.3]))
    assert [text for _, text in without_words] == ["0", "1", "2"]


def test_hostile_words_are_text():
    weights = [0.1] * len(HOSTILE)
    strip = Strip("<i>", weights, HOSTILE)

    html = page([strips_html([strip], head="<img src=x>")])

    html.encode("utf-8")
    read = Reader(html)
    tags = {tag for tag, _, _ in read.elements}
    assert tags == {"div", "style", "section", "p", "span", "i"}
    words = []
    for attributes, text in read.of("i"):
        assert set(attributes) <= {"class", "style", "title"}
        words.append(text.strip())
    escaped = [r"\u202eabc", r"\x00\x1b[31m", r"\ud800"]
    assert words == [*HOSTILE[:3], *escaped, *HOSTILE[6:]]
    # and nothing is fetched
    assert not re.search(r"https?:|url\(|@import|<link|<script", notebook.STYLE)


@pytest.mark.parametrize("theme", [notebook._LIGHT, notebook._DARK], ids=["light", "dark"])
def test_words_are_legible_at_every_depth(theme):
    """WCAG's contrast of 4.5, by its own formula."""
    colours = {}
    for name, *channels in re.findall(r"--(\w+): #(..)(..)(..)", theme):
        colours[name] = np.array([int(channel, 16) for channel in channels])
    channels = re.search(r"--heat: (\d+) (\d+) (\d+)", theme).groups()
    heat = np.array([int(channel) for channel in channels])

    def luminance(colour):
        share = colour / 255
        gamma_expanded = ((share + 0.055) / 1.055) ** 2.4
        linear = np.where(share <= 0.03928, share / 12.92, gamma_expanded)
        return linear @ [0.2126, 0.7152, 0.0722]

    def contrast(first, second):
        darker, lighter = sorted([luminance(first), luminance(second)])
        return (lighter + 0.05) / (darker + 0.05)

    for depth in np.linspace(0, 1, 101):
        ground = depth * heat + (1 - depth) * colours["paper"]
        ink = colours["over" if depth > notebook.MUCH else "ink"]
        assert contrast(ground, ink) >= 4.5
    assert contrast(colours["faint"], colours["paper"]) >= 4.5


def test_an_explanation_is_a_dataframe_with_heat_maps():
    frame = explained(
        3,
        gradient=[[0.5, 0.5]] * 3,
        flips_to=["bad", None, "bad"],
        flipping_set=[[True, False]] * 3,
    )
    assert isinstance(frame, pd.DataFrame)
    read = Reader(frame._repr_html_())
    names = [text for attributes, text in read.of("span") if attributes["class"] == "name"]
    text_strips = ["attention", "gradient", "erased: bad"]
    assert names == [*text_strips, *text_strips[:2], *text_strips]
    heads = [text for _, text in read.of("p")][1:]
    assert heads[0] == "Text 1 → <b>good</b> (p = 0.750)"
    assert heads[1].endswith("no erasure from the attention changes that")
    chosen = frame[frame["flips_to"] == "bad"]
    assert len(Reader(chosen._repr_html_()).of("section")) == 2
    assert "<table" in frame[["text"]]._repr_html_()
    assert "<table" in explained(0)._repr_html_()


def test_several_labels_a_question_and_sentences():
    frame = explained(1, prediction=[["bad", "<b>good</b>"]], question=["Where?"])
    assert "Where? → bad (p = 0.250), &lt;b&gt;good&lt;/b&gt; (p = 0.750)" in frame._repr_html_()
    assert "→ no label" in explained(1, prediction=[[]])._repr_html_()
    inside = {
        "words": [[["it", "rains", "."], ["stay"]]],
        "word_attention": [[[0.1, 0.8, 0.1], [1]]],
    }
    (row,) = explained(1, tokens=[["it rains .", "stay"]], **inside).to_dict("records")
    sentences, words = notebook.attention_strips(row, shows_words=True)
    assert (sentences.tokens, list(sentences.ends)) == (["it rains .", "stay"], [0, 1])
    assert (words.tokens, words.values, words.ends) == (
        ["it", "rains", ".", "stay"],
        [0.1, 0.8, 0.1, 1],
        [2, 3],
    )
    assert strips_html([words]).count("<br>") == 2


def test_the_second_text_of_a_pair_begins_a_line_in_every_strip():
    tokens = ["rain", "falls", "it", "is", "dry"]
    weights = [0.2] * 5
    pair = {"tokens": [tokens], "attention": [weights], "gradient": [weights]}
    lines_of_one_text = explained(1, **pair)._repr_html_().count("<br>")
    assert lines_of_one_text == 0
    html = explained(1, **pair, first_words=[2])._repr_html_()
    assert html.count(">falls</i><br>") == html.count("<br>") == 2


def test_what_was_found_stands_above_the_texts_and_long_frames_are_cut():
    frame = explained(notebook.MOST_TEXTS + 5)
    frame.attrs[notebook.SENTENCE] = "It does not <point> at words."
    html = frame._repr_html_()
    assert f"The first {notebook.MOST_TEXTS} of {notebook.MOST_TEXTS + 5} texts" in html
    assert html.count("<section>") == notebook.MOST_TEXTS
    assert "<b>It does not &lt;point&gt; at words.</b>" in html
