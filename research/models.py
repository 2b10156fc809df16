"""`python -m research.models FOLDER`: are the criteria about models right, and what can an audit of
a few seeds show?

`transfer` trains a model without context under built attentions, right or wrong and with or without
the label in their weights. `pools` trains sixty seeds of a model with learned and with equal
weights, and draws audits of 3, 5 and 9 from them. `validity` asks necessity and stability where
what must come out is known. A file per model in FOLDER: what is cut short goes on with the same
command."""

import argparse
import json
import warnings
from collections.abc import Iterable
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from hydra.utils import instantiate

from attnprobe.evidence.evidence import Evidence
from attnprobe.evidence.statistics import f1_of, student
from attnprobe.evidence.verdicts import Verdict
from attnprobe.findings import members
from attnprobe.findings.members import (
    CLAIM,
    Score,
    balanced_accuracy,
    difference,
    pairwise,
    stability,
)
from attnprobe.findings.studies.criteria.statements import margin_of
from attnprobe.probes import plausibility, readouts
from attnprobe.probes.base import ProbeRunner
from attnprobe.results.files import write_text
from attnprobe.runs.composition import composed, composing, resolved
from research.calibration.rates import markdown
from research.calibration.study import PLANTED
from research.words import OWN, batches, found_by, trained

PAIR = ("model/attention=first", f"{OWN}PairAttention", "~model.attention.mass")
EVEN = ("model/attention=uniform",)
GUIDES = {
    "equal weights": EVEN,
    "right, leak": PAIR,
    "right, none": (*PAIR, "+model.attention.first=0.475", "+model.attention.second=0.475"),
    "wrong, leak": ("model/attention=first", f"{OWN}LabelAttention"),
    "wrong, none": (
        "model/attention=first",
        f"{OWN}PlacedAttention",
        "+model.attention.where=other",
    ),
    "first word": ("model/attention=first",),
}
GUIDED = ("data.plant=ordered_pair", "data.source.train_size=600", "model=average")
"""Of `ordered_pair`: on the words that decide or not; and whether the weights carry the label."""
CELLS = {
    "pair, lstm": (
        "data.plant=ordered_pair",
        "model=lstm",
        "model.width=16",
        "data.source.train_size=600",
    ),
    "token, average": (
        "data.plant=token",
        "model=average",
        "model.width=24",
        "data.source.train_size=150",
    ),
}
"""Of the pools: small, as a rate needs many."""
SHARES = (0.0, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0)
AUDITS = 150
"""Of the texts that the learned model answers, one with equal weights the others: the true effect,
of the pool's."""
RECALL = (
    "task=qa",
    "data=rules",
    "data.question=question",
    "model/decoder=additive",
    "data.source.train_size=2000",
)
UNIQUE = ("data=rules", "data.source.rule=token", "data.source.train_size=600")
NEED = {
    **{f"recall of {keys}": (*RECALL, f"data.source.rule=recall{keys}") for keys in (2, 4)},
    "no question": (*UNIQUE, "data.source.train_size=4000"),
}
ALIKE = {
    **{
        one: (*UNIQUE, f"model/attention={one}")
        for one in ("first", "rationale", "common_word", "random", "position")
    },
    "untrained": UNIQUE,
    "learned": UNIQUE,
    "learned, twins": (*UNIQUE, "data.source.rule=twins"),
}
"""Cell → the settings of its models without context. `NEED`: necessity, with learned and with equal
weights; `ALIKE`: stability, given, the same for every seed, drawn anew with every seed, and
learned."""
CLAIMS: dict[str, Score] = {
    "attention_is_needed": f1_of,
    "attention_guides": balanced_accuracy,
}  # differences of these


def settings_of(draw: int, *overrides: str) -> dict:
    """A small run on planted words; `draw` is of texts, labels and places."""
    shared = (
        *PLANTED,
        "data.counterfactual=null",
        f"data.source.seed={draw}",
        f"data.split_seed={draw}",
        "data.source.validation_size=100",
        "data.source.test_size=300",
        "data.embedding_size=24",
        "data.batch_size=32",
    )
    return resolved(composed([*shared, *overrides]))


def valid_settings(cell: str, *even: str) -> dict:
    """A small model without context, of a cell of validity."""
    small = (
        "model=average",
        "model.width=24",
        "training.recipe.optimizer.lr=0.01",
        "data.source.test_size=300",
    )
    return resolved(composed([*(NEED | ALIKE)[cell], *small, *even]))


def of_model(
    path: Path, config: dict, seed: int, *, readout: bool = False, epochs: int = 8
) -> None:
    """Train, and keep what it says of each test text, where it attends, and what exact read-outs of
    it reach and show."""
    if path.exists():
        return
    data, model = trained(config, seed, epochs, patience=3)
    probe = readouts.Readouts()
    probe.prepare(data.splits)
    runner = ProbeRunner([probe] if readout else [], seed)
    said = []
    weights = []
    for number, batch in enumerate(batches(data, size=100)):
        outputs = model.predict_step(batch)
        said += outputs.logits.argmax(-1).tolist()
        weights += [
            row[words].tolist() for row, words in zip(outputs.attention, batch.content, strict=True)
        ]
        runner.on_test_batch_end(None, model, {"outputs": outputs}, batch, number)
    facts = {
        "label": np.asarray(data.splits["test"].labels).tolist(),
        "said": said,
        "weights": weights,
    }
    if readout:
        numbers, verdicts = found_by(runner, "readouts", readouts.READING.claims)
        facts |= {metric: float(values.mean()) for metric, values in numbers.items()} | verdicts
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(json.dumps(facts), path)
    print(f"{path.stem}: {np.mean(np.array(said) == facts['label']):.3f}", flush=True)


def _parts(paths: Iterable[Path], score: Score = balanced_accuracy) -> list[np.ndarray]:
    several = [json.loads(path.read_text()) for path in sorted(paths)]
    both = (
        [np.array(one[name])[:, None] == np.arange(2) for name in ("label", "said")]
        for one in several
    )
    return [members.parts_of(label, said, score) for label, said in both]


def _scores(parts: Iterable[np.ndarray], score: Score = balanced_accuracy) -> list[float]:
    return [float(score(one.sum(0))) for one in parts]


def _gained(mine: list[np.ndarray], theirs: list[np.ndarray], score: Score) -> str:
    found = difference(dict(enumerate(mine)), dict(enumerate(theirs)), score)
    return found.exceeds(0, margin_of(_scores(mine, score)))


def _attentions(folder: Path, cell: str) -> list[list[np.ndarray]]:
    several = [
        json.loads(path.read_text())["weights"]
        for path in sorted(folder.glob(f"valid-{cell}-own-*.json"))
    ]
    return [[np.array(one) / sum(one) for one in weights] for weights in several]


def _shares(said: Iterable[str]) -> dict[str, float]:
    verdicts = np.array([*said])
    return {
        "yes": float(np.mean(verdicts == Verdict.MEETS)),
        "no": float(np.isin(verdicts, [Verdict.FAILS, Verdict.NO_DIFFERENCE]).mean()),
    }


def _alike(pairs: np.ndarray, seeds: int, draw: np.random.Generator) -> dict[str, float]:
    lots = (draw.permutation(len(pairs))[:seeds] for _ in range(AUDITS))
    found = (stability(pairs[np.ix_(few, few)]) for few in lots)
    return _shares(one.exceeds(CLAIM.threshold, CLAIM.smallest) for one in found)


def transfer_table(folder: Path) -> pd.DataFrame:
    """Gain of the guided model over equal weights by attention, its interval over draws, and that
    of the exact read-out."""
    rows = []
    for path in sorted(folder.glob("guide-*.json")):
        (_, name, draw, seed), facts = path.stem.split("-"), json.loads(path.read_text())
        rows.append(
            {
                "attention": name,
                "draw": draw,
                "seed": seed,
                "score": _scores(_parts([path]))[0],
                "read-out": facts["readout_words_attention"] - facts["readout_words_equal"],
            }
        )
    found = pd.DataFrame(rows).pivot_table(
        index=["draw", "seed"], columns="attention", values=["score", "read-out"]
    )
    lines = []
    for name in [one for one in GUIDES if one != "equal weights"]:
        gain = (
            (found["score"][name] - found["score"]["equal weights"]).groupby("draw").mean().dropna()
        )
        mean, low, high = student(gain.to_numpy())
        lines.append(
            {
                "attention": name,
                "draws": len(gain),
                "guided": f"{found['score'][name].mean():.3f}",
                "gain": f"{mean:.3f} [{low:.3f}, {high:.3f}]",
                "gain of the read-out": f"{found['read-out'][name].mean():.3f}",
            }
        )
    return pd.DataFrame(lines)


def curves(folder: Path, cell: str, claim: str) -> pd.DataFrame:
    """How often audits of 3, 5 and 9 seeds say yes and no, by the true effect: the pool's mean."""
    score = CLAIMS[claim]
    draw = np.random.default_rng(0)
    rows = []
    learned, equal = (
        _parts(folder.glob(f"pool-{cell}-{kind}-*.json"), score) for kind in ("learned", "equal")
    )
    count = min(len(learned), len(equal))
    gain = np.mean(_scores(learned, score)) - np.mean(_scores(equal, score))
    for share, seeds in product(SHARES, (3, 5, 9)):
        said = []
        for _ in range(AUDITS):
            chosen = draw.permutation(count)[:seeds]
            other = draw.permutation(count)[: 2 * seeds]
            mine = [
                np.where(draw.random((len(learned[one]), 1)) < share, learned[one], equal[rest])
                for one, rest in zip(chosen, other[:seeds], strict=True)
            ]
            said.append(_gained(mine, [equal[one] for one in other[seeds:]], score))
        about = {
            "claim": claim,
            "cell": cell,
            "models": 2 * count,
            "seeds": seeds,
            "effect": round(share * gain, 4),
        }
        rows.append(about | _shares(said) | {"audits": AUDITS})
    return pd.DataFrame(rows)


def stability_curves(folder: Path, cell: str) -> pd.DataFrame:
    """The same of stability, by the nearness of all seeds: in some texts each seed's weights are
    put in a random order."""
    own = _attentions(folder, cell)
    draw = np.random.default_rng(0)
    rows = []
    whole = pairwise(own)
    shuffled = pairwise([[draw.permutation(one) for one in seed] for seed in own])
    for share in SHARES:
        kept = np.arange(len(own[0])) < round(share * len(own[0]))
        pairs = np.where(draw.permutation(kept)[:, None], whole, shuffled)
        for seeds in (3, 5, 9):
            said = _alike(pairs, seeds, draw)
            effect = (
                round(stability(pairs).value, 4) if share else 0.0
            )  # of what is in random order: known
            about = {
                "claim": CLAIM.name,
                "cell": cell,
                "models": len(own),
                "seeds": seeds,
                "effect": effect,
            }
            rows.append(about | said | {"audits": AUDITS})
    return pd.DataFrame(rows)


def validity(folder: Path, cell: str, seeds: int = 3) -> dict[str, object]:
    """How often audits of three seeds say yes and no to necessity or stability, and what all seeds
    together measure."""
    own, equal = (_parts(folder.glob(f"valid-{cell}-{kind}-*.json")) for kind in ("own", "equal"))
    draw = np.random.default_rng(0)
    if cell in NEED:
        lots = [
            [[pool[one] for one in draw.permutation(len(pool))[:seeds]] for pool in (own, equal)]
            for _ in range(AUDITS)
        ]
        said = _shares([_gained(mine, theirs, balanced_accuracy) for mine, theirs in lots])
        measured = " beside ".join(f"{np.mean(_scores(pool)):.3f}" for pool in (own, equal))
    else:
        pairs = pairwise(_attentions(folder, cell))
        said = _alike(pairs, seeds, draw)
        measured = f"{stability(pairs).value:.3f}"
    return {"cell": cell, "seeds": len(own), "measured": measured} | said


def plausible(folder: Path, cell: str) -> dict[str, object]:
    """Whether the weight is on the marked words of each text, and on those of the next text of its
    length (the null)."""
    models = _attentions(folder, cell)
    said = []
    with composing():
        data = instantiate(valid_settings(cell)["data"], seed=0)
    data.setup("fit")
    (batch,) = batches(data, size=len(data.splits["test"]))
    assert batch.rationale is not None
    marks = [row[words].numpy() for row, words in zip(batch.rationale, batch.content, strict=True)]
    of_length = pd.Series(range(len(marks))).groupby([len(one) for one in marks])
    shifted = of_length.transform(lambda own: np.roll(own, 1))
    for given in (marks, [marks[one] for one in shifted]):
        frames = [
            np.array(
                [
                    (weights[mark].sum(), mark.mean())
                    for weights, mark in zip(own, given, strict=True)
                ]
            )
            for own in models
        ]
        gain = [
            Evidence.of_ratio(np.stack([one[:, 0] - one[:, 1], 1 - one[:, 1]], -1)[None])
            for one in frames
        ]
        said.append(sum(one.exceeds(0, plausibility.SMALLEST) == Verdict.MEETS for one in gain))
    alone = int((shifted == np.arange(len(marks))).sum())
    return dict(
        zip(
            ("cell", "models", "yes, own marks", "yes, shifted", "alone of their length"),
            (cell, len(models), *said, alone),
            strict=True,
        )
    )


def main() -> None:
    """Train, or read."""
    parser = argparse.ArgumentParser(prog="python -m research.models", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--parts", default="transfer,pools,validity")
    parser.add_argument(
        "--seeds", type=int, default=60, help="of the pools, and of each cell of validity"
    )
    parser.add_argument(
        "--texts", type=int, default=300, help="that the models of the pools are tested on"
    )
    parser.add_argument(
        "--table", action="store_true", help="train nothing: the tables of what is there"
    )
    parser.add_argument(
        "--record", type=Path, help="with --table: the shipped audits.csv, which verdicts cite"
    )
    given = parser.parse_args()
    folder = given.folder
    seeds = range(given.seeds)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    if given.table:
        audits = pd.concat(
            [
                *(curves(folder, cell, claim) for claim, cell in product(CLAIMS, CELLS)),
                *(stability_curves(folder, cell) for cell in ("learned", "learned, twins")),
            ]
        )
        if given.record is not None:
            audits.round(4).to_csv(given.record, index=False)
        valid = pd.DataFrame([validity(folder, cell) for cell in NEED | ALIKE])
        marked = pd.DataFrame([plausible(folder, cell) for cell in ALIKE])
        tables = (transfer_table(folder), audits.round(3), valid.round(3), marked)
        print("\n\n".join(map(markdown, tables)))
        return
    with composing():
        for draw, seed, name in (
            product(range(5), range(2), GUIDES) if "transfer" in given.parts else ()
        ):
            config = settings_of(draw, *GUIDED, *GUIDES[name])
            of_model(folder / f"guide-{name}-{draw}-{seed}.json", config, seed, readout=True)
        both = {"learned": (), "equal": EVEN}
        for seed, cell, kind in product(seeds, CELLS, both) if "pools" in given.parts else ():
            config = settings_of(
                0, *CELLS[cell], *both[kind], f"data.source.test_size={given.texts}"
            )
            of_model(
                folder / f"pool-{cell}-{kind}-{seed}.json", config, seed, readout=kind == "learned"
            )
        for seed, cell in product(seeds, NEED | ALIKE) if "validity" in given.parts else ():
            for kind, even in {"own": (), "equal": EVEN}.items() if cell in NEED else [("own", ())]:
                path = folder / f"valid-{cell}-{kind}-{seed}.json"
                epochs = 0 if cell == "untrained" else 8
                of_model(path, valid_settings(cell, *even), seed, epochs=epochs)


if __name__ == "__main__":
    main()
