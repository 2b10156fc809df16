"""TVD of a prediction under other weights, beside a hook of our own on a plain network.

The hook knows nothing of the code that it checks: it takes the values from the layer's projection,
multiplies them by the row that it is given, and puts the result before the output's projection.
"""

from typing import NamedTuple

import pytest
import torch
from torch.testing import assert_close

from tests.models.pretrained.test_unseen import DECODER, ENDS, MODERNBERT, WINDOWS
from tests.models.pretrained.whole_words import ROWS, network, opened, tokenizer

# every test of another network
pytestmark = pytest.mark.whole

pytest.importorskip("transformers")
TEXTS = [f"{text} {text}" for text, _ in ROWS[:3]]
HEAD = 1
DRAWS = 4


class Kind(NamedTuple):
    """A network.

    Attributes:
        family: as `transformers` calls its class.
        options: of its configuration.
        projection: the last part of the name of its attention's output projection.
        query: the row that the prediction is read from: the first piece's, or the last one's.
        before: how many places before itself a row sees; None: all.
        after: how many places after itself.
    """

    family: str
    options: dict
    projection: str
    query: int
    before: int | None
    after: int | None


EVERY_LAYER = {"global_attn_every_n_layers": 1, "classifier_pooling": "cls"}
GPT2 = {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 128, "pad_token_id": 0}
KINDS = {
    "local": Kind("ModernBert", WINDOWS["ModernBert"], "Wo", 0, 4, 4),
    "global": Kind("ModernBert", MODERNBERT | EVERY_LAYER, "Wo", 0, None, None),
    "both sides": Kind("Bert", {"max_position_embeddings": 128}, "dense", 0, None, None),
    "sliding, Mistral": Kind("Mistral", WINDOWS["Mistral"], "o_proj", -1, 5, 0),
    "sliding, Gemma": Kind("Gemma3Text", WINDOWS["Gemma3Text"], "o_proj", -1, 5, 0),
    "causal, Llama": Kind("Llama", DECODER | ENDS, "o_proj", -1, None, 0),
    "causal, GPT-2": Kind("GPT2", GPT2, "c_proj", -1, None, 0),
}


def seen_places(kind, length):
    """The places that the pooled row of the last layer sees, by the definition of its mask."""
    query = kind.query % length
    before = length if kind.before is None else kind.before
    after = length if kind.after is None else kind.after
    place = torch.arange(length)
    is_late_enough = place >= query - before
    is_early_enough = place <= query + after
    return is_late_enough & is_early_enough


def value_vectors(module, states):
    """The values of the key heads, `[places, heads, size]`, by the module's own projection."""
    if hasattr(module, "v_proj"):
        [values] = module.v_proj(states)
    elif hasattr(module, "Wqkv"):
        [joint] = module.Wqkv(states)
        _, _, values = joint.chunk(3, -1)
    elif hasattr(module, "c_attn"):
        [joint] = module.c_attn(states)
        _, _, values = joint.chunk(3, -1)
    else:
        [values] = module.value(states)
    size = getattr(module, "head_dim", None) or module.attention_head_size
    return values.unflatten(-1, (-1, size))


def last_attention(plain, kind):
    """The module that makes values in the last layer, and the projection of what is attended to."""
    modules = dict(plain.named_modules())
    value_layers = {"v_proj", "Wqkv", "c_attn", "value"}
    for path, module in modules.items():
        if value_layers & set(dir(module)):
            last_path = path

    folder = last_path
    if kind.family == "Bert":
        folder, _, _ = last_path.rpartition(".")
    within = [path for path in modules if path.startswith(folder)]
    projection, *_ = [path for path in within if path.endswith("." + kind.projection)]
    return modules[last_path], modules[projection]


@torch.no_grad()
def prediction_with(plain, kind, encoding, row):
    """The plain network's probabilities, one head's pooled row being this one."""
    maker, projection = last_attention(plain, kind)
    vectors = []

    def remember(module, inputs, named):
        states = inputs[0] if inputs else named["hidden_states"]
        vectors.append(value_vectors(module, states))

    def put(module, inputs):
        values = vectors[-1]
        _, key_heads, size = values.shape
        attended = inputs[0].clone()
        pooled_row = attended[0, kind.query]
        by_head = pooled_row.view(-1, size)
        heads = len(by_head)
        key_head = HEAD * key_heads // heads
        by_head[HEAD] = row @ values[:, key_head]
        return (attended,)

    with (
        maker.register_forward_pre_hook(remember, with_kwargs=True),
        projection.register_forward_pre_hook(put),
    ):
        (logits,) = plain(**encoding).logits
    return logits.softmax(-1)


class Plain:
    """A text under the plain network: what its pooled row is, and what is predicted under another.

    Args:
        folder: the checkpoint's.
        reader: its tokenizer.
        kind: what it is.
        text: whole words, one piece each.
    """

    def __init__(self, folder, reader, kind, text):
        from transformers import AutoModelForSequenceClassification as Classifier

        self.network = Classifier.from_pretrained(folder, attn_implementation="eager")
        self.network.eval().double()
        self.kind = kind
        self.encoding = reader(text, return_tensors="pt", return_token_type_ids=False)
        with torch.no_grad():
            output = self.network(**self.encoding, output_attentions=True)
        self.prediction = output.logits[0].softmax(-1)
        self.row = output.attentions[-1][0, HEAD, kind.query]
        self.seen = seen_places(kind, len(self.row))
        is_word = torch.ones_like(self.seen)
        is_word[[0, -1]] = False  # [CLS] and [SEP]
        self.words = (is_word & self.seen).nonzero()[:, 0]
        word_weights = self.row[self.words]
        self.mass = word_weights.sum()
        self.weights = word_weights / self.mass

    def distance_under(self, weights):
        """TVD of the prediction under other weights of the words that the row sees."""
        row = self.row.clone()
        row[self.words] = weights * self.mass
        assert (row[~self.seen] == 0).all()
        moved = prediction_with(self.network, self.kind, self.encoding, row)
        change = moved - self.prediction
        return change.abs().sum() / 2


@pytest.fixture(scope="module", params=KINDS)
def beside(request, tmp_path_factory):
    """Our readout of the texts, and the plain network on each."""
    kind = KINDS[request.param]
    folder = tmp_path_factory.mktemp("kind")
    checkpoint = folder / "model"
    reader = tokenizer(checkpoint, model_max_length=128)
    network(checkpoint, kind.family, vocab_size=len(reader), **kind.options)
    rows = [(text, "no") for text in TEXTS]
    model, data = opened(checkpoint, rows, folder, f"model.heads=[{HEAD}]")
    batch = data.splits["test"][[0, 1, 2]]
    with torch.no_grad():
        outputs = model(batch)
        readout = model.readout(batch, outputs)
    plain_texts = [Plain(checkpoint, reader, kind, text) for text in TEXTS]
    return readout, plain_texts


@pytest.mark.parametrize("number", range(len(TEXTS)))
def test_attention_is_that_of_the_plain_network(beside, number):
    readout, texts = beside
    plain = texts[number]
    attention = readout.attention[number, readout.content[number]]
    assert (plain.row[~plain.seen] == 0).all()
    assert_close(attention, plain.weights)


def permuted(weights):
    """The weights in other orders."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(DRAWS):
        order = torch.randperm(len(weights), generator=generator)
        yield weights[order]


def test_the_tvd_of_permuted_weights_is_that_of_a_hook_of_our_own(beside):
    readout, texts = beside
    distances = []
    prediction = readout.prediction()
    for number, plain in enumerate(texts):
        content = readout.content[number]
        for weights in permuted(plain.weights):
            attention = readout.attention.clone()
            attention[number, content] = weights
            (predicted,) = readout.predict(attention[None])
            distance = readout.distance(predicted, prediction)
            expected = plain.distance_under(weights)
            assert_close(distance[number], expected, atol=1e-6, rtol=0)
            distances.append(expected.item())
    assert max(distances) > 1e-3


def test_a_network_of_global_tokens_in_windows_is_refused_with_its_reason(tmp_path):
    """Longformer's rows are bands and not over the text."""
    from attnprobe.core.errors import UserError

    reader = tokenizer(tmp_path / "model", model_max_length=128)
    options = {"max_position_embeddings": 130, "attention_window": 8, "pad_token_id": 0}
    network(tmp_path / "model", "Longformer", vocab_size=len(reader), **options)
    with pytest.raises(UserError, match=r"attention of longformer .* cannot be examined: "):
        opened(tmp_path / "model", ROWS[:12], tmp_path)
