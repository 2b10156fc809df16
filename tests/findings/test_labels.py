import pytest

from attnprobe.evidence.deciding_words import ShareOfClass
from attnprobe.evidence.evidence import Evidence
from attnprobe.findings import labels


@pytest.mark.parametrize(
    ("share", "sentence"),
    [
        (
            Evidence(0.134, -0.03, 0.31, 100),
            "attention is elsewhere: 13 % of the weight beyond chance is on words that move the "
            "prediction [−3, 31].",
        ),
        (
            Evidence(-0.05, -0.12, 0.03, 100),
            "attention is elsewhere: −5 % of the weight beyond chance is on words that move the "
            "prediction [−12, 3].",
        ),
        (
            Evidence(-0.001, -0.004, 0.15, 100),
            "attention is elsewhere: 0 % of the weight beyond chance is on words that move the "
            "prediction [0, 15].",
        ),
        (
            Evidence(0.9, 0.8, 0.96, 100),
            "attention is on the words that decide: 90 % of the weight beyond chance is on words "
            "that move the prediction [80, 96].",
        ),
    ],
)
def test_a_labels_sentence_gives_percent_as_the_sheet_does(share, sentence):
    part = ShareOfClass(1, 100.0, Evidence(0.5, 0.4, 0.6, 100), share)
    assert labels._sentence(part) == sentence
