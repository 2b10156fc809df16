"""Labels of several pieces: the log-probability of each, as a plain loop of transformers has it."""

import pytest
import torch
from torch.testing import assert_close

from attnprobe.models.pretrained.label_scores import LabelScores
from attnprobe.results.directory import RunDirectory
from attnprobe.results.table import read_examples, read_results
from attnprobe.runs.load import load_run
from attnprobe.runs.run import run
from tests.models.pretrained import families
from tests.models.pretrained.families import PROMPT, TEXTS, batch_of, prompted
from tests.models.pretrained.test_prompted import TEMPLATE, chatting
from tests.small_runs import composed

transformers = pytest.importorskip("transformers")
LABELS = {"negative": " bad film", "positive": " finest", "neither": " good"}
"""Of several pieces, and of one."""
CLASSES = {"class_names": list(LABELS), "labels": LABELS}


@torch.no_grad()
def score_by_hand(network, ids, label):
    """Σ log p of a label's pieces, one at a time."""
    score = torch.zeros(())
    for piece in label:
        score = score + network(input_ids=torch.tensor([ids])).logits[0, -1].log_softmax(-1)[piece]
        ids = [*ids, piece]
    return score


def scores_by_hand(network, reader, string, labels=LABELS, **options):
    ids = reader(string, **options).input_ids
    scores = []
    for label in labels.values():
        added = reader(string + label, **options).input_ids[len(ids) :]
        scores.append(score_by_hand(network, ids, added))
    return torch.stack(scores)


@pytest.mark.parametrize("family", ["gpt2", "gemma2"])
def test_a_labels_score_is_the_log_probability_of_its_pieces(family):
    model = prompted(family, **CLASSES)
    assert [len(label) > 1 for label in model.label_scores.pieces] == [True, True, False]
    batch = batch_of(model)
    with torch.no_grad():
        outputs = model(batch)
    network, _ = families.library("CausalLM", families.language_model(family))
    reader = families.language_tokenizer(family)
    for row, text in enumerate(TEXTS):
        expected = scores_by_hand(network, reader, PROMPT.format(text=text))
        assert_close(outputs.logits[row], expected, atol=2e-5, rtol=0)


def test_the_attention_is_the_librarys_at_the_prompts_last_piece():
    model = prompted("llama", **CLASSES)
    batch = batch_of(model)
    with torch.no_grad():
        outputs = model(batch)
    assert model.examination.queries == "last"
    assert not model.is_summed  # whole passes
    for row, text in enumerate(TEXTS):
        string = PROMPT.format(text=text)
        _, said = families.library_says("CausalLM", families.language_model("llama"), string)
        weights = said.attentions[-1][0, :, -1].mean(0)
        mass = torch.zeros(batch.content.shape[1])
        for piece, word in enumerate(batch.piece_word[row, : len(weights)].tolist()):
            if word > 0:
                mass[word] += weights[piece]
        attention = outputs.attention[row]
        assert_close(attention, mass / mass.sum(), atol=1e-5, rtol=0)


def test_another_attention_is_put_into_every_copy():
    """Beside a hook on the attention of a library's model, which is run once for each label."""
    model = prompted("gpt2", **CLASSES)
    batch = batch_of(model)
    model.prepare(batch)
    with torch.no_grad():
        outputs = model(batch)
        even = outputs.content.double() / outputs.content.sum(-1, keepdim=True)
        logits = model.readout(batch, outputs).logits(even[None])[0]
        lifted = model._lifting(batch, model.selection(batch), model.recorded(batch))(even)
    network, reader = families.library("CausalLM", families.language_model("gpt2"))
    attention = network.transformer.h[-1].attn
    assert (logits - outputs.logits).abs().max() > 1e-4
    for row, text in enumerate(TEXTS):
        string = PROMPT.format(text=text)
        ids = reader(string).input_ids
        last = len(ids) - 1
        rows = lifted[row, :, : last + 1].float()  # heads, keys

        def put(module, inputs, output, rows=rows, last=last):
            states = inputs[0]
            _, _, values = module.c_attn(states).split(module.split_size, dim=2)
            values = values.view(*values.shape[:2], module.num_heads, -1)[0, : last + 1]
            shown = torch.einsum("hk,khd->hd", rows, values).flatten()
            result = output[0].clone()
            result[0, last] = module.c_proj(shown[None])[0]
            return (result, *output[1:])

        with attention.register_forward_hook(put):
            expected = scores_by_hand(network, reader, string)
        assert_close(logits[row].float(), expected, atol=2e-5, rtol=0)


def test_a_chat_is_answered_by_labels_of_several_pieces(tmp_path):
    model = prompted("llama", **chatting(tmp_path, TEMPLATE) | CLASSES)
    batch = batch_of(model)
    with torch.no_grad():
        logits = model(batch).logits
    reader = transformers.AutoTokenizer.from_pretrained(tmp_path)
    network = transformers.AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    for row, text in enumerate(TEXTS):
        message = {"role": "user", "content": f"Review: {text} The film was"}
        chat = reader.apply_chat_template([message], add_generation_prompt=True, tokenize=False)
        expected = scores_by_hand(network, reader, chat, add_special_tokens=False)
        assert_close(logits[row], expected, atol=2e-5, rtol=0)


def test_gradients_are_those_of_the_scores():
    """A small change of the embeddings of the texts moves the scores by the gradient times it."""
    model = prompted("gpt2", **CLASSES).double()
    batch = batch_of(model)
    model.prepare(batch)
    inputs = model.inputs(batch).detach().requires_grad_()
    chosen = model.outputs_from(batch, inputs).logits[:, 1]
    (gradient,) = torch.autograd.grad(chosen.sum(), inputs)
    step = torch.randn(inputs.shape, generator=torch.Generator().manual_seed(0)).double() * 1e-5
    with torch.no_grad():
        ahead = model.outputs_from(batch, inputs + step).logits[:, 1]
        behind = model.outputs_from(batch, inputs - step).logits[:, 1]
    expected = (gradient * step).sum((1, 2))
    assert_close((ahead - behind) / 2, expected, rtol=1e-3, atol=1e-9)


def test_continuations_are_those_that_no_other_one_begins_with():
    labels = LabelScores([[1, 2, 3], [1, 2, 4], [1, 5], [6]])
    assert labels.continuations == [(1, 2)]
    labels = LabelScores([[1, 2], [3, 4], [5]])
    assert labels.continuations == [(1,), (3,)]
    assert LabelScores([[1], [2]]).continuations == [()]


def test_a_run_says_what_the_first_pieces_decide(tmp_path, capsys):
    texts = [" ".join(families.WORDS[start : start + 4]) for start in range(12)]
    rows = [(text, ("negative", "positive")[number % 2]) for number, text in enumerate(texts)]
    folder = families.language_model("gpt2")
    settings = families.run_settings(
        folder,
        rows,
        tmp_path,
        'model.prompt="Review: {text}\\nSentiment:"',
        'model.labels={positive: " good film", negative: " good story"}',
        "probe=[permutation,leave_one_out,gradient]",
        "probe.permutation.samples=3",
    )
    directory = run(composed(*settings))
    network, _ = families.library("CausalLM", folder)
    reader = families.language_tokenizer("gpt2")
    labels = {"negative": " good story", "positive": " good film"}
    for example in read_examples(directory).itertuples():
        string = PROMPT.format(text=texts[example.example_id])
        expected = scores_by_hand(network, reader, string, labels).softmax(-1)
        assert list(example.probability) == pytest.approx(expected.tolist(), abs=1e-5)
    assert set(read_results(directory)["probe"]) >= {"permutation", "leave_one_out", "gradient"}
    # both labels begin with the same piece
    output = " ".join(capsys.readouterr().out.split())
    assert "first pieces alone decide as all do in 0 of 12 texts" in output
    library = RunDirectory(directory).manifest()["model_facts"]["library"]
    assert library["largest_difference"] < 1e-5
    explained = load_run(directory).explain([texts[0]])
    assert [*explained["probability"][0].values()] == pytest.approx(
        scores_by_hand(network, reader, PROMPT.format(text=texts[0]), labels).softmax(-1).tolist(),
        abs=1e-5,
    )
