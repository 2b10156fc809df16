"""Probes, data and modules on a Lightning trainer that is nobody's but the user's."""

import copy
import inspect
import itertools
import pickle
import random
import warnings
from pathlib import Path

import datasets
import lightning
import numpy as np
import pandas as pd
import pytest
import torch
from lightning import Callback, LightningDataModule, LightningModule, Trainer
from lightning.pytorch.loggers import CSVLogger
from numpy.testing import assert_array_equal
from pandas.testing import assert_frame_equal
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.testing import assert_close
from torch.utils.data import DataLoader, SubsetRandomSampler, TensorDataset

import attnprobe
from attnprobe.core.errors import UserError
from attnprobe.core.hooks import hooked_class, with_hooks
from attnprobe.metrics import JensenShannon
from attnprobe.models.examined import classifier_of
from attnprobe.probes.base import Probe, ProbeRunner
from attnprobe.probes.correlation import Correlation
from attnprobe.probes.erasure import Erasure
from attnprobe.probes.gradient import Gradient
from attnprobe.probes.permutation import Permutation
from attnprobe.probes.swaps import Swaps
from attnprobe.results.directory import RunDirectory
from attnprobe.results.table import Rows
from attnprobe.runs.run import run
from attnprobe.runs.settings import Settings
from tests.data.toys import ready
from tests.models.pretrained import families
from tests.small_runs import FEW_PASSES, composed, small_run
from tests.toys import toy_classifier

PROBES = "[permutation,gradient,swaps]"
MEASURED = ["probe", "metric", "example_id", "step", "value", "site"]


def probes():
    return [Permutation(), Gradient(), Swaps(passes=100, most_passes=100)]


def trainer(*callbacks, **options):
    """A trainer as a user has it, without what writes into the working directory."""
    defaults = {
        "accelerator": "cpu",
        "logger": False,
        "enable_checkpointing": False,
        "enable_model_summary": False,
        "enable_progress_bar": False,
    }
    return Trainer(**defaults | options, callbacks=list(callbacks))


@pytest.fixture(autouse=True)
def quiet_advice():
    """Lightning advises more workers for loaders, and fewer devices for tests."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*does not have many workers.*")
        warnings.filterwarnings("ignore", ".*LeafSpec.*")
        warnings.filterwarnings("ignore", ".*shuffling enabled.*")
        yield


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    output = tmp_path_factory.mktemp("command")
    config = small_run(output, "seed=3", *FEW_PASSES, probes=PROBES)
    return Settings.of(config), config


@pytest.fixture(scope="module")
def command(settings):
    """The directory of a run of the command."""
    return run(settings[1])


def examine(command, data, *callbacks, **options):
    """Test the command's model by a trainer with these callbacks."""
    model = attnprobe.load_run(command).classifier
    return trainer(*callbacks, **options).test(model, datamodule=data, verbose=False)


@pytest.fixture
def data(settings):
    return data_of(settings)


def data_of(settings, **changes):
    """The command's data, as a user constructs them."""
    read_settings, config = settings
    facts = read_settings.config["data"]
    source = Settings.of(config).parts.data.source
    parameters = inspect.signature(attnprobe.TextDataModule).parameters
    arguments = {name: value for name, value in facts.items() if name in parameters}
    arguments |= {"source": source, "seed": 3} | changes
    return attnprobe.TextDataModule(**arguments)


def identity_of(settings):
    identity = settings[0].identity("permutation")
    del identity["probe"]
    return identity


def tables_of(directory):
    """Every table and list of examples of a run, byte by byte."""
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in directory.rglob("*.parquet")
        if path.stem not in ("findings", "training", "validation", "train")
    }


@pytest.mark.parametrize(
    ("precision", "count"),
    [
        ("32-true", 3),
        ("bf16-mixed", 2),
        ("64-true", 2),
    ],
)
def test_a_users_own_trainer_leaves_the_same_tables_as_the_command(
    settings, command, data, tmp_path, precision, count
):
    lightning.seed_everything(3, verbose=False)
    model = attnprobe.load_run(command).classifier
    before = copy.deepcopy(model.state_dict())
    identity = identity_of(settings)
    writer = attnprobe.WriteRun(tmp_path / "own", identity=identity)
    some_probes = probes()[:count]
    tester = trainer(*some_probes, writer, precision=precision)
    (logged,) = tester.test(model, datamodule=data, verbose=False)

    expected = tables_of(command)
    tables = tables_of(tmp_path / "own")
    assert {"tables/permutation.parquet", "tables/performance.parquet"} <= set(tables)
    for name, content in tables.items():
        assert content == expected[name], name

    numbers = attnprobe.read_results(command, probe="permutation")
    medians = numbers[numbers.metric == "median_tvd"].value
    assert logged["permutation/median_tvd"] == pytest.approx(medians.mean(), abs=1e-6)
    for name, tensor in model.state_dict().items():
        # Lightning itself makes the weights float64 where it is told 64-true
        if precision != "64-true":
            assert tensor.dtype is before[name].dtype
            assert torch.equal(tensor, before[name])


def test_a_users_own_trainer_examines_a_pretrained_model_as_the_command_does(tmp_path):
    pytest.importorskip("transformers")
    labels = ("very bad", "good")
    folder = families.checkpoint("distilbert", labels)
    draw = random.Random(0)
    rows = []
    for number in range(40):
        length = draw.randint(3, 8)
        words = draw.choices(families.WORDS, k=length)
        rows.append((" ".join(words), labels[number % 2]))
    overrides = families.run_settings(
        folder, rows, tmp_path, f"probe={PROBES}", *FEW_PASSES, "seed=3"
    )
    command = run(composed(*overrides))

    data = attnprobe.TextDataModule.from_files(
        str(tmp_path / "rows.csv"),
        text="text",
        label="label",
        tokenizer="whitespace",
        verbatim=True,
        max_tokens=None,
        test_share=1.0,
    )
    data.setup()
    classes = list(data.classes)
    model = attnprobe.PretrainedClassifier(name="own", path=str(folder), class_names=classes)
    lightning.seed_everything(3, verbose=False)
    writer = attnprobe.WriteRun(tmp_path / "own")
    trainer(*probes(), writer).test(model, datamodule=data, verbose=False)
    for probe in ("permutation", "gradient", "swaps", "performance"):
        table = attnprobe.read_results(tmp_path / "own", probe=probe)[MEASURED]
        expected = attnprobe.read_results(command, probe=probe)[MEASURED]
        assert_frame_equal(table, expected, check_exact=True, check_categorical=False)
    # the pieces are cut once, however often it is tested
    trainer(*probes()).test(model, datamodule=data, verbose=False)


def test_a_probes_table_is_a_data_frame_with_the_runs_numbers(command, data):
    permutation = Permutation()
    gradient = Gradient()
    with pytest.raises(UserError, match=r"permutation has measured nothing.*\.test\("):
        permutation.table()
    permutation.runner = None
    runner = ProbeRunner([permutation, gradient], seed=3)
    examine(command, data, *runner.callbacks())
    expected = attnprobe.read_results(command, probe="permutation")[MEASURED]
    table = permutation.table()
    assert isinstance(table, pd.DataFrame)
    assert_frame_equal(table, expected, check_categorical=False)

    # another test begins anew, and with the same seed gives the same
    examine(command, data, permutation, gradient)
    assert_frame_equal(permutation.table(), table)


def test_a_probe_is_a_callback_and_the_data_are_a_data_module():
    for probe in probes():
        assert isinstance(probe, Callback)
        assert isinstance(probe, Probe)
    assert isinstance(ready(), LightningDataModule)
    assert issubclass(hooked_class(attnprobe.TextDataModule), LightningDataModule)
    permutation = Permutation(samples=3)
    pickled = pickle.dumps(permutation)
    assert pickle.loads(pickled) == permutation
    assert copy.deepcopy(permutation).samples == 3
    assert with_hooks(copy.copy(Permutation())) == Permutation()
    with pytest.raises(UserError, match=r"samples=0"):
        Permutation(samples=0)


def test_settings_are_checked_without_lightning():
    """A probe that settings construct gets Lightning's hooks when a run begins."""
    parts = Settings.of(composed("probe=[permutation]")).parts
    (probe,) = parts.probe.values()
    assert type(probe) is Permutation
    assert not isinstance(parts.data, LightningDataModule)


def test_a_limited_test_measures_what_it_saw(settings, command, tmp_path):
    permutation = Permutation()
    data = data_of(settings, eval_batch_size=7)
    writer = attnprobe.WriteRun(tmp_path / "part")
    examine(command, data, permutation, writer, limit_test_batches=2)
    table = permutation.table()
    assert table.example_id.nunique() == 14
    results = attnprobe.read_results(tmp_path / "part", probe="permutation")
    assert_array_equal(results.value, table.value)
    assert len(attnprobe.read_examples(tmp_path / "part")) == 14


def test_a_fast_dev_run_runs_the_probes_and_writes_nothing(command, data, tmp_path, capsys):
    permutation = Permutation()
    writer = attnprobe.WriteRun(tmp_path / "dev")
    examine(command, data, permutation, writer, fast_dev_run=True)
    assert len(permutation.table()) > 0
    assert not (tmp_path / "dev").exists()
    assert "nothing is written" in capsys.readouterr().err


def test_determinism_changes_no_number(command, data):
    tables = []
    for deterministic in (False, True):
        probe = Erasure()
        lightning.seed_everything(3, verbose=False)
        try:
            examine(command, data, probe, deterministic=deterministic)
        finally:
            torch.use_deterministic_algorithms(False)
        tables.append(probe.table())
    assert_frame_equal(*tables)


def test_prediction_leaves_probes_alone(command, data):
    permutation = Permutation()
    model = attnprobe.load_run(command).classifier
    batches = trainer(permutation).predict(model, datamodule=data)
    logits = torch.cat([outputs.logits for outputs in batches])
    assert len(logits) == data.sizes["test"]
    with pytest.raises(UserError, match="measured nothing"):
        permutation.table()


def test_every_logger_has_the_headline_numbers(command, data, tmp_path):
    loggers = [CSVLogger(tmp_path, name=name) for name in ("one", "two")]
    seen = []

    class Own(Callback):
        def on_test_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
            seen.append(batch_idx)

    examine(command, data, Own(), Permutation(), logger=loggers, enable_progress_bar=False)
    assert seen
    for logger in loggers:
        metrics = pd.read_csv(Path(logger.log_dir) / "metrics.csv")
        assert {"permutation/median_tvd", "permutation/max_attention"} <= set(metrics)
        assert "test/accuracy" in metrics


def test_a_probe_that_is_there_twice_is_refused(command, data):
    with pytest.raises(UserError, match="permutation is there 2 times"):
        examine(command, data, Permutation(), Permutation(samples=7))


def test_an_unknown_importance_is_refused(command, data):
    with pytest.raises(UserError, match="unknown importance 'nonsense'"):
        examine(command, data, Correlation(importances=["lime", "nonsense"]))


# a user's own module


class LitClassifier(attnprobe.Staged, LightningModule):
    """In the style of Lightning's own tutorial: ids and labels in, a loss out."""

    def __init__(self, vocabulary=30, width=8, linear=True):
        super().__init__()
        self.save_hyperparameters()
        self.embedding = nn.Embedding(vocabulary, width, padding_idx=0)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.scorer = nn.Linear(width, 1)
        self.head = nn.Linear(width, 2)
        if not linear:
            self.head = nn.Sequential(self.head, nn.Tanh())
        self.moved = JensenShannon()

    def encode(self, ids):
        vectors = self.embedding(ids)
        hidden, _ = self.rnn(vectors)
        return hidden

    def attend(self, hidden, content):
        scores = self.scorer(hidden).squeeze(-1)
        content_scores = scores.masked_fill(~content, -torch.inf)
        return content_scores.softmax(-1)

    def decode(self, hidden, attention):
        context = torch.einsum("bs,bsh->bh", attention, hidden)
        return self.head(context)

    def forward(self, ids):
        hidden = self.encode(ids)
        return self.decode(hidden, self.attend(hidden, ids != 0))

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = nn.functional.cross_entropy(self(x), y)
        self.log("train_loss", loss)
        return loss

    def test_step(self, batch, batch_idx):
        x, y = batch
        content = x != 0
        attention = self.attend(self.encode(x), content)
        even = content / content.sum(1, keepdim=True)
        self.moved.update(attention, even, content)
        self.log("test/moved", self.moved)
        loss = nn.functional.cross_entropy(self(x), y)
        self.log("test_loss", loss)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.02)


def own_texts(count=23):
    generator = torch.Generator().manual_seed(1)
    lengths = torch.randint(3, 9, (count,), generator=generator).tolist()
    rows = []
    for length in lengths:
        text = torch.randint(1, 30, (length,), generator=generator)
        has_large_id = (text > 20).any()
        rows.append((text, int(has_large_id)))
    return rows


def collated(rows):
    texts, labels = zip(*rows, strict=True)
    return pad_sequence(list(texts), batch_first=True), torch.tensor(labels)


def own_loader(batch_size=4, **options):
    return DataLoader(own_texts(), batch_size=batch_size, collate_fn=collated, **options)


def test_an_own_module_is_trained_and_tested_with_probes():
    model = LitClassifier()
    erasure = Erasure()
    swaps = Swaps()
    user = trainer(Permutation(), erasure, swaps, max_epochs=2, log_every_n_steps=1)
    user.fit(model, own_loader())
    (logged,) = user.test(model, own_loader(), verbose=False)
    assert {"test_loss", "test/moved", "permutation/median_tvd"} <= set(logged)
    assert next(model.parameters()).dtype is torch.float32

    # by hand, in float64: how far the prediction moves without the largest weight
    double = copy.deepcopy(model).double().eval()
    table = erasure.table()
    removed_count = table[table.metric == "removed_count_optimal"]
    flips = removed_count.set_index("example_id").value
    for number, (text, _) in enumerate(own_texts()):
        if np.isnan(flips[number]):
            continue
        ids = text[None]
        hidden = double.encode(ids)
        attention = double.attend(hidden, ids != 0)
        assert flips[number] == fewest_erased(double, hidden, attention)
    assert swaps.table().example_id.nunique() > 0


def fewest_erased(model, hidden, attention):
    """The fewest weights whose erasure changes the decision, by trying all sets; NaN: none does."""
    decision = model.decode(hidden, attention).argmax()
    places = range(attention.shape[1])
    for size in places[1:]:
        for members in itertools.combinations(places, size):
            weights = attention.clone()
            weights[:, members] = 0
            remaining = weights / weights.sum()
            if model.decode(hidden, remaining).argmax() != decision:
                return size
    return np.nan


@pytest.mark.parametrize("linear", [True, False])
def test_what_the_decoder_is_decides_the_readout(linear):
    text, _ = own_texts()[0]
    ids = text[None]
    model = LitClassifier(linear=linear).eval()
    batch = model.read((ids, torch.tensor([0])), torch.tensor([5]))
    classifier = classifier_of(model)
    classifier.has_markers = False
    with classifier.precisely():
        outputs = classifier.predict(batch)
        readout = classifier.readout(batch, outputs)
        assert (readout.position_logits is not None) == linear

        second_word = torch.zeros_like(readout.attention)
        second_word[0, 2] = 1  # behind the marker
        _, on_second_word, *_ = torch.eye(len(text)).double()
        hidden = model.encode(ids)
        expected = model.decode(hidden, on_second_word[None])
        assert_close(readout.logits(second_word), expected)
        samples = second_word.expand(3, 1, -1)
        assert_close(readout.logits(samples), expected.expand(3, 1, -1))


def test_padding_and_batch_size_change_no_number_of_an_own_module():
    model = LitClassifier()
    tables = []
    for batch_size in (1, 5, 23):
        probe = Permutation()
        trainer(probe, Gradient()).test(model, own_loader(batch_size), verbose=False)
        tables.append(probe.table())
    for table in tables[1:]:
        assert_frame_equal(table, tables[0], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("names", [[0, 1], [False, True]])
def test_classes_that_are_named_by_other_than_text_are_written_as_text(names, tmp_path):
    model = LitClassifier()
    model.class_names = names
    writer = attnprobe.WriteRun(tmp_path / "run")
    trainer(Permutation(), writer).test(model, own_loader(), verbose=False)
    assert RunDirectory(tmp_path / "run").manifest()["classes"] == [str(name) for name in names]


class BatchAsTime(LitClassifier):
    """Its recurrent layer takes the texts of a batch for the words of one."""

    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(8, 8)


class AlwaysDropsOut(LitClassifier):
    def encode(self, ids):
        return nn.functional.dropout(super().encode(ids), 0.2)


class CentredOverTheBatch(LitClassifier):
    def encode(self, ids):
        hidden = super().encode(ids)
        return hidden - hidden.mean(0)


@pytest.mark.parametrize("module", [BatchAsTime, AlwaysDropsOut, CentredOverTheBatch])
def test_a_module_whose_texts_change_one_another_is_refused(module):
    line = f"{module.__name__} has the logits .* for text [12] in its batch, and .* without"
    with pytest.raises(UserError, match=line):
        trainer(Permutation()).test(module(), own_loader(batch_size=3), verbose=False)


class RulesOneClassOut(LitClassifier):
    def decode(self, hidden, attention):
        logits = super().decode(hidden, attention)
        never = torch.full_like(logits[:, :1], -torch.inf)
        return torch.cat([logits, never], -1)


def test_a_class_that_is_ruled_out_in_every_text_is_no_difference():
    permutation = Permutation()
    trainer(permutation).test(RulesOneClassOut(), own_loader(batch_size=3), verbose=False)
    assert permutation.table().example_id.nunique() == len(own_texts())


class Undefined(LitClassifier):
    """Of the text with the id 4 in it nothing follows."""

    wrong = torch.nan

    def encode(self, ids):
        self.ids = ids
        return super().encode(ids)

    def decode(self, hidden, attention):
        logits = super().decode(hidden, attention)
        has_id = (self.ids == 4).any(1)
        if len(logits) != len(has_id):  # several attentions of each text
            return logits
        return logits.masked_fill(has_id[:, None], self.wrong)


class RulesAllOut(Undefined):
    wrong = -torch.inf


@pytest.mark.parametrize("module", [Undefined, RulesAllOut])
def test_a_module_that_predicts_nothing_is_refused_with_the_text(module):
    first = next(number for number, (text, _) in enumerate(own_texts()) if 4 in text)
    line = rf"{module.__name__}\.decode returned the logits (nan, nan|-inf, -inf) for text {first}:"
    with pytest.raises(UserError, match=line):
        trainer(Permutation()).test(module(), own_loader(), verbose=False)


class GivesProbabilities(LitClassifier):
    def decode(self, hidden, attention):
        return super().decode(hidden, attention).softmax(-1)


class GivesLogProbabilities(LitClassifier):
    def decode(self, hidden, attention):
        return super().decode(hidden, attention).log_softmax(-1)


@pytest.mark.parametrize(
    ("module", "is_warned"),
    [(GivesProbabilities, True), (GivesLogProbabilities, False), (LitClassifier, False)],
)
def test_probabilities_in_place_of_logits_are_warned_of_once(module, is_warned, capsys):
    trainer(Permutation()).test(module(), own_loader(batch_size=4), verbose=False)
    said = " ".join(capsys.readouterr().out.split())
    assert said.count("decode returns numbers from 0 to 1 that sum to 1") == is_warned


def test_importances_that_differentiate_or_remove_words_read_an_own_module():
    correlation = Correlation(importances=["gradient", "leave_one_out"])
    model = LitClassifier()
    trainer(correlation).test(model, own_loader(), verbose=False)
    table = correlation.table()
    rows = table[table.metric == "tau_attention_leave_one_out"]
    tau = rows.set_index("example_id").value
    # by hand: each word left out of the text itself
    double = copy.deepcopy(model).double().eval()
    text, _ = own_texts()[2]
    ids = text[None]
    [attention] = double.attend(double.encode(ids), ids != 0)
    prediction = double(ids).softmax(-1)
    distances = torch.zeros_like(attention)
    for place in range(len(text)):
        rest = torch.cat([text[:place], text[place + 1 :]])
        change = double(rest[None]).softmax(-1) - prediction
        distances[place] = change.abs().sum() / 2
    expected = attnprobe.measures.kendall_tau(attention, distances)
    assert tau[2] == pytest.approx(expected.item())


class Unattended(LitClassifier):
    def attend(self, hidden, content):
        return torch.ones_like(content, dtype=hidden.dtype)


class Flat(LitClassifier):
    def test_step(self, batch, batch_idx, dataloader_idx=0):
        pass


@pytest.mark.parametrize(
    ("module", "loader", "message"),
    [
        (Unattended, own_loader, r"Unattended\.attend returned weights that sum to .* expected 1"),
        (Flat, lambda: own_loader(shuffle=True), r"RandomSampler.*shuffle=False"),
        (Flat, lambda: own_loader(sampler=SubsetRandomSampler(range(23))), r"SubsetRandomSampler"),
        (Flat, lambda: own_loader(sampler=[*range(22, -1, -1)]), r"takes texts by list"),
        (Flat, lambda: own_loader(1, batch_sampler=[[1, 0], [2]]), r"a batch_sampler"),
        (Flat, lambda: [own_loader(), own_loader()], r"one DataLoader"),
        (
            Flat,
            lambda: DataLoader(own_texts(), collate_fn=lambda rows: rows),
            r"Flat\.read: a batch of list.*override read",
        ),
    ],
)
def test_what_probes_cannot_read_is_refused(module, loader, message):
    with pytest.raises(UserError, match=message):
        trainer(Permutation()).test(module(), loader(), verbose=False)


@pytest.mark.parametrize(
    ("ids", "labels", "message"),
    [
        # the last word had been read as a marker
        (
            [[0, 0, 5, 6], [7, 8, 9, 4]],
            [0, 1],
            r"text 0 has 2 words, at the w of --ww: .*at the end",
        ),
        ([[5, 6, 0, 0], [7, 0, 9, 4]], [0, 1], r"text 1 has 3 words, at the w of w-ww"),
        ([[5, 6, 3, 2], [0, 0, 0, 0]], [0, 1], r"text 1 has 0 words.*expected at least one"),
        ([[5, 6], [7, 8]], [0, 7], r"Flat\.read: a label 7, expected 0 to 1"),
        ([[5, 6], [7, 8]], [-100, 1], r"Flat\.read: a label -100, expected 0 to 1"),
    ],
)
def test_texts_and_labels_that_would_be_misread_are_refused(ids, labels, message):
    texts = TensorDataset(torch.tensor(ids), torch.tensor(labels))
    with pytest.raises(UserError, match=message):
        trainer(Permutation()).test(Flat(), DataLoader(texts, batch_size=2), verbose=False)


class Columns(Flat):
    def read(self, batch, rows):
        texts = super().read(batch, rows)
        texts.labels = texts.labels[:, None]
        return texts


def test_labels_in_a_column_are_refused():
    with pytest.raises(UserError, match=r"labels of the shape \[4, 1\], expected \[4\]"):
        trainer(Permutation()).test(Columns(), own_loader(), verbose=False)


def test_a_module_without_stages_is_refused():
    class Plain(LightningModule):
        def test_step(self, batch, batch_idx):
            pass

    with pytest.raises(UserError, match=r"Plain\(attnprobe\.Staged, LightningModule\)"):
        trainer(Permutation()).test(Plain(), own_loader(), verbose=False)


# a data module of one's own texts


def test_data_are_read_from_files_and_from_data_sets(tmp_path):
    rows = {
        "review": ["good film", "bad film"] * 20,
        "stars": ["up", "down"] * 20,
    }
    path = str(tmp_path / "reviews.csv")
    pd.DataFrame(rows).to_csv(path, index=False)
    from_files = attnprobe.TextDataModule.from_files(
        path, text="review", label="stars", embedding_size=4
    )
    assert from_files.name == "reviews"
    whole = datasets.Dataset.from_dict(rows)
    from_rows = attnprobe.TextDataModule.from_dataset(whole, text="review", label="stars")
    splits = datasets.DatasetDict(train=whole, test=whole.select(range(4)))
    from_splits = attnprobe.TextDataModule.from_dataset(splits, text="review", label="stars")
    for data in (from_files, from_rows, from_splits):
        data.setup("test")
        assert list(data.classes) == ["down", "up"]
    assert from_files.sizes == from_rows.sizes
    assert from_files.fingerprint == from_rows.fingerprint
    assert from_splits.sizes["test"] == 4
    unknown_split = datasets.DatasetDict(left=whole)
    with pytest.raises(UserError, match=r"splits left: expected train, validation, test"):
        attnprobe.TextDataModule.from_dataset(unknown_split).setup()
    with pytest.raises(UserError, match=r"batch_size=0"):
        attnprobe.TextDataModule.from_dataset(whole, batch_size=0)


def test_a_model_of_the_package_is_fitted_by_any_trainer(tmp_path):
    data = ready()
    model = toy_classifier().train()
    user = trainer(Permutation(), max_epochs=2, log_every_n_steps=1)
    user.fit(model, datamodule=data)
    assert "validation/accuracy" in user.callback_metrics
    user.test(model, datamodule=data, verbose=False)


def test_rows_of_several_devices_are_those_of_one():
    examples = np.arange(6)
    numbers = np.arange(6.0)
    of_one_device = Rows()
    of_one_device.add("m", examples, numbers)
    joined = Rows()
    for rank in range(2):
        every_second = slice(rank, None, 2)
        rows = Rows()
        rows.add("m", examples[every_second], numbers[every_second])
        joined.join(rows)
    identity = dict.fromkeys(("run_id", "experiment", "data", "model", "split", "probe"), "")
    identity["seed"] = 0
    assert joined.table(identity).equals(of_one_device.table(identity))
