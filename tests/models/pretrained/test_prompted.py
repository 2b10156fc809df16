import random

import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.testing import assert_close

from attnprobe.core.errors import UserError
from attnprobe.data.passages import Passage, Passages
from attnprobe.data.pieces import PieceReader
from attnprobe.findings.groups import grouped, read_runs
from attnprobe.report.page.browser import browse
from attnprobe.results.directory import RunDirectory
from attnprobe.results.table import read_examples, read_results
from attnprobe.runs.load import load_run
from attnprobe.runs.run import run
from attnprobe.runs.settings import resumed
from tests.models.pretrained import families
from tests.models.pretrained.families import (
    LABELS,
    LANGUAGE_MODELS,
    PROMPT,
    TEXTS,
    WORDS,
    batch_of,
    prompted,
)
from tests.small_runs import FEW_PASSES, SMALL_ADVERSARY, composed

transformers = pytest.importorskip("transformers")
AUDIT = (
    "permutation",
    "adversarial",
    "gradient",
    "leave_one_out",
    "correlation",
    "plausibility",
    "single_weight",
    "erasure",
    "skill",
    "swaps",
    "agreement",
    "faithfulness",
)


def pieces_of_words(reader, text):
    """The pieces of each word of a text in the prompt: every piece that holds a letter of it. The
    rest is the prompt's."""
    string = PROMPT.format(text=text)
    offsets = reader(string, return_offsets_mapping=True).offset_mapping
    start = len("Review: ")
    words = []
    for word in text.split():
        end = start + len(word)
        pieces = [place for place, (low, high) in enumerate(offsets) if low < end and high > start]
        words.append(pieces)
        start = end + 1
    return words


@pytest.fixture(scope="module", params=LANGUAGE_MODELS)
def prompted_texts(request):
    """A family, and texts as a model of it reads them in a prompt."""
    model = prompted(request.param)
    batch = batch_of(model)
    with torch.no_grad():
        outputs = model(batch)
    assert model.examination.queries == "last"
    return request.param, batch, outputs


def library_says_of(family, text):
    folder = families.language_model(family)
    return families.library_says("CausalLM", folder, PROMPT.format(text=text))


@pytest.mark.parametrize("row", range(len(TEXTS)))
def test_pieces_and_prediction_are_the_librarys_own(prompted_texts, row):
    family, batch, outputs = prompted_texts
    text = TEXTS[row]
    encoding, expected = library_says_of(family, text)
    ids = encoding.input_ids[0].tolist()
    reader = families.language_tokenizer(family)
    string = PROMPT.format(text=text)
    labels = [reader(string + label).input_ids[-1] for label in LABELS.values()]
    length = len(ids)
    label_logits = expected.logits[0, -1, labels]
    assert batch.pieces[row, :length].tolist() == ids
    assert_close(outputs.logits[row], label_logits, atol=1e-5, rtol=0)


@pytest.mark.parametrize("row", range(len(TEXTS)))
def test_attention_is_the_librarys_own(prompted_texts, row):
    family, batch, outputs = prompted_texts
    _, expected = library_says_of(family, TEXTS[row])
    [heads] = expected.attentions[-1]
    weights = heads[:, -1].mean(0)
    mass = []
    words = pieces_of_words(families.language_tokenizer(family), TEXTS[row])
    for number, places in enumerate(words, 1):
        assert batch.piece_word[row, places].eq(number).all()
        mass.append(weights[places].sum())
    mass = torch.stack(mass)
    total = mass.sum()
    attention = outputs.attention[row, batch.content[row]]
    assert_close(attention, mass / total, atol=1e-5, rtol=0)
    off_text = 1 - total.item()
    assert outputs.off_text[row].item() == pytest.approx(off_text, abs=1e-5)


def test_a_piece_of_prompt_and_text_is_the_texts_and_the_prompt_is_never_cut():
    tokenizer = families.language_tokenizer()
    reader = PieceReader(tokenizer, 24, prompt='He wrote: "{text}" Good?')
    words = ["fine", "long", "story", "of", "people"] * 4

    def prompted_ids(size):
        text = " ".join(words[:size])
        return tokenizer(f'He wrote: "{text}" Good?').input_ids

    (reading,) = reader.read([Passages((Passage.of_words(words),))])

    count = int(reading.kept.sum())
    assert 0 < count < len(words)
    assert reading.kept[:count].all()
    assert reading.ids.tolist() == prompted_ids(count)
    assert len(prompted_ids(count)) <= 24 < len(prompted_ids(count + 1))
    words_read = set(reading.word[reading.word > 0].tolist())
    assert words_read == set(range(1, count + 1))
    assert reading.word[-1] == -1


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"prompt": "Review:"}, r"model.prompt='Review:': expected \{text\} once"),
        ({"prompt": "{text} {text}"}, r"expected \{text\} once"),
        ({"labels": None}, "model.prompt and model.labels belong together"),
        ({"labels": {"negative": " bad"}}, "the data have negative, positive"),
        ({"labels": LABELS | {"negative": " good"}}, "' good' says two classes"),
        (
            {"labels": {"negative": " good film", "positive": " good"}},
            r"of ' good film' and ' good' one begins with the other",
        ),
        ({"labels": LABELS | {"negative": " finest"}, "given": "uniform"}, "labels of one piece"),
        (
            {"prompt": "{text} Sentiment: ", "labels": {"negative": "bad", "positive": "fine"}},
            "ends without a space",
        ),
        ({"prompt": "long " * 90 + "{text} good:"}, "and this model takes 96 in all"),
    ],
)
def test_what_cannot_be_asked_is_refused(settings, expected):
    family = "llama" if str(settings.get("prompt", "")).endswith(" ") else "gpt2"
    with pytest.raises(UserError, match=expected):
        prompted(family, **settings)


def test_a_tokenizer_that_ends_texts_is_refused():
    settings = {
        "path": str(families.checkpoint("bert")),
        "prompt": PROMPT.replace("\n", " "),
        "labels": {"negative": " dull", "positive": " fine"},
    }
    with pytest.raises(UserError, match=r"it lacks|ends every text with|causal language model"):
        prompted("gpt2", **settings)


def test_a_model_that_sees_what_follows_is_refused(tmp_path):
    tokenizer = families.language_tokenizer()
    config = transformers.BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=32,
        is_decoder=False,
    )
    transformers.BertLMHeadModel(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(UserError, match=r"before another piece .is it a causal language model"):
        prompted("gpt2", path=str(tmp_path))


FEW_PROBES = ("permutation", "leave_one_out", "swaps")
AUDITS = [
    ("gpt2", FEW_PROBES),
    pytest.param(("gpt2", AUDIT), marks=pytest.mark.slow),
    pytest.param(("llama", AUDIT), marks=pytest.mark.slow),
    pytest.param(("qwen2", AUDIT), marks=pytest.mark.slow),
]


@pytest.fixture(scope="module")
def audited(request, tmp_path_factory):
    """A run of these probes on a language model that is asked by a prompt."""
    family, probes = request.param
    rows = []
    for number in range(40):
        start = number % 7
        text = " ".join(WORDS[start : start + 3 + number % 5])
        rows.append((text, list(LABELS)[number % 2]))
    overrides = [
        'model.prompt="Review: {text}\\nSentiment:"',
        'model.labels={positive: " good", negative: " bad"}',
        "model.name=asked",
        "data.most={test: 4}",
        f"probe=[{','.join(probes)}]",
        *FEW_PASSES,
    ]
    if probes is AUDIT:
        overrides += SMALL_ADVERSARY
    folder = families.language_model(family)
    output = tmp_path_factory.mktemp("audited")
    settings = families.run_settings(folder, rows, output, *overrides)
    return run(composed(*settings)), probes


every_audit = pytest.mark.parametrize("audited", AUDITS, indirect=True)


@every_audit
def test_the_probes_of_an_audit_run(audited):
    directory, probes = audited
    assert set(read_results(directory)["probe"]) >= set(probes) - {"plausibility"}
    assert RunDirectory(directory).manifest()["model_facts"]["short_way"]


@every_audit
def test_the_sites_run_and_each_has_a_map_in_the_page(audited):
    directory, _ = audited
    command = ["+experiment=sites", f"run={directory}"]
    run(resumed(composed(*command, "figures=false"), command))
    results = read_results(directory)
    rows = results[results["probe"] == "sites"]
    layers = 3
    heads = 4
    assert rows["site"].nunique() == layers * (1 + heads)
    (entry, *_) = browse(grouped(read_runs(directory))).index["runs"]
    sites = {heatmap["site"] for heatmap in entry["maps"]}
    assert sites >= {"", "layer 0", "layer 2, head 3"}


@every_audit
def test_a_run_that_is_opened_again_asks_the_same_question(audited):
    directory, _ = audited
    (example, *_) = read_examples(directory).to_dict("records")
    explained = load_run(directory).explain([" ".join(example["tokens"])])
    probability = [*explained["probability"][0].values()]
    assert probability == pytest.approx(list(example["probability"]), abs=1e-5)


SIGNS = ("zyxal", "quovim")
ANSWERS = ("bad", "good")
PLAIN = [f"w{number}" for number in range(40)]
VOCABULARY = ["<unk>", "<s>", "Review:", "Sentiment:", *ANSWERS, *SIGNS, *PLAIN]


def word_tokenizer():
    """One piece per word."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    numbers = {word: number for number, word in enumerate(VOCABULARY)}
    inner = Tokenizer(models.WordLevel(numbers, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner,
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="<s>",
        pad_token="<s>",
    )


def signed_text(draw, label):
    """Plain words, and the sign of this label among them."""
    words = draw.choices(PLAIN, k=draw.randint(4, 9))
    words.insert(draw.randrange(len(words) + 1), SIGNS[label])
    return " ".join(words)


def language_losses(network, reader, draw):
    """Cross entropy of the answer, and of every next word."""
    labels = torch.arange(64) % 2
    for _ in range(150):
        texts = [f"Review: {signed_text(draw, label)} Sentiment:" for label in labels.tolist()]
        encoding = reader(texts, padding=True, return_tensors="pt")
        logits = network(**encoding).logits
        last = encoding.attention_mask.sum(1) - 1
        answer = cross_entropy(logits[range(64), last], 4 + labels)

        has_next_word = encoding.attention_mask[:, 1:] > 0
        next_words = encoding.input_ids[:, 1:][has_next_word]
        next_word = cross_entropy(logits[:, :-1][has_next_word], next_words)
        yield answer + next_word


def trained_gpt2(reader, draw, seed):
    """The folder of a GPT-2 of four layers, trained as a language model."""
    config = transformers.GPT2Config(
        vocab_size=len(VOCABULARY),
        n_embd=64,
        n_layer=4,
        n_head=4,
        n_positions=32,
        bos_token_id=1,
        eos_token_id=1,
        pad_token_id=1,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = transformers.GPT2LMHeadModel(config)
        families.fit(network, language_losses(network, reader, draw), 2e-3)
    return families.stored(network, reader)


def effect_of_erasure(readout, place):
    """TVD, on average, as if these places had no weight."""
    erased = readout.attention.clone()
    erased[range(len(place)), place] = 0
    weights = erased / erased.sum(-1, keepdim=True)
    change = readout.predict(weights) - readout.prediction()
    return float(change.abs().sum(-1).mean() / 2)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_the_layer_that_decides_shows_the_planted_word(seed):
    """The class is the one sign in a text. The layer whose attention the prediction depends on has
    that word on top; the others, the last one among them, have no such reason."""
    draw = random.Random(seed)
    reader = word_tokenizer()
    model = prompted(
        "gpt2",
        path=str(trained_gpt2(reader, draw, seed)),
        class_names=list(ANSWERS),
        prompt="Review: {text} Sentiment:",
        labels={name: f" {name}" for name in ANSWERS},
    )
    labels = torch.arange(40) % 2
    texts = [signed_text(draw, label) for label in labels.tolist()]
    batch = batch_of(model, texts)
    place = []
    for text, label in zip(texts, labels.tolist(), strict=True):
        place.append(1 + text.split().index(SIGNS[label]))
    place = torch.tensor(place)

    effect = {}
    hits = {}
    with torch.no_grad():
        decision = model(batch).logits.argmax(-1)
        for site in model.at_sites(batch):
            if "head" not in site.name:
                effect[site.name] = effect_of_erasure(site.readout, place)
                top = site.readout.attention.argmax(-1)
                hits[site.name] = float((top == place).double().mean())

    assert (decision == labels).float().mean() > 0.95
    assert effect["layer 0"] > 0.2
    assert effect["layer 1"] < 0.05
    assert effect["layer 2"] < 0.05
    assert effect["layer 3"] < 0.05
    assert hits["layer 0"] > 0.9
    assert hits["layer 3"] < 0.5


TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}Story: {{ message['content'] | trim }}\n"
    "{% endfor %}Sentiment:"
)


def chatting(folder, template):
    """A Llama with this chat template."""
    reader = families.language_tokenizer("llama")
    network = transformers.AutoModelForCausalLM.from_pretrained(families.language_model("llama"))
    network.save_pretrained(folder)
    reader.save_pretrained(folder)
    if template is not None:
        (folder / "chat_template.jinja").write_text(template)
    return {"path": str(folder), "chat": True, "prompt": "Review: {text} The film was"}


def test_a_chat_is_what_the_librarys_template_makes_of_a_users_message(tmp_path):
    model = prompted("llama", **chatting(tmp_path, TEMPLATE))
    batch = batch_of(model)
    with torch.no_grad():
        logits = model(batch).logits
    reader = transformers.AutoTokenizer.from_pretrained(tmp_path)
    network = transformers.AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    for row, text in enumerate(TEXTS):
        message = {"role": "user", "content": f"Review: {text} The film was"}
        encoding = reader.apply_chat_template(
            [message], add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        ids = encoding["input_ids"][0].tolist()
        assert batch.pieces[row, : len(ids)].tolist() == ids
        labels = [reader("Sentiment:" + label).input_ids[-1] for label in LABELS.values()]
        with torch.no_grad():
            expected = network(**encoding).logits[0, -1, labels]
        assert_close(logits[row], expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("template", "settings", "message"),
    [
        (None, {}, "has no chat template"),
        (TEMPLATE, {"prompt": None, "labels": None, "class_names": ["n", "p"]}, "it is a Llama"),
    ],
)
def test_a_chat_needs_a_template_and_a_message(tmp_path, template, settings, message):
    defaults = chatting(tmp_path, template)
    with pytest.raises(UserError, match=message):
        prompted("llama", **defaults | settings)
