"""Places that a row cannot see, by a mask of the network, are no content of it."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch.testing import assert_close

from attnprobe.core.errors import UserError
from attnprobe.findings.groups import grouped, read_run
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
LONG = [(" ".join([text] * 4), label) for text, label in ROWS[:40]]
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
    reader = tokenizer(folder, model_max_length=128)
    head = "SequenceClassification"
    return reader, network(folder, kind, head, vocab_size=len(reader), **WINDOWS[kind] | options)


def seen_by_definition(kind, length):
    """The pieces that the pooled row of the last layer sees, counted from its window's size."""
    if kind == "ModernBert":  # the first row, and 4 places on either side
        return list(range(5))
    return list(range(length - 6, length))  # the last row: itself and the 5 before


@pytest.fixture(scope="module", params=WINDOWS)
def window(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    windowed(folder / "model", request.param)
    return request.param, opened(folder / "model", LONG, folder)


def test_content_is_what_the_row_can_see(window):
    kind, result = window
    batch = result.data.splits["test"][[0, 7, 20]]
    outputs = result.model(batch)
    for row in range(3):
        length = int((batch.piece_word[row] != -2).sum())
        places = seen_by_definition(kind, length)
        words = {int(batch.piece_word[row, place]) for place in places} - {-1}
        assert set(outputs.content[row].nonzero()[:, 0].tolist()) == words
        assert outputs.text[row].equal(batch.content[row])
    assert_close(outputs.attention.sum(-1), torch.ones(3, dtype=outputs.attention.dtype))
    assert (outputs.attention[outputs.unseen] == 0).all()


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


def attentions_over(content):
    """An even one, and five drawn ones."""
    generator = torch.Generator().manual_seed(0)
    even = content.double() / content.sum(-1, keepdim=True)
    drawn = torch.rand(5, *content.shape, generator=generator).double() * content
    return torch.cat([even[None], drawn / drawn.sum(-1, keepdim=True)])


def test_no_forbidden_place_has_weight_under_any_attention(window):
    kind, result = window
    batch = result.data.splits["test"][[0, 7, 20]]
    outputs = result.model(batch)
    attentions = attentions_over(outputs.content)
    readout = result.model.readout(batch, outputs, short=False)
    logits, weights = shown(readout, attentions)
    for row in range(3):
        length = int((batch.piece_word[row] != -2).sum())
        query = 0 if kind == "ModernBert" else length - 1
        hidden = sorted({*range(weights.shape[-1])} - {*seen_by_definition(kind, length)})
        assert (weights[:, row, :, query, hidden] == 0).all()
    short = result.model.readout(batch, outputs).logits(attentions)
    assert_close(short, logits, atol=5e-6, rtol=0)
    assert (logits[1] - logits[0]).abs().max() > 1e-4


def test_a_weight_on_a_forbidden_place_is_an_error(window):
    _, result = window
    model = result.model
    batch = result.data.splits["test"][[0, 7, 20]]
    even = Pass(1, lambda record: torch.full_like(record.weights, 1 / record.weights.shape[-1]))
    with pytest.raises(ForbiddenPlace), torch.no_grad():
        model.run(batch, even)


@pytest.fixture(scope="module")
def averaged(tmp_path_factory):
    """A network with a window that averages all rows: its lift, and texts that it has recorded."""
    folder = tmp_path_factory.mktemp("averaged")
    reader = tokenizer(folder / "model", model_max_length=128)
    options = MODERNBERT | {"classifier_pooling": "mean"}
    network(folder / "model", "ModernBert", vocab_size=len(reader), **options)
    model, data = opened(folder / "model", LONG[:8], folder)
    batch = data.splits["test"][[0, 5]]
    outputs = model(batch)
    assert model.examination.queries == "all"
    assert not outputs.unseen.any()  # some row sees each word
    return model._lifting(batch, model.selection(batch), model.recorded(batch)), outputs


def test_rows_of_all_pieces_keep_their_sums_and_give_nothing_to_what_they_cannot_see(averaged):
    lifting, outputs = averaged
    on_one_word = torch.zeros_like(outputs.attention).double()
    on_one_word[:, 3] = 1
    even = attentions_over(outputs.content)[0]
    rows = lifting(torch.stack([on_one_word, even])).unflatten(2, (2, -1))  # heads, queries
    place = torch.arange(rows.shape[-1])
    far = (place[:, None] - place).abs() > 4
    valid = lifting.valid.unflatten(1, (2, -1))
    assert ((rows * far)[:, valid] == 0).all()
    sums = rows.sum(-1)[:, valid]
    assert_close(sums, torch.ones_like(sums))


def test_rows_of_all_pieces_under_the_recorded_attention_are_the_recorded_ones(averaged):
    lifting, outputs = averaged
    assert_close(lifting(outputs.attention.double()), lifting.rows, atol=1e-6, rtol=0)


def test_a_row_that_sees_no_word_of_a_text_is_refused(tmp_path):
    reader = tokenizer(tmp_path / "model", model_max_length=128, post="$A [SEP] [SEP] [SEP]")
    network(
        tmp_path / "model",
        "Mistral",
        vocab_size=len(reader),
        **WINDOWS["Mistral"] | {"sliding_window": 3},
    )
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
    """A run with a window of 4 places on either side, most of whose words are not seen."""
    folder = tmp_path_factory.mktemp("window")
    windowed(folder / "model", "ModernBert")
    settings = run_settings(
        folder / "model", LONG[:12], folder, *PROBES, *SMALL_ADVERSARY, "probe.sites.samples=3"
    )
    return run(composed(*settings))


def test_a_run_says_how_many_words_are_not_seen(examined):
    examples = read_examples(examined)
    for row in examples.itertuples():
        assert sum(~np.array(row.unseen)) == 4
        assert (np.array(row.attention)[np.array(row.unseen)] == 0).all()
        assert len(row.unseen) == len(row.tokens) == len(row.attention)
    share = np.mean([np.mean(unseen) for unseen in examples["unseen"]])
    sentence = f"{share:.0%}".replace("%", " %")
    assert f"on average {sentence} of a text's words are outside" in read_run(examined).attention_on


def test_weights_that_are_found_stand_at_their_words_and_none_at_unseen_ones(examined):
    results = read_results(examined)
    found = results[results["metric"] == "optimum_attention"]
    assert len(found)
    for _, rows in found.groupby("example_id"):
        assert sorted(rows["step"]) == [0, 1, 2, 3]
    leave_one_out = results[results["metric"] == "leave_one_out"]
    lengths = read_examples(examined).set_index("example_id")["tokens"].map(len)
    assert leave_one_out.groupby("example_id").size().eq(lengths).all()


def test_equal_weights_are_those_of_the_words_that_are_seen(examined, tmp_path):
    windowed(tmp_path / "model", "ModernBert")
    model, data = opened(tmp_path / "model", LONG[:12], tmp_path, ONE_HEAD)
    results = read_results(examined)
    distance = results[results["metric"] == "equal_weights_distance"].set_index("example_id")
    batch = data.splits["test"][list(range(12))]
    outputs = model(batch)
    equal = outputs.content / outputs.content.sum(-1, keepdim=True)
    prediction = outputs.logits.softmax(-1)
    under_equal = model.readout(batch, outputs).logits(equal[None])[0].softmax(-1)
    expected = (under_equal - prediction).abs().sum(-1) / 2
    stored = distance["value"].loc[batch.example_id.tolist()].to_numpy()
    assert_allclose(stored, expected.detach().numpy(), atol=1e-5)
    assert expected.max() > 1e-3


def test_a_page_and_a_notebook_show_what_is_not_seen(examined):
    browser = browse(grouped([read_run(examined)]))
    entry = browser.index["runs"][0]
    assert entry["maps"][0]["key"] == "attention"
    maps = maps_of(browser, entry)
    unseen = [list(row) for row in read_examples(examined)["unseen"]]
    for key in ("attention", "adversarial-optimum_attention"):
        assert [np.isnan(row).tolist() for row in maps[key]] == unseen, key
    # a word that this attention cannot see may still count in the layers below
    assert not any(np.isnan(row).any() for row in maps["leave_one_out-leave_one_out"])
    explanation = load_run(examined).explain([LONG[0][0]])
    assert sum(explanation["unseen"][0]) == len(explanation["tokens"][0]) - 4
    assert "not seen by this attention" in explanation._repr_html_()
