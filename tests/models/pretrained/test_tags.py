import random
from functools import cache

import pytest
import torch
from torch.testing import assert_close

from attnprobe.core.errors import UserError
from attnprobe.evidence.evidence import skill_of
from attnprobe.results.table import read_examples, read_results
from attnprobe.runs.load import load_run
from attnprobe.runs.run import run
from tests.models.pretrained.families import WORDS, library_says, run_settings, taught
from tests.small_runs import FEW_PASSES, SMALL_ADVERSARY, composed

pytest.importorskip("transformers")
PROBES = ["permutation", "gradient", "leave_one_out", "erasure", "skill", "swaps"]
FURTHER_PROBES = ["adversarial", "correlation", "agreement", "faithfulness"]
NAMED = "story"
CUES = ("dull", "fine")
LABELS = ("O", "B-PER")


def planted():
    """Words, the number of the word that may be a name, and whether it is: it is after "fine", and
    not after "dull"."""
    draw = random.Random(0)
    plain = [word for word in WORDS[:13] if word not in (*CUES, NAMED)]
    rows = []
    for number in range(400):
        words = draw.choices(plain, k=draw.randint(6, 9))
        place = draw.randint(1, 6)
        words[place:place] = [CUES[number % 2], NAMED]
        rows.append((words, place + 1, number % 2))
    return rows


def freeze_query(network):
    """Make the last of two layers attend evenly, whatever the text."""
    for parameter in network.bert.encoder.layer[1].attention.self.query.parameters():
        torch.nn.init.zeros_(parameter).requires_grad_(False)


def tagging_loss(network, reader, texts, places, names):
    """Of the label of the word that may be a name, and of O for all others: every word here is one
    piece, after [CLS]."""
    encoding = reader([" ".join(words) for words in texts], return_tensors="pt", padding=True)
    labels = torch.where(encoding.attention_mask.bool(), 0, -100)
    for row, (place, name) in enumerate(zip(places, names, strict=True)):
        labels[row, place + 1] = name
    return network(**encoding, labels=labels).loss


@cache
def tagger(kind):
    """A folder with a small tagger.

    `one layer`: what the last layer does not fetch from the cue reaches no prediction. `even`: two
    layers, and the last one attends evenly whatever the text. `untrained`: one layer that has
    learnt nothing.
    """
    settings = {
        "one layer": {"num_hidden_layers": 1, "passes": 8},
        "even": {"num_hidden_layers": 2, "passes": 8, "before": freeze_query},
        "untrained": {"num_hidden_layers": 1, "passes": 0},
    }
    return taught(
        "TokenClassification",
        planted(),
        tagging_loss,
        size=25,
        rate=3e-3,
        initializer_range=0.2,
        id2label=dict(enumerate(LABELS)),
        label2id={"O": 0, "B-PER": 1},
        **settings[kind],
    )


def settings(kind, tmp_path, *overrides):
    rows = []
    for words, place, name in planted():
        text = " ".join(words)
        rows.append((text, LABELS[name], place))
    # another word of the first text, which is none either: two questions about one text
    first_text, *_ = rows[0]
    rows.append((first_text, "O", 0))
    return run_settings(
        tagger(kind),
        rows,
        tmp_path,
        "model.removal=mask",
        *overrides,
        header=("text", "label", "token"),
    )


def number_of_word(question):
    """The number of the queried word, from 1: a question is the word and its number in brackets."""
    return int(question[1].strip("()"))


@pytest.fixture(scope="module", params=["one layer", "even", "untrained"])
def tagged(request, tmp_path_factory):
    """A tagger, and a run on it: of several probes on the first one, of skill on those that know
    nothing of the cue."""
    kind = request.param
    probes = PROBES if kind == "one layer" else ["skill"]
    return kind, run_on_tagger(kind, tmp_path_factory.mktemp("tagged"), probes)


def run_on_tagger(kind, output, probes):
    """A run of these probes on a tagger."""
    return run(
        composed(
            *settings(
                kind,
                output,
                "data.token=token",
                "data.most={test: 24}",
                f"probe=[{','.join(probes)}]",
                *(SMALL_ADVERSARY if "adversarial" in probes else ()),
                *(FEW_PASSES if "swaps" in probes else ()),
            )
        )
    )


@pytest.mark.parametrize("tagged", ["one layer"], indirect=True)
def test_probes_run_on_a_tagger(tagged):
    _, directory = tagged
    assert set(read_results(directory)["probe"]) >= {*PROBES}


@pytest.mark.slow
def test_further_probes_run_on_a_tagger(tmp_path):
    directory = run_on_tagger("one layer", tmp_path, FURTHER_PROBES)
    assert set(read_results(directory)["probe"]) >= {*FURTHER_PROBES}


def test_prediction_and_attention_of_a_tagger_are_the_librarys_at_the_queried_word(tagged):
    kind, directory = tagged
    for row in read_examples(directory).itertuples():
        number = number_of_word(row.question)
        assert row.tokens[number - 1] == row.question[0]
        _, output = library_says("TokenClassification", tagger(kind), " ".join(row.tokens))
        expected = output.logits[0, number].softmax(-1).double().flip(0)
        assert_close(torch.tensor(row.probability), expected, atol=1e-5, rtol=0)
        [heads] = output.attentions[-1]
        weights = heads.mean(0)[number, 1:-1]
        attention = weights / weights.sum()
        assert_close(torch.tensor(row.attention), attention, atol=1e-5, rtol=0)


def test_a_run_on_a_tagger_knows_which_attention_points_at_the_cue(tagged):
    kind, directory = tagged
    hits = []
    for row in read_examples(directory).itertuples():
        if row.question[0] == NAMED:
            top = max(range(len(row.tokens)), key=lambda place: row.attention[place])
            hits.append(row.tokens[top] in CUES)
    table = read_results(directory)
    skill = skill_of("word_mass")(table[table.probe == "skill"])
    if kind == "one layer":
        assert sum(hits) / len(hits) > 0.75
        assert skill.value > 0.3
    else:
        assert sum(hits) / len(hits) < 0.3
        assert abs(skill.value) < 0.1


def test_a_tagger_that_is_opened_again_explains_the_queried_word(tagged):
    _, directory = tagged
    row = read_examples(directory).iloc[0]
    number = number_of_word(row["question"])
    text = " ".join(row["tokens"])
    explanation = load_run(directory).explain([text], [str(number - 1)])
    (explained,) = explanation.to_dict("records")
    assert explained["question"] == f"{row['question'][0]} (word {number})"
    assert explained["attention"] == pytest.approx(list(row["attention"]), abs=1e-5)
    probability = list(explained["probability"].values())
    assert probability == pytest.approx(list(row["probability"]), abs=1e-5)


def test_a_question_that_is_no_number_of_a_word_is_refused(tagged):
    _, directory = tagged
    tokens = read_examples(directory).iloc[0]["tokens"]
    loaded = load_run(directory)
    for questions in (None, ["fine"], ["0", "1"], [str(len(tokens))]):
        with pytest.raises(UserError, match="number of"):
            loaded.explain([" ".join(tokens)], questions)


def test_a_label_for_a_whole_text_gets_the_hint_that_a_row_is_a_word(tmp_path):
    rows = [("the film was fine", "O O B-PER O"), ("a plot", "O O")]
    settings = run_settings(tagger("untrained"), rows, tmp_path, "model.removal=mask")
    message = r"its labels are O, B-PER, those of the data O O.*data.token=COLUMN.*number of one of"
    with pytest.raises(UserError, match=message):
        run(composed(*settings))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ([], r"data.token=COLUMN"),
        (["model.removal=delete", "data.token=token"], r"model.removal=mask"),
    ],
)
def test_what_a_tagger_lacks_is_refused(tmp_path, overrides, message):
    with pytest.raises(UserError, match=message):
        run(composed(*settings("untrained", tmp_path, *overrides)))
