"""`python -m tests.report.page.grades PAGE.html`: how hard a page's sentences are to read.

Of each sentence of prose (code, formulas, tables and the user's texts are none): the Flesch–Kincaid grade, 0.39 words + 11.8
syllables per word − 15.59 (Kincaid et al. 1975). Syllables are groups of vowels, without a silent e.
"""

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from statistics import median

PROSE = {"p", "li", "dd", "summary", "figcaption", "h1", "h2", "h3", "h4"}
BLOCKS = {"div", "ul", "details"}
LEFT_OUT = {"script", "style", "code", "table", "select", "button", "math", "svg", "cite"}
VOID = {"meta", "link", "br", "img", "input", "hr", "wbr", "col"}


class Prose(HTMLParser):
    """Paragraphs of a page, and whether each is within something folded."""

    def __init__(self):
        super().__init__()
        self.open, self.found = [], []

    def handle_starttag(self, tag, attrs):
        if tag in VOID:
            return
        # a sign beside a sentence is none of its words
        self.open.append("code" if tag == "span" and "badge" in dict(attrs).get("class", "") else tag)
        if tag in PROSE | BLOCKS:
            self.found.append(["", "details" in self.open])

    def handle_endtag(self, tag):
        while self.open and self.open.pop() not in (tag, "code" if tag == "span" else tag):
            pass

    def handle_data(self, data):
        inside = set(self.open)
        if inside & PROSE and not inside & LEFT_OUT:
            self.found[-1][0] += data


def sentences(text):
    """Of four words or more; a piece between colons, semicolons or brackets belongs to its sentence.

    >>> sentences("It is 0.5. The rest (of them) stays as it was; so be it! Yes.")
    ['The rest (of them) stays as it was; so be it!']
    """
    parts = re.split(r"(?<=[.!?])\s+(?=[A-Z0-9])", " ".join(text.split()))
    return [part for part in parts if len(words(part)) >= 4]


def words(sentence):
    return re.findall(r"[A-Za-z][A-Za-z'’-]*", sentence)


def syllables(word):
    """
    >>> [syllables(word) for word in ("weight", "attention", "decide", "table", "the", "probability")]
    [1, 3, 2, 2, 1, 5]
    """
    word = word.lower()
    silent = word.endswith("e") and not re.search(r"[^aeiouy]le$", word)
    return max(1, len(re.findall("[aeiouy]+", word)) - silent)


def grade(sentence):
    """
    >>> round(grade("The cat sat on the mat."), 2)
    -1.45
    """
    all_of = words(sentence)
    return 0.39 * len(all_of) + 11.8 * sum(map(syllables, all_of)) / len(all_of) - 15.59


def graded(page):
    """Grade, sentence and whether it is folded away, the hardest first."""
    prose = Prose()
    prose.feed(page)
    found = {(one, folded) for text, folded in prose.found for one in sentences(text)}
    return sorted(((grade(one), one, folded) for one, folded in found), reverse=True)


def main():
    rows = graded(Path(sys.argv[1]).read_text(encoding="utf-8"))
    for name, folded in (("in sight", False), ("folded", True)):
        own = [row for row in rows if row[2] is folded]
        over = [row for row in own if row[0] > 12]
        print(f"{name}: {len(own)} sentences, median grade {median(row[0] for row in own):.1f}, {len(over)} above 12")
        for value, sentence, _ in over:
            print(f"  {value:4.1f}  {sentence}")


if __name__ == "__main__":
    main()
