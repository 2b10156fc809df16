import random
from functools import cache
from typing import NamedTuple

import pytest
import torch
from torch.testing import assert_close

from attnprobe.core.batch import prediction_distance
from attnprobe.core.errors import UserError
from attnprobe.results.directory import RunDirectory
from attnprobe.results.table import read_examples, read_results
from attnprobe.runs.load import load_run
from attnprobe.runs.run import run
from tests.models.pretrained import families
from tests.models.pretrained.families import TEXTS, WORDS, batch_of, checkpoint, classifier
from tests.small_runs import FEW_PASSES, composed
from tests.toys import predict

pytest.importorskip("transformers")
PROBES = [
    "permutation",
    "gradient",
    "leave_one_out",
    "correlation",
    "single_weight",
    "erasure",
    "skill",
    "swaps",
    "agreement",
]


def score(folder, *texts):
    """What the library says of a text, or of a pair."""
    return float(families.library_says("SequenceClassification", folder, *texts)[1].logits)


@pytest.mark.parametrize("family", ["bert", "llama", "deberta-v2", "roberta"])
@pytest.mark.parametrize(("threshold", "scale"), [(0.0, None), (-1.3, 0.25)])
def test_predictions_are_as_far_apart_as_scores_in_their_unit(family, threshold, scale):
    labels = ("score",)
    model = classifier(
        family,
        labels,
        class_names=["low", "high"],
        threshold=threshold,
        scale=scale,
    )
    assert f"above {threshold:g} are high, the others low" in model.matched
    batch = batch_of(model)
    model.prepare(batch)
    folder = checkpoint(family, labels)
    scores = torch.tensor([score(folder, text) for text in TEXTS])
    unit = float(scores.std()) if scale is None else scale
    expected = (scores - threshold) / unit

    with torch.no_grad():
        sentence = model.read_texts([batch.rows(slice(0, 2)), batch.rows(slice(2, 3))])
        prediction = predict(model, batch)
    assert f"{unit:.4g}" in sentence
    both_classes = torch.stack([-expected, expected], -1)
    assert_close(prediction, both_classes, atol=1e-4, rtol=1e-4)
    distance = prediction_distance(prediction[:2], prediction[1:], model.task)
    assert_close(distance, expected.diff().abs(), atol=1e-4, rtol=1e-4)
    if family == "bert":
        assert not model.linearised(batch).unknown


@pytest.mark.parametrize(
    ("labels", "settings", "expected"),
    [
        (("n", "p"), {}, r"model.threshold=0.0: expected .*num_labels=1, this one: 2"),
        (("score",), {"class_names": ["a", "b", "c"]}, r"two classes.* they have a, b, c"),
        (("score",), {"threshold": None}, r"num_labels=1.*with model.threshold"),
        (("score",), {}, r"same score.*model.scale"),
    ],
)
def test_what_is_no_score_or_has_no_unit_is_refused(labels, settings, expected):
    defaults = {"threshold": 0.0, "class_names": ["low", "high"]}

    def read():
        model = classifier("bert", labels, **defaults | settings)
        model.read_texts([batch_of(model, [TEXTS[0]] * 3)])

    with pytest.raises(UserError, match=expected):
        read()


class Planted(NamedTuple):
    """A row whose score comes from one word; `deciding` is None where no word decides."""

    first: str
    second: str
    deciding: str | None
    score: float


def planted_words():
    """600 times: words one of which may be "fine" or "dull", that word or None, and either word."""
    draw = random.Random(0)
    plain = [word for word in WORDS[:13] if word not in ("fine", "dull")]
    for _ in range(600):
        words = draw.choices(plain, k=draw.randint(8, 13))
        query = draw.choice(("fine", "dull"))
        sign = draw.choice(("fine", "dull", None))
        if sign is not None:
            words[draw.randrange(len(words))] = sign
        yield " ".join(words), sign, query


def planted(kind):
    """Rows of a regression, or of a reranker.

    A regression's score is 3 with "fine", -1 with "dull", 1 without either; a reranker's says
    whether the second text has the word that the first one is.
    """
    rows = []
    for text, sign, query in planted_words():
        if kind != "reranker":
            rows.append(Planted(text, "", sign, {"fine": 3.0, "dull": -1.0, None: 1.0}[sign]))
        elif sign == query:
            rows.append(Planted(query, text, sign, 2.0))
        else:
            rows.append(Planted(query, text, None, -2.0))
    return rows


def squared_error(network, reader, first, second, _, scores):
    """Of a network's scores of some rows."""
    pairs = second if any(second) else None
    encoding = reader(first, pairs, return_tensors="pt", padding=True)
    return (network(**encoding).logits[:, 0] - torch.tensor(scores)).square().mean()


@cache
def trained(kind):
    """A folder with a small BERT that has learnt the rows of this kind."""
    return families.taught(
        "SequenceClassification",
        planted(kind),
        squared_error,
        size=24,
        rate=2e-3,
        passes=0 if kind == "untrained" else 8,
        seed=1,
        num_labels=1,
        initializer_range=0.3,
    )


class Scored:
    """A run on scores, and what the library says of its texts.

    The run is of every probe; where nothing was learnt of skill alone, of pairs by default of two.
    """

    def __init__(self, kind, output, probes):
        self.kind = kind
        self.is_pair = kind == "reranker"
        self.threshold = 0.0 if self.is_pair else 1.5
        rows = planted(kind)
        self.row_of_text = {row.second or row.first: row for row in rows}
        overrides = [
            f"model.threshold={self.threshold}",
            f"data.above={self.threshold}",
            "data.most={test: 16}",
            f"probe=[{','.join(probes)}]",
            *(FEW_PASSES if "swaps" in probes else ()),
        ]
        if self.is_pair:
            overrides += ["data.text2=second", "data.attend_to=second"]
        settings = families.run_settings(
            trained(kind),
            [(row.first, row.second, row.score) for row in rows],
            output,
            *overrides,
            header=("text", "second", "label"),
        )
        self.directory = run(composed(*settings))
        self.examples = read_examples(self.directory)
        self.texts = [" ".join(words) for words in self.examples.tokens]

    def scores(self, text, *variants):
        """The library's scores of variants of a text, beside the first text of its pair."""
        before = [self.row_of_text[text].first] if self.is_pair else []
        scores = [score(trained(self.kind), *before, variant) for variant in variants]
        return torch.tensor(scores).double()


DEFAULT_PROBES = {"regression": PROBES, "reranker": ["skill", "swaps"], "untrained": ["skill"]}


@pytest.fixture(scope="module", params=["regression", "reranker", "untrained"])
def scored(request, tmp_path_factory):
    output = tmp_path_factory.mktemp("scored")
    return Scored(request.param, output, DEFAULT_PROBES[request.param])


@pytest.mark.parametrize("scored", ["regression"], indirect=True)
def test_every_probe_runs_on_scores(scored):
    assert set(read_results(scored.directory)["probe"]) >= {*PROBES}


@pytest.mark.slow
def test_every_probe_runs_on_scores_of_pairs(tmp_path):
    directory = Scored("reranker", tmp_path, PROBES).directory
    assert set(read_results(directory)["probe"]) >= {*PROBES}


def test_a_score_above_the_threshold_is_of_the_second_class(scored):
    scores = torch.cat([scored.scores(text, text) for text in scored.texts])
    assert scored.examples.prediction.tolist() == (scores > scored.threshold).long().tolist()


def without_each_word(text):
    words = text.split()
    texts = []
    for place in range(len(words)):
        rest = words[:place] + words[place + 1 :]
        texts.append(" ".join(rest))
    return texts


def test_leave_one_out_finds_the_word_that_a_score_comes_from(scored):
    deviation = torch.cat([scored.scores(text, text) for text in scored.texts]).std()
    decided = [text for text in scored.texts if scored.row_of_text[text].deciding is not None]
    texts = decided
    questions = None
    if scored.is_pair:
        texts = [scored.row_of_text[text].first for text in decided]
        questions = decided
    explained = load_run(scored.directory).explain(texts, questions, importance=["leave_one_out"])

    hits = 0
    for text, values in zip(decided, explained["leave_one_out"], strict=True):
        distances = torch.tensor(values).double()
        whole, *shorter = scored.scores(text, text, *without_each_word(text))
        expected = (torch.stack(shorter) - whole).abs() / deviation
        assert_close(distances, expected, atol=1e-3, rtol=1e-3)
        top = text.split()[int(distances.argmax())]
        hits += top == scored.row_of_text[text].deciding
    if scored.kind == "untrained":
        assert hits / len(decided) <= 0.5
    else:
        assert hits / len(decided) >= 0.8


def test_a_word_may_be_worth_more_than_a_standard_deviation_of_the_score(scored):
    """Distances of scores do not end at 1."""
    table = read_results(scored.directory)
    metrics = RunDirectory(scored.directory).manifest()["tables"]["skill"]["metrics"]
    assert metrics["word_distance_own"]["high"] is None
    assert metrics["word_distance_own"]["unit"] == "standard deviations of the score"
    if scored.kind != "untrained":
        distances = table[table.metric == "word_distance_best"]["value"]
        assert distances.mean() > 0.5
        assert distances.max() > 1
