"""Classifiers of 18 families: what is read and put back, every layer and head in one pass, words
removed, what is refused."""

import base64
import json
import os
import shutil
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import pytest
import torch
from torch.testing import assert_close

from attnprobe.core.batch import Task
from attnprobe.core.errors import UserError
from attnprobe.importance.gradients import gradients
from attnprobe.importance.leave_one_out import leave_one_out
from attnprobe.importance.nulls import gradients_under, removals_under
from attnprobe.models.objectives import CrossEntropy, Deception, Divergence, Supervision
from attnprobe.models.pretrained.attention_hooks import Pass
from attnprobe.models.pretrained.model import PretrainedClassifier
from attnprobe.models.pretrained.site import Site
from tests.models.pretrained.families import (
    FAMILIES,
    TEXTS,
    batch_of,
    checkpoint,
    classifier,
    library_says,
    prepared,
)
from tests.toys import predict

# many networks are built, saved and loaded
pytestmark = pytest.mark.whole

pytest.importorskip("transformers")
SHORT = {
    "bert",
    "roberta",
    "distilbert",
    "albert",
    "electra",
    "xlm-roberta",
    "modernbert-cls",
    "gpt2",
    "llama",
    "qwen2",
    "qwen3",
    "gemma",
}


def evenly(batch):
    """The same weight for every word."""
    content = batch.content.double()
    return content / content.sum(-1, keepdim=True)


def without_each(words, places):
    """The text of these words without each of these, in turn."""
    texts = []
    for place in places:
        rest = words[:place] + words[place + 1 :]
        texts.append(" ".join(rest))
    return texts


@pytest.fixture(scope="module", params=FAMILIES)
def examined(request):
    model, batch = prepared(request.param)
    is_modernbert = request.param.startswith("modernbert")
    assert model.precision == (torch.float32 if is_modernbert else torch.float64)
    model.prepare(batch)
    with torch.no_grad():
        return request.param, model, batch, model(batch)


def test_what_is_read_and_put_back_is_what_the_network_computes_with(examined):
    family, model, batch, outputs = examined
    with torch.no_grad():
        model.network.set_attn_implementation("eager")
        expected = model.run(batch, Pass())
        if model.examination.door == "interface":
            model.network.set_attn_implementation("attnprobe")
    tolerance = 1e-10 if model.precision is torch.float64 else 2e-6
    assert_close(outputs.logits, expected, atol=tolerance, rtol=0)
    assert max(model.examination.differences.values()) < tolerance
    sums = outputs.attention.sum(-1)
    assert_close(sums, torch.ones(3, dtype=sums.dtype))
    assert (outputs.attention[~batch.content] == 0).all()
    assert model.is_summed == (family in SHORT)


def test_another_attention_gives_another_prediction_by_either_way(examined):
    _, model, batch, outputs = examined
    even = evenly(batch)
    recorded = outputs.attention
    attentions = torch.stack([even, recorded, (even + recorded) / 2])
    with torch.no_grad():
        short = model.readout(batch, outputs).logits(attentions)
        whole = model.readout(batch, outputs, short=False).logits(attentions)
        replaced = model.outputs_from(batch, model.inputs(batch), even)
    assert_close(short, whole, atol=5e-6, rtol=0)
    under_even, under_recorded, _ = whole
    assert_close(under_recorded, outputs.logits.double(), atol=5e-6, rtol=0)
    assert_close(under_even, replaced.logits.double(), atol=5e-6, rtol=0)
    assert (under_even - under_recorded).abs().max() > 1e-3


def test_the_gradient_of_the_attention_is_on_the_text(examined):
    _, model, batch, outputs = examined
    gradient = model.readout(batch, outputs).gradient()
    assert (gradient[~batch.content] == 0).all()
    assert gradient.abs().max() > 0


def test_padding_and_batch_change_no_number(examined):
    _, model, _, outputs = examined
    for row, text in enumerate(TEXTS):
        with torch.no_grad():
            single = model(batch_of(model, [text]))
        assert_close(single.logits[0], outputs.logits[row], atol=5e-6, rtol=0)
        attention = outputs.attention[row, : single.attention.shape[1]]
        assert_close(single.attention[0], attention, atol=1e-6, rtol=0)


def distances_of(predictions, outputs, row):
    """TVD from what is predicted of one text."""
    change = predictions - outputs.logits[row].softmax(-1)
    return change.abs().sum(-1).double() / 2


def test_leave_one_out_is_the_text_without_the_word(examined):
    _, model, batch, outputs = examined
    words = TEXTS[1].split()
    places = [0, 7, len(words) - 1]
    with torch.no_grad():
        predictions = predict(model, batch_of(model, without_each(words, places)))

    result = leave_one_out(model, batch, outputs)

    assert result.reencoded
    distance = result.distance[1, [1 + place for place in places]]
    assert_close(distance, distances_of(predictions, outputs, 1), atol=1e-6, rtol=0)
    assert result.distance[2, 1].isnan()  # of a text of one word nothing is left


def test_neighbours_are_equal_where_their_pieces_are_and_not_where_both_are_unknown_words():
    """The vocabulary has no "cab", "mist" and "The"."""
    words = ["dull", "cab", "mist", "the", "The", "film"]
    model, batch = prepared(texts=[" ".join(words)])
    assert batch.ids[0, 2] == batch.ids[0, 3]
    with torch.no_grad():
        outputs = model(batch)
        predictions = predict(model, batch_of(model, without_each(words, range(6))))

    distance = leave_one_out(model, batch, outputs).distance[0, 1:-1]

    assert_close(distance, distances_of(predictions, outputs, 0), atol=1e-9, rtol=0)
    _, cab, mist, the, capital_the, _ = distance
    assert cab != mist
    assert the == capital_the


def test_masked_neighbours_differ_though_they_are_equal():
    """With a mask in the place of one or another of equal words the texts are not the same."""
    words = ["film", "film", "film", "was", "dull", "dull"]
    model, batch = prepared(texts=[" ".join(words)], removal="mask")
    folder = checkpoint("bert", ("negative", "positive"))
    _, whole = library_says("SequenceClassification", folder, " ".join(words))
    expected = []
    for place in range(len(words)):
        text = " ".join([*words[:place], "[MASK]", *words[place + 1 :]])
        _, masked = library_says("SequenceClassification", folder, text)
        expected.append((masked.logits.softmax(-1) - whole.logits.softmax(-1)).abs().sum() / 2)
    with torch.no_grad():
        distance = leave_one_out(model, batch, model(batch)).distance[0, 1:-1]
    assert_close(distance, torch.stack(expected).double(), atol=1e-6, rtol=0)
    assert abs(distance[0] - distance[1]) > 1e-4


UNABLE = 8
"""The place of "unable", of two pieces, in the second text."""


def test_a_word_is_masked_in_its_place():
    model = classifier(removal="mask")
    batch = batch_of(model)
    text = model.without(batch, torch.tensor([1]), torch.tensor([UNABLE]))
    assert (text.pieces[0] == 4).sum() == 2
    assert text.piece_word[0].equal(batch.piece_word[1])


def test_a_word_that_is_deleted_is_gone_with_its_pieces():
    model = classifier()
    batch = batch_of(model)
    text = model.without(batch, torch.tensor([1]), torch.tensor([UNABLE]))
    shorter = batch_of(model, ["a long and dull story of people to see the music"])
    padding = [0, 0]
    assert text.pieces[0].tolist() == shorter.pieces[0].tolist() + padding


# all rows of the last layer: no short way, though one row is pooled
every_layer = pytest.mark.parametrize("layer", [0, -1])


@every_layer
def test_the_attention_of_heads_over_all_rows_by_hand(layer):
    model, batch = prepared(layer=layer, heads=[1, 3], rows="all")
    weights = model.recorded(batch).weights[:, [1, 3]]
    mass = torch.zeros(batch.content.shape, dtype=weights.dtype)
    for text, word_of_piece in enumerate(batch.piece_word):
        pieces = word_of_piece != -2  # without padding
        of_pieces = weights[text][:, pieces].sum((0, 1))
        for piece, word in enumerate(word_of_piece.tolist()):
            if word > 0:
                mass[text, word] += of_pieces[piece]
    assert_close(model(batch).attention, mass / mass.sum(-1, keepdim=True))


@every_layer
def test_another_attention_of_heads_over_all_rows_is_shown_by_whole_passes(layer):
    model, batch = prepared(layer=layer, heads=[1, 3], rows="all")
    outputs = model(batch)
    assert not model.is_summed
    even = evenly(batch)
    with torch.no_grad():
        replaced = model.outputs_from(batch, None, even)
        logits = model.readout(batch, outputs).logits(even)
        assert_close(logits, replaced.logits)
        assert (logits - outputs.logits).abs().max() > 1e-4


UNNAMED = ("LABEL_0", "LABEL_1", "LABEL_2")
RATED = ("Bad", "so-so", "GOOD")
STARS = ("1 star", "2 stars", "3 stars")
WORDY = ("very bad", "2 – so-so", "Ärger!", "great")


class Match(NamedTuple):
    """A checkpoint's labels, the data's, the output of each class, all classes, and how they were
    matched."""

    labels: tuple[str, ...]
    data: tuple[str, ...]
    order: list[int]
    names: list[str]
    sentence: str


MATCHES = [
    Match(
        labels=RATED,
        data=("good",),
        order=[2, 0, 1],
        names=["good", "Bad", "so-so"],
        sentence="by name: good is GOOD; no row is Bad, so-so",
    ),
    Match(
        labels=RATED,
        data=("0", "2"),
        order=[0, 2, 1],
        names=["0", "2", "1"],
        sentence="by number: 0 is Bad, 2 is GOOD; no row is so-so",
    ),
    Match(
        labels=STARS,
        data=("3", "1"),
        order=[2, 0, 1],
        names=["3", "1", "2"],
        sentence="by number: 3 is 3 stars, 1 is 1 star;",
    ),
    Match(
        labels=UNNAMED,
        data=("1",),
        order=[1, 0, 2],
        names=["1", "0", "2"],
        sentence="by number: 1 is LABEL_1; no row is LABEL_0, LABEL_2",
    ),
    Match(
        labels=UNNAMED,
        data=("x", "a", "m"),
        order=[0, 1, 2],
        names=["x", "a", "m"],
        sentence="by order: x is LABEL_0, a is LABEL_1, m is LABEL_2",
    ),
    Match(
        labels=("a", "b", "c"),
        data=("c", "a", "b"),
        order=[2, 0, 1],
        names=["c", "a", "b"],
        sentence="by name: c, a, b",
    ),
    Match(
        labels=WORDY,
        data=("GREAT", "ärger!", "Very Bad", "2 – so_so"),
        order=[3, 2, 0, 1],
        names=["GREAT", "ärger!", "Very Bad", "2 – so_so"],
        sentence="by name: GREAT is great",
    ),
]
every_match = pytest.mark.parametrize("match", MATCHES)


@every_match
def test_labels_are_matched_in_any_order_and_how_is_said(match):
    in_order = match.sentence.startswith("by order")
    model = classifier("bert", match.labels, class_names=match.data, in_order=in_order)
    assert model.order == match.order
    assert model.class_names == match.names
    assert model.classes == len(match.labels)
    assert match.sentence in model.matched
    batch = batch_of(model)
    logits = classifier("bert", match.labels)(batch).logits[:, match.order]
    assert_close(model(batch).logits, logits)


@every_match
def test_all_classes_of_a_run_are_matched_again_when_it_is_loaded(match):
    in_order = match.sentence.startswith("by order")
    model = classifier("bert", match.labels, class_names=match.data, in_order=in_order)
    loaded = classifier("bert", match.labels, class_names=model.class_names, trains=True)
    assert loaded.order == match.order
    assert loaded.class_names == match.names


@pytest.mark.parametrize(
    ("labels", "settings", "message"),
    [
        (
            UNNAMED,
            {"class_names": ("a", "b", "c")},
            r"its labels are LABEL_0, .*=\[a, b, c\]' in the order of .*all 3",
        ),
        (UNNAMED, {"class_names": ("1", "2", "3")}, r"those of the data 1, 2, 3"),
        (
            ("bad", "good"),
            {"class_names": ("bad", "fine")},
            r"those of the data bad, fine.*label of the checkpoint",
        ),
        (RATED, {"layer": 3}, r"model\.layer=3: this model has 3 attentions"),
        (RATED, {"heads": [4]}, r"model\.heads names 4: this layer has 4 heads"),
        (RATED, {"heads": [1, 1]}, r"model\.heads=\[1, 1\]: expected every number once"),
        (RATED, {"max_pieces": 49}, r"at most 48"),
    ],
)
def test_what_does_not_fit_a_checkpoint_is_refused_and_not_guessed(labels, settings, message):
    with pytest.raises(UserError, match=message):
        classifier("bert", labels, **settings)(batch_of(classifier()))


@pytest.mark.parametrize(
    ("labels", "class_names"),
    [
        (UNNAMED, ("a", "b", "c")),
        (UNNAMED, ("1", "2", "3")),
        (("bad", "good"), ("bad", "fine")),
    ],
)
def test_classes_that_a_checkpoint_does_not_have_get_a_new_head(labels, class_names):
    model = classifier("bert", labels, class_names=class_names, trains=True)
    assert model.class_names == list(class_names)


def opened(path, **settings):
    return PretrainedClassifier(
        name="x",
        path=str(path),
        class_names=["negative", "positive"],
        offline=True,
        **settings,
    )


def test_an_empty_folder_cannot_be_opened(tmp_path):
    with pytest.raises(UserError, match="transformers cannot open it"):
        opened(tmp_path)


def test_a_name_that_is_not_in_the_cache_can_be_downloaded():
    with pytest.raises(UserError, match=r"hf download nobody/nothing --local-dir"):
        opened("nobody/nothing")


def test_a_folder_of_a_similar_name_is_suggested(tmp_path):
    (tmp_path / "my_bert").mkdir()
    message = r"my_bret: there is no such folder; did you mean my_bert\?.*save_pretrained"
    with pytest.raises(UserError, match=message):
        opened(tmp_path / "my_bret")


def test_a_checkpoint_with_code_of_its_own_is_refused(tmp_path):
    config = {"auto_map": {"AutoConfig": "own.Config"}, "model_type": "own"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match="brings code of its own"):
        opened(tmp_path)


# what may be done to a checkpoint's folder: functions of the folder


def written(name, content):
    """A file with this content."""
    return lambda folder: (folder / name).write_bytes(content)


def setting(file, **changes):
    """Other values in a JSON file."""

    def change(folder):
        content = json.loads((folder / file).read_text())
        (folder / file).write_text(json.dumps(content | changes))

    return change


headed = partial(setting, "config.json")


def without_tokenizer(folder):
    for file in folder.glob("*token*"):
        file.unlink()


def cut_short(folder):
    os.truncate(folder / "model.safetensors", 9000)


def pickled(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def normalised(*rules):
    """A tokenizer with these normalizers instead of its own."""
    return setting("tokenizer.json", normalizer={"type": "Sequence", "normalizers": [*rules]})


def weights_in(name):
    """An index that names this file of weights."""
    index = {"metadata": {}, "weight_map": {"classifier.bias": name}}
    return written("model.safetensors.index.json", json.dumps(index).encode())


def replaced(pattern, content):
    return {"type": "Replace", "pattern": pattern, "content": content}


def charsmap(table):
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(table).decode()}


def another_piece(folder):
    """A tokenizer with a piece that the network has no vector for."""
    inner = json.loads((folder / "tokenizer.json").read_text())["model"]
    setting("tokenizer.json", model=inner | {"vocab": inner["vocab"] | {"film": 5000}})(folder)


MOST = "characters of one: expected at most 1,000"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without_tokenizer, "knows no word: expected its files"),
        (cut_short, "SafetensorError.*: its weights are damaged"),
        (written("adapter_config.json", b"{}"), r"holds an adapter .*merge_and_unload\(\)"),
        (pickled, r"no \.bin: pickles are"),
        (written("model.safetensors", b"[" * 9000), "cannot open it .SafetensorError"),
        (
            written("config.json", b'{"a":' * 20_000),
            r"cannot open it .*Expected a folder with config\.json",
        ),
        (
            weights_in("x.bin"),
            r"names the file 'x\.bin': expected files of this folder that end in \.safetensors",
        ),
        (weights_in("../x.safetensors"), r"names the file '\.\./x\.safetensors'"),
        (weights_in("/etc/passwd"), "names the file '/etc/passwd'"),
        (
            headed(quantization_config={"load_in_8bit": True}),
            "quantization_config=.* is not supported",
        ),
        (
            headed(_attn_implementation="someone/kernel"),
            "_attn_implementation=someone/kernel is not",
        ),
        (headed(num_hidden_layers=10**6), "num_hidden_layers=1000000 is not supported"),
        (headed(num_attention_heads=0), "cannot open it .ZeroDivisionError"),
        (headed(chunk_size_feed_forward="x"), "its network cannot read a text .TypeError"),
        (
            headed(architectures=["BertForMaskedLM"]),
            "a BertForMaskedLM: expected .*training=finetune",
        ),
        (
            headed(architectures=["BertForQuestionAnswering"]),
            "a BertForQuestionAnswering: expected",
        ),
        (headed(architectures=["BertModel"]), "a BertModel: expected"),
        (
            headed(architectures=["GPT2LMHeadModel"]),
            r"a GPT2LMHeadModel: .* model\.prompt and model\.labels",
        ),
        (
            headed(id2label={"0": "x"}, label2id={"x": 0}),
            r"num_labels=1.*=finetune.*model.threshold",
        ),
        (
            headed(problem_type="multi_label_classification"),
            r"read them with data\.multi_label=true",
        ),
        (
            setting("tokenizer_config.json", model_max_length="x"),
            "model_max_length='x': expected the number of pieces",
        ),
        (setting("tokenizer_config.json", pad_token={"a": 1}), "cannot open it .TypeError"),
        (another_piece, "its tokenizer gives the piece 5000, and the model knows 96"),
        (normalised(*[replaced({"String": "a"}, "a" * 10)] * 9), rf"make 1e\+09 {MOST}"),
        (normalised(*[replaced({"Regex": ""}, "a")] * 30), rf"make 1\.07e\+09 {MOST}"),
        (normalised(*[{"type": "ByteLevel"}] * 20), rf"make 1\.05e\+06 {MOST}"),
        (normalised(charsmap(b"\4\0\0\0abcd" + b"x" * 2000 + b"\0")), rf"make 2e\+03 {MOST}"),
        (normalised(charsmap(b"\1")), "cannot open it .PanicException"),
        (
            normalised(charsmap(b"\4\0\0\0abcdx\0")),
            "its tokenizer cannot read a text .PanicException",
        ),
    ],
)
def test_what_a_checkpoint_of_somebody_elses_may_hold(tmp_path, change, message):
    folder = tmp_path / "hf"
    shutil.copytree(checkpoint("bert"), folder)
    change(folder)

    def read():
        model = opened(folder).eval()
        model.prepare(batch_of(model))

    with pytest.raises(UserError, match=message):
        read()


@pytest.mark.parametrize(
    "change",
    [
        headed(problem_type="single_label_classification"),
        normalised(
            replaced({"String": "``"}, '"'),
            replaced({"Regex": " {2,}"}, " "),
            {"type": "NFKC"},
        ),
        # no normalizer makes a text long
        normalised(*[{"type": "Prepend", "prepend": "_"}, replaced({"String": " "}, "_")] * 5),
    ],
)
def test_what_is_no_mistake_in_a_checkpoint_is_read(tmp_path, change):
    shutil.copytree(checkpoint("bert"), tmp_path / "hf")
    change(tmp_path / "hf")
    opened(tmp_path / "hf")


def test_a_checkpoint_of_one_label_per_text_is_refused_for_several_unless_it_trains(tmp_path):
    folder = tmp_path / "hf"
    shutil.copytree(checkpoint("bert"), folder)
    headed(problem_type="single_label_classification")(folder)
    with pytest.raises(UserError, match=r"read them with data\.multi_label=false"):
        opened(folder, task=Task.MULTI_LABEL)
    opened(folder, task=Task.MULTI_LABEL, trains=True)  # a new head takes either


@pytest.mark.parametrize("removal", ["delete", "mask"])
def test_gradients_under_the_recorded_attention_are_the_gradients(removal):
    model, batch = prepared(removal=removal)
    with torch.no_grad():
        attention = model(batch).attention
    result = gradients_under(model, batch, attention[None])[0]
    assert_close(result, gradients(model, batch).embedding)


@pytest.mark.parametrize("removal", ["delete", "mask"])
def test_removals_under_other_attentions_are_those_of_words(removal):
    model, batch = prepared(removal=removal)
    with torch.no_grad():
        outputs = model(batch)
        readout = model.readout(batch, outputs)
    even = evenly(batch)
    distances = removals_under(model, batch, readout, torch.stack([outputs.attention, even]))

    # the second word of the first text by hand: an even attention over the other three
    text = model.without(batch, torch.tensor([0]), torch.tensor([2]))
    weights = text.content.double()
    if removal == "mask":
        weights[0, 2] = 0
    attention = weights / weights.sum()
    with torch.no_grad():
        text_readout = model.readout(text, model(text))
        [[prediction]] = text_readout.predict(attention[None])
    expected = readout.distance(prediction, readout.predict(even)[0])
    assert_close(distances[1, 0, 2], expected)
    assert expected > 1e-4


@pytest.mark.parametrize("objective", [Divergence(1.0), Deception(1.0), Supervision(1.0)])
def test_what_is_said_of_the_attention_reaches_the_weights_that_make_it(objective):
    model, batch = prepared()
    outputs = model.train()(batch)
    batch = replace(
        batch,
        rationale=batch.content & (batch.ids == batch.ids[:, 1:2]),
        teacher_attention=evenly(batch),
        teacher_probability=torch.full((3, 2), 0.5),
    )
    losses = objective(outputs, batch, model.task, None)
    part = losses.get("kl")
    if part is None:
        part = losses["loss"] - CrossEntropy()(outputs, batch, model.task, None)["loss"]
    query = model.network.bert.encoder.layer[-1].attention.self.query.weight
    (gradient,) = torch.autograd.grad(part.sum(), query)
    assert gradient.abs().max() > 1e-6


def sites_to_check(model):
    """Place among the sites, layer and head of some: the mean of a layer's heads has no head."""
    heads = model.examination.heads[0]
    last = len(model.sites) - 1
    for place in (0, 2, len(model.sites) // 2, last):
        layer, head = divmod(place, heads + 1)
        yield place, Site(layer, [head - 1] if head else None)


SITE_FAMILIES = ["bert", "gpt2", "deberta", "albert", "t5"]


@pytest.mark.parametrize("family", SITE_FAMILIES)
def test_there_is_a_site_for_each_layer_and_each_head(family):
    model, batch = prepared(family)
    sites = list(model.at_sites(batch))
    assert [site.name for site in sites] == list(model.sites)
    assert len(sites) == sum(1 + count for count in model.examination.heads)


@pytest.mark.parametrize("family", SITE_FAMILIES)
def test_every_site_is_what_a_model_of_that_site_alone_has(family):
    model, batch = prepared(family)
    sites = list(model.at_sites(batch))
    for place, alone in sites_to_check(model):
        site = sites[place]
        model.site = alone
        outputs = model.outputs_from(batch, None)
        assert_close(site.outputs.attention, outputs.attention, atol=1e-6, rtol=0)
        off_text = site.outputs.off_text
        assert ((off_text > 0) & (off_text < 1)).all()

        weights_of_other_text = outputs.attention.double().roll(1, 0)
        mass = torch.where(batch.content, weights_of_other_text + 0.1, 0)
        rival = mass / mass.sum(-1, keepdim=True)
        (expected,) = model.readout(batch, outputs, short=False).logits(rival[None])
        (logits,) = site.readout.logits(rival[None])
        assert_close(logits, expected, atol=5e-6, rtol=0)
        assert (expected - outputs.logits.double()).abs().max() > 1e-6


class Imposed:
    """A model with an attention that is given, the same one without, and texts whose second word is
    marked."""

    def __init__(self, family, given, given_at):
        self.model = classifier(family, given=given, given_at=given_at)
        self.learned = classifier(family)
        batch = batch_of(self.model)
        is_second = batch.content.cumsum(-1) == 2
        self.batch = replace(batch, rationale=batch.content & is_second)
        self.model.prepare(self.batch)
        self.learned.prepare(self.batch)

    @torch.no_grad()
    def weights(self):
        """The attention of every layer in one pass."""
        records = []
        self.model.run(self.batch, Pass(observer=records.append))
        return [record.weights for record in records]

    def shares(self, text):
        """The weight that every piece of a text should have, without padding."""
        words = [word for word in self.batch.piece_word[text].tolist() if word != -2]
        pieces = len(words)
        if self.model.given == "uniform":
            return torch.full((pieces,), 1 / pieces)
        # an equal share of its word's weight for every piece
        weights = self.model.control.given(self.batch)[text]
        shares = torch.zeros(pieces)
        for piece, word in enumerate(words):
            if word >= 0:
                shares[piece] = weights[word] / words.count(word)
        return shares


every_family = pytest.mark.parametrize("family", ["bert", "gpt2", "deberta"])
every_given = pytest.mark.parametrize(
    ("given", "given_at"),
    [("uniform", "last"), ("uniform", "all"), ("rationale", "last"), ("first", "all")],
)


@every_family
@every_given
def test_a_given_attention_is_what_the_pooled_row_has(family, given, given_at):
    imposed = Imposed(family, given, given_at)
    first, *_, last = imposed.weights()
    for text in range(len(imposed.batch)):
        shares = imposed.shares(text)
        length = len(shares)
        row = length - 1  # of a causal model too this row may see the whole text
        weights = last[text, :, row]
        assert_close(weights[:, :length], shares.expand(len(weights), -1))
        assert (weights[:, length:] == 0).all()
        lower = first[text, :, row, :length]
        assert torch.allclose(lower, shares.expand_as(lower)) == (given_at == "all")


@every_family
@every_given
def test_a_given_attention_changes_the_prediction_and_is_in_its_readout(family, given, given_at):
    imposed = Imposed(family, given, given_at)
    outputs = imposed.model(imposed.batch)
    learned_logits = imposed.learned.run(imposed.batch, Pass())
    difference = outputs.logits - learned_logits
    assert difference.abs().max() > 1e-4
    readout = imposed.model.readout(imposed.batch, outputs)
    logits = readout.logits(readout.attention)
    assert_close(logits, outputs.logits.double(), atol=1e-5, rtol=0)


def test_an_attention_that_is_given_by_marks_needs_them():
    with pytest.raises(UserError, match=r"model\.given=rationale.* these texts do not say which"):
        prepared(given="rationale")


def test_the_commonest_word_is_learnt_in_training_alone():
    model, batch = prepared(given="common_word")
    count = batch.content.sum()
    model.eval()(batch)
    assert model.control.seen.sum() == 0
    model.train()(batch)
    assert model.control.seen.sum() == count
    model.eval()(batch)
    assert model.control.seen.sum() == count
