import random
from functools import cache

import pytest
import torch

from attnprobe.core.batch import prediction_distance
from attnprobe.core.errors import UserError
from attnprobe.results.directory import RunDirectory
from attnprobe.results.table import read_examples, read_results
from attnprobe.runs.load import load_run
from attnprobe.runs.run import run
from tests.models.pretrained import families
from tests.models.pretrained.families import TEXTS, WORDS, batch_of, checkpoint, classifier
from tests.small_runs import composed
from tests.toys import predict

pytest.importorskip("transformers")
PROBES = "probe=[permutation,gradient,leave_one_out,correlation,single_weight,erasure,skill,swaps,agreement]"


def score(folder, *texts):
    """What the library says of a text, or of a pair."""
    return float(families.library_says("SequenceClassification", folder, *texts)[1].logits)


@pytest.mark.parametrize("family", ["bert", "llama", "deberta-v2", "roberta"])
@pytest.mark.parametrize(("threshold", "scale"), [(0.0, None), (-1.3, 0.25)])
def test_predictions_are_as_far_apart_as_scores_in_their_unit(family, threshold, scale):
    labels = ("score",)
    model = classifier(
        family, labels, class_names=["low", "high"], threshold=threshold, scale=scale
    )
    assert f"above {threshold:g} are high, the others low" in model.matched
    batch = batch_of(model)
    model.prepare(batch)
    folder = checkpoint(family, labels)
    own = [score(folder, text) for text in TEXTS]
    with torch.no_grad():
        said = model.read_texts([batch.rows(slice(0, 2)), batch.rows(slice(2, 3))])
        unit = float(torch.tensor(own).std()) if scale is None else scale
        assert f"{unit:.4g}" in said
        found = predict(model, batch)
    expected = (torch.tensor(own) - threshold) / unit
    torch.testing.assert_close(found, torch.stack([-expected, expected], -1), atol=1e-4, rtol=1e-4)
    apart = prediction_distance(found[:2], found[1:], model.task)
    torch.testing.assert_close(apart, expected.diff().abs(), atol=1e-4, rtol=1e-4)
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
    def read():
        model = classifier(
            "bert", labels, **{"threshold": 0.0, "class_names": ["low", "high"]} | settings
        )
        model.read_texts([batch_of(model, [TEXTS[0]] * 3)])

    with pytest.raises(UserError, match=expected):
        read()


def planted(kind):
    """Rows of first text, second text, deciding word (None: none) and score. A regression's score
    is 3 with "fine", -1 with "dull", 1 without either; a reranker's says whether the second text
    has the word that the first one is."""
    draw = random.Random(0)
    plain = [word for word in WORDS[:13] if word not in ("fine", "dull")]
    rows = []
    for _ in range(600):
        words = draw.choices(plain, k=draw.randint(8, 13))
        asked = draw.choice(("fine", "dull"))
        own = draw.choice(("fine", "dull", None))
        if own is not None:
            words[draw.randrange(len(words))] = own
        if kind == "reranker":
            rows.append(
                (
                    asked,
                    " ".join(words),
                    own if own == asked else None,
                    2.0 if own == asked else -2.0,
                )
            )
        else:
            rows.append((" ".join(words), "", own, {"fine": 3.0, "dull": -1.0, None: 1.0}[own]))
    return rows


@cache
def trained(kind):
    def loss(network, read, first, second, _, wanted):
        given = read(first, second if any(second) else None, return_tensors="pt", padding=True)
        return (network(**given).logits[:, 0] - torch.tensor(wanted)).square().mean()

    passes = 0 if kind == "untrained" else 20
    return families.taught(
        "SequenceClassification",
        planted(kind),
        loss,
        size=24,
        rate=1e-3,
        passes=passes,
        seed=1,
        num_labels=1,
        initializer_range=0.3,
    )


@pytest.mark.parametrize("kind", ["regression", "reranker", "untrained"])
def test_a_run_on_scores_finds_the_word_that_they_come_from(kind, tmp_path):
    folder = trained(kind)
    rows = planted(kind)
    pairs = kind == "reranker"
    threshold = 0.0 if pairs else 1.5
    asked = [
        f"model.threshold={threshold}",
        f"data.above={threshold}",
        "data.most={test: 24}",
        PROBES,
    ]
    asked += ["data.text2=second", "data.attend_to=second"] if pairs else []
    written = [(row[0], row[1], row[3]) for row in rows]
    header = ("text", "second", "label")
    directory = run(
        composed(*families.run_settings(folder, written, tmp_path, *asked, header=header))
    )
    table = read_results(directory)
    examples = read_examples(directory)
    assert set(table["probe"]) >= set(PROBES[7:-1].split(","))

    known = {row[1] or row[0]: row for row in rows}

    def scores(first, *texts):
        return torch.tensor(
            [score(folder, *((first, text) if pairs else (text,))) for text in texts]
        ).double()

    texts = [" ".join(words) for words in examples.tokens]
    own = torch.cat([scores(known[text][0], text) for text in texts])
    assert examples.prediction.tolist() == (own > threshold).long().tolist()
    decided = [text for text in texts if known[text][2] is not None]
    first = [known[text][0] for text in decided] if pairs else decided
    found = load_run(directory).explain(
        first, decided if pairs else None, importance=["leave_one_out"]
    )
    hits = 0
    for text, values in zip(decided, found["leave_one_out"], strict=True):
        words = text.split()
        distances = torch.tensor(values).double()
        whole, *shorter = scores(
            known[text][0], text, *(" ".join(words[:n] + words[n + 1 :]) for n in range(len(words)))
        )
        apart = (torch.stack(shorter) - whole).abs() / own.std()
        torch.testing.assert_close(distances, apart, atol=1e-3, rtol=1e-3)
        hits += words[int(distances.argmax())] == known[text][2]
    means = table.groupby("metric", observed=True)["value"].mean()
    assert hits / len(decided) <= 0.5 if kind == "untrained" else hits / len(decided) >= 0.8
    if (
        kind != "untrained"
    ):  # a word is worth more than a standard deviation: distances of scores do not end at 1
        assert means["word_distance_best"] > 0.5
        assert table[table.metric == "word_distance_best"]["value"].max() > 1
    said = RunDirectory(directory).manifest()["tables"]["skill"]["metrics"]["word_distance_own"]
    assert (said["high"], said["unit"]) == (None, "standard deviations of the score")
