"""`python -m research.models FOLDER`: are the criteria about models right, and what can an audit of a few seeds show?

`transfer` trains a model without context under four built attentions, right or wrong and with or without the label in their
weights. `pools` trains sixty seeds of a model with learned and with equal weights, and draws audits of 3, 5 and 9 from them.
`validity` asks necessity and stability where what must come out is known: recall from a question, of which equal weights
reach a part at most; texts that they decide as well; and attentions that are the same, or not, with every seed.
A file per model in FOLDER; a study that is cut short goes on with the same command, and `--table` reads what is there.
"""

import argparse
import json
import warnings
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from hydra.utils import instantiate

from attnprobe.evidence.claims import put_to_test
from attnprobe.evidence.evidence import FAILS, MEETS, NO_DIFFERENCE, NOT_INFORMATIVE, Evidence
from attnprobe.evidence.statistics import f1_of
from attnprobe.findings.members import CLAIM, Score, balanced_accuracy, difference, pairwise, parts_of, stability
from attnprobe.findings.studies.wiegreffe import margin_of
from attnprobe.probes import plausibility, readouts
from attnprobe.probes.base import ProbeRunner
from attnprobe.results.files import write_text
from attnprobe.runs.composition import composed, composing, resolved
from research.calibration.summary import markdown
from research.words import trained

BUILT = "model.attention._target_=research.attentions."
GUIDES = {
    "equal weights": (),
    "right, leak": ("model/attention=first", f"{BUILT}PairAttention", "~model.attention.mass"),
    "right, none": ("model/attention=first", f"{BUILT}PairAttention", "~model.attention.mass",
                    "+model.attention.first=0.475", "+model.attention.second=0.475"),
    "wrong, leak": ("model/attention=first", f"{BUILT}LabelAttention"),
    "wrong, none": ("model/attention=first", f"{BUILT}OtherWordAttention"),
    "first word": ("model/attention=first",),
}  # fmt: skip
"""Of `ordered_pair`: on the words that decide or not; and whether the weights carry the label."""
CELLS = {
    "pair, lstm": ("data.plant=ordered_pair", "model=lstm", "model.width=16", "data.source.train_size=600"),
    "token, average": ("data.plant=token", "model=average", "model.width=24", "data.source.train_size=150"),
}
"""Of the pools: small, as a rate needs many."""
SHARES = (0.0, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0)
"""Of the texts that the learned model answers, one with equal weights the others: the true effect is that share of
the pool's."""
RECALL = ("task=qa", "data=rules", "data.question=question", "model/decoder=additive", "data.source.train_size=2000")
UNIQUE = ("data=rules", "data.source.rule=token", "data.source.train_size=600")
VALID = {
    # necessity: of what equal weights cannot decide without a question, nor with one; and of what they can
    "recall of 2": (*RECALL, "data.source.rule=recall2", "need"),
    "recall of 4": (*RECALL, "data.source.rule=recall4", "need"),
    "no question": (*UNIQUE, "data.source.train_size=4000", "need"),
    # stability: given, the same for every seed; drawn anew with every seed; and learned
    **{
        name: (*UNIQUE, f"model/attention={name}")
        for name in ("first", "rationale", "common_word", "random", "position")
    },
    "untrained": UNIQUE,
    "learned": UNIQUE,
    "learned, twins": (*UNIQUE, "data.source.rule=twins"),
}
"""Cell → the settings of its models without context; `need`: with learned and with equal weights."""
AUDITS = 150
CLAIMS: dict[str, Score] = {"attention_is_needed": f1_of, "attention_guides": balanced_accuracy}
"""A claim about trained models, and the number of which it is a difference."""


def settings_of(draw: int, *overrides: str) -> dict:
    """A small run on planted words; `draw` is of texts, labels and places."""
    shared = ("data=testbed", "data.rationale=null", "data.counterfactual=null", "data.source.rule=word",
              f"data.source.seed={draw}", f"data.split_seed={draw}", "data.source.validation_size=100",
              "data.source.test_size=300", "data.embedding_size=24", "data.batch_size=32")  # fmt: skip
    return resolved(composed([*shared, *overrides]))


def of_model(path: Path, config: dict, seed: int, *, readout: bool = False, epochs: int = 8) -> None:
    """Train, and keep what it says of each test text and where it attends, and what exact read-outs of its words and states
    reach and show."""
    if path.exists():
        return
    data, model = trained(config, seed, epochs, patience=3)
    part, probe = data.splits["test"], readouts.Readouts()
    probe.prepare(data.splits)
    runner, said, weights = ProbeRunner([probe] if readout else [], seed), [], []
    for start in range(0, len(part), 100):
        batch = part[range(start, min(start + 100, len(part)))]
        outputs = model.predict_step(batch)
        said += outputs.logits.argmax(-1).tolist()
        weights += [row[words].tolist() for row, words in zip(outputs.attention, batch.content, strict=True)]
        runner.on_test_batch_end(None, model, {"outputs": outputs}, batch, start)
    facts = {"label": np.asarray(part.labels).tolist(), "said": said, "weights": weights}
    if readout:
        rows = runner.rows["readouts"]
        facts |= {metric: float(np.concatenate(column.values).mean()) for (metric, _), column in rows.columns.items()}
        identity = dict.fromkeys(("run_id", "experiment", "data", "model", "split"), "") | {"seed": seed}
        numbers = rows.table(identity | {"probe": "readouts"}).to_pandas()
        facts |= {one.claim.name: one.verdict for one in put_to_test(readouts.READING.claims, numbers)}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(json.dumps(facts), path)
    print(f"{path.stem}: {np.mean(np.array(said) == facts['label']):.3f}", flush=True)


def parts(facts: dict, score: Score = balanced_accuracy) -> np.ndarray:
    """What the score is made of, text by text."""
    label, said = (np.array(facts[name])[:, None] == np.arange(2) for name in ("label", "said"))
    return parts_of(label, said, score)


def stored(folder: Path, pattern: str) -> list[dict]:
    """What is kept of these models, in the order of their names."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob(pattern))]


def share_of_yes(said: list[str]) -> dict[str, float]:
    """Shares of yes and of no among verdicts."""
    return {"yes": float(np.mean(np.array(said) == MEETS)), "no": float(np.isin(said, [FAILS, NO_DIFFERENCE]).mean())}


def transfer_table(folder: Path) -> pd.DataFrame:
    """Gain of the guided model over equal weights by attention, its interval over draws, and that of the exact read-out."""
    rows = []
    for path in sorted(folder.glob("guide-*.json")):
        _, name, draw, seed = path.stem.split("-")
        facts = json.loads(path.read_text())
        rows.append({"attention": name, "draw": draw, "seed": seed, "score": balanced_accuracy(parts(facts).sum(0)),
                     "read-out": facts["readout_words_attention"] - facts["readout_words_equal"]})  # fmt: skip
    found = pd.DataFrame(rows).pivot_table(index=["draw", "seed"], columns="attention", values=["score", "read-out"])
    lines = []
    for name in [one for one in GUIDES if one != "equal weights"]:
        gain = (found["score"][name] - found["score"]["equal weights"]).groupby("draw").mean().dropna()
        half = 2.776 if len(gain) == 5 else np.nan  # Student's t of four degrees of freedom
        spread = half * gain.std(ddof=1) / len(gain) ** 0.5
        lines.append({"attention": name, "draws": len(gain), "guided": f"{found['score'][name].mean():.3f}",
                      "gain": f"{gain.mean():.3f} [{gain.mean() - spread:.3f}, {gain.mean() + spread:.3f}]",
                      "gain of the read-out": f"{found['read-out'][name].mean():.3f}"})  # fmt: skip
    return pd.DataFrame(lines)


def curves(folder: Path, cell: str, claim: str) -> pd.DataFrame:
    """How often audits of 3, 5 and 9 seeds say yes and no, by the true effect: the pool's mean."""
    score = CLAIMS[claim]
    pool = {kind: [parts(facts, score) for facts in stored(folder, f"pool-{cell}-{kind}-*.json")]
            for kind in ("learned", "equal")}  # fmt: skip
    count, draw, rows = min(map(len, pool.values())), np.random.default_rng(0), []
    reached = {kind: float(np.mean([score(one.sum(0)) for one in pool[kind]])) for kind in pool}
    gain = reached["learned"] - reached["equal"]
    for share, seeds in product(SHARES, (3, 5, 9)):
        said = []
        for _ in range(AUDITS):
            chosen, other = draw.permutation(count)[:seeds], draw.permutation(count)[: 2 * seeds]
            mine, theirs = {}, {place: pool["equal"][seed] for place, seed in enumerate(other[seeds:])}
            for place, seed in enumerate(chosen):
                mixed = draw.random((len(pool["learned"][seed]), 1)) < share
                mine[place] = np.where(mixed, pool["learned"][seed], pool["equal"][other[place]])
            margin = margin_of([float(score(one.sum(0))) for one in mine.values()])
            said.append(difference(mine, theirs, score).exceeds(0, margin))
        about = {"claim": claim, "cell": cell, "models": 2 * count, "seeds": seeds, "effect": round(share * gain, 4)}
        rows.append(about | share_of_yes(said) | {"audits": AUDITS})
    return pd.DataFrame(rows)


def attentions_of(folder: Path, cell: str) -> list[list[np.ndarray]]:
    """Seeds × texts: where the models of a cell of validity attend."""
    several = stored(folder, f"valid-{cell}-own-*.json")
    return [[np.array(one) / sum(one) for one in facts["weights"]] for facts in several]


def stability_curves(folder: Path, cell: str) -> pd.DataFrame:
    """How often audits of 3, 5 and 9 seeds say yes and no to stability, by the nearness of all seeds. Between none and the
    cell's own: in some texts, the same for all seeds, each seed's own weights are put in a random order."""
    own, draw, rows = attentions_of(folder, cell), np.random.default_rng(0), []
    whole, shuffled = pairwise(own), pairwise([[draw.permutation(one) for one in seed] for seed in own])
    for share in SHARES:
        kept = np.arange(len(own[0])) < round(share * len(own[0]))
        pairs = np.where(draw.permutation(kept)[:, None], whole, shuffled)
        for seeds in (3, 5, 9):
            lots = [draw.permutation(len(own))[:seeds] for _ in range(AUDITS)]
            said = [stability(pairs[np.ix_(few, few)]).exceeds(CLAIM.threshold, CLAIM.smallest) for few in lots]
            effect = round(stability(pairs).value, 4) if share else 0.0  # of what is in random order: known
            about = {"claim": CLAIM.name, "cell": cell, "models": len(own), "seeds": seeds, "effect": effect}
            rows.append(about | share_of_yes(said) | {"audits": AUDITS})
    return pd.DataFrame(rows)


def validity(folder: Path, cell: str, seeds: int = 3) -> dict[str, object]:
    """How often audits of three seeds say yes and no to necessity or stability, and what all seeds together measure."""
    pool = {
        kind: [parts(facts) for facts in stored(folder, f"valid-{cell}-{kind}-*.json")] for kind in ("own", "equal")
    }
    draw, said = np.random.default_rng(0), []
    if pool["equal"]:
        scores = {kind: [float(balanced_accuracy(one.sum(0))) for one in pool[kind]] for kind in pool}
        for _ in range(AUDITS):
            chosen = zip(*(draw.permutation(len(pool[kind]))[:seeds] for kind in ("own", "equal")), strict=True)
            mine, theirs = zip(*((pool["own"][one], pool["equal"][other]) for one, other in chosen), strict=True)
            margin = margin_of([float(balanced_accuracy(one.sum(0))) for one in mine])
            found = difference(dict(enumerate(mine)), dict(enumerate(theirs)), balanced_accuracy)
            said.append(found.exceeds(0, margin))
        whole = f"{np.mean(scores['own']):.3f} beside {np.mean(scores['equal']):.3f}"
    else:
        pairs = pairwise(attentions_of(folder, cell))
        for _ in range(AUDITS):
            few = draw.permutation(len(pairs))[:seeds]
            found = stability(pairs[np.ix_(few, few)])
            said.append(NOT_INFORMATIVE if found.unasked else found.exceeds(CLAIM.threshold, CLAIM.smallest))
        whole = f"{stability(pairs).value:.3f}"
    return {"cell": cell, "seeds": len(pool["own"]), "measured": whole} | share_of_yes(said)


def valid_settings(cell: str, *even: str) -> dict:
    """A small model without context, of a cell of validity."""
    settings = (one for one in VALID[cell] if one != "need")
    return resolved(composed([*settings, "model=average", "model.width=24", "training.recipe.optimizer.lr=0.01",
                              "data.source.test_size=300", *even]))  # fmt: skip


def plausible(folder: Path, cell: str) -> dict[str, object]:
    """Whether the weight is on the marked words by the claim of `plausibility`, of each text's own marks and of those of the
    next text of its length (the null)."""
    models, said = attentions_of(folder, cell), {}
    with composing():
        data = instantiate(valid_settings(cell)["data"], seed=0)
    data.setup("fit")
    part = data.splits["test"]
    batch = part[range(len(part))]
    marks = [row[words].numpy() for row, words in zip(batch.rationale, batch.content, strict=True)]
    alike = pd.Series(range(len(marks))).groupby([len(one) for one in marks])
    shifted = alike.transform(lambda own: np.roll(own, 1))
    for name, given in {"own": marks, "shifted": [marks[one] for one in shifted]}.items():
        frames = [np.array([(weights[mark].sum(), mark.mean()) for weights, mark in zip(own, given, strict=True)])
                  for own in models]  # fmt: skip
        gain = [Evidence.of_ratio(np.stack([one[:, 0] - one[:, 1], 1 - one[:, 1]], -1)[None]) for one in frames]
        said[name] = sum(one.exceeds(0, plausibility.SMALLEST) == MEETS for one in gain)
    return {"cell": cell, "models": len(models), "yes, own marks": said["own"], "yes, shifted": said["shifted"],
            "alone of their length": int((shifted == np.arange(len(marks))).sum())}  # fmt: skip


def main() -> None:
    """Train, or read."""
    parser = argparse.ArgumentParser(prog="python -m research.models", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--parts", default="transfer,pools,validity")
    parser.add_argument("--seeds", type=int, default=60, help="of the pools, and of each cell of validity")
    parser.add_argument("--texts", type=int, default=300, help="that the models of the pools are tested on")
    parser.add_argument("--table", action="store_true", help="train nothing: the tables of what is there")
    parser.add_argument("--record", type=Path, help="with --table: the shipped audits.csv, which verdicts cite")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    if given.table:
        table = transfer_table(given.folder)
        print(markdown([*table.columns], table.to_numpy().tolist()), end="\n\n")
        audits = pd.concat([*(curves(given.folder, cell, claim) for claim, cell in product(CLAIMS, CELLS)),
                            *(stability_curves(given.folder, cell) for cell in ("learned", "learned, twins"))])  # fmt: skip
        if given.record is not None:
            audits.round(4).to_csv(given.record, index=False)
        print(markdown([*audits.columns], audits.round(3).to_numpy().tolist()), end="\n\n")
        valid = pd.DataFrame([validity(given.folder, cell) for cell in VALID])
        print(markdown([*valid.columns], valid.round(3).to_numpy().tolist()), end="\n\n")
        marked = pd.DataFrame([plausible(given.folder, cell) for cell in VALID if "need" not in VALID[cell]])
        print(markdown([*marked.columns], marked.to_numpy().tolist()))
        return
    even = ("model/attention=uniform",)
    with composing():
        for draw, seed, name in product(range(5), range(2), GUIDES) if "transfer" in given.parts else ():
            settings = (
                "data.plant=ordered_pair",
                "data.source.train_size=600",
                "model=average",
                *(GUIDES[name] or even),
            )
            path = given.folder / f"guide-{name}-{draw}-{seed}.json"
            of_model(path, settings_of(draw, *settings), seed, readout=True)
        pools = product(range(given.seeds), CELLS, ("learned", "equal")) if "pools" in given.parts else ()
        for seed, cell, kind in pools:
            own, size = even if kind == "equal" else (), f"data.source.test_size={given.texts}"
            path = given.folder / f"pool-{cell}-{kind}-{seed}.json"
            of_model(path, settings_of(0, *CELLS[cell], *own, size), seed, readout=not own)
        for seed, (cell, settings) in product(range(given.seeds), VALID.items()) if "validity" in given.parts else ():
            for kind in ("own", "equal") if "need" in settings else ("own",):
                path, epochs = given.folder / f"valid-{cell}-{kind}-{seed}.json", 0 if cell == "untrained" else 8
                of_model(path, valid_settings(cell, *(even if kind == "equal" else ())), seed, epochs=epochs)


if __name__ == "__main__":
    main()
