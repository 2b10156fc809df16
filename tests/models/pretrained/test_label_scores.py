"""Labels of several pieces: the log-probability of each, as a plain loop of transformers has it."""

import io
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path

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
        logits = network(input_ids=torch.tensor([ids])).logits[0, -1]
        score = score + logits.log_softmax(-1)[piece]
        ids = [*ids, piece]
    return score


def scores_by_hand(network, reader, string, labels=LABELS, **options):
    prompt = reader(string, **options).input_ids
    scores = []
    for label in labels.values():
        ids = reader(string + label, **options).input_ids
        label_ids = ids[len(prompt) :]
        score = score_by_hand(network, prompt, label_ids)
        scores.append(score)
    return torch.stack(scores)


def say(model, batch):
    with torch.no_grad():
        return model(batch)


@pytest.mark.parametrize("family", ["gpt2", "gemma2"])
def test_a_labels_score_is_the_log_probability_of_its_pieces(family):
    model = prompted(family, **CLASSES)
    outputs = say(model, batch_of(model))
    network, _ = families.library("CausalLM", families.language_model(family))
    reader = families.language_tokenizer(family)
    has_several_pieces = [len(label) > 1 for label in model.label_scores.pieces]
    assert has_several_pieces == [True, True, False]
    for row, text in enumerate(TEXTS):
        string = PROMPT.format(text=text)
        expected = scores_by_hand(network, reader, string)
        assert_close(outputs.logits[row], expected, atol=2e-5, rtol=0)


def test_the_attention_is_the_librarys_at_the_prompts_last_piece():
    model = prompted("llama", **CLASSES)
    batch = batch_of(model)
    outputs = say(model, batch)
    assert model.examination.queries == "last"
    assert not model.is_summed  # whole passes
    checkpoint = families.language_model("llama")
    for row, text in enumerate(TEXTS):
        string = PROMPT.format(text=text)
        _, expected = families.library_says("CausalLM", checkpoint, string)
        heads = expected.attentions[-1][0]
        weights = heads[:, -1].mean(0)
        length = len(weights)
        words = batch.piece_word[row, :length]
        is_of_text = words > 0
        mass = torch.zeros(batch.content.shape[1])
        mass.index_add_(0, words[is_of_text], weights[is_of_text])
        attention = mass / mass.sum()
        assert_close(outputs.attention[row], attention, atol=1e-5, rtol=0)


def putting(rows, place):
    """A hook on a library's attention: at this place its heads look as `rows [heads, keys]` say."""

    def hook(module, inputs, output):
        (states, *_) = inputs
        [joint] = module.c_attn(states)
        _, _, values = joint.split(module.split_size, dim=1)
        seen_values = values[: place + 1]
        by_head = seen_values.unflatten(-1, (module.num_heads, -1))
        attended = torch.einsum("hk,khd->hd", rows, by_head)
        result, *rest = output
        result = result.clone()
        [result[0, place]] = module.c_proj(attended.flatten()[None])
        return (result, *rest)

    return hook


def lifted_rows(model, batch, attention):
    """The heads' rows that show this attention, `[texts, heads, keys]`."""
    selection = model.selection(batch)
    recorded = model.recorded(batch)
    lifting = model._lifting(batch, selection, recorded)
    return lifting(attention).float()


def test_another_attention_is_put_into_every_copy():
    """Beside a hook on the attention of a library's model, which is run once for each label."""
    model = prompted("gpt2", **CLASSES)
    batch = batch_of(model)
    model.prepare(batch)
    outputs = say(model, batch)
    content = outputs.content.double()
    even = content / content.sum(-1, keepdim=True)
    with torch.no_grad():
        readout = model.readout(batch, outputs)
        (logits,) = readout.logits(even[None])
        lifted = lifted_rows(model, batch, even)
    assert (logits - outputs.logits).abs().max() > 1e-4

    network, reader = families.library("CausalLM", families.language_model("gpt2"))
    attention = network.transformer.h[-1].attn
    for row, text in enumerate(TEXTS):
        string = PROMPT.format(text=text)
        length = len(reader(string).input_ids)
        hook = putting(lifted[row, :, :length], length - 1)
        with attention.register_forward_hook(hook):
            expected = scores_by_hand(network, reader, string)
        assert_close(logits[row].float(), expected, atol=2e-5, rtol=0)


def test_a_chat_is_answered_by_labels_of_several_pieces(tmp_path):
    settings = chatting(tmp_path, TEMPLATE) | CLASSES
    model = prompted("llama", **settings)
    outputs = say(model, batch_of(model))
    reader = transformers.AutoTokenizer.from_pretrained(tmp_path)
    network = transformers.AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    for row, text in enumerate(TEXTS):
        message = {"role": "user", "content": f"Review: {text} The film was"}
        chat = reader.apply_chat_template([message], add_generation_prompt=True, tokenize=False)
        expected = scores_by_hand(network, reader, chat, add_special_tokens=False)
        assert_close(outputs.logits[row], expected, atol=2e-5, rtol=0)


def test_gradients_are_those_of_the_scores():
    """A small change of the embeddings of the texts moves the scores by the gradient times it."""
    model = prompted("gpt2", **CLASSES).double()
    batch = batch_of(model)
    model.prepare(batch)
    inputs = model.inputs(batch).detach().requires_grad_()

    def score(vectors):
        return model.outputs_from(batch, vectors).logits[:, 1]

    total = score(inputs).sum()
    (gradient,) = torch.autograd.grad(total, inputs)
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(inputs.shape, generator=generator)
    step = 1e-5 * noise.double()
    with torch.no_grad():
        after = score(inputs + step)
        before = score(inputs - step)
    change = (after - before) / 2
    expected = (gradient * step).sum((1, 2))
    assert_close(change, expected, rtol=1e-3, atol=1e-9)


@pytest.mark.parametrize(
    ("pieces", "continuations"),
    [
        ([[1, 2, 3], [1, 2, 4], [1, 5], [6]], [(1, 2)]),
        ([[1, 2], [3, 4], [5]], [(1,), (3,)]),
        ([[1], [2]], [()]),
    ],
)
def test_continuations_are_those_that_no_other_one_begins_with(pieces, continuations):
    assert LabelScores(pieces).continuations == continuations


RUN_LABELS = {"negative": " good story", "positive": " good film"}


"""Both begin with the same piece."""


RUN_TEXTS = [" ".join(families.WORDS[start : start + 4]) for start in range(12)]


@dataclass(frozen=True)
class Finished:
    """A run of a language model, and what it has printed in one line."""

    directory: Path
    output: str

    def probabilities(self, text):
        """Of the labels of a text, by hand."""
        network, _ = families.library("CausalLM", families.language_model("gpt2"))
        reader = families.language_tokenizer("gpt2")
        scores = scores_by_hand(network, reader, PROMPT.format(text=text), RUN_LABELS)
        return scores.softmax(-1).tolist()


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("labels")
    rows = []
    for number, text in enumerate(RUN_TEXTS):
        rows.append((text, "positive" if number % 2 else "negative"))
    settings = families.run_settings(
        families.language_model("gpt2"),
        rows,
        folder,
        'model.prompt="Review: {text}\\nSentiment:"',
        'model.labels={positive: " good film", negative: " good story"}',
        "probe=[permutation,leave_one_out,gradient]",
        "probe.permutation.samples=3",
    )
    printed = io.StringIO()
    with redirect_stdout(printed):
        directory = run(composed(*settings))
    return Finished(directory, " ".join(printed.getvalue().split()))


def test_a_run_has_the_probabilities_of_whole_labels(finished):
    for example in read_examples(finished.directory).itertuples():
        expected = finished.probabilities(RUN_TEXTS[example.example_id])
        assert list(example.probability) == pytest.approx(expected, abs=1e-5)


def test_a_run_says_what_the_first_pieces_decide(finished):
    assert "first pieces alone decide as all do in 0 of 12 texts" in finished.output


def test_a_run_with_labels_of_several_pieces_has_every_probe(finished):
    results = read_results(finished.directory)
    library = RunDirectory(finished.directory).manifest()["model_facts"]["library"]
    assert set(results["probe"]) >= {"permutation", "leave_one_out", "gradient"}
    assert library["largest_difference"] < 1e-5


def test_a_run_that_is_loaded_explains_by_whole_labels(finished):
    (text, *_) = RUN_TEXTS
    explained = load_run(finished.directory).explain([text])
    (probability,) = explained["probability"]
    expected = finished.probabilities(text)
    assert list(probability.values()) == pytest.approx(expected, abs=1e-5)
