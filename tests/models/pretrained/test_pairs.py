import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from attnprobe.cli.explain import explain
from attnprobe.core.errors import UserError
from attnprobe.data.columns import Columns
from attnprobe.data.pieces import PieceReader
from attnprobe.findings.groups import grouped, read_run
from attnprobe.importance.word_swaps import Swapper
from attnprobe.report.page.browser import browse
from attnprobe.results.table import read_examples, read_results
from attnprobe.runs.load import load_run
from attnprobe.runs.run import run
from tests.models.pretrained import families
from tests.models.pretrained.families import (
    TEXTS,
    WORDS,
    batch_of,
    checkpoint,
    classifier,
    library_says,
    run_settings,
)
from tests.small_runs import composed

pytest.importorskip("transformers")
SECOND = ["dull people", "the music was fine and the story long", "a film of people"]
ATTENDED = {"both": (0, 1), "first": (0,), "second": (1,)}


@pytest.mark.parametrize("attend_to", ATTENDED)
def test_prediction_and_attention_are_the_librarys_own(attend_to):
    model = classifier("bert")
    batch = batch_of(model, TEXTS, SECOND, attend_to)
    with torch.no_grad():
        outputs = model(batch)
    for row, pair in enumerate(zip(TEXTS, SECOND, strict=True)):
        asked, own = library_says("SequenceClassification", checkpoint("bert"), *pair)
        torch.testing.assert_close(outputs.logits[row], own.logits[0], atol=1e-5, rtol=0)
        places = list(
            zip(
                asked.sequence_ids(0),
                asked.word_ids(0),
                own.attentions[-1][0, :, 0].mean(0),
                strict=True,
            )
        )
        wanted = [
            (number, at)
            for number in ATTENDED[attend_to]
            for at in range(len(pair[number].split()))
        ]
        mass = [
            float(sum(weight for text, word, weight in places if (text, word) == one))
            for one in wanted
        ]
        content = batch.content[row]
        torch.testing.assert_close(
            outputs.attention[row][content], torch.tensor(mass) / sum(mass), atol=1e-5, rtol=0
        )
        assert abs(float(outputs.off_text[row]) - (1 - sum(mass))) < 1e-5
        assert batch.segment[row][content].tolist() == [number for number, _ in wanted]


def test_the_longer_text_is_cut_and_what_is_cut_is_counted():
    reader = PieceReader(families.tokenizer(), 12)
    first = ["the", "film", "was", "fine"]
    second = ["a", "long", "and", "dull", "story", "of", "people", "unable"]
    segment = np.repeat([0, 1], [4, 8])
    (found,) = reader.read([[*first, *second]], None, [segment])
    (other,) = reader.read([[*second, *first]], None, [1 - segment[::-1]])
    assert found.kept.tolist() == [True] * 9 + [False] * 3
    assert other.kept.tolist() == [True] * 5 + [False] * 3 + [True] * 4
    assert found.cut == other.cut == 3


def test_a_prompt_has_a_place_for_either_text():
    prompt = "Story: {text2}\nReview: {text}\nSentiment:"
    model = families.prompted("gpt2", prompt=prompt)
    batch = batch_of(model, ["the film was fine {text2}"], ["people"])
    string = "Story: people\nReview: the film was fine {text2}\nSentiment:"
    assert batch.pieces[0].tolist() == model.reader.tokenizer(string).input_ids
    spelled = dict.fromkeys(range(-1, 7), "")
    for piece, word in zip(batch.pieces[0].tolist(), batch.piece_word[0].tolist(), strict=True):
        spelled[word] += model.reader.tokenizer.decode([piece])
    assert [spelled[number].strip() for number in range(1, 7)] == [
        "the",
        "film",
        "was",
        "fine",
        "{text2}",
        "people",
    ]
    with pytest.raises(UserError, match=r"expected data.text2"):
        batch_of(model, ["fine"])
    with pytest.raises(UserError, match=r"as data.text2 gives a second text"):
        batch_of(families.prompted("gpt2"), ["fine"], ["dull"])
    with pytest.raises(UserError, match=r"data.text2=b and data.question=c exclude each other"):
        Columns(text2="b", question="c")
    with pytest.raises(UserError, match=r"data.attend_to=first or second"):
        Columns(text2="b", rationale="r", rationale_kind="characters")


def test_words_change_places_within_their_text_of_a_pair():
    model = classifier("bert")
    batch = batch_of(
        model, ["the film was fine", "a story of music"], ["dull people", "able to see the film"]
    )
    swapper = Swapper(model, model.task, batch.rows(slice(0, 1)), batch.rows(slice(1, 2)))
    swapped = swapper.swapped(torch.ones(1, 6, dtype=torch.bool), torch.tensor([0]))
    names = model.reader.tokenizer.convert_ids_to_tokens(swapped.pieces[0])
    # the first half of each text from the donor's start, the second from its end, and of the same
    # text
    assert names == ["[CLS]", "a", "story", "of", "music", "[SEP]", "able", "film", "[SEP]"]


def test_a_run_on_pairs_says_where_the_attention_is(tmp_path):
    rows = [
        (
            " ".join(WORDS[n % 6 : n % 6 + 3 + n % 4]),
            " ".join(WORDS[n % 9 : n % 9 + 2 + n % 3]),
            "np"[n % 2],
        )
        for n in range(60)
    ]
    asked = run_settings(
        checkpoint("bert", ("n", "p")),
        rows,
        tmp_path,
        "probe=[permutation,leave_one_out,swaps]",
        "data.text=premise",
        header=("premise", "hypothesis", "label"),
    )
    with pytest.raises(UserError, match=r"data.question=null data.text2=hypothesis"):
        run(composed(*asked, "data.question=hypothesis"))
    directory = run(composed(*asked, "data.text2=hypothesis"))
    assert set(read_results(directory)["probe"]) >= {"permutation", "leave_one_out", "swaps"}
    examples = read_examples(directory)
    on_first = []
    for tokens, count, attention in examples[["tokens", "first_words", "attention"]].itertuples(
        index=False
    ):
        assert (" ".join(tokens[:count]), " ".join(tokens[count:])) in {row[:2] for row in rows}
        on_first.append(sum(attention[:count]))
    expected = (1 - np.array(on_first)) * (1 - examples["special_mass"])
    np.testing.assert_allclose(examples["second_mass"], expected, atol=1e-5)
    told = read_run(directory)
    share = examples["second_mass"].mean() / (1 - examples["special_mass"].mean())
    assert f"{share:.0%} of what is on words is on the second text" in told.attention_on
    assert abs(told.manifest["attention_on"]["start_mass"] - examples["start_mass"].mean()) < 1e-3
    loaded = load_run(directory)
    explained = loaded.explain(["the film was"], ["was fine"])
    assert explained["tokens"][0] == ["the", "film", "was", "was", "fine"]
    with pytest.raises(UserError, match=r"expected questions=\[…\], a list of 1"):
        loaded.explain(["the film was"])


def test_the_other_text_has_its_name_and_a_checkpoint_that_changed_in_place_is_noticed(
    tmp_path, capsys
):
    folder = tmp_path / "checkpoint"
    rows = [
        (f"the film {WORDS[n % 6]} {WORDS[n % 5]}", f"people {WORDS[n % 7]}", "np"[n % 2])
        for n in range(12)
    ]
    shutil.copytree(checkpoint("bert", ("n", "p")), folder)
    more = ("data.text=a", "data.text2=b", "data.attend_to=second", "probe=[permutation]")
    config = composed(*run_settings(folder, rows, tmp_path, *more, header=("a", "b", "label")))
    directory = run(config)
    (told,) = browse(grouped([read_run(directory)])).index["runs"]
    assert told["other_text"] == "First text"
    explain([str(directory), "the film was", "--text2", "was fine"])
    shown = capsys.readouterr().out
    assert "text: the film was\n  read with: was fine" in shown
    with pytest.raises(SystemExit):
        explain([str(directory), "the film was"])
    assert "--text2 TEXT" in capsys.readouterr().err
    assert run(config, sweep=True) == directory
    weights = load_file(folder / "model.safetensors")
    save_file(
        {name: one + 0.25 for name, one in weights.items()},
        folder / "model.safetensors",
        {"format": "pt"},
    )
    with pytest.raises(
        UserError, match=r"the content of model.path/model.safetensors has changed since"
    ):
        run(config, sweep=True)
