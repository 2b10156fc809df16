import pytest
import torch

from attnprobe.core.batch import Task
from attnprobe.core.errors import UserError
from attnprobe.data.pipeline import TextPipeline
from attnprobe.data.text import TextRules
from attnprobe.data.vocabulary import Vocabulary
from tests.data.toys import ready
from tests.data.test_data_sets import composed

TRAIN = {
    "text": ["Mary is in the Hall.", "John is in the attic.", "Mary left."],
    "ask": ["Where is Mary?", "Where is John?", "Who left?"],
    "label": ["hall", "attic", "mary"],
    "allowed": [["hall", "attic"], ["attic", "hall", "cellar"], None],
    "support": [[0], [0], [0]],
}
OTHER = {
    "text": ["John left. John is in the hall. It rains. It rains."],
    "ask": ["Where is nobody?"],
    "label": ["hall"],
    "allowed": [["attic", "hall"]],
    "support": [[1]],
}
ASKING = {"question": "ask", "candidates": "allowed"}


def asking(train=TRAIN, other=OTHER, **settings):
    return ready(train, other, other, **({"question": "ask"} | settings))


def test_a_question_is_a_sequence_like_the_text():
    data = asking()
    batch = data.splits["train"][[2, 0]]
    words = data.vocabulary.words
    for row, number in enumerate([2, 0]):
        question = batch.question[row][batch.question_mask[row]].tolist()
        expected = TRAIN["ask"][number].lower().replace("?", " ?").split()
        assert [words[i] for i in question] == ["<SOS>", *expected, "<EOS>"]
        assert data.splits["train"].question(number) == expected
    assert batch.question_mask.sum(1).tolist() == [5, 6]
    assert (batch.question[~batch.question_mask] == 0).all()
    assert batch.candidates is None
    assert data.splits["test"][[0]].question.tolist()[0][3] == 1  # "nobody" was never seen
    assert data.counts["test"]["question tokens out of vocabulary"] == 1
    assert ready().splits["test"].question(0) is None
    assert ready().splits["test"][[0]].question is None
    # "john" is in one text and one question, "attic" in one text, "who" in one question
    frequent = asking(min_df=2).vocabulary
    assert [word in frequent.words for word in ("john", "where", "attic", "who")] == [
        True,
        True,
        False,
        False,
    ]


def test_candidates_become_a_mask_over_the_classes():
    data = asking(**ASKING)
    assert data.classes == ["attic", "hall", "mary"]
    mask = data.splits["train"][[0, 1, 2]].candidates
    assert mask.tolist() == [
        [True, True, False],
        [True, True, False],
        [True, True, True],
    ]  # the cellar is no class
    assert data.counts["train"]["candidates per row"] == {"min": 2, "max": 2}
    assert data.counts["train"]["any class may answer"] == 1


def test_classes_from_candidates_and_from_the_vocabulary():
    data = asking(**ASKING, classes_from="candidates")
    assert data.classes == ["attic", "cellar", "hall", "mary"]
    assert data.splits["train"][[1]].candidates.tolist() == [[True, True, True, False]]
    assert data.counts["train"]["candidates per row"] == {"min": 2, "max": 3}
    train = TRAIN | {"label": ["Hall", "attic", "mary"]}  # an answer is read as the text is
    data = asking(train, **ASKING, classes_from="vocabulary")
    assert data.classes == data.vocabulary.words[4:]
    assert [data.classes[label] for label in data.splits["train"].labels] == [
        "hall",
        "attic",
        "mary",
    ]
    allowed = data.splits["train"][[1]].candidates[0]
    assert [data.classes[i] for i in allowed.nonzero()[:, 0]] == ["attic", "hall"]
    with pytest.raises(UserError, match=r"is no word of the vocabulary: the cellar \(1 ×\)"):
        asking(other=OTHER | {"label": ["the cellar"]}, classes_from="vocabulary")
    with pytest.raises(UserError, match=r"neither a label nor a candidate in training: garage"):
        asking(other=OTHER | {"label": ["garage"]}, **ASKING, classes_from="candidates")


def test_candidates_found_in_the_text():
    train = {
        "text": [
            "@entity1 met @entity22 and @entity1",
            "@entity3 left @entity1",
            "@entity3 met x@entity1",
        ],
        "ask": ["whom did @placeholder meet", "who", "who"],
        "label": ["@entity22", "@entity3", "@entity3"],
    }
    settings = {
        "candidates_pattern": r"@entity\d+",
        "classes_from": "candidates",
        "tokenizer": "whitespace",
    }
    data = asking(train, train, **settings)
    assert data.classes == ["@entity1", "@entity22", "@entity3"]
    mask = data.splits["test"][[0, 1, 2]].candidates
    assert mask.tolist() == [[True, True, False], [True, False, True], [False, False, True]]
    again = data.pipeline.batch_of(train["text"], train["ask"])
    assert torch.equal(again.candidates, mask)
    with pytest.raises(UserError, match="text 0 has no candidate that the classifier knows"):
        data.pipeline.batch_of(["@entity99"], ["who"])
    cut = asking(train, train, **settings, max_tokens=1)  # what is cut off may still be the answer
    assert torch.equal(cut.splits["test"][[0, 1, 2]].candidates, mask)


def test_answers_that_are_no_candidates_are_refused_or_dropped_and_counted():
    wrong = TRAIN | {"allowed": [["attic"], None, []]}
    message = r"in 2 of 3 rows of the train split the answer is not among .* row 0: 'hall' is none of attic\. .*=drop"
    with pytest.raises(UserError, match=message):
        asking(wrong, **ASKING)
    with pytest.raises(UserError, match=r"one class only"):
        asking(wrong, **ASKING, unseen_labels="drop")
    wrong["allowed"][0] = ["hall"]
    data = asking(wrong, **ASKING, unseen_labels="drop")
    assert data.counts["train"]["dropped"]["answer is no candidate"] == 1
    assert data.splits["train"].example_id.tolist() == [0, 1]
    with pytest.raises(
        UserError, match=r"in 1 of 1 rows of the validation .* Check data\.candidates"
    ):
        asking(other=OTHER | {"allowed": [[]]}, **ASKING, unseen_labels="drop")


def marked_in(split, number):
    return [t for t, m in zip(split.tokens(number), split.rationale(number), strict=True) if m]


def test_support_becomes_a_mask_over_tokens_and_its_loss_is_counted():
    settings = {"sentences": "rule", "rationale": "support", "rationale_kind": "sentences"}
    data = asking(**settings)
    assert marked_in(data.splits["test"], 0) == ["john", "is", "in", "the", "hall", "."]
    data = asking(**settings, max_tokens=3)
    assert data.counts["test"]["rationale lost by truncation"] == 1
    assert data.counts["test"]["truncated"] == 1
    assert data.counts["train"]["rationale lost by truncation"] == 0
    assert data.splits["test"].rationale(0) == [False] * 3
    data = asking(TRAIN | {"ask": ["Where is Mary?", "Where?", None]})
    assert data.counts["train"]["dropped"]["question is null"] == 1
    with pytest.raises(UserError, match=r"\(question is empty: 3\).*data\.question=ask"):
        asking(TRAIN | {"ask": [" "] * 3})
    data = asking(other=OTHER | {"support": [[4]]}, **settings)  # there is no such sentence
    assert data.counts["test"]["rationale does not fit"] == 1
    assert data.splits["test"].rationale(0) is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"question": "query"},
            r"data\.question=query: there is no such column.*or do without: data\.question=null",
        ),
        ({"candidates": "allowed", "candidates_pattern": "x"}, r"exclude each other"),
        ({"candidates_pattern": "("}, r"data\.candidates_pattern=\( is not a regular expression"),
        ({"classes_from": "candidates"}, r"needs data\.candidates or data\.candidates_pattern"),
        ({"classes_from": "vocabulary", "labels": ["a"]}, r"leaves no room for data\.labels"),
        ({"candidates": "allowed", "multi_label": True}, r"candidates are for one answer per row"),
    ],
)
def test_what_a_user_can_get_wrong(change, message):
    with pytest.raises(UserError, match=message):
        asking(**change)


PIPELINE = TextPipeline(TextRules(), Vocabulary(["mary", "who"]), ["hall", "attic"], question=True)


def test_new_texts_come_with_their_questions(tmp_path):
    PIPELINE.save(tmp_path)
    for one in (PIPELINE, TextPipeline.load(tmp_path)):
        batch = one.batch_of(
            ["Mary left", "x"], ["Who?", "Who is Mary?"], [["hall"], ["attic", "hall"]]
        )
        assert batch.question.tolist() == [[2, 5, 1, 3, 0, 0], [2, 5, 1, 4, 1, 3]]
        assert batch.question_mask.sum(1).tolist() == [4, 6]
        assert batch.candidates.tolist() == [[True, False], [True, True]]
        assert one.batch_of(["Mary"], ["Who"]).candidates is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            (["Mary"],),
            r"expected questions=\[…\], a list of 1, one per text.*, but got no questions",
        ),
        ((["Mary"], ["a", "b"]), r"a list of 1, one per text.*, but got \['a', 'b'\]"),
        ((["Mary"], "Who?"), r"a list of 1"),
        ((["Mary"], [" "]), r"question 0 \(' '\) has no word left"),
        (
            (["Mary"], ["Who?"], [["cellar"]]),
            r"'cellar' is not a class of this run \(hall, attic\)",
        ),
        ((["Mary"], ["Who?"], [[]]), r"text 0 has no candidate"),
        ((["Mary"], ["Who?"], [["hall"], ["hall"]]), r"expected 1 lists of classes, one per text"),
    ],
)
def test_new_questions_that_cannot_be_answered(arguments, message):
    with pytest.raises(UserError, match=message):
        PIPELINE.batch_of(*arguments)


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_stories_end_to_end(hops):
    sizes = [f"data.source.{split}_size=30" for split in ("train", "validation", "test")]
    data = composed("stories", f"data.source.hops={hops}", *sizes)
    data.setup()
    assert data.task is Task.SINGLE_LABEL
    assert len(data.classes) == 6
    table = data.source.load()["test"]
    for row in range(30):
        marked = marked_in(data.splits["test"], row)
        support = [table[row]["sentences"][i] for i in table[row]["support"]]
        assert marked == " . ".join([*support, ""]).split()
        assert data.splits["test"].question(row) == table[row]["question"].split()
        assert data.classes[data.splits["test"].labels[row]] == table[row]["label"]
