"""Figures as elements of the page."""

import re
from xml.etree import ElementTree

import pytest

from attnprobe.report.figures.grid import title
from attnprobe.report.figures.notes import note
from attnprobe.report.figures.style import new_figure, paper_style
from attnprobe.report.page import vector

HOSTILE = """
<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" onload="hacked()">
 <style>*{background: url(http://a.example/)}</style>
 <script>hacked()</script>
 <foreignObject><p>hacked</p></foreignObject>
 <a xlink:href="javascript:hacked()"><path d="M 0 0"/></a>
 <g id="fine" onclick="hacked()" style="fill: url(http://a.example/x); stroke: #123456; background: red">
  <use xlink:href="http://a.example/y#z"/>
  <use xlink:href="#drawn" x="1" clip-path="url(#clip)"/>
  <image xlink:href="data:image/svg+xml;base64,AAAA" width="1"/>
  <image xlink:href="data:image/png;base64,AAAA" width="1"/>
  <path d="M 0 0 &quot;&gt;&lt;script&gt;"/>
 </g>
 <g id='"&gt;&lt;script&gt;'/>
</svg>
"""
NAME = '<script>hacked("&")</script> --!> \x1b]'


def drawing(name=NAME):
    with paper_style():
        figure = new_figure(2, 1)
        axes = figure.subplots()
        axes.plot([1, 2], [1, 2], "o-")
        title(axes, name, width=1000)
        note(axes, 1, 1, name)
    return figure


def test_only_what_is_known_stays_of_a_drawing():
    kept = ElementTree.Element("svg")
    kept.extend(vector.cleaned(ElementTree.fromstring(HOSTILE), "own-"))
    assert ElementTree.tostring(kept, encoding="unicode") == (
        '<svg><g id="own-fine" stroke="#123456"><use /><use href="#own-drawn" x="1" clip-path="url(#own-clip)" />'
        '<image width="1" /><image href="data:image/png;base64,AAAA" width="1" /><path /></g><g /></svg>'
    )


def test_names_are_escaped_in_what_a_mark_says_and_hidden_characters_shown():
    with paper_style():
        markup = vector.inline(drawing(), "one", NAME.replace("\x1b", ""))
    parsed = ElementTree.fromstring(markup)
    assert [spot.text for spot in parsed.findall(".//title")] == [NAME.replace("\x1b", r"\x1b")]
    assert parsed.attrib["aria-label"] == NAME.replace("\x1b", "")
    assert "<script" not in markup
    assert "<!--" not in markup
    assert "style=" not in markup


def test_two_figures_share_no_id_and_every_reference_leads_somewhere():
    with paper_style():
        one, two = (str(vector.inline(drawing(), name, "")) for name in ("one", "two"))
    ids = [set(re.findall(r' id="([^"]*)"', text)) for text in (one, two)]
    assert ids[0]
    assert not ids[0] & ids[1]
    for text, own in zip((one, two), ids, strict=True):
        assert set(re.findall(r'href="#([^"]*)"|url\(#([^)]*)\)', text))
        assert {a or b for a, b in re.findall(r'href="#([^"]*)"|url\(#([^)]*)\)', text)} <= own


def test_a_large_drawing_is_pixels_and_says_the_same(monkeypatch):
    with paper_style():
        small = ElementTree.fromstring(vector.inline(drawing(), "one", ""))
        monkeypatch.setattr(vector, "LARGEST", 100)
        large = ElementTree.fromstring(vector.inline(drawing(), "one", ""))
        monkeypatch.setattr(vector, "MOST_SPOTS", 0)
        silent = ElementTree.fromstring(vector.inline(drawing(), "one", ""))
    assert [child.tag for child in large] == ["image", "rect"]
    assert large.find("image").attrib["href"].startswith("data:image/png;base64,")
    spot, other = (found.find("rect[@class='spot']") for found in (small, large))
    assert {key: float(value) for key, value in other.attrib.items() if key != "class"} == pytest.approx(
        {key: float(value) for key, value in spot.attrib.items() if key != "class"}, abs=1
    )
    assert [child.tag for child in silent] == ["image"]
