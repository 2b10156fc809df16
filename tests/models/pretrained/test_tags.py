import random
from functools import cache

import pytest
import torch

from attnprobe.core.errors import UserError
from attnprobe.evidence.evidence import skill_of
from attnprobe.results.table import read_examples, read_results
from attnprobe.runs.load import load_run
from attnprobe.runs.run import run
from tests.models.pretrained.families import WORDS, library_says, run_settings, taught
from tests.small_runs import composed

pytest.importorskip("transformers")
PROBES = "probe=[permutation,adversarial,gradient,leave_one_out,correlation,erasure,skill,swaps,agreement,faithfulness]"
NAMED = "story"
LABELS = ("O", "B-PER")


def planted():
    """Words, the number of the word that may be a name, and whether it is: it is after "fine", and
    not after "dull"."""
    draw = random.Random(0)
    plain = [word for word in WORDS[:13] if word not in ("fine", "dull", NAMED)]
    rows = []
    for number in range(400):
        words = draw.choices(plain, k=draw.randint(6, 9))
        place = draw.randint(1, 6)
        words[place:place] = [("dull", "fine")[number % 2], NAMED]
        rows.append((words, place + 1, number % 2))
    return rows


@cache
def tagger(kind):
    """A folder with a small tagger. `one layer`: what the last layer does not fetch from the cue
    reaches no prediction; `even`: two layers, and the last one attends evenly whatever the text;
    `untrained`: one layer that has learnt nothing."""

    def before(network):
        if kind == "even":
            for one in network.bert.encoder.layer[1].attention.self.query.parameters():
                torch.nn.init.zeros_(one).requires_grad_(False)

    def loss(network, read, words, places, names):
        given = read([" ".join(one) for one in words], return_tensors="pt", padding=True)
        wanted = torch.where(
            given.attention_mask.bool(), 0, -100
        )  # every word here is one piece, after [CLS]
        wanted[torch.arange(len(names)), torch.tensor(places) + 1] = torch.tensor(names)
        return network(**given, labels=wanted).loss

    return taught(
        "TokenClassification",
        planted(),
        loss,
        size=25,
        rate=3e-3,
        passes=0 if kind == "untrained" else 20,
        before=before,
        num_hidden_layers=2 if kind == "even" else 1,
        initializer_range=0.2,
        id2label=dict(enumerate(LABELS)),
        label2id={"O": 0, "B-PER": 1},
    )


def settings(kind, tmp_path, *more):
    rows = [(" ".join(words), LABELS[name], place) for words, place, name in planted()]
    # another word of the first text, which is none either: two questions about one text
    rows.append((rows[0][0], "O", 0))
    return run_settings(
        tagger(kind), rows, tmp_path, "model.removal=mask", *more, header=("text", "label", "token")
    )


@pytest.mark.parametrize("kind", ["one layer", "even", "untrained"])
def test_a_run_on_a_tagger_knows_which_attention_points_at_the_cue(kind, tmp_path):
    asked = ["data.token=token", "data.most={test: 24}"]
    directory = run(composed(*settings(kind, tmp_path, *asked, PROBES)))
    table = read_results(directory)
    examples = read_examples(directory)
    assert set(table["probe"]) >= set(PROBES[7:-1].split(","))
    found = []
    for row in examples.itertuples():
        at = int(row.question[1].strip("()"))
        assert row.tokens[at - 1] == row.question[0]
        _, out = library_says("TokenClassification", tagger(kind), " ".join(row.tokens))
        theirs = out.logits[0, at].softmax(-1).double().flip(0)
        torch.testing.assert_close(torch.tensor(row.probability), theirs, atol=1e-5, rtol=0)
        weights = out.attentions[-1][0].mean(0)[at, 1:-1]
        torch.testing.assert_close(
            torch.tensor(row.attention), weights / weights.sum(), atol=1e-5, rtol=0
        )
        if row.question[0] == NAMED:
            found.append(row.tokens[int(weights.argmax())] in ("fine", "dull"))
    skill = skill_of("word_mass")(table[table.probe == "skill"])
    row = examples.iloc[0]
    at = int(row["question"][1].strip("()"))
    loaded = load_run(directory)
    (told,) = loaded.explain([" ".join(row["tokens"])], [str(at - 1)]).to_dict("records")
    assert told["question"] == f"{row['question'][0]} (word {at})"
    assert told["attention"] == pytest.approx(list(row["attention"]), abs=1e-5)
    assert list(told["probability"].values()) == pytest.approx(list(row["probability"]), abs=1e-5)
    for questions in (None, ["fine"], ["0", "1"], [str(len(row["tokens"]))]):
        with pytest.raises(UserError, match="number of"):
            loaded.explain([" ".join(row["tokens"])], questions)
    if kind == "one layer":
        assert sum(found) / len(found) > 0.75
        assert skill.value > 0.3
    else:
        assert sum(found) / len(found) < 0.3
        assert abs(skill.value) < 0.1


def test_what_a_tagger_lacks_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"data.token=COLUMN"):
        run(composed(*settings("untrained", tmp_path)))
    with pytest.raises(UserError, match=r"model.removal=mask"):
        run(composed(*settings("untrained", tmp_path, "model.removal=delete", "data.token=token")))
