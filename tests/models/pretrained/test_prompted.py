import random

import pytest
import torch

from attnprobe.core.errors import UserError
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
from tests.small_runs import SMALL_ADVERSARY, composed

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


@pytest.mark.parametrize("family", LANGUAGE_MODELS)
def test_prediction_and_attention_are_the_librarys_own(family):
    model = prompted(family)
    batch = batch_of(model)
    with torch.no_grad():
        outputs = model(batch)
    assert model.examination.queries == "last"
    read = families.language_tokenizer(family)
    for row, text in enumerate(TEXTS):
        string = PROMPT.format(text=text)
        asked, own = families.library_says("CausalLM", families.language_model(family), string)
        pieces = [read(string + label).input_ids[-1] for label in LABELS.values()]
        torch.testing.assert_close(
            outputs.logits[row], own.logits[0, -1, pieces], atol=1e-5, rtol=0
        )
        count = asked.input_ids.shape[1]
        assert batch.pieces[row, :count].tolist() == asked.input_ids[0].tolist()
        # every piece that holds a letter of a word is that word's; the rest is the prompt's
        mass = []
        at = len("Review: ")
        offsets = read(string, return_offsets_mapping=True).offset_mapping
        mean = own.attentions[-1][0, :, -1].mean(0)
        for word in text.split():
            of_word = [
                place
                for place, (start, end) in enumerate(offsets)
                if start < at + len(word) and end > at
            ]
            assert batch.piece_word[row, of_word].eq(len(mass) + 1).all()
            mass.append(float(mean[of_word].sum()))
            at += len(word) + 1
        found = outputs.attention[row][batch.content[row]]
        torch.testing.assert_close(found, torch.tensor(mass) / sum(mass), atol=1e-5, rtol=0)
        assert abs(float(outputs.off_text[row]) - (1 - sum(mass))) < 1e-5


def test_a_piece_of_prompt_and_text_is_the_texts_and_the_prompt_is_never_cut():
    reader = PieceReader(families.language_tokenizer(), 24, prompt='He wrote: "{text}" Good?')
    words = ["fine", "long", "story", "of", "people"] * 4
    (found,) = reader.read([words])
    kept = int(found.kept.sum())
    assert 0 < kept < len(words)
    assert found.kept.tolist() == [number < kept for number in range(len(words))]
    mine, longer = (
        families.language_tokenizer()(f'He wrote: "{" ".join(words[:n])}" Good?').input_ids
        for n in (kept, kept + 1)
    )
    assert found.ids.tolist() == mine
    assert len(mine) <= 24 < len(longer)
    assert sorted({*found.word[found.word > 0].tolist()}) == list(range(1, kept + 1))
    assert found.word[-1] == -1


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"prompt": "Review:"}, r"model.prompt='Review:': expected \{text\} once"),
        ({"prompt": "{text} {text}"}, r"expected \{text\} once"),
        ({"labels": None}, "model.prompt and model.labels belong together"),
        ({"labels": {"negative": " bad"}}, "the data have negative, positive"),
        ({"labels": LABELS | {"negative": " good"}}, "' good' says two classes"),
        (
            {"labels": LABELS | {"negative": " finest"}},
            r"' finest' \(negative\) is \d+ pieces .*a word of one piece",
        ),
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


def test_a_model_that_sees_what_follows_and_a_tokenizer_that_ends_texts_are_refused(tmp_path):
    path = families.checkpoint("bert")
    asked = {
        "prompt": PROMPT.replace("\n", " "),
        "labels": {"negative": " dull", "positive": " fine"},
    }
    with pytest.raises(UserError, match=r"it lacks|ends every text with|causal language model"):
        prompted("gpt2", **asked, path=str(path))
    config = transformers.BertConfig(
        vocab_size=len(families.language_tokenizer()),
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=32,
        is_decoder=False,
    )
    transformers.BertLMHeadModel(config).save_pretrained(tmp_path)
    families.language_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(UserError, match=r"before another piece .is it a causal language model"):
        prompted("gpt2", path=str(tmp_path))


@pytest.mark.parametrize(
    ("family", "probes"),
    [
        ("gpt2", ("permutation", "leave_one_out", "swaps")),
        *(pytest.param(one, AUDIT, marks=pytest.mark.slow) for one in ("gpt2", "llama", "qwen2")),
    ],
)
def test_the_probes_of_an_audit_and_the_sites_run(family, probes, tmp_path):
    rows = [(" ".join(WORDS[n % 7 : n % 7 + 3 + n % 5]), list(LABELS)[n % 2]) for n in range(40)]
    asked = [
        'model.prompt="Review: {text}\\nSentiment:"',
        'model.labels={positive: " good", negative: " bad"}',
        "model.name=asked",
        "data.most={test: 4}",
        f"probe=[{','.join(probes)}]",
        *(SMALL_ADVERSARY if probes is AUDIT else ()),
    ]
    directory = run(
        composed(*families.run_settings(families.language_model(family), rows, tmp_path, *asked))
    )
    assert set(read_results(directory)["probe"]) >= set(probes) - {"plausibility"}
    assert RunDirectory(directory).manifest()["model_facts"]["short_way"]
    sites = ["+experiment=sites", f"run={directory}"]
    run(resumed(composed(*sites, "figures=false"), sites))
    results = read_results(directory)
    assert results.loc[results["probe"] == "sites", "site"].nunique() == 3 * (1 + 4)
    maps = browse(grouped(read_runs(directory))).index["runs"][0][
        "maps"
    ]  # each has one in the page
    assert {one["site"] for one in maps} >= {"", "layer 0", "layer 2, head 3"}

    # a run that is opened again asks the same question
    (example, *_) = read_examples(directory).to_dict("records")
    explained = load_run(directory).explain([" ".join(example["tokens"])])
    assert [*explained["probability"][0].values()] == pytest.approx(
        list(example["probability"]), abs=1e-5
    )


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_the_layer_that_decides_shows_the_planted_word(seed):
    """A GPT-2 of four layers, trained here as a language model: the class is the one planted word
    of a text. The layer whose attention the prediction depends on has that word on top; the others,
    the last one among them, have no such reason."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    draw = random.Random(seed)
    planted = ("zyxal", "quovim")
    labels = ("bad", "good")
    words = [f"w{number}" for number in range(40)]
    vocabulary = ["<unk>", "<s>", "Review:", "Sentiment:", *labels, *planted, *words]
    inner = Tokenizer(
        models.WordLevel(
            {word: number for number, word in enumerate(vocabulary)}, unk_token="<unk>"
        )
    )
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    read = transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner, unk_token="<unk>", bos_token="<s>", eos_token="<s>", pad_token="<s>"
    )

    def text(label):
        some = draw.choices(words, k=draw.randint(4, 9))
        some.insert(draw.randrange(len(some) + 1), planted[label])
        return " ".join(some)

    def losses():
        label = torch.arange(64) % 2
        entropy = torch.nn.functional.cross_entropy
        for _ in range(150):
            texts = [f"Review: {text(one)} Sentiment:" for one in label.tolist()]
            asked = read(texts, padding=True, return_tensors="pt")
            logits = network(**asked).logits
            there = asked.attention_mask[:, 1:] > 0
            said = logits[torch.arange(64), asked.attention_mask.sum(1) - 1]
            yield entropy(said, 4 + label) + entropy(
                logits[:, :-1][there], asked.input_ids[:, 1:][there]
            )

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = transformers.GPT2LMHeadModel(
            transformers.GPT2Config(
                vocab_size=len(vocabulary),
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
        )
        families.fit(network, losses(), 2e-3)
    settings = {
        "prompt": "Review: {text} Sentiment:",
        "labels": {name: f" {name}" for name in labels},
    }
    model = prompted(
        "gpt2", path=str(families.stored(network, read)), class_names=list(labels), **settings
    )
    texts = [text(number % 2) for number in range(40)]
    batch = batch_of(model, texts)
    place = torch.tensor(
        [next(at for at, word in enumerate(one.split(), 1) if word in planted) for one in texts]
    )
    with torch.no_grad():
        assert (model(batch).logits.argmax(-1) == torch.arange(40) % 2).float().mean() > 0.95
        effect = {}
        shown = {}
        for site in (one for one in model.at_sites(batch) if "head" not in one.name):
            own = site.readout.attention
            other = own.clone()  # as if the planted word had no weight
            other[torch.arange(40), place] = 0
            other = other / other.sum(-1, keepdim=True)
            moved = site.readout.predict(other) - site.readout.prediction()
            effect[site.name] = float(moved.abs().sum(-1).mean() / 2)
            shown[site.name] = float((own.argmax(-1) == place).double().mean())
    assert effect["layer 0"] > 0.2
    assert all(effect[f"layer {number}"] < 0.05 for number in (1, 2, 3))
    assert shown["layer 0"] > 0.9
    assert shown["layer 3"] < 0.5
