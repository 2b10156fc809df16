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

pytest.importorskip("transformers")
TEXTS = [" ".join([text] * 2) for text, _ in ROWS[:3]]
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
    return (place >= query - before) & (place <= query + after)


def value_vectors(module, states):
    """The values of the key heads, `[places, heads, size]`, by the module's own projection."""
    size = getattr(module, "head_dim", None) or module.attention_head_size
    places = states.shape[1]
    if hasattr(module, "v_proj"):
        return module.v_proj(states).view(places, -1, size)
    if hasattr(module, "Wqkv"):
        return module.Wqkv(states).view(places, 3, -1, size)[:, 2]
    if hasattr(module, "c_attn"):
        return module.c_attn(states).chunk(3, -1)[2].view(places, -1, size)
    return module.value(states).view(places, -1, size)


def last_attention(plain, kind):
    """The module that makes values in the last layer, and the projection of what is attended to."""
    makers = ("v_proj", "Wqkv", "c_attn", "value")
    modules = dict(plain.named_modules())
    name = [name for name, part in modules.items() if any(hasattr(part, key) for key in makers)][-1]
    place = name.rpartition(".")[0] if kind.family == "Bert" else name
    projections = [
        part
        for path, part in modules.items()
        if path.startswith(place) and path.endswith("." + kind.projection)
    ]
    return modules[name], projections[0]


@torch.no_grad()
def prediction_with(plain, kind, encoding, row):
    """The plain network's probabilities, one head's pooled row being this one."""
    maker, projection = last_attention(plain, kind)
    vectors = []

    def remember(module, inputs, named):
        states = inputs[0] if inputs else named["hidden_states"]
        vectors.append(value_vectors(module, states))

    def put(module, inputs):
        attended = inputs[0].clone()
        values = vectors[-1]
        size = values.shape[-1]
        heads = attended.shape[-1] // size
        of_head = values[:, HEAD * values.shape[1] // heads]
        attended[0, kind.query, HEAD * size : (HEAD + 1) * size] = row @ of_head
        return (attended,)

    handles = [
        maker.register_forward_pre_hook(remember, with_kwargs=True),
        projection.register_forward_pre_hook(put),
    ]
    try:
        return plain(**encoding).logits[0].softmax(-1)
    finally:
        for handle in handles:
            handle.remove()


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
        self.mass = self.row[self.words].sum()
        self.weights = self.row[self.words] / self.mass

    def distance_under(self, weights):
        """TVD of the prediction under other weights of the words that the row sees."""
        row = self.row.clone()
        row[self.words] = weights * self.mass
        assert (row[~self.seen] == 0).all()
        moved = prediction_with(self.network, self.kind, self.encoding, row)
        return (moved - self.prediction).abs().sum() / 2


@pytest.fixture(params=KINDS)
def beside(request, tmp_path):
    """Our readout of the texts, and the plain network on each."""
    kind = KINDS[request.param]
    folder = tmp_path / "model"
    reader = tokenizer(folder, model_max_length=128)
    network(folder, kind.family, vocab_size=len(reader), **kind.options)
    rows = [(text, "no") for text in TEXTS]
    model, data = opened(folder, rows, tmp_path, f"model.heads=[{HEAD}]")
    batch = data.splits["test"][[0, 1, 2]]
    with torch.no_grad():
        readout = model.readout(batch, model(batch))
    return readout, [Plain(folder, reader, kind, text) for text in TEXTS]


def test_the_tvd_of_permuted_weights_is_that_of_a_hook_of_our_own(beside):
    readout, texts = beside
    generator = torch.Generator().manual_seed(0)
    largest = 0.0
    for number, plain in enumerate(texts):
        content = readout.content[number]
        assert (plain.row[~plain.seen] == 0).all()
        assert_close(readout.attention[number, content], plain.weights)
        for _ in range(DRAWS):
            shuffled = plain.weights[torch.randperm(len(plain.words), generator=generator)]
            attention = readout.attention.clone()
            attention[number, content] = shuffled
            distance = readout.distance(readout.predict(attention[None])[0], readout.prediction())
            expected = plain.distance_under(shuffled)
            assert_close(distance[number], expected, atol=1e-6, rtol=0)
            largest = max(largest, float(expected))
    assert largest > 1e-3


def test_a_network_of_global_tokens_in_windows_is_refused_with_its_reason(tmp_path):
    """Longformer's rows are bands and not over the text."""
    from attnprobe.core.errors import UserError

    reader = tokenizer(tmp_path / "model", model_max_length=128)
    options = {"max_position_embeddings": 130, "attention_window": 8, "pad_token_id": 0}
    network(tmp_path / "model", "Longformer", vocab_size=len(reader), **options)
    with pytest.raises(UserError, match=r"attention of longformer .* cannot be examined: "):
        opened(tmp_path / "model", ROWS[:12], tmp_path)
