"""Studies of invented runs: their numbers are wished for, and no model is trained."""

import numpy as np
import pandas as pd
from sklearn.metrics import f1_score

from attnprobe.results.files import write_sealed, write_table
from attnprobe.results.table import Rows
from tests.small_runs import seal

EXAMPLES = 400
ALL = ("uniform", "seeds", "guide", "adversary")


def invented_run(
    directory,
    role,
    seed,
    *,
    f1,
    alike=0.9,
    flatness=0.3,
    tvd=0.0,
    jsd=0.0,
    teacher=False,
    adversarial=False,
    validation=None,
    texts=EXAMPLES,
):
    identity = {
        "run_id": f"{role}-{seed}",
        "experiment": f"wiegreffe_{role}",
        "data": "sst",
        "model": "lstm_additive",
        "seed": seed,
        "split": "test",
    }
    ids = np.arange(texts)
    whole = np.array([-1])
    tables = {"performance": Rows(), "training": Rows()}
    seed_draw = np.random.default_rng([seed, len(role), 1])
    label = ids % 2
    prediction = invented_predictions(label, f1, seed_draw)
    f1 = f1_score(label, prediction)
    concentration = np.full(8, flatness)  # Dirichlet's: the larger, the flatter the attention
    shared = np.random.default_rng(5).dirichlet(concentration, texts)
    attention_of_seed = seed_draw.dirichlet(concentration, texts)
    attention = alike * shared + (1 - alike) * attention_of_seed
    examples = {
        "example_id": ids,
        "label": label,
        "prediction": prediction,
        "attention": list(attention),
    }
    (directory / "examples").mkdir(parents=True, exist_ok=True)
    pd.DataFrame(examples).to_parquet(directory / "examples/test.parquet")
    tables["performance"].add("f1", whole, np.array([[0.5, f1]]), np.arange(2))
    tables["performance"].add("f1_macro", whole, np.array([0.6]))
    for name, value in (validation or {}).items():
        tables["training"].add(f"validation_{name}", whole, np.array([[9.0, value]]), np.arange(2))
    if teacher:
        noise = noise_of(role, seed, tvd).normal(0, 0.01, texts)
        tables["teacher"] = rows_of(teacher_numbers(tvd + noise, jsd + noise))
    if adversarial:
        tables["adversarial"] = rows_of(adversarial_numbers(texts))
    for probe, rows in tables.items():
        write_table(rows.table(identity | {"probe": probe}), directory / f"tables/{probe}.parquet")
    listed = {probe: {"settings": None} for probe in tables}
    seal(directory, run_id=directory.name, tables=listed, classes=["no", "yes"])


def noise_of(role, seed, tvd):
    """A generator for a run: adversaries of one seed differ by their TVD."""
    return np.random.default_rng([seed, len(role), round(1000 * tvd)])


def invented_predictions(label, f1, generator):
    """So many texts of class 1 are missed, others for each seed, that F1 is near the wished one."""
    pairs = len(label) // 2
    missed = round(2 * pairs * (1 - f1) / (2 - f1))
    positive = generator.permutation(np.flatnonzero(label))
    prediction = label.copy()
    prediction[positive[:missed]] = 0
    return prediction


def teacher_numbers(tvd, jsd):
    texts = len(tvd)
    return {
        "tvd": np.clip(tvd, 0, 1),
        "jsd": np.clip(jsd, 0, 0.69),
        "teacher_max_attention": np.linspace(0.1, 0.9, texts),
        "teacher_predicted_class": np.arange(texts) % 2,
    }


def adversarial_numbers(texts):
    constants = {
        "is_exact": 1.0,
        "found_jsd": 0.5,
        "found_tvd": 0.01,
        "optimum_jsd": 0.6,
        "optimum_tvd": 0.01,
    }
    numbers = {name: np.full(texts, value) for name, value in constants.items()}
    return numbers | {
        "max_attention": np.linspace(0.1, 0.9, texts),
        "predicted_class": np.arange(texts) % 2,
    }


def rows_of(numbers):
    rows = Rows()
    for name, values in numbers.items():
        rows.add(name, np.arange(len(values)), values)
    return rows


def invented_study(
    folder,
    base,
    uniform,
    guides,
    adversaries,
    *,
    seeds_jsd=0.1,
    tests=ALL,
    searched=True,
    of="wiegreffe",
    alike=0.9,
    flatness=0.3,
    texts=EXAMPLES,
):
    """The directory of a study of the wished F1 values, seeds' JSD and adversaries `{λ: (tvd,
    jsd)}`."""
    members = []

    def member(role, seed, parameter=None, **numbers):
        name = f"{role}-{seed}-{parameter}"
        invented_run(folder / name, role, seed, texts=texts, **numbers)
        members.append(
            {
                "role": role,
                "seed": seed,
                "parameter": parameter,
                "run_id": name,
                "directory": f"../{name}",
            }
        )

    for seed, f1 in enumerate(base):
        more = {"teacher": seed > 0, "adversarial": searched and seed == 0}
        more |= {"alike": alike, "flatness": flatness, "jsd": seeds_jsd, "tvd": 0.05}
        member("base", seed, f1=f1, **more)
    for seed, f1 in enumerate(uniform):
        member("uniform", seed, f1=f1)
    for by, values in guides.items():
        for seed, f1 in enumerate(values):
            member(f"guide_{by}", seed, f1=f1)
    for weight, (tvd, jsd) in adversaries.items():
        curve = {"loss": 0.1, "tvd": tvd, "jsd": jsd}
        member("adversary", 0, weight, f1=0.8, teacher=True, tvd=tvd, jsd=jsd, validation=curve)
    directory = folder / "study"
    content = {
        "study": of,
        "data": "sst",
        "model": "lstm_additive",
        "members": members,
    }
    write_sealed(
        content | {"settings": {"tests": list(tests), "above": 0.4}}, directory / "study.json"
    )
    return directory
