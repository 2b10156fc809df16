from itertools import compress

import pytest

from attnprobe.core.batch import Task
from attnprobe.core.errors import UserError
from attnprobe.data.pipeline import TextPipeline
from attnprobe.data.text import TextRules
from attnprobe.data.vocabulary import Vocabulary
from tests.data.test_data_sets import composed
from tests.data.toys import ready

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


def asking(train=TRAIN, test=OTHER, **settings):
    return ready(train, test, test, **({"question": "ask"} | settings))


def words_of(number):
    return TRAIN["ask"][number].lower().replace("?", " ?").split()


def test_a_question_is_a_sequence_like_the_text():
    data = asking()
    numbers = [2, 0]
    batch = data.splits["train"][numbers]
    for row, number in enumerate(numbers):
        ids = batch.question[row][batch.question_mask[row]].tolist()
        assert data.vocabulary.decode(ids) == ["<SOS>", *words_of(number), "<EOS>"]
        assert data.splits["train"].question(number) == words_of(number)
    assert batch.question_mask.sum(1).tolist() == [5, 6]
    assert (batch.question[~batch.question_mask] == 0).all()
    assert batch.candidates is None


def test_a_word_of_a_question_may_be_unknown():
    data = asking()
    assert data.splits["test"][[0]].question.tolist()[0][3] == 1  # "nobody" was never seen
    assert data.counts["test"]["question tokens out of vocabulary"] == 1


def test_data_without_questions_have_none():
    test = ready().splits["test"]
    assert test.question(0) is None
    assert test[[0]].question is None


@pytest.mark.parametrize(
    ("word", "is_frequent"),
    [
        ("john", True),  # in a text and a question
        ("where", True),
        ("attic", False),  # in one text
        ("who", False),  # in one question
    ],
)
def test_a_question_counts_as_a_text_for_the_vocabulary(word, is_frequent):
    assert (word in asking(min_df=2).vocabulary.words) == is_frequent


def test_candidates_become_a_mask_over_the_classes():
    data = asking(**ASKING)
    assert data.classes == ["attic", "hall", "mary"]
    mask = data.splits["train"][[0, 1, 2]].candidates
    assert mask.tolist() == [
        [True, True, False],
        [True, True, False],  # the cellar is no class
        [True, True, True],
    ]
    assert data.counts["train"]["candidates per row"] == {"min": 2, "max": 2}
    assert data.counts["train"]["any class may answer"] == 1


def test_classes_from_candidates():
    data = asking(**ASKING, classes_from="candidates")
    assert data.classes == ["attic", "cellar", "hall", "mary"]
    assert data.splits["train"][[1]].candidates.tolist() == [[True, True, True, False]]
    assert data.counts["train"]["candidates per row"] == {"min": 2, "max": 3}


def test_classes_from_the_vocabulary():
    train = TRAIN | {"label": ["Hall", "attic", "mary"]}  # an answer is read as the text is
    data = asking(train, **ASKING, classes_from="vocabulary")
    assert data.classes == data.vocabulary.words[4:]
    part = data.splits["train"]
    assert [data.classes[label] for label in part.labels] == ["hall", "attic", "mary"]
    allowed = part[[1]].candidates[0].nonzero()[:, 0]
    assert [data.classes[number] for number in allowed] == ["attic", "hall"]


def test_an_answer_that_is_no_word_of_the_vocabulary_is_refused():
    with pytest.raises(UserError, match=r"is no word of the vocabulary: the cellar \(1 ×\)"):
        asking(test=OTHER | {"label": ["the cellar"]}, classes_from="vocabulary")


def test_an_answer_that_is_no_candidate_in_training_is_refused():
    with pytest.raises(UserError, match=r"neither a label nor a candidate in training: garage"):
        asking(test=OTHER | {"label": ["garage"]}, **ASKING, classes_from="candidates")


ENTITIES = {
    "text": [
        "@entity1 met @entity22 and @entity1",
        "@entity3 left @entity1",
        "@entity3 met x@entity1",
    ],
    "ask": ["whom did @placeholder meet", "who", "who"],
    "label": ["@entity22", "@entity3", "@entity3"],
}
MATCHING = {
    "candidates_pattern": r"@entity\d+",
    "classes_from": "candidates",
    "tokenizer": "whitespace",
}
ALLOWED = [
    [True, True, False],
    [True, False, True],
    [False, False, True],
]


def test_candidates_are_words_of_the_text():
    data = asking(ENTITIES, ENTITIES, **MATCHING)
    assert data.classes == ["@entity1", "@entity22", "@entity3"]
    assert data.splits["test"][[0, 1, 2]].candidates.tolist() == ALLOWED


def test_candidates_of_new_texts_are_their_words():
    pipeline = asking(ENTITIES, ENTITIES, **MATCHING).pipeline
    assert pipeline.batch_of(ENTITIES["text"], ENTITIES["ask"]).candidates.tolist() == ALLOWED
    with pytest.raises(UserError, match="text 0 has no candidate that the classifier knows"):
        pipeline.batch_of(["@entity99"], ["who"])


def test_a_word_that_is_cut_off_may_still_be_the_answer():
    data = asking(ENTITIES, ENTITIES, **MATCHING, max_tokens=1)
    assert data.splits["test"][[0, 1, 2]].candidates.tolist() == ALLOWED


def with_candidates(*candidates):
    return TRAIN | {"allowed": list(candidates)}


def test_answers_that_are_no_candidates_are_refused():
    message = (
        r"in 2 of 3 rows of the train split the answer is not among .* row 0: 'hall' is none of "
        r"attic\. .*=drop"
    )
    with pytest.raises(UserError, match=message):
        asking(with_candidates(["attic"], None, []), **ASKING)


def test_answers_that_are_no_candidates_are_dropped_and_counted():
    data = asking(with_candidates(["hall"], None, []), **ASKING, unseen_labels="drop")
    assert data.counts["train"]["dropped"]["answer is no candidate"] == 1
    assert data.splits["train"].example_id.tolist() == [0, 1]


def test_dropped_answers_must_leave_two_classes():
    with pytest.raises(UserError, match=r"one class only"):
        asking(with_candidates(["attic"], None, []), **ASKING, unseen_labels="drop")


def test_dropped_answers_must_leave_a_row():
    with pytest.raises(
        UserError, match=r"in 1 of 1 rows of the validation .* Check data\.candidates"
    ):
        asking(test=OTHER | {"allowed": [[]]}, **ASKING, unseen_labels="drop")


def rationale_of(split, number):
    """The words that are the reason for the label."""
    return list(compress(split.tokens(number), split.rationale(number)))


SUPPORTED = {
    "sentences": "rule",
    "rationale": "support",
    "rationale_kind": "sentences",
}


def test_support_becomes_a_mask_over_tokens():
    test = asking(**SUPPORTED).splits["test"]
    assert rationale_of(test, 0) == ["john", "is", "in", "the", "hall", "."]


def test_support_that_is_cut_off_is_counted():
    data = asking(**SUPPORTED, max_tokens=3)
    assert data.counts["test"]["rationale lost by truncation"] == 1
    assert data.counts["test"]["truncated"] == 1
    assert data.counts["train"]["rationale lost by truncation"] == 0
    assert data.splits["test"].rationale(0) == [False] * 3


def test_support_by_a_sentence_that_the_text_does_not_have_is_counted():
    data = asking(test=OTHER | {"support": [[4]]}, **SUPPORTED)
    assert data.counts["test"]["rationale does not fit"] == 1
    assert data.splits["test"].rationale(0) is None


def test_rows_without_a_question_are_left_out():
    data = asking(TRAIN | {"ask": ["Where is Mary?", "Where?", None]})
    assert data.counts["train"]["dropped"]["question is null"] == 1


def test_a_split_without_any_question_is_refused():
    with pytest.raises(UserError, match=r"\(question is empty: 3\).*data\.question=ask"):
        asking(TRAIN | {"ask": [" "] * 3})


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


@pytest.fixture(params=["new", "saved"])
def pipeline(request, tmp_path):
    if request.param == "new":
        return PIPELINE
    PIPELINE.save(tmp_path)
    return TextPipeline.load(tmp_path)


def test_new_texts_come_with_their_questions(pipeline):
    batch = pipeline.batch_of(
        ["Mary left", "x"], ["Who?", "Who is Mary?"], [["hall"], ["attic", "hall"]]
    )
    assert batch.question.tolist() == [[2, 5, 1, 3, 0, 0], [2, 5, 1, 4, 1, 3]]
    assert batch.question_mask.sum(1).tolist() == [4, 6]
    assert batch.candidates.tolist() == [[True, False], [True, True]]
    assert pipeline.batch_of(["Mary"], ["Who"]).candidates is None


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
    test = data.splits["test"]
    for number, row in enumerate(data.source.load()["test"]):
        support = [row["sentences"][sentence] for sentence in row["support"]]
        assert rationale_of(test, number) == " . ".join([*support, ""]).split()
        assert test.question(number) == row["question"].split()
        assert data.classes[test.labels[number]] == row["label"]
    assert len(test) == 30
