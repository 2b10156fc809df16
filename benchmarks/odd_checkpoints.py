"""What `attnprobe audit --model FOLDER` prints about odd checkpoints.

Each is made here, and audited in one command.

    python -m benchmarks.odd_checkpoints -o TABLE.md
"""

import argparse
import csv
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from transformers import (
    AutoModelForSequenceClassification,
    BertConfig,
    BertForSequenceClassification,
    PreTrainedTokenizerFast,
)

WORDS = ["the", "a", "film", "plot", "was", "is", "of", "with", "music", "story", "people"]
WORDS += ["dull", "fine", "long", "bad", "good", "very", "and", "but", "it"]
ROWS = [
    (f"{WORDS[n % 7]} film was {('bad', 'good')[n % 2]} and {WORDS[n % 11]}", ("no", "yes")[n % 2])
    for n in range(60)
]
FINDINGS = re.compile(r"[^\n]*(?:the labels are|unknown|cut )[^\n]*")
"""Lines of a run that ends well which say what was found."""


def make(folder: Path, labels: tuple[str, ...] = ("no", "yes")) -> None:
    """Save a small BERT with two classes and a tokenizer of whole words."""
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    plain = Tokenizer(WordPiece(vocabulary, unk_token="[UNK]"))
    plain.pre_tokenizer = Whitespace()
    plain.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B [SEP]",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    special = {
        f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")
    }
    PreTrainedTokenizerFast(tokenizer_object=plain, model_max_length=48, **special).save_pretrained(
        folder
    )
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=48,
        id2label=dict(enumerate(labels)),
        label2id={label: number for number, label in enumerate(labels)},
        initializer_range=0.2,
    )
    BertForSequenceClassification(config).save_pretrained(folder)


def config(**changed: object) -> Callable[[Path], None]:
    """Change these entries of config.json."""

    def change(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changed))

    return change


def labelled(*labels: str) -> Callable[[Path], None]:
    """The same with other names of classes."""

    def change(folder: Path) -> None:
        shutil.rmtree(folder)
        make(folder, labels)

    return change


def without(pattern: str) -> Callable[[Path], None]:
    """Take these files away."""
    return lambda folder: [path.unlink() for path in folder.glob(pattern)] and None


def cut(folder: Path) -> None:
    """Drop the end of the weights."""
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])


def pickled(folder: Path) -> None:
    """Give the weights the name of a pickle."""
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def saved(**options: object) -> Callable[[Path], None]:
    """Saved once more by the library."""

    def change(folder: Path) -> None:
        network = AutoModelForSequenceClassification.from_pretrained(folder)
        if "dtype" in options:
            network = network.to(options["dtype"])
            network.save_pretrained(folder)
        else:
            (folder / "model.safetensors").unlink()
            network.save_pretrained(folder, **options)

    return change


def short(folder: Path) -> None:
    """Leave pieces without an embedding: the usual added token without a resize."""
    path = folder / "model.safetensors"
    weights = load_file(path)
    name = "bert.embeddings.word_embeddings.weight"
    save_file(weights | {name: weights[name][:-2].clone()}, path, {"format": "pt"})
    config(vocab_size=len(weights[name]) - 2)(folder)


def head(name: str) -> Callable[[Path], None]:
    """Name another class of network."""
    return config(architectures=[name])


ODD: dict[str, Callable[[Path], None]] = {
    "as it is": lambda folder: None,
    "no tokenizer files": without("*token*"),
    "pieces beyond the embedding": short,
    "quantised (bitsandbytes)": config(
        quantization_config={"quant_method": "bitsandbytes", "load_in_8bit": True}
    ),
    "quantised (GPTQ)": config(quantization_config={"quant_method": "gptq", "bits": 4}),
    "weights cut short": cut,
    "an adapter (PEFT)": lambda folder: (folder / "adapter_config.json").write_text("{}") and None,
    "three classes, two in the data": labelled("no", "yes", "perhaps"),
    "trained with several labels": config(problem_type="multi_label_classification"),
    "one score (num_labels=1)": labelled("score"),
    "masked language model": head("BertForMaskedLM"),
    "causal language model": head("BertLMHeadModel"),
    "token classifier": head("BertForTokenClassification"),
    "question answering": head("BertForQuestionAnswering"),
    "no head": head("BertModel"),
    "code of its own": config(auto_map={"AutoConfig": "own.Config"}, model_type="own"),
    "code of its own on a known type": config(auto_map={"AutoModel": "own.Model"}),
    "LABEL_0, LABEL_1": labelled("LABEL_0", "LABEL_1"),
    "other order and case": labelled("YES", "No"),
    "pickled weights (.bin) alone": pickled,
    "settings alone": without("*.safetensors"),
    "empty folder": lambda folder: [path.unlink() for path in folder.iterdir()] and None,
    "no such folder": lambda folder: shutil.rmtree(folder),
    "weights in shards": saved(max_shard_size="20KB"),
    "bfloat16": saved(dtype=torch.bfloat16),
}
AUDIT = (
    *("audit", "rows.csv", "--text", "text", "--label", "label", "--model", "my_bert"),
    *("study.probes=[permutation]", "figures=false"),
)
TEXTS: dict[str, Callable[[str], str]] = {
    "texts of unknown words": lambda text: "电影 很 好 看",
    "a third of unknown words": lambda text: f"{text} qwert zxcvb",
    "texts longer than it reads": lambda text: " ".join([text] * 14),
}


def audited(
    folder: Path, change: Callable[[Path], None], text: Callable[[str], str]
) -> tuple[int, str]:
    """Audit a changed checkpoint on changed texts.

    Returns:
        The exit status, and what was printed: the last line of an error, else the findings.
    """
    checkpoint = folder / "my_bert"
    make(checkpoint)
    change(checkpoint)
    with (folder / "rows.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("text", "label"))
        writer.writerows((text(words), label) for words, label in ROWS)
    process = subprocess.run(
        [sys.executable, "-c", "from attnprobe.cli.main import main; main()", *AUDIT],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    printed = process.stdout + process.stderr
    if "Traceback" in printed:
        return process.returncode, "TRACEBACK " + printed.splitlines()[-1]
    lines = FINDINGS.findall(printed)
    if process.returncode != 0:
        lines = printed.strip().splitlines()[-1:]
    return process.returncode, "; ".join(dict.fromkeys(line.strip() for line in lines))


def main() -> None:
    """Print the table, or write it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", type=Path)
    output = parser.parse_args().o
    lines = ["| checkpoint or texts | exit | what is said |", "|---|---|---|"]
    cases = [(name, change, str) for name, change in ODD.items()]
    cases += [(name, ODD["as it is"], text) for name, text in TEXTS.items()]
    for name, change, text in cases:
        with tempfile.TemporaryDirectory() as folder:
            status, message = audited(Path(folder), change, text)
        message = message.replace(folder, "").replace("|", "\\|")
        lines.append(f"| {name} | {status} | {message or 'runs'} |")
        print(lines[-1], flush=True)
    if output is not None:
        output.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
