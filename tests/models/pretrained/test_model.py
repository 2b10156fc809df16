"""Classifiers of 18 families: what is read and put back, every layer and head in one pass, words
removed, what is refused."""

import base64
import json
import os
import shutil
from dataclasses import replace
from functools import partial

import pytest
import torch

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
    prepared,
)
from tests.toys import predict

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


@pytest.fixture(scope="module", params=FAMILIES)
def examined(request):
    model, batch = prepared(request.param)
    assert model.precision == (
        torch.float32 if request.param.startswith("modernbert") else torch.float64
    )
    model.prepare(batch)
    with torch.no_grad():
        return request.param, model, batch, model(batch)


def test_what_is_read_and_put_back_is_what_the_network_computes_with(examined):
    family, model, batch, outputs = examined
    with torch.no_grad():
        model.network.set_attn_implementation("eager")
        own = model.run(batch, Pass())
        if model.examination.door == "interface":
            model.network.set_attn_implementation("attnprobe")
    least = 1e-10 if model.precision is torch.float64 else 2e-6
    torch.testing.assert_close(outputs.logits, own, atol=least, rtol=0)
    assert max(model.examination.differences.values()) < least
    torch.testing.assert_close(
        outputs.attention.sum(-1), torch.ones(3, dtype=outputs.attention.dtype)
    )
    assert (outputs.attention[~batch.content] == 0).all()
    assert model.is_summed == (family in SHORT)


def test_another_attention_gives_another_prediction_by_either_way(examined):
    _, model, batch, outputs = examined
    even = batch.content.double() / batch.content.sum(-1, keepdim=True)
    several = torch.stack([even, outputs.attention, (even + outputs.attention) / 2])
    with torch.no_grad():
        whole = model.readout(batch, outputs, short=False).logits(several)
        torch.testing.assert_close(
            model.readout(batch, outputs).logits(several), whole, atol=5e-6, rtol=0
        )
        again = model.outputs_from(batch, model.inputs(batch), even)
    torch.testing.assert_close(whole[1], outputs.logits.double(), atol=5e-6, rtol=0)
    torch.testing.assert_close(again.logits.double(), whole[0], atol=5e-6, rtol=0)
    assert (whole[0] - whole[1]).abs().max() > 1e-3
    gradient = model.readout(batch, outputs).gradient()
    assert (gradient[~batch.content] == 0).all()
    assert gradient.abs().max() > 0


def test_padding_and_batch_change_no_number(examined):
    _, model, _, outputs = examined
    for row, text in enumerate(TEXTS):
        with torch.no_grad():
            alone = model(batch_of(model, [text]))
        torch.testing.assert_close(alone.logits[0], outputs.logits[row], atol=5e-6, rtol=0)
        width = alone.attention.shape[1]
        torch.testing.assert_close(
            alone.attention[0], outputs.attention[row, :width], atol=1e-6, rtol=0
        )


def test_leave_one_out_is_the_text_without_the_word(examined):
    _, model, batch, outputs = examined
    found = leave_one_out(model, batch, outputs)
    assert found.reencoded
    before = outputs.logits.softmax(-1)
    words = TEXTS[1].split()
    shorter = [" ".join(words[:place] + words[place + 1 :]) for place in (0, 7, len(words) - 1)]
    with torch.no_grad():
        expected = (predict(model, batch_of(model, shorter)) - before[1]).abs().sum(-1) / 2
    torch.testing.assert_close(
        found.distance[1, [1, 8, len(words)]], expected.double(), atol=1e-6, rtol=0
    )
    assert found.distance[2, 1].isnan()  # nothing is left


def test_neighbours_are_equal_where_their_pieces_are_and_not_where_both_are_unknown_words():
    words = [
        "dull",
        "cab",
        "mist",
        "the",
        "The",
        "film",
    ]  # the vocabulary has no "cab", "mist" and "The"
    model, batch = prepared(texts=[" ".join(words)])
    shorter = [" ".join(words[:place] + words[place + 1 :]) for place in range(len(words))]
    assert batch.ids[0, 2] == batch.ids[0, 3]
    with torch.no_grad():
        outputs = model(batch)
        found = leave_one_out(model, batch, outputs).distance[0, 1:-1]
        expected = (
            predict(model, batch_of(model, shorter)) - outputs.logits.softmax(-1)
        ).abs().sum(-1) / 2
    torch.testing.assert_close(found, expected, atol=1e-9, rtol=0)
    assert found[1] != found[2]
    assert found[3] == found[4]


def test_a_word_is_masked_in_its_place_or_gone_with_its_pieces():
    model = classifier()
    batch = batch_of(model)
    one = torch.tensor([1])
    place = torch.tensor([8])
    text = classifier(removal="mask").without(batch, one, place)
    assert (text.pieces[0] == 4).sum() == 2
    assert text.piece_word[0].equal(batch.piece_word[1])
    shorter = batch_of(model, ["a long and dull story of people to see the music"])
    assert model.without(batch, one, place).pieces[0].tolist() == [
        *shorter.pieces[0].tolist(),
        0,
        0,
    ]


@pytest.mark.parametrize(
    "layer", [0, -1]
)  # all rows of the last layer: no short way, though one row is pooled
def test_heads_layers_and_rows(layer):
    model, batch = prepared(layer=layer, heads=[1, 3], rows="all")
    outputs = model(batch)
    one = model.recorded(batch)
    by_hand = torch.zeros_like(outputs.attention)
    for row, places in enumerate(batch.piece_word.tolist()):
        count = len([place for place in places if place != -2])
        for piece, place in enumerate(places[:count]):
            if place > 0:
                by_hand[row, place] += one.weights[row, [1, 3], :count, piece].sum()
    torch.testing.assert_close(outputs.attention, by_hand / by_hand.sum(-1, keepdim=True))
    assert not model.is_summed
    even = batch.content.double() / batch.content.sum(-1, keepdim=True)
    with torch.no_grad():
        shown = model.outputs_from(batch, None, even)
        found = model.readout(batch, outputs).logits(even)
        torch.testing.assert_close(found, shown.logits)
        assert (found - outputs.logits).abs().max() > 1e-4


UNNAMED = ("LABEL_0", "LABEL_1", "LABEL_2")
RATED = ("Bad", "so-so", "GOOD")
STARS = ("1 star", "2 stars", "3 stars")
WORDY = ("very bad", "2 – so-so", "Ärger!", "great")


@pytest.mark.parametrize(
    ("own", "data", "order", "names", "said"),
    [  # its labels, the data's, which output each class is, all classes, and how they were found
        (
            RATED,
            ("good",),
            [2, 0, 1],
            ["good", "Bad", "so-so"],
            "by name: good is GOOD; no row is Bad, so-so",
        ),
        (
            RATED,
            ("0", "2"),
            [0, 2, 1],
            ["0", "2", "1"],
            "by number: 0 is Bad, 2 is GOOD; no row is so-so",
        ),
        (STARS, ("3", "1"), [2, 0, 1], ["3", "1", "2"], "by number: 3 is 3 stars, 1 is 1 star;"),
        (
            UNNAMED,
            ("1",),
            [1, 0, 2],
            ["1", "0", "2"],
            "by number: 1 is LABEL_1; no row is LABEL_0, LABEL_2",
        ),
        (
            UNNAMED,
            ("x", "a", "m"),
            [0, 1, 2],
            ["x", "a", "m"],
            "by order: x is LABEL_0, a is LABEL_1, m is LABEL_2",
        ),
        (("a", "b", "c"), ("c", "a", "b"), [2, 0, 1], ["c", "a", "b"], "by name: c, a, b"),
        (
            WORDY,
            ("GREAT", "ärger!", "Very Bad", "2 – so_so"),
            [3, 2, 0, 1],
            None,
            "by name: GREAT is great",
        ),
    ],
)
def test_labels_are_matched_in_any_order_some_are_enough_and_how_they_were_found_is_said(
    own, data, order, names, said
):
    model = classifier("bert", own, class_names=data, in_order=data == ("x", "a", "m"))
    names = names or list(data)
    assert (model.order, model.class_names, model.classes) == (order, names, len(own))
    assert said in model.matched
    batch = batch_of(model)
    torch.testing.assert_close(model(batch).logits, classifier("bert", own)(batch).logits[:, order])
    again = classifier(
        "bert", own, class_names=names, trains=True
    )  # as a run is loaded: with all of its classes
    assert (again.order, again.class_names) == (order, names)


@pytest.mark.parametrize(
    ("own", "settings", "message"),
    [
        (
            UNNAMED,
            {"class_names": ("a", "b", "c")},
            r"its labels are LABEL_0, .*=\[a, b, c\] in the order of .*all 3",
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
def test_what_does_not_fit_a_checkpoint_is_refused_and_not_guessed(own, settings, message):
    with pytest.raises(UserError, match=message):
        classifier("bert", own, **settings)(batch_of(classifier()))
    if "class_names" in settings:  # a new head is trained
        assert classifier("bert", own, **settings, trains=True).class_names == list(
            settings["class_names"]
        )


def opened(path, **settings):
    return PretrainedClassifier(
        name="x", path=str(path), class_names=["negative", "positive"], offline=True, **settings
    )


def test_checkpoints_that_cannot_be_opened(tmp_path):
    with pytest.raises(UserError, match="transformers cannot open it"):
        opened(tmp_path)
    with pytest.raises(UserError, match=r"hf download nobody/nothing --local-dir"):
        opened("nobody/nothing")
    (tmp_path / "my_bert").mkdir()
    with pytest.raises(
        UserError,
        match=r"my_bret: there is no such folder; did you mean my_bert\?.*save_pretrained",
    ):
        opened(tmp_path / "my_bret")
    (tmp_path / "config.json").write_text(
        '{"auto_map": {"AutoConfig": "own.Config"}, "model_type": "own"}'
    )
    with pytest.raises(UserError, match="brings code of its own"):
        opened(tmp_path)


def written(name, content):
    return lambda folder: (folder / name).write_bytes(content)


def setting(file, **changed):
    return lambda folder: (folder / file).write_text(
        json.dumps(json.loads((folder / file).read_text()) | changed)
    )


headed = partial(setting, "config.json")


def normalised(*rules):
    """A tokenizer with these normalizers instead of its own."""
    return setting("tokenizer.json", normalizer={"type": "Sequence", "normalizers": [*rules]})


def weights_in(name):
    index = {"metadata": {}, "weight_map": {"classifier.bias": name}}
    return written("model.safetensors.index.json", json.dumps(index).encode())


def replaced(pattern, content):
    return {"type": "Replace", "pattern": pattern, "content": content}


def charsmap(table):
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(table).decode()}


def another_piece(folder):
    inner = json.loads((folder / "tokenizer.json").read_text())["model"]
    setting("tokenizer.json", model=inner | {"vocab": inner["vocab"] | {"film": 5000}})(folder)


MOST = "characters of one: expected at most 1,000"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda folder: [one.unlink() for one in folder.glob("*token*")],
            "knows no word: expected its files",
        ),
        (
            lambda folder: os.truncate(folder / "model.safetensors", 9000),
            "SafetensorError.*: its weights are damaged",
        ),
        (written("adapter_config.json", b"{}"), r"holds an adapter .*merge_and_unload\(\)"),
        (
            lambda folder: (folder / "model.safetensors").rename(folder / "pytorch_model.bin"),
            r"no \.bin: pickles are",
        ),
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


def test_what_is_no_mistake_in_a_checkpoint_is_read(tmp_path):
    several = headed(problem_type="single_label_classification")
    rules = (
        [replaced({"String": "``"}, '"'), replaced({"Regex": " {2,}"}, " "), {"type": "NFKC"}],
        [{"type": "Prepend", "prepend": "_"}, replaced({"String": " "}, "_")] * 5,
    )
    changes = several, *(normalised(*some) for some in rules)  # no normalizer makes a text long
    for number, change in enumerate(changes):
        shutil.copytree(checkpoint("bert"), tmp_path / str(number))
        change(tmp_path / str(number))
        opened(tmp_path / str(number))
    with pytest.raises(UserError, match=r"read them with data\.multi_label=false"):
        opened(tmp_path / "0", task=Task.MULTI_LABEL)
    opened(tmp_path / "0", task=Task.MULTI_LABEL, trains=True)  # a new head takes either


@pytest.mark.parametrize("removal", ["delete", "mask"])
def test_gradients_and_removals_under_other_attentions_are_those_of_words(removal):
    model, batch = prepared(removal=removal)
    with torch.no_grad():
        outputs = model(batch)
        readout = model.readout(batch, outputs)
        own = outputs.attention
    torch.testing.assert_close(
        gradients_under(model, batch, own[None])[0], gradients(model, batch).embedding
    )
    even = batch.content.double() / batch.content.sum(-1, keepdim=True)
    found = removals_under(model, batch, readout, torch.stack([own, even]))
    # the second word of the first text by hand: an even attention over the other three
    text = model.without(batch, torch.tensor([0]), torch.tensor([2]))
    with torch.no_grad():
        left = text.content.double()
        left[0, 2] = 0 if removal == "mask" else left[0, 2]
        other = model.readout(text, model(text)).predict((left / left.sum())[None])[0, 0]
    apart = readout.distance(other, readout.predict(even)[0])
    torch.testing.assert_close(found[1, 0, 2], apart)
    assert apart > 1e-4


@pytest.mark.parametrize("objective", [Divergence(1.0), Deception(1.0), Supervision(1.0)])
def test_what_is_said_of_the_attention_reaches_the_weights_that_make_it(objective):
    model, batch = prepared()
    outputs = model.train()(batch)
    even = batch.content.double() / batch.content.sum(-1, keepdim=True)
    batch = replace(
        batch,
        rationale=batch.content & (batch.ids == batch.ids[:, 1:2]),
        teacher_attention=even,
        teacher_probability=torch.full((3, 2), 0.5),
    )
    losses = objective(outputs, batch, model.task, None)
    plain = CrossEntropy()(outputs, batch, model.task, None)["loss"]
    of_attention = losses["kl"].sum() if "kl" in losses else (losses["loss"] - plain).sum()
    query = model.network.bert.encoder.layer[-1].attention.self.query.weight
    (gradient,) = torch.autograd.grad(of_attention, query)
    assert gradient.abs().max() > 1e-6


@pytest.mark.parametrize("family", ["bert", "gpt2", "deberta", "albert", "t5"])
def test_every_site_is_what_a_model_of_that_site_alone_has(family):
    model, batch = prepared(family)
    found = list(model.at_sites(batch))
    assert [at.name for at in found] == list(model.sites)
    heads = model.examination.heads
    assert len(found) == sum(1 + count for count in heads)
    for place in (0, 2, len(found) // 2, len(found) - 1):
        at = found[place]
        layer, head = divmod(place, heads[0] + 1)
        model.site = Site(layer, [head - 1] if head else None)
        outputs = model.outputs_from(batch, None)
        torch.testing.assert_close(at.outputs.attention, outputs.attention, atol=1e-6, rtol=0)
        other = torch.where(batch.content, outputs.attention.double().roll(1, 0) + 0.1, 0)
        other = other / other.sum(-1, keepdim=True)
        whole = model.readout(batch, outputs, short=False).logits(other[None])
        torch.testing.assert_close(at.readout.logits(other[None]), whole, atol=5e-6, rtol=0)
        assert (whole[0] - outputs.logits.double()).abs().max() > 1e-6
        assert ((at.outputs.off_text > 0) & (at.outputs.off_text < 1)).all()


@pytest.mark.parametrize("family", ["bert", "gpt2", "deberta"])
@pytest.mark.parametrize(
    ("given", "at"),
    [("uniform", "last"), ("uniform", "all"), ("rationale", "last"), ("first", "all")],
)
def test_a_given_attention_is_what_the_pooled_row_has(family, given, at):
    model = classifier(family, given=given, given_at=at)
    learned = classifier(family)
    batch = batch_of(model)
    batch = replace(batch, rationale=batch.content & (batch.content.cumsum(-1) == 2))
    for one in (model, learned):
        one.prepare(batch)
    kept = []
    with torch.no_grad():
        logits = model.run(batch, Pass(observer=kept.append))
        assert (logits - learned.run(batch, Pass())).abs().max() > 1e-4
    for text, length in enumerate((batch.piece_word != -2).sum(-1).tolist()):
        words = batch.piece_word[text, :length].tolist()
        if given == "uniform":
            shares = [1 / length] * length
        else:  # an equal share of its word's for every piece
            own = model.control.given(batch)[text].tolist()
            shares = [own[word] / words.count(word) if word >= 0 else 0.0 for word in words]
        last = kept[-1].weights[
            text, :, length - 1
        ]  # of a causal model too this row may see the whole text
        torch.testing.assert_close(
            last[:, :length], torch.tensor(shares).expand_as(last[:, :length])
        )
        assert (last[:, length:] == 0).all()
        lower = kept[0].weights[text, :, length - 1, :length]
        assert torch.allclose(lower, torch.tensor(shares).expand_as(lower)) == (at == "all")
    outputs = model(batch)
    readout = model.readout(batch, outputs)
    torch.testing.assert_close(
        readout.logits(readout.attention), outputs.logits.double(), atol=1e-5, rtol=0
    )


def test_what_is_given_by_marks_needs_them_and_what_is_learnt_is_learnt_in_training_alone():
    with pytest.raises(UserError, match=r"model\.given=rationale.* these texts do not say which"):
        prepared(given="rationale")
    model, batch = prepared(given="common_word")
    for learns, count in ((False, 0), (True, batch.content.sum()), (False, batch.content.sum())):
        model.train(learns)(batch)
        assert model.control.seen.sum() == count
