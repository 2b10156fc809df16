import json

import pytest
import torch

from attnprobe.core.batch import Task
from attnprobe.core.errors import UserError
from attnprobe.data.pipeline import TextPipeline
from attnprobe.data.text import CLEANING, TOKEN_RULES, TextRules
from attnprobe.data.vocabulary import Vocabulary


@pytest.mark.parametrize(
    ("step", "text", "cleaned"),
    [
        ("lower", "Ein Ü", "ein ü"),
        ("nonword", "it's—fine_1!", "it s fine_1 "),
        ("html", "a<br />b &amp; <i>c</i> 2 < 3", "a b &  c  2 < 3"),
        ("treebank_brackets", "-LRB-so-rrb- x", "so  x"),
        ("keras_marks", "don't: (a-b)\tc.", "don't   a b  c "),
    ],
)
def test_each_cleaning_step_does_what_it_says(step, text, cleaned):
    assert CLEANING[step](text) == cleaned


@pytest.mark.parametrize(
    ("rule", "tokens", "expected"),
    [
        ("lower", ["A", "b"], ["a", "b"]),
        ("digits", ["3rd", "one", "x²", "٣"], ["qqq", "one", "qqq", "qqq"]),
        (
            "free_punctuation",
            ["yes", ",", "i", "do", "n't", "!", "."],
            ["yes", "i", "do", "n", "'", "t", "."],
        ),
        ("deidentified", ["on", "[", "*", "*", "2101", "*", "*", "]", "dr"], ["on", "<DE>", "dr"]),
        ("repeated_marks", ["_", "_", "__", "a", "--", "b"], ["_", "a", "-", "b"]),
    ],
)
def test_each_token_rule_does_what_it_says(rule, tokens, expected):
    assert TOKEN_RULES[rule](tokens) == expected


def test_order_case_falls_after_tokenising():
    # spaCy keeps "Adm." together but splits "adm.": the order is part of the paper's vocabulary
    assert TextRules(token_rules=["lower"]).tokens("Adm. Smith  won") == ["adm.", "smith", "won"]
    assert TextRules(clean=["lower"], token_rules=[]).tokens("Adm. Smith") == ["adm", ".", "smith"]


@pytest.fixture
def pipeline():
    return TextPipeline(
        TextRules(), Vocabulary(["bad", "film", "good"]), ["negative", "positive"], max_tokens=3
    )


def test_batch_of_new_texts(pipeline):
    batch = pipeline.batch_of(["Good film, really", "BAD"])
    assert batch.ids.tolist() == [[2, 6, 5, 1, 3], [2, 4, 3, 0, 0]]
    assert batch.content.tolist() == [
        [False, True, True, True, False],
        [False, True, False, False, False],
    ]
    assert batch.example_id.tolist() == [0, 1]
    assert batch.labels.dtype == torch.long
    assert pipeline.tokens("Good film, really") == ["good", "film", ","]


def test_a_list_of_words_is_taken_as_it_is(pipeline):
    assert pipeline.batch_of([["good", "Film", "isn't"]]).ids.tolist() == [[2, 6, 1, 1, 3]]
    assert pipeline.tokens(["isn't", "good"]) == ["isn't", "good"]
    assert TextRules(sentences="spacy").read(["a", ".", "b.c"]) == (["a", ".", "b.c"], [0, 0, 1])


def test_a_pipeline_is_rebuilt_without_the_data(pipeline, tmp_path):
    pipeline.save(tmp_path)
    again = TextPipeline.load(tmp_path)
    assert torch.equal(again.batch_of(["a good film"]).ids, pipeline.batch_of(["a good film"]).ids)
    assert list(again.classes) == ["negative", "positive"]
    assert again.task == Task.SINGLE_LABEL
    assert again.max_tokens == 3


def test_a_missing_pipeline_is_named(tmp_path):
    with pytest.raises(UserError, match="does not exist"):
        TextPipeline.load(tmp_path)


def test_a_file_that_is_no_pipeline_is_refused(pipeline, tmp_path):
    pipeline.save(tmp_path)
    (tmp_path / "pipeline.json").write_text(json.dumps({"rules": {}}))
    with pytest.raises(UserError, match=r"not the pipeline\.json of a run"):
        TextPipeline.load(tmp_path)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ([["good", "a film"]], "text 0 is a list with 'a film', which is no word"),
        ("a film", "expected a list"),
        ([], "expected a list"),
        (["fine", "  "], r"text 1 \('  '\) has no word"),
    ],
)
def test_texts_that_cannot_be_explained(pipeline, texts, message):
    with pytest.raises(UserError, match=message):
        pipeline.batch_of(texts)
