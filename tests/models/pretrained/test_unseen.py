"""Places that a row cannot see, by a mask of the network, are no content of it."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch.testing import assert_close

from attnprobe.core.batch import Batch
from attnprobe.core.errors import UserError
from attnprobe.findings.groups import grouped, read_run
from attnprobe.models.base import Model
from attnprobe.models.pretrained.attention_hooks import ForbiddenPlace, Pass
from attnprobe.report.page.browser import browse
from attnprobe.results.table import read_examples, read_results
from attnprobe.runs.load import load_run
from attnprobe.runs.run import run
from tests.models.pretrained.families import run_settings
from tests.models.pretrained.whole_words import ROWS, network, opened, tokenizer
from tests.report.page.browser.test_browse import maps_of
from tests.small_runs import SMALL_ADVERSARY, composed

pytest.importorskip("transformers")
LONG = [(f"{text} {text} {text} {text}", label) for text, label in ROWS[:40]]
ENDS = {"bos_token_id": 2, "eos_token_id": 3, "cls_token_id": 2, "sep_token_id": 3}
MODERNBERT = {
    "max_position_embeddings": 128,
    "local_attention": 8,
    "global_attn_every_n_layers": 2,
    "pad_token_id": 0,
    **ENDS,
}
DECODER = {"max_position_embeddings": 128, "pad_token_id": 0, "num_key_value_heads": 1}
WINDOWS = {
    "ModernBert": MODERNBERT | {"classifier_pooling": "cls"},
    "Mistral": DECODER | {"sliding_window": 6},
    "Gemma3Text": DECODER | {"sliding_window": 6, "head_dim": 16, "layer_types": None},
    "Qwen2": DECODER | {"sliding_window": 6, "use_sliding_window": True, "max_window_layers": 0},
}
"""Networks whose last layer has a window."""
WINDOWS["Gemma3Text"]["layer_types"] = ["full_attention", "sliding_attention"]


def windowed(folder, kind, **options):
    """A checkpoint whose last layer has a window, and its tokenizer."""
    reader = tokenizer(folder, model_max_length=128)
    settings = WINDOWS[kind] | options
    network(folder, kind, "SequenceClassification", vocab_size=len(reader), **settings)
    return reader


@dataclass(frozen=True)
class Window:
    """A model whose last layer has a window, and three texts.

    Attributes:
        kind: the network's name.
        model: the examined one.
        batch: the texts.
    """

    kind: str
    model: Model
    batch: Batch

    def pieces(self, row):
        """How many a text has."""
        return int((self.batch.piece_word[row] != -2).sum())

    def query(self, row):
        """The pooled row: that of the first piece, or of the last one."""
        return 0 if self.kind == "ModernBert" else self.pieces(row) - 1

    def seen(self, row):
        """The pieces that the pooled row sees, counted from its window's size."""
        query = self.query(row)
        if self.kind == "ModernBert":  # itself, and 4 places on either side
            return list(range(query, query + 5))
        return list(range(query - 5, query + 1))  # itself and the 5 before


@pytest.fixture(scope="module", params=WINDOWS)
def window(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    windowed(folder / "model", request.param)
    result = opened(folder / "model", LONG, folder)
    batch = result.data.splits["test"][[0, 7, 20]]
    return Window(request.param, result.model, batch)


@pytest.mark.parametrize("row", range(3))
def test_content_is_what_the_row_can_see(window, row):
    batch = window.batch
    outputs = window.model(batch)
    word_of_piece = batch.piece_word[row, window.seen(row)]
    words_seen = word_of_piece[word_of_piece != -1].unique()
    content = outputs.content[row].nonzero().flatten()
    assert content.tolist() == words_seen.tolist()
    assert outputs.text[row].equal(batch.content[row])


def shown(readout, attentions):
    """Logits under these attentions, and the weights that the network multiplied its values with,
    by a hook of our own: `[attentions, batch, heads, queries, keys]` of the last layer."""
    used = []
    put = Pass.weights

    def watching(attention_pass, *arguments, **named):
        weights = put(attention_pass, *arguments, **named)
        used.append(weights.detach())
        return weights

    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        patch.setattr(Pass, "weights", watching)
        logits = readout.logits(attentions)
    return logits, used[-1].unflatten(0, attentions.shape[:2])


def test_attention_is_on_what_the_row_can_see(window):
    outputs = window.model(window.batch)
    sums = outputs.attention.sum(-1)
    assert_close(sums, torch.ones_like(sums))
    assert (outputs.attention[outputs.unseen] == 0).all()


def attentions_over(content):
    """An even one, and five drawn ones."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.rand(5, *content.shape, generator=generator).double()
    even = torch.ones(1, *content.shape).double()
    mass = torch.cat([even, noise]) * content
    return mass / mass.sum(-1, keepdim=True)


def test_no_forbidden_place_has_weight_under_any_attention(window):
    outputs = window.model(window.batch)
    attentions = attentions_over(outputs.content)
    readout = window.model.readout(window.batch, outputs, short=False)
    _, weights = shown(readout, attentions)
    for row in range(3):
        query_weights = weights[:, row, :, window.query(row)]
        places = query_weights.shape[-1]
        is_hidden = torch.ones(places, dtype=torch.bool)
        is_hidden[window.seen(row)] = False
        assert (query_weights[..., is_hidden] == 0).all()


def test_the_short_way_says_under_any_attention_what_whole_passes_say(window):
    outputs = window.model(window.batch)
    attentions = attentions_over(outputs.content)
    short = window.model.readout(window.batch, outputs)
    whole = window.model.readout(window.batch, outputs, short=False)
    with torch.no_grad():
        logits = whole.logits(attentions)
        short_logits = short.logits(attentions)
    assert_close(short_logits, logits, atol=5e-6, rtol=0)
    difference = logits[1] - logits[0]
    assert difference.abs().max() > 1e-4


def even_weights(record):
    """Weights on all places, those that the row may not see, too."""
    places = record.weights.shape[-1]
    return torch.full_like(record.weights, 1 / places)


def test_a_weight_on_a_forbidden_place_is_an_error(window):
    with pytest.raises(ForbiddenPlace), torch.no_grad():
        window.model.run(window.batch, Pass(1, even_weights))


@pytest.fixture(scope="module")
def averaged(tmp_path_factory):
    """A network with a window that averages all rows: its lift, and texts that it has recorded."""
    folder = tmp_path_factory.mktemp("averaged")
    windowed(folder / "model", "ModernBert", classifier_pooling="mean")
    model, data = opened(folder / "model", LONG[:8], folder)
    batch = data.splits["test"][[0, 5]]
    outputs = model(batch)
    assert model.examination.queries == "all"
    assert not outputs.unseen.any()  # some row sees each word
    selection = model.selection(batch)
    recorded = model.recorded(batch)
    lifting = model._lifting(batch, selection, recorded)
    return lifting, outputs


def test_rows_of_all_pieces_keep_their_sums_and_give_nothing_to_what_they_cannot_see(averaged):
    lifting, outputs = averaged
    even, *_ = attentions_over(outputs.content)
    on_one_word = torch.zeros_like(even)
    on_one_word[:, 3] = 1
    valid = lifting.valid.unflatten(1, (2, -1))

    rows = lifting(torch.stack([on_one_word, even]))

    weights = rows.unflatten(2, (2, -1))  # heads, queries
    place = torch.arange(weights.shape[-1])
    distance = (place[:, None] - place).abs()
    is_far = distance > 4
    far_weights = weights * is_far
    assert (far_weights[:, valid] == 0).all()
    sums = weights.sum(-1)[:, valid]
    assert_close(sums, torch.ones_like(sums))


def test_rows_of_all_pieces_under_the_recorded_attention_are_the_recorded_ones(averaged):
    lifting, outputs = averaged
    rows = lifting(outputs.attention.double())
    assert_close(rows, lifting.rows, atol=1e-6, rtol=0)


def test_a_row_that_sees_no_word_of_a_text_is_refused(tmp_path):
    reader = tokenizer(tmp_path / "model", model_max_length=128, post="$A [SEP] [SEP] [SEP]")
    options = WINDOWS["Mistral"] | {"sliding_window": 3}
    network(tmp_path / "model", "Mistral", vocab_size=len(reader), **options)
    message = r"model.layer=-1: the row that is examined sees no word of text \d+"
    with pytest.raises(UserError, match=message):
        opened(tmp_path / "model", LONG[:6], tmp_path)


ONE_HEAD = "model.heads=[1]"
"""The site is one row, whose weights are taken as they are asked for."""
PROBES = (
    "probe=[permutation,adversarial,single_weight,erasure,gradient,leave_one_out,sites,swaps]",
    "probe.swaps.passes=100",
    "probe.swaps.most_passes=100",
    ONE_HEAD,
)


@pytest.fixture(scope="module")
def examined(tmp_path_factory):
    """A run of a model with a window, most of whose words are not seen."""
    folder = tmp_path_factory.mktemp("window")
    windowed(folder / "model", "ModernBert")
    settings = run_settings(
        folder / "model",
        LONG[:6],
        folder,
        *PROBES,
        *SMALL_ADVERSARY,
        "probe.sites.samples=3",
    )
    return run(composed(*settings))


def test_an_unseen_word_has_no_weight_in_the_examples(examined):
    for example in read_examples(examined).itertuples():
        unseen = np.array(example.unseen)
        attention = np.array(example.attention)
        assert len(unseen) == len(attention) == len(example.tokens)
        assert (~unseen).sum() == 4
        assert (attention[unseen] == 0).all()


def test_a_run_says_how_many_words_are_not_seen(examined):
    examples = read_examples(examined)
    share = np.mean([np.mean(unseen) for unseen in examples["unseen"]])
    remark = f"on average {100 * share:.0f} % of a text's words are outside"
    assert remark in read_run(examined).attention_on


def rows_of(results, metric):
    """Those of one metric."""
    return results[results["metric"] == metric]


def test_weights_that_are_found_stand_at_their_words_and_none_at_unseen_ones(examined):
    found = rows_of(read_results(examined), "optimum_attention")
    assert len(found)
    for _, rows in found.groupby("example_id"):
        assert sorted(rows["step"]) == [0, 1, 2, 3]


def test_words_that_are_not_seen_are_left_out_as_well(examined):
    lengths = read_examples(examined).set_index("example_id")["tokens"].map(len)
    rows = rows_of(read_results(examined), "leave_one_out")
    assert rows.groupby("example_id").size().eq(lengths).all()


def test_equal_weights_are_those_of_the_words_that_are_seen(examined, tmp_path):
    windowed(tmp_path / "model", "ModernBert")
    model, data = opened(tmp_path / "model", LONG[:6], tmp_path, ONE_HEAD)
    batch = data.splits["test"][list(range(6))]
    with torch.no_grad():
        outputs = model(batch)
        lengths = outputs.content.sum(-1, keepdim=True)
        even = outputs.content / lengths
        readout = model.readout(batch, outputs)
        (logits,) = readout.logits(even[None])
    change = logits.softmax(-1) - outputs.logits.softmax(-1)
    expected = change.abs().sum(-1) / 2

    results = read_results(examined)

    rows = rows_of(results, "equal_weights_distance").set_index("example_id")
    distances = rows.loc[batch.example_id.tolist(), "value"]
    assert_allclose(distances, expected, atol=1e-5)
    assert expected.max() > 1e-3


def test_a_page_shows_what_is_not_seen(examined):
    browser = browse(grouped([read_run(examined)]))
    (entry,) = browser.index["runs"]
    maps = maps_of(browser, entry)
    unseen = [list(row) for row in read_examples(examined)["unseen"]]
    assert entry["maps"][0]["key"] == "attention"
    for key in ("attention", "adversarial-optimum_attention"):
        is_undefined = [np.isnan(row).tolist() for row in maps[key]]
        assert is_undefined == unseen, key
    # a word that this attention cannot see may still count in the layers below
    for row in maps["leave_one_out-leave_one_out"]:
        assert not np.isnan(row).any()


def test_a_notebook_shows_what_is_not_seen(examined):
    text, _ = LONG[0]
    explanation = load_run(examined).explain([text])
    unseen = explanation["unseen"][0]
    assert len(unseen) - sum(unseen) == 4
    assert "not seen by this attention" in explanation._repr_html_()
