"""Probes, data and modules on a Lightning trainer that is nobody's but the user's."""

import copy
import inspect
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
from torch.utils.data import DataLoader

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
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    return Trainer(
        **{"accelerator": "cpu", "enable_model_summary": False, **quiet, **options},
        callbacks=list(callbacks),
    )


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


@pytest.fixture
def data(settings):
    return data_of(settings)


def data_of(settings, **changes):
    """The command's data, as a user constructs them."""
    config = settings[0].config["data"]
    source = Settings.of(settings[1]).parts.data.source
    names = set(inspect.signature(attnprobe.TextDataModule).parameters) - {"name", "source", "seed"}
    chosen = {name: value for name, value in config.items() if name in names}
    return attnprobe.TextDataModule(config["name"], source, seed=3, **chosen | changes)


def identity_of(settings):
    names = settings[0].identity("permutation")
    return {name: value for name, value in names.items() if name != "probe"}


def tables_of(directory):
    """Every table and list of examples of a run, byte by byte."""
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in directory.rglob("*.parquet")
        if path.stem not in ("findings", "training", "validation", "train")
    }


@pytest.mark.parametrize(
    ("precision", "count"), [("32-true", 3), ("bf16-mixed", 2), ("64-true", 2)]
)
def test_a_users_own_trainer_leaves_the_same_tables_as_the_command(
    settings, command, data, tmp_path, precision, count
):
    lightning.seed_everything(3, verbose=False)
    model = attnprobe.load_run(command).classifier
    before = copy.deepcopy(model.state_dict())
    writer = attnprobe.WriteRun(tmp_path / "own", identity=identity_of(settings))
    tester = trainer(*probes()[:count], writer, precision=precision)
    (logged,) = tester.test(model, datamodule=data, verbose=False)

    expected = tables_of(command)
    own = tables_of(tmp_path / "own")
    assert {"tables/permutation.parquet", "tables/performance.parquet"} <= set(own) <= set(expected)
    for name, content in own.items():
        assert content == expected[name], name
    numbers = attnprobe.read_results(command, probe="permutation")
    median = numbers[numbers.metric == "median_tvd"].value.mean()
    assert logged["permutation/median_tvd"] == pytest.approx(median, abs=1e-6)
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
    texts = (" ".join(draw.choices(families.WORDS, k=draw.randint(3, 8))) for _ in range(40))
    rows = [(text, labels[number % 2]) for number, text in enumerate(texts)]
    chosen = (f"probe={PROBES}", *FEW_PASSES, "seed=3")
    overrides = families.run_settings(folder, rows, tmp_path, *chosen)
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
    model = attnprobe.PretrainedClassifier(
        name="own", path=str(folder), class_names=list(data.classes)
    )
    lightning.seed_everything(3, verbose=False)
    writer = attnprobe.WriteRun(tmp_path / "own")
    trainer(*probes(), writer).test(model, datamodule=data, verbose=False)
    for probe in ("permutation", "gradient", "swaps", "performance"):
        own = attnprobe.read_results(tmp_path / "own", probe=probe)[MEASURED]
        expected = attnprobe.read_results(command, probe=probe)[MEASURED]
        assert_frame_equal(own, expected, check_exact=True, check_categorical=False)
    # the pieces are cut once, however often it is tested
    trainer(*probes()).test(model, datamodule=data, verbose=False)


def test_a_probes_table_is_a_data_frame_with_the_runs_numbers(command, data):
    permutation, gradient = Permutation(), Gradient()
    with pytest.raises(UserError, match=r"permutation has measured nothing.*\.test\("):
        permutation.table()
    permutation.runner = None
    runner = ProbeRunner([permutation, gradient], seed=3)
    trainer(*runner.callbacks()).test(
        attnprobe.load_run(command).classifier, datamodule=data, verbose=False
    )
    expected = attnprobe.read_results(command, probe="permutation")[MEASURED]
    table = permutation.table()
    assert isinstance(table, pd.DataFrame)
    assert_frame_equal(table, expected, check_categorical=False)

    # another test begins anew, and with the same seed gives the same
    trainer(permutation, gradient).test(
        attnprobe.load_run(command).classifier, datamodule=data, verbose=False
    )
    assert_frame_equal(permutation.table(), table)


def test_a_probe_is_a_callback_and_the_data_are_a_data_module():
    for probe in probes():
        assert isinstance(probe, Callback)
        assert isinstance(probe, Probe)
    assert isinstance(ready(), LightningDataModule)
    assert issubclass(hooked_class(attnprobe.TextDataModule), LightningDataModule)
    assert Permutation(samples=3) == pickle.loads(pickle.dumps(Permutation(samples=3)))
    assert copy.deepcopy(Permutation(samples=3)).samples == 3
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
    trainer(permutation, writer, limit_test_batches=2).test(
        attnprobe.load_run(command).classifier, datamodule=data, verbose=False
    )
    table = permutation.table()
    assert table.example_id.nunique() == 14
    results = attnprobe.read_results(tmp_path / "part", probe="permutation")
    assert_array_equal(results.value, table.value)
    assert len(attnprobe.read_examples(tmp_path / "part")) == 14


def test_a_fast_dev_run_runs_the_probes_and_writes_nothing(command, data, tmp_path, capsys):
    permutation = Permutation()
    trainer(permutation, attnprobe.WriteRun(tmp_path / "dev"), fast_dev_run=True).test(
        attnprobe.load_run(command).classifier, datamodule=data, verbose=False
    )
    assert len(permutation.table()) > 0
    assert not (tmp_path / "dev").exists()
    assert "nothing is written" in capsys.readouterr().err


def test_determinism_changes_no_number(command, data):
    tables = []
    for deterministic in (False, True):
        probe = Erasure()
        lightning.seed_everything(3, verbose=False)
        try:
            trainer(probe, deterministic=deterministic).test(
                attnprobe.load_run(command).classifier, datamodule=data, verbose=False
            )
        finally:
            torch.use_deterministic_algorithms(False)
        tables.append(probe.table())
    assert_frame_equal(*tables)


def test_prediction_leaves_probes_alone(command, data):
    permutation = Permutation()
    batches = trainer(permutation).predict(attnprobe.load_run(command).classifier, datamodule=data)
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

    trainer(Own(), Permutation(), logger=loggers, enable_progress_bar=False).test(
        attnprobe.load_run(command).classifier, datamodule=data, verbose=False
    )
    assert seen
    for logger in loggers:
        metrics = pd.read_csv(Path(logger.log_dir) / "metrics.csv")
        assert {"permutation/median_tvd", "permutation/max_attention"} <= set(metrics)
        assert "test/accuracy" in metrics


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: [Permutation(), Permutation(samples=7)], "permutation is there 2 times"),
        (lambda: [Correlation(importances=["lime", "nonsense"])], "unknown importance 'nonsense'"),
    ],
)
def test_probes_that_cannot_run_are_refused(make, message, command, data):
    with pytest.raises(UserError, match=message):
        trainer(*make()).test(
            attnprobe.load_run(command).classifier, datamodule=data, verbose=False
        )


# a user's own module


class LitClassifier(attnprobe.Staged, LightningModule):
    """In the style of Lightning's own tutorial: ids and labels in, a loss out."""

    def __init__(self, vocabulary=30, width=8, linear=True):
        super().__init__()
        self.save_hyperparameters()
        self.embedding = nn.Embedding(vocabulary, width, padding_idx=0)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.scorer = nn.Linear(width, 1)
        self.head = nn.Linear(width, 2) if linear else nn.Sequential(nn.Linear(width, 2), nn.Tanh())
        self.moved = JensenShannon()

    def encode(self, ids):
        return self.rnn(self.embedding(ids))[0]

    def attend(self, hidden, content):
        return self.scorer(hidden).squeeze(-1).masked_fill(~content, -torch.inf).softmax(-1)

    def decode(self, hidden, attention):
        return self.head(torch.einsum("bs,bsh->bh", attention, hidden))

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
        attention = self.attend(self.encode(x), x != 0)
        even = (x != 0) / (x != 0).sum(1, keepdim=True)
        self.moved.update(attention, even, x != 0)
        self.log("test/moved", self.moved)
        self.log("test_loss", nn.functional.cross_entropy(self(x), y))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.02)


def own_texts(count=23):
    generator = torch.Generator().manual_seed(1)
    lengths = torch.randint(3, 9, (count,), generator=generator).tolist()
    texts = [torch.randint(1, 30, (length,), generator=generator) for length in lengths]
    return [(text, int((text > 20).any())) for text in texts]


def collated(rows):
    texts, labels = zip(*rows, strict=True)
    return pad_sequence(list(texts), batch_first=True), torch.tensor(labels)


def own_loader(batch_size=4, **options):
    return DataLoader(own_texts(), batch_size=batch_size, collate_fn=collated, **options)


def test_an_own_module_is_trained_and_tested_with_probes():
    model = LitClassifier()
    permutation, erasure, swaps = Permutation(), Erasure(), Swaps()
    user = trainer(permutation, erasure, swaps, max_epochs=2, log_every_n_steps=1)
    user.fit(model, own_loader())
    (logged,) = user.test(model, own_loader(), verbose=False)
    assert {"test_loss", "test/moved", "permutation/median_tvd"} <= set(logged)
    assert next(model.parameters()).dtype is torch.float32

    # by hand, in float64: how far the prediction moves without the largest weight
    double = copy.deepcopy(model).double().eval()
    table = erasure.table()
    flips = table[table.metric == "removed_count_optimal"].set_index("example_id").value
    for number, (text, _) in enumerate(own_texts()):
        hidden = double.encode(text[None])
        attention = double.attend(hidden, text[None] != 0)
        assert flips[number] == fewest_erased(double, hidden, attention) or np.isnan(flips[number])
    assert swaps.table().example_id.nunique() > 0


def fewest_erased(model, hidden, attention):
    """The fewest weights whose erasure changes the decision, by trying all sets; NaN: none does."""
    decision = model.decode(hidden, attention).argmax()
    length = attention.shape[1]
    sizes = []
    for members in range(1, 2**length - 1):
        kept = torch.tensor([not members >> place & 1 for place in range(length)])
        weights = attention * kept
        if model.decode(hidden, weights / weights.sum()).argmax() != decision:
            sizes.append(members.bit_count())
    return min(sizes, default=np.nan)


def test_what_the_decoder_is_decides_the_readout():
    text, _ = own_texts()[0]
    for linear in (True, False):
        model = LitClassifier(linear=linear).eval()
        batch = model.read((text[None], torch.tensor([0])), torch.tensor([5]))
        classifier = classifier_of(model)
        classifier.has_markers = False
        with classifier.precisely():
            outputs = classifier.predict(batch)
            readout = classifier.readout(batch, outputs)
            assert (readout.position_logits is not None) == linear
            other = torch.zeros_like(readout.attention)
            other[0, 2] = 1  # the second word
            own = model.decode(model.encode(text[None]), torch.eye(len(text)).double()[1:2])
            assert_close(readout.logits(other), own)
            many = other.expand(3, 1, -1)
            assert_close(readout.logits(many), own.expand(3, 1, -1))


def test_padding_and_batch_size_change_no_number_of_an_own_module():
    model = LitClassifier()
    tables = []
    for batch_size in (1, 5, 23):
        probe = Permutation()
        trainer(probe, Gradient()).test(model, own_loader(batch_size), verbose=False)
        tables.append(probe.table())
    for table in tables[1:]:
        assert_frame_equal(table, tables[0], rtol=1e-9, atol=1e-12)


def test_importances_that_differentiate_or_remove_words_read_an_own_module():
    correlation = Correlation(importances=["gradient", "leave_one_out"])
    model = LitClassifier()
    trainer(correlation).test(model, own_loader(), verbose=False)
    table = correlation.table()
    tau = table[table.metric == "tau_attention_leave_one_out"].set_index("example_id").value
    # by hand: each word left out of the text itself
    double = copy.deepcopy(model).double().eval()
    text, _ = own_texts()[2]
    attention = double.attend(double.encode(text[None]), text[None] != 0)[0]
    whole = double(text[None]).softmax(-1)
    without = torch.stack(
        [
            (double(torch.cat([text[:place], text[place + 1 :]])[None]).softmax(-1) - whole)
            .abs()
            .sum()
            for place in range(len(text))
        ]
    )
    expected = attnprobe.measures.kendall_tau(attention, without / 2)
    assert tau[2] == pytest.approx(float(expected))


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
        (Flat, lambda: own_loader(shuffle=True), r"shuffle=False"),
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


def test_a_module_without_stages_is_refused():
    class Plain(LightningModule):
        def test_step(self, batch, batch_idx):
            pass

    with pytest.raises(UserError, match=r"Plain\(attnprobe\.Staged, LightningModule\)"):
        trainer(Permutation()).test(Plain(), own_loader(), verbose=False)


# a data module of one's own texts


def test_data_are_read_from_files_and_from_data_sets(tmp_path):
    rows = {"review": ["good film", "bad film"] * 20, "stars": ["up", "down"] * 20}
    pd.DataFrame(rows).to_csv(tmp_path / "reviews.csv", index=False)
    from_files = attnprobe.TextDataModule.from_files(
        str(tmp_path / "reviews.csv"), text="review", label="stars", embedding_size=4
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
    with pytest.raises(UserError, match=r"splits left: expected train, validation, test"):
        attnprobe.TextDataModule.from_dataset(datasets.DatasetDict(left=whole)).setup()
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
    one = Rows()
    one.add("m", np.arange(6), np.arange(6.0))
    two = [Rows(), Rows()]
    for rank, rows in enumerate(two):
        rows.add("m", np.arange(rank, 6, 2), np.arange(rank, 6.0, 2))
    joined = Rows()
    for rows in two:
        joined.join(rows)
    identity = dict.fromkeys(("run_id", "experiment", "data", "model", "split", "probe"), "")
    identity["seed"] = 0
    assert joined.table(identity).equals(one.table(identity))
