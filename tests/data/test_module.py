import json
from pathlib import Path
from types import SimpleNamespace

import datasets
import numpy as np
import pytest
import torch
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from omegaconf import OmegaConf

import attnprobe
from attnprobe import configuration  # noqa: F401  its resolver names a data set of files
from attnprobe.batch import Task
from attnprobe.data.module import TextDataModule
from attnprobe.data.pipeline import TextPipeline
from attnprobe.data.rows import canonical, class_map, class_weights, column, divide
from attnprobe.data.sources import FileSource, Source
from attnprobe.errors import UserError

CONF = Path(attnprobe.__file__).parents[1] / "conf" / "data"
DATA_SETS = sorted(path.stem for path in CONF.glob("*.yaml") if path.stem != "base")
LOCAL_ONLY = {"anemia", "cnn_qa", "diabetes", "geco", "imdb10", "movies", "tweets_adr"}
TRAIN = {"text": ["Good film", "a bad FILM", "good good", "bad"], "label": [1, 0, 1, 0]}
OTHER = {"text": ["unheard good", "bad bad"], "label": [1, 0]}


class Given(Source):
    def __init__(self, **splits):
        self.splits = splits

    def load(self):
        return {split: datasets.Dataset.from_dict(columns) for split, columns in self.splits.items()}


def ready(train=TRAIN, validation=OTHER, test=OTHER, **settings):
    splits = {"train": train, "validation": validation, "test": test}
    given = {split: columns for split, columns in splits.items() if columns is not None}
    data = TextDataModule("given", Given(**given), embedding_size=4, **settings)
    data.setup()
    return data


def test_encoding_against_a_plain_loop():
    data = ready()
    assert data.vocabulary.words[4:] == ["a", "bad", "film", "good"]
    assert data.classes == ["0", "1"]
    for split, columns in {"train": TRAIN, "validation": OTHER, "test": OTHER}.items():
        for row, text in enumerate(columns["text"]):
            batch = data.splits[split][[row]]
            assert batch.ids.tolist() == [[2, *data.vocabulary.encode(text.lower().split()), 3]]
            assert batch.labels.tolist() == [columns["label"][row]]
            assert data.splits[split].tokens(row) == text.lower().split()
    assert data.counts["test"]["tokens out of vocabulary"] == 1
    assert data.sizes == {"train": 4, "validation": 2, "test": 2}
    assert data.splits["test"].rationale(0) is None


def test_loaders_serve_every_example_once_and_leave_the_global_generator_alone():
    data = ready(batch_size=3, eval_batch_size=1)
    state = torch.get_rng_state()
    for loader in (data.train_dataloader(), data.val_dataloader(), data.test_dataloader()):
        ids = [number for batch in loader for number in batch.example_id.tolist()]
        assert sorted(ids) == list(range(len(ids)))
    assert torch.equal(state, torch.get_rng_state())
    assert len(data.test_dataloader()) == 2


def test_workers_give_the_same_batches():
    plain, workers = (list(ready(num_workers=count, batch_size=2).train_dataloader()) for count in (0, 1))
    assert [batch.ids.tolist() for batch in plain] == [batch.ids.tolist() for batch in workers]


def test_two_processes_share_the_test_split():
    data = ready(eval_batch_size=1)
    seen = []
    for rank in range(2):
        data.trainer = SimpleNamespace(global_rank=rank, world_size=2)
        seen.append([batch.example_id.tolist() for batch in data.test_dataloader()])
    assert sorted(seen) == [[[0]], [[1]]]


def test_batches_of_new_text_equal_those_of_the_split(tmp_path):
    data = ready()
    expected = data.splits["test"][[0, 1]]
    data.pipeline.save(tmp_path)
    for batch in (data.pipeline.batch_of(OTHER["text"]), TextPipeline.load(tmp_path).batch_of(OTHER["text"])):
        for name in ("ids", "mask", "content"):
            assert torch.equal(getattr(batch, name), getattr(expected, name))


def test_fingerprint_sees_every_change_of_the_examples():
    first = ready().fingerprint
    assert ready(batch_size=2).fingerprint == first
    assert ready(test={**OTHER, "label": [1, 1]}).fingerprint != first
    assert ready(test={**OTHER, "text": ["bad", "unheard good"]}).fingerprint != first


def test_every_row_that_is_left_out_is_counted_and_example_ids_stay():
    train = {
        "text": ["one", None, "  ", "two words", "three words here", "four words are too many"],
        "label": ["a", "a", "a", "b", None, "a"],
        "kind": ["x", "x", "x", "x", "x", "x"],
    }
    other = {"text": ["w w", "w", "w w w"], "label": ["a", "b", "a"], "kind": ["x", "x", "y"]}
    other = {name: values + values[:1] for name, values in other.items()}
    with pytest.raises(UserError, match="one class only"):
        ready(train, other, other, filters={"kind": "x"}, min_length=1, max_length=5)
    train["text"][0] = "one more"
    data = ready(train, other, other, filters={"kind": "x"}, min_length=1, max_length=5)
    dropped = data.counts["train"]["dropped"]
    assert dropped == {
        "filter kind": 0, "text is null": 1, "label is null": 1, "text is empty": 1, "label is unseen": 0,
        "too short": 0, "too long": 1,
    }  # fmt: skip
    assert data.splits["train"].example_id.tolist() == [0, 3]
    assert data.splits["test"].example_id.tolist() == [0, 3]
    assert data.counts["test"]["dropped"]["filter kind"] == 1
    assert data.counts["test"]["kept"] == 2


def test_length_limits_are_strict_and_extremes_may_go():
    texts = ["w " * length for length in (1, 2, 2, 3, 4, 5, 5)]
    part = {"text": texts, "label": [0, 1, 0, 1, 0, 1, 0]}
    kept = ready(part, part, part, min_length=1, max_length=5).splits["test"].words.lengths
    assert kept.tolist() == [2, 2, 3, 4]
    kept = ready(part, part, part, min_length=2, drop_extremes=True).splits["test"].words.lengths
    assert kept.tolist() == [3, 4]


def test_vocabulary_is_of_all_training_texts_and_of_them_alone():
    data = ready({"text": ["rare", "good bad", "bad good"], "label": [0, 0, 1]}, min_length=1, min_df=1)
    assert "rare" in data.vocabulary
    assert "unheard" not in data.vocabulary
    assert "rare" not in ready(min_df=2).vocabulary


def test_huge_text_is_cut_and_counted():
    data = ready(test={"text": ["good " * 100_000, "bad"], "label": [1, 0]})
    assert data.counts["test"]["truncated"] == 1
    assert data.splits["test"].words.lengths.tolist() == [4000, 1]
    assert len(data.pipeline.batch_of(["good " * 100_000]).ids[0]) == 4002


def test_missing_splits_are_drawn_stratified_and_apart_from_the_seed():
    train = {"text": [f"word{n % 7} x" for n in range(100)], "label": ["a"] * 80 + ["b"] * 20}
    data = ready(train, None, None, test_share=0.2, validation_share=0.25)
    counts = {split: data.counts[split]["per class"] for split in data.counts}
    assert counts == {"train": {"a": 48, "b": 12}, "validation": {"a": 16, "b": 4}, "test": {"a": 16, "b": 4}}
    ids = [data.splits[split].example_id for split in ("train", "validation", "test")]
    assert sorted(np.concatenate(ids)) == list(range(100))
    assert data.splits["test"].tokens(int(ids[2][0])) == train["text"][ids[2][0]].split()
    assert ready(train, None, None, test_share=0.2, validation_share=0.25, seed=5).fingerprint == data.fingerprint
    moved = ready(train, None, None, split_seed=1).splits["test"].example_id
    assert moved.tolist() != ids[2].tolist()
    with pytest.raises(UserError, match=r"4 rows are too few to draw a test split from \(data.test_share=0.1\)"):
        ready(TRAIN, None, None, test_share=0.1)


def test_pool_puts_all_splits_together():
    part = {"text": ["x y"] * 10, "label": ["a", "b"] * 5, "title": [None] * 10}
    data = ready(part, part, {**part, "title": [3] * 10}, pool=True, test_share=0.2, validation_share=0.25)
    assert data.sizes == {"train": 18, "validation": 6, "test": 6}
    assert data.counts["train"]["loaded"] == 30


def test_multi_label():
    train = {"text": ["x", "y", "z", "w"], "label": ["flu;cold", " cold ", "flu ; cold", "flu"]}
    other = {"text": ["x", "y"], "label": ["cold", "flu"]}
    data = ready(train, other, other, multi_label=True, class_weight="balanced_positive")
    assert data.task is Task.MULTI_LABEL
    assert data.classes == ["cold", "flu"]
    assert data.splits["train"].labels.tolist() == [[1, 1], [1, 0], [1, 1], [0, 1]]
    torch.testing.assert_close(data.class_weight, torch.tensor([1 / 3, 1 / 3]))
    lists = {"text": train["text"], "label": [["flu", "cold"], ["cold"], ["cold", "flu"], []]}
    data = ready(lists, other, other, multi_label=True)
    assert data.splits["train"].labels.tolist() == [[1, 1], [1, 0], [1, 1], [0, 0]]
    assert data.pipeline.batch_of(["x"]).labels.shape == (1, 2)


def test_rationale_as_mask_and_as_spans():
    mask = {**OTHER, "why": [[True, False], [True]]}
    data = ready(test=mask, train={**TRAIN, "why": [None] * 4}, validation=mask, rationale="why")
    assert data.splits["test"].rationale(0) == [True, False]
    assert data.splits["test"].rationale(1) is None  # one mark for two words: does not fit
    assert data.counts["test"]["rationale does not fit"] == 1
    spans = {"text": ["a b c d", "a b"], "label": [0, 1], "why": [[[1, 3], [2, 2]], []]}
    data = ready(spans, spans, spans, rationale="why", rationale_kind="spans", max_tokens=2)
    assert data.splits["test"].rationale(0) == [False, True]
    assert data.splits["test"].rationale(1) == [False, False]


def test_embeddings(tmp_path):
    data = ready(seed=3)
    assert data.embeddings().shape == (8, 4)
    assert torch.equal(data.embeddings(), ready(seed=3).embeddings())
    assert not torch.equal(data.embeddings(), ready(seed=4).embeddings())
    (tmp_path / "vectors.txt").write_text("good 1 2 3\nelse 0 0 0\n")
    data = ready(vectors=str(tmp_path / "vectors.txt"))
    assert data.embeddings()[data.vocabulary.id_of("good")].tolist() == [1, 2, 3]
    assert data.counts["vectors"] == {"vocabulary": 8, "found": 1}


def test_unseen_labels():
    test = {"text": ["x", "y", "z"], "label": ["2", "7", "1"]}
    train = {"text": ["x", "y"], "label": [2, 1]}
    with pytest.raises(UserError, match=r"test split was not seen in training: 7 \(1 ×\).*data\.unseen_labels=drop"):
        ready(train, train, test)
    data = ready(train, train, test, unseen_labels="drop")
    assert data.counts["test"]["dropped"]["label is unseen"] == 1
    assert data.classes == ["1", "2"]
    with pytest.raises(UserError, match="every label of the test split was not seen"):
        ready(train, train, {"text": ["x"], "label": [9]}, unseen_labels="drop")
    with pytest.raises(UserError, match=r"train split is not in data\.labels: 3"):
        ready({"text": ["x", "y", "z"], "label": [1, 2, 3]}, train, train, labels=[1, 2])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"text": "review"}, r"data\.text=review: there is no such column. The columns are text, label"),
        ({"label": "stars"}, r"data\.label=stars: there is no such column"),
        ({"rationale": "why"}, r"data\.rationale=why: there is no such column"),
        ({"filters": {"kind": "x"}}, r"data\.filters column=kind: there is no such column"),
        ({"filters": {"label": [3, 4]}}, r"no row of the train split is left after label=\[3, 4\].*1 \(2 ×\)"),
        ({"min_length": 9}, r"no row .* more than data\.min_length=9 .*the texts have 1 to 3"),
        ({"clean": ["stem"]}, r"data\.clean: there is no step 'stem'"),
        ({"min_df": 9}, r"data\.min_df=9 leaves no word"),
        ({"train": {"text": ["a", "b"], "label": [1, 1]}}, r"fewer than 2 classes .*\(1: 2\)"),
        ({"train": {"text": [" ", None], "label": [1, 0]}}, r"can be used \(text is null: 1, text is empty: 1\)"),
        ({"train": {"text": ["a", "b"], "label": [None, None]}}, r"\(label is null: 2\)"),
        ({"train": {"text": [["a"], ["b"]], "label": [0, 1]}}, r"data\.text=text: expected text, row 0 of train"),
        ({"labels": {0: "bad", 1: "good", 2: "fine"}}, r"no training row has the class fine"),
        ({"labels": ["neg", "pos"]}, r"fewer than 2 classes among data\.labels \(neg, pos\)"),
        ({"unseen_labels": "keep"}, r"data\.unseen_labels=keep: expected error or drop"),
        ({"batch_size": 0}, r"data\.batch_size=0"),
        ({"max_tokens": 0}, r"data\.max_tokens=0"),
        ({"test_share": 20}, r"data\.test_share=20: expected a share"),
        ({"class_weight": "heavy"}, r"data\.class_weight=heavy: expected none, balanced"),
        ({"class_weight": [1.0]}, r"expected 2 numbers above 0"),
        ({"vectors": "no.vec"}, r"no\.vec does not exist"),
    ],
)
def test_what_a_user_can_get_wrong(change, message):
    with pytest.raises(UserError, match=message):
        ready(**change).embeddings()


def test_labels_are_numbers_before_they_are_text():
    assert class_map(None, [["10"], ["9"], ["-1.5"]])[1] == ["-1.5", "9", "10"]
    assert class_map(None, [["10"], ["9"], ["a"]])[1] == ["10", "9", "a"]
    assert class_map({0: "neg", "neg": "neg", 1.0: "pos"}, []) == ({"0": 0, "neg": 0, "1": 1}, ["neg", "pos"])
    assert canonical(True) == "True"


def test_hub_class_numbers_become_names_and_hidden_labels_null():
    features = datasets.Features({"label": datasets.ClassLabel(names=["neg", "pos"])})
    assert column(datasets.Dataset.from_dict({"label": [1, 0, -1]}, features), "label", "x") == ["pos", "neg", None]


def test_class_weights_by_hand():
    counts, single = np.array([30, 10]), Task.SINGLE_LABEL
    assert class_weights("none", counts, 40, single) is None
    assert class_weights("balanced_positive", counts, 40, single).tolist() == [1, 3]
    torch.testing.assert_close(class_weights("inverse_frequency", counts, 40, single), torch.tensor([2 / 3, 2.0]))
    assert class_weights([1, 5], counts, 40, single).tolist() == [1, 5]
    with pytest.raises(UserError, match="is for two classes, here are 3"):
        class_weights("balanced_positive", np.array([1, 2, 3]), 6, single)
    with pytest.raises(UserError, match="examples of every class"):
        class_weights("inverse_frequency", np.array([0, 2]), 2, single)


def test_divide_draws_the_share_of_every_class():
    labels = np.repeat([0, 1, 2], [50, 30, 20])
    drawn = divide(labels, 0.3, np.random.default_rng(0))
    assert np.bincount(labels[drawn]).tolist() == [15, 9, 6]


def test_users_own_csv_needs_no_code(tmp_path):
    lines = [f"fine film {n},{n % 2 + 1}" for n in range(40)]
    (tmp_path / "my.csv").write_text("\n".join(["review,stars", *lines]))
    data = composed("files", f"data.path={tmp_path}/my.csv", "data.text=review", "data.label=stars")
    data.setup()
    assert data.classes == ["1", "2"]
    assert data.sizes == {"train": 28, "validation": 4, "test": 8}
    with pytest.raises(UserError, match=r"data\.path is not set"):
        composed("files").setup()
    (tmp_path / "train.jsonl").write_text("\n".join(json.dumps({"t": "x", "label": n % 2}) for n in range(9)))
    with pytest.raises(UserError, match="The columns are t, label"):
        composed("files", f"data.path={tmp_path}/train.jsonl").setup()


def composed(name, *overrides):
    with initialize_config_dir(str(CONF.parent), version_base=None):
        config = compose("config", [f"data={name}", *overrides])
    settings = OmegaConf.to_container(config, resolve=True)["data"]
    return instantiate(settings, seed=0)


@pytest.mark.parametrize("name", DATA_SETS)
def test_every_data_set_composes_and_says_what_it_lacks(name, monkeypatch, tmp_path):
    monkeypatch.setenv("ATTNPROBE_DATA_DIR", str(tmp_path))
    data = composed(name)
    assert data.name == name
    if name in LOCAL_ONLY:
        with pytest.raises(UserError, match=rf"no local files at {tmp_path}/{name}: put .*is on no hub"):
            data.setup()


def test_testbed_end_to_end():
    data = composed(
        "testbed", "data.source.train_size=40", "data.source.validation_size=10", "data.source.test_size=10"
    )
    data.setup()
    assert data.classes == ["negative", "positive"]
    assert data.sizes == {"train": 40, "validation": 10, "test": 10}
    for row in range(10):
        assert len(data.splits["test"].rationale(row)) == len(data.splits["test"].tokens(row))
    assert any(data.splits["test"].rationale(0))


@pytest.mark.real_data
@pytest.mark.parametrize(
    ("name", "vocabulary", "train", "test"),
    [("sst", 13_826, [3034, 3321], [863, 862]), ("imdb", 12_487, None, [2184, 2172])],
)
def test_counts_of_the_paper(name, vocabulary, train, test):
    data = composed(name)
    if not (isinstance(data.source.folder, str) and local(data.source.folder)):
        pytest.skip(f"no {name} below ATTNPROBE_DATA_DIR")
    data.setup()
    assert len(data.vocabulary) == vocabulary
    assert list(data.counts["test"]["per class"].values()) == test
    assert train is None or list(data.counts["train"]["per class"].values()) == train


def local(folder):
    try:
        return FileSource(folder).files()
    except UserError:
        return None


def test_rows_are_drawn_at_random_and_counted():
    train = {"text": [f"word{n} film" for n in range(40)], "label": [0, 1] * 20}
    data = ready(train, most={"train": 10})
    kept = data.splits["train"].example_id.tolist()
    assert len(kept) == 10
    assert kept == sorted(kept)
    assert kept != list(range(10))
    assert data.counts["train"]["dropped"]["over data.most"] == 30
    assert data.sizes["test"] == 2
    assert len([word for word in data.vocabulary.words if word.startswith("word")]) == 10  # of the kept rows alone
    assert (
        ready(train, most={"train": 10}, seed=5).splits["train"].example_id.tolist() == kept
    )  # seeds see the same rows
    assert ready(train, most={"train": 10}, split_seed=1).splits["train"].example_id.tolist() != kept
    assert ready(train, most={"train": 100}).sizes["train"] == 40
    with pytest.raises(UserError, match=r"data\.most=.*tests.*expected some of train, validation, test"):
        ready(most={"tests": 3})


def test_numbers_per_word_reach_the_batches_under_their_name():
    """A column of the user's own, and one that a batch declares: neither costs an edit of the data's code."""
    scores = {**OTHER, "mine": [[0.5, -2], [1]], "spans": [[1, 0], [0, 1]]}
    data = ready(
        {**TRAIN, "mine": [[1, 2], [1, 2, 3], [1, 2], [None]], "spans": [[0, 0], [0, 0, 0], [1, 1], [0]]},
        scores, scores, per_word={"mine": "mine", "teacher_attention": "spans"}, max_tokens=2,
    )  # fmt: skip
    batch = data.splits["test"][[1, 0]]
    nan = float("nan")
    expected = torch.tensor([[nan, nan, nan, nan], [nan, 0.5, -2, nan]], dtype=torch.float64)
    torch.testing.assert_close(batch.extra["mine"], expected, equal_nan=True)
    assert batch.teacher_attention.tolist() == [[0, 0, 1, 0], [0, 1, 0, 0]]
    assert data.counts["test"]["mine does not fit"] == 1  # one number for two words
    assert data.counts["train"]["mine does not fit"] == 1  # null is no number
    assert data.splits["train"][[1]].extra["mine"].tolist()[0][1:3] == [1, 2]  # cut with the text
    cut = batch.rows(torch.tensor([1])).cut(3)
    torch.testing.assert_close(cut.extra["mine"], expected[1:, :3], equal_nan=True)
    with pytest.raises(UserError, match=r"data\.per_word\.mine=ours: there is no such column"):
        ready(per_word={"mine": "ours"})


def test_an_unknown_setting_names_its_neighbour():
    with pytest.raises(
        UserError, match=r"data\.max_token=3: there is no such setting; did you mean data\.max_tokens\?"
    ):
        ready(max_token=3)


def test_the_fingerprint_knows_what_probes_read():
    why = {**OTHER, "why": [[True, False], [True, True]]}
    train = {**TRAIN, "why": [None] * 4}
    first = ready(train, why, why, rationale="why").fingerprint
    assert ready(train, why, {**why, "why": [[False, True], [True, True]]}, rationale="why").fingerprint != first
    assert ready(train, why, {**why, "text": ["unseen good", "bad bad"]}, rationale="why").fingerprint != first


def test_rows_of_one_group_stay_in_one_split():
    rows = {"text": [f"w{n} x" for n in range(60)], "label": ["a", "b"] * 30, "pair": [n // 2 for n in range(60)]}
    data = ready(rows, None, None, group="pair", test_share=0.3, validation_share=0.25)
    pairs = {split: {number // 2 for number in part.example_id.tolist()} for split, part in data.splits.items()}
    assert len(pairs["test"]) == 9
    assert sum(map(len, pairs.values())) == 30
    assert all(len(part) == 2 * len(pairs[split]) for split, part in data.splits.items())
    assert (
        ready(rows, None, None, group="pair", seed=3).fingerprint == ready(rows, None, None, group="pair").fingerprint
    )
    with pytest.raises(UserError, match=r"data\.group=family: there is no such column.*data\.group=null"):
        ready(rows, None, None, group="family")


@pytest.mark.real_data
def test_geco_s_pairs_are_whole_and_differ_in_the_marked_words_alone():
    data = composed("geco")
    if not local(data.source.folder):
        pytest.skip("no geco below ATTNPROBE_DATA_DIR")
    data.setup()
    assert data.sizes == {"train": 2190, "validation": 386, "test": 644}
    part = data.splits["validation"]
    texts = {}
    for number in part.example_id.tolist():
        rest = [w for w, m in zip(part.tokens(number), part.rationale(number), strict=True) if not m]
        texts.setdefault(tuple(rest), []).append(part.labels[part.row_of(number)])
    assert all(sorted(labels) == [0, 1] * (len(labels) // 2) for labels in texts.values())
