import numpy as np
import pytest
import torch
import transformers
from huggingface_hub import HfApi
from numpy.testing import assert_allclose
from sklearn.decomposition import PCA
from torch.testing import assert_close

from attnprobe.cli.vectors import vectors
from attnprobe.core.errors import UserError
from attnprobe.data.vocabulary import SPECIAL, Vocabulary, load_vectors
from attnprobe.models.pretrained.word_vectors import word_vectors
from tests.models.pretrained.families import checkpoint
from tests.models.pretrained.whole_words import tokenizer

WORDS = ["good", "film", "goodfilm", "a"]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("encoder")
    reader = tokenizer(folder)
    torch.manual_seed(0)
    settings = transformers.BertConfig(
        vocab_size=len(reader),
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
    )
    transformers.BertModel(settings).save_pretrained(folder)
    return str(folder)


@torch.no_grad()
def states_alone(encoder, word):
    """The library's own states of a word, special pieces left out, averaged by hand."""
    reader = transformers.AutoTokenizer.from_pretrained(encoder)
    network = transformers.AutoModel.from_pretrained(encoder).eval()
    pieces = reader(word, return_tensors="pt")
    states = network(**pieces).last_hidden_state[0]
    own = [
        state
        for state, piece in zip(states, pieces["input_ids"][0].tolist(), strict=True)
        if piece not in reader.all_special_ids
    ]
    return torch.stack(own).mean(0)


def test_a_words_vector_is_the_mean_of_its_own_states(encoder):
    encoded = word_vectors(WORDS, encoder)
    assert encoded.words == ["good", "film", "a"]  # "goodfilm" is unknown to the tokenizer
    alone = torch.stack([states_alone(encoder, word) for word in encoded.words])
    assert_close(encoded.vectors, alone, atol=1e-5, rtol=1e-5)


def test_components_are_those_of_another_library(encoder):
    words = ["good", "film", "a", "is", "not", "bad"]
    found = word_vectors(words, encoder, size=3).vectors.numpy()
    known = PCA(3, svd_solver="full").fit_transform(word_vectors(words, encoder).vectors.numpy())
    assert_allclose(np.abs(found), np.abs(known), atol=1e-4)


def test_an_encoder_that_knows_no_word_is_refused(encoder):
    with pytest.raises(UserError, match="knows none of the 1 words"):
        word_vectors(["goodfilm"], encoder)


def test_what_does_not_encode_words_is_refused_with_its_reason(tmp_path):
    reader = tokenizer(tmp_path / "decoder", pad_token=None)
    sizes = {"n_embd": 8, "n_layer": 1, "n_head": 2, "bos_token_id": 2, "eos_token_id": 3}
    settings = transformers.GPT2Config(vocab_size=len(reader), **sizes)
    transformers.GPT2Model(settings).save_pretrained(tmp_path / "decoder")
    reader = tokenizer(tmp_path / "both")
    sizes = {"d_model": 8, "d_kv": 4, "d_ff": 16, "num_layers": 1, "num_heads": 2}
    settings = transformers.T5Config(vocab_size=len(reader), **sizes)
    transformers.T5Model(settings).save_pretrained(tmp_path / "both")
    expected = r"expected an encoder of texts, such as .*MiniLM"
    with pytest.raises(UserError, match=f"decoder: .*does not have a padding token.*{expected}"):
        word_vectors(WORDS, str(tmp_path / "decoder"))
    with pytest.raises(UserError, match=f"both: .*input_ids.*{expected}"):
        word_vectors(WORDS, str(tmp_path / "both"))


@pytest.mark.parametrize("size", [0, 9])
def test_a_size_that_the_encoder_does_not_have_is_refused(encoder, size):
    with pytest.raises(UserError, match=f"--size {size}: expected 1 to"):
        word_vectors(WORDS, encoder, size=size)


def test_an_encoder_that_is_not_there_is_called_what_was_typed(tmp_path, capsys):
    missing = str(tmp_path / "missing")
    output = str(tmp_path / "words.vec")
    with pytest.raises(SystemExit):
        vectors(["data=testbed", "--encoder", missing, "--offline", "-o", output])
    message = capsys.readouterr().err
    assert f"attnprobe: --encoder {missing}: there is no such folder" in message
    assert "model.path" not in message


def test_the_command_writes_what_the_loader_reads(encoder, tmp_path, capsys):
    path = tmp_path / "testbed.vec"
    arguments = ["data=testbed", "--encoder", encoder, "-o", str(path)]
    vectors(arguments)
    header, *lines = path.read_text("utf-8").splitlines()
    count, size = map(int, header.split(" "))
    words = [line.rsplit(" ", size)[0] for line in lines]
    vocabulary = Vocabulary(words)
    matrix, found = load_vectors(path, vocabulary)
    assert found == count == len(words) > 0
    own = word_vectors(words[:1], encoder).vectors[0].numpy()
    assert_allclose(matrix[vocabulary.id_of(words[0])], own, rtol=1e-4, atol=1e-5)
    assert f"{count:,} of " in capsys.readouterr().out

    before = path.read_bytes()
    with pytest.raises(SystemExit):
        vectors(arguments)
    assert "something is there already" in capsys.readouterr().err
    assert path.read_bytes() == before


def test_the_markers_of_a_vocabulary_are_no_words(tmp_path):
    """This encoder knows the letters of <PAD>."""
    path = tmp_path / "testbed.vec"
    vectors(["data=testbed", "--encoder", str(checkpoint("bert")), "-o", str(path)])
    words = [line.split(" ")[0] for line in path.read_text("utf-8").splitlines()[1:]]
    assert words
    assert not set(words) & set(SPECIAL)


def test_an_encoder_by_a_relative_path_is_looked_for_where_the_message_says(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        vectors(["data=testbed", "--encoder", "missing", "--offline", "-o", "words.vec"])
    message = capsys.readouterr().err
    assert f"attnprobe: --encoder missing: there is no such folder in {tmp_path}, " in message


def test_a_hub_that_does_not_answer_is_asked_once(tmp_path, monkeypatch, capsys):
    """The library itself retries for a minute, for each of its files."""
    asked = []

    def model_info(api, name, *, timeout):
        asked.append(name)
        raise ConnectionError("Name or service not known")

    def from_pretrained(name, *, local_files_only, **options):
        assert local_files_only
        raise OSError("it is not in the cache")

    monkeypatch.setattr(HfApi, "model_info", model_info)
    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", from_pretrained)
    with pytest.raises(SystemExit):
        vectors(["data=testbed", "--encoder", "somebody/bert", "-o", str(tmp_path / "words.vec")])
    message = capsys.readouterr().err
    assert "the hub gives nothing (ConnectionError: Name or service not known)" in message
    assert asked == ["somebody/bert"]
