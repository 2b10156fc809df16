"""`python -m research.words FOLDER`: is the verdict on words right where the words that decide are
known?

Trains small models on the rules of `research.rules`, with attention that is right or wrong by
construction or learned, and asks each with the probe `swaps`. A file per model in FOLDER: what is
cut short goes on with the same command."""

import argparse
import json
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from attnprobe.core.batch import Batch
from attnprobe.data.module import TextDataModule
from attnprobe.evidence.claims import Claim, put_to_test
from attnprobe.evidence.deciding_words import (
    LEAST_PLACEMENT,
    PLACEMENT_CLAIM,
    PLACEMENT_METRICS,
    placement_of,
)
from attnprobe.evidence.statistics import clopper_pearson
from attnprobe.evidence.verdicts import Verdict
from attnprobe.models.trained import TrainedModel
from attnprobe.probes import agreement, known_answer, skill
from attnprobe.probes.base import ProbeRunner
from attnprobe.probes.swaps import Swaps
from attnprobe.results.files import write_atomically, write_text
from attnprobe.runs.build import untrained
from attnprobe.runs.composition import composed, composing, resolved
from attnprobe.runs.validation import configured
from research.calibration.rates import markdown
from research.calibration.study import CONTROLS, ENCODERS, PLANTED
from research.rules import BLIND, RULES

CLAIMS = {"skill": skill.READING.claims, "agreement": agreement.READING.claims}
FIRST_PART = Path(__file__).parent / "words_first_part.csv"
"""Counts of the blind batch's first part (draws 100, 101 and 102, of which not every rule), whose
rows are not kept."""
LEAVE_ONE_OUT = "agrees_with_leave_one_out"
RECORDED = {
    ("erasure", PLACEMENT_CLAIM.name): "table",
    ("agreement", LEAVE_ONE_OUT): LEAVE_ONE_OUT,
}
"""Criterion and claim about words → the column of what was said."""
OWN = "model.attention._target_=research.attentions."
PLACED = ("model/attention=first", f"{OWN}PlacedAttention")
ATTENTIONS = CONTROLS | {
    "rationale_40": ("model/attention=rationale", "model.attention.mass=0.4"),
    "first_70": ("model/attention=first", "model.attention.mass=0.7"),
    "last_70": (*PLACED, "+model.attention.where=last", "model.attention.mass=0.7"),
    "common_70": ("model/attention=common_word", "model.attention.mass=0.7"),
    "half": PLACED,
    "rare_right": (*PLACED, "+model.attention.where=one"),
    "rare_wrong": (*PLACED, "+model.attention.where=more"),
}
OF_PLACES = {
    "first",
    "last",
    "random",
    "position",
    "half",
    "rare_right",
    "rare_wrong",
}  # need context
LAYERS = {
    f"transformer_{layers}": (
        *ENCODERS["transformer"],
        f"model.encoder.layers={layers}",
        "data.embedding_size=48",
    )
    for layers in (1, 2, 4)
}
"""Own transformers by how many layers they have, on planted words."""
GIVEN = {
    "learned": (),
    "supervised": ("training=finetune_supervise",),
    "deceived": ("training=finetune_deceive",),
}
GIVEN |= {
    name: (f"model.given={name}",)
    for name in ("uniform", "rationale", "first", "random", "common_word")
}
"""The attention of a pretrained model, on planted words."""
SINGLE_WORD = {
    "third_last",
    "unequal",
    "long",
    "very_long",
    "lexicon",
    "lexicon_noisy",
    "compared",
    "two_questions",
    "reviews_word",
    "reviews_counting",
    *list(RULES)[:16],
}
"""Rules that a model without context can learn."""
HARDER = {
    "xor",
    "phrase",
    "majority15",
    "order_of_two",
    "last_of_three",
    "compared",
    "negated",
    "two_questions",
    "conjunction",
}
"""Rules that take 2,000 texts; the others 1,000, and `very_long` 600."""
SAID = {
    Verdict.MEETS: "yes",
    Verdict.FAILS: "no",
    Verdict.NO_DIFFERENCE: "no",
    Verdict.NOT_INFORMATIVE: "not asked",
}
SAID |= dict.fromkeys((Verdict.CANNOT_DECIDE, Verdict.TOO_RARE), "open")
"""A verdict, as the tables of this study say it."""
SOLVED = 0.9
FOLLOWS = 0.9
ALIKE = 0.1
RIGHT = 0.8
WRONG = 0.05
UNMOVED = 0.05
"""Accuracy that counts; share of the texts with their reason changed whose decision follows; by how
much the state that knows most must be ahead of the mean one, for states to be right or wrong;
rightness from which an attention is right, up to which it is wrong; and share of the decisions that
may flip with a wrong one's most attended word."""


def settings_of(rule: str, encoder: str, attention: str, draw: int, texts: int) -> dict[str, Any]:
    """A run's settings with the rule's texts as its data; a pretrained model and `LAYERS` have
    planted words of this kind."""
    if encoder.startswith("/") or encoder in LAYERS:
        train = 2000 if encoder in LAYERS and rule != "token" else 1000
        sizes = {"train_size": train, "validation_size": 100, "test_size": texts, "seed": draw}
        model = (
            "model=pretrained",
            f"model.path={encoder}",
            "training=finetune",
            "training.recipe.optimizer.lr=1e-4",
        )
        chosen = (
            (*LAYERS[encoder], *ATTENTIONS[attention])
            if encoder in LAYERS
            else (*model, *GIVEN[attention])
        )
        sized = (f"data.source.{name}={size}" for name, size in sizes.items())
        return resolved(
            composed([*PLANTED, "data.counterfactual=null", f"data.plant={rule}", *sized, *chosen])
        )
    shared = ("data=testbed", "data.embedding_size=48", "data.batch_size=32")
    config = resolved(composed([*shared, *ENCODERS[encoder], *ATTENTIONS[attention]]))
    train = (
        600
        if rule == "very_long"
        else 2000
        if rule in HARDER or rule.startswith("reviews_")
        else 1000
    )
    source = {
        "rule": rule,
        "seed": draw,
        "train_size": train,
        "test_size": 40 if rule == "very_long" else texts,
    }
    config["data"] |= {
        "name": rule,
        "source": {"_target_": "research.rules.RuleSource", **source},
        "labels": None,
    }
    return config


def trained(
    config: Any, seed: int, epochs: int = 30, patience: int = 8
) -> tuple[TextDataModule, TrainedModel]:
    """The model of the best epoch by validation accuracy, in eval mode; ends where that is 0.99."""
    torch.manual_seed(seed)
    parts = configured(config | {"seed": seed})
    data = parts.data
    data.setup("fit")
    model = untrained(parts, data)
    assert model.recipe is not None
    optimizer = model.recipe.optimizer(model.parameter_groups())
    for group in optimizer.param_groups:
        group["lr"] = max(group["lr"], 0.003 if model.reader is None else 0)
    train = data.splits["train"]
    draw = np.random.default_rng(seed)
    best = -1.0
    weights = model.state_dict()
    since = 0
    for epoch in range(epochs):
        model.train()
        for rows in np.array_split(draw.permutation(len(train)), -(-len(train) // 32)):
            batch = train[rows.tolist()]
            loss = model.losses(model(model.recipe.objective.given(model, batch)), batch)[
                "loss"
            ].mean()
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
        accuracy = float(np.mean(answers(model.eval(), data, "validation")["right"]))
        since += 1
        if accuracy > best:
            best = accuracy
            weights = {name: one.clone() for name, one in model.state_dict().items()}
            since = 0
        if since >= patience or (accuracy >= 0.99 and epoch >= 2):
            break
    model.load_state_dict(weights)
    return data, model.eval().to(model.precision)


def batches(data: TextDataModule, split: str = "test", size: int = 50) -> Iterator[Batch]:
    """The texts of a split, so many at a time."""
    part = data.splits[split]
    for start in range(0, len(part), size):
        yield part[range(start, min(start + size, len(part)))]


def answers(
    model: TrainedModel, data: TextDataModule, split: str = "test"
) -> dict[str, np.ndarray]:
    """Of each text whether the model is right, and follows a changed reason; the mass on the words
    that decide, and chance; whether the decision flips with the most attended other word (NaN where
    there is none); and the share on no word."""
    found: dict[str, list[float]] = defaultdict(list)

    def decided(batch: Batch, ids: torch.Tensor) -> torch.Tensor:
        """What the model says of the same texts with other words in their places."""
        changed = replace(batch, ids=ids)
        if model.reader is not None:
            texts = [
                data.vocabulary.decode(row[own].tolist())
                for row, own in zip(ids, batch.content, strict=True)
            ]
            read = data.pipeline.batch_of(texts)
            changed = replace(
                changed, pieces=read.pieces, piece_word=read.piece_word, piece_kind=read.piece_kind
            )
        return model(changed).logits.argmax(-1)

    with torch.no_grad():
        for batch in batches(data, split):
            assert batch.rationale is not None
            outputs = model(batch)
            reason = batch.rationale & batch.content
            others = batch.content & ~batch.rationale
            decision = outputs.logits.argmax(-1)
            found["right"] += (decision == batch.labels).double().tolist()
            if batch.counterfactual is not None:
                changed = torch.where(
                    batch.content & (batch.counterfactual != 0), batch.counterfactual, batch.ids
                )
                found["follows"] += (
                    (decided(batch, changed) == (batch.labels + 1) % model.classes)
                    .double()
                    .tolist()
                )
            given = torch.where(reason.any(-1), 1.0, torch.nan)
            found["mass"] += (given * (outputs.attention * reason).sum(-1)).tolist()
            found["chance"] += (given * reason.sum(-1) / batch.content.sum(-1)).tolist()
            top = outputs.attention.masked_fill(~others, -1).argmax(-1, keepdim=True)
            row = torch.arange(len(batch)).roll(1)
            free = (
                outputs.attention.gather(1, top) >= outputs.attention.amax(-1, keepdim=True) - 1e-9
            )
            free &= others[row].gather(1, top) & others.gather(1, top)
            new = torch.where(free, batch.ids[row].gather(1, top), batch.ids.gather(1, top))
            flipped = decided(batch, batch.ids.scatter(1, top, new)) != decision
            found["flips"] += torch.where(free.squeeze(-1), flipped.double(), torch.nan).tolist()
            found["off_text"] += (
                [0.0] * len(batch) if outputs.off_text is None else outputs.off_text.tolist()
            )
    return {name: np.array(found[name]) for name in ("follows", *found)}


def found_by(
    runner: ProbeRunner, probe: str, claims: Sequence[Claim] = ()
) -> tuple[dict[str, Any], dict[str, str]]:
    """What a probe measured, by metric, and what these claims say of it, by claim."""
    identity = dict.fromkeys(("run_id", "experiment", "data", "model", "split"), "") | {
        "seed": 0,
        "probe": probe,
    }
    said = put_to_test(claims, runner.rows[probe].table(identity).to_pandas())
    numbers = {
        metric: np.concatenate(columns.value)
        for (metric, _), columns in runner.rows[probe].columns.items()
    }
    return numbers, {finding.claim.name: finding.verdict for finding in said}


def asked(
    model: TrainedModel, data: TextDataModule, seed: int, *, permuted: bool = False
) -> dict[str, Any]:
    """What `swaps` measures, and the `others` say; `permuted`: of the weights in one random order,
    and `swaps` alone."""
    probe = Swaps()
    probe.prepare(data.splits)
    others = (
        []
        if permuted or model.reader
        else [skill.Skill(), agreement.Agreement(), known_answer.KnownAnswer()]
    )
    runner = ProbeRunner([probe, *others], seed)
    draw = np.random.default_rng(seed)
    for number, batch in enumerate(batches(data)):
        outputs = model.predict_step(batch)
        for row, content in enumerate(batch.content if permuted else ()):
            own = outputs.attention[row, content]
            outputs.attention[row, content] = own[torch.from_numpy(draw.permutation(len(own)))]
        runner.on_test_batch_end(None, model, {"outputs": outputs}, batch, number)
    numbers = found_by(runner, "swaps")[0]
    parts = found_by(runner, "known_answer")[0] if others else {}
    found: dict[str, Any] = {name: numbers[name].tolist() for name in PLACEMENT_METRICS} | {
        "others": {}
    }
    for name, claims in CLAIMS.items() if others else ():
        found["others"] |= found_by(runner, name, claims)[1]
    if "state_change_own" in parts:
        own, null, best = (
            np.nanmean(parts[f"state_change_{kind}"]) for kind in ("own", "null", "best")
        )
        found["state_rightness"] = (
            float((own - null) / (best - null)) if best - null > ALIKE * best else None
        )
    return found


def of_model(
    rule: str, encoder: str, attention: str, draw: int, texts: int, *, null: bool = False
) -> dict[str, Any]:
    """Everything that is known of one model, and what the probe says."""
    data, model = trained(settings_of(rule, encoder, attention, draw, texts), draw)
    known = answers(model, data)
    mass = np.nanmean(known["mass"])
    chance = np.nanmean(known["chance"])
    facts: dict[str, Any] = {
        "rule": rule,
        "encoder": Path(encoder).name,
        "attention": attention,
        "draw": draw,
    }
    facts |= {
        "accuracy": float(known["right"].mean()),
        "rightness": float((mass - chance) / (1 - chance)),
    }
    for name in ("follows", "flips", "off_text"):
        facts[name] = float(np.nanmean(known[name])) if np.isfinite(known[name]).any() else None
    if facts["accuracy"] >= SOLVED:
        facts["table"] = asked(model, data, draw)
        if null:
            facts["null"] = asked(model, data, draw, permuted=True)
    return facts


def judged(folder: Path) -> pd.DataFrame:
    """A row per model: what is known of it (`kind`), and the verdict."""
    rows = []
    for path in sorted(folder.glob("*.json")):
        facts = json.loads(path.read_text())
        row = {
            name: facts[name]
            for name in ("rule", "encoder", "attention", "draw", "accuracy", "rightness")
        }
        row["off_text"] = facts.get("off_text")
        follows = facts["follows"]
        flips = facts["flips"]
        right = facts["rightness"] >= RIGHT
        solved = "table" in facts and (follows is None or follows >= FOLLOWS)
        wrong = facts["rightness"] <= WRONG and (flips is None or flips <= UNMOVED)
        row["kind"] = (
            "not solved" if not solved else "right" if right else "wrong" if wrong else "between"
        )
        state = facts.get("table", {}).get("state_rightness")
        if state is not None:
            row["state kind"] = (
                "right" if state >= RIGHT else "wrong" if state <= WRONG else "between"
            )
        for name in ("null", "table"):
            if name in facts:
                evidence = placement_of(
                    *(np.array(facts[name][part])[None] for part in PLACEMENT_METRICS)
                )
                said = (
                    "yes"
                    if evidence.low > LEAST_PLACEMENT
                    else "no"
                    if evidence.high <= LEAST_PLACEMENT
                    else "open"
                )
                row[name] = "not asked" if evidence.unasked or evidence.rare else said
        if "table" in facts:
            row |= {
                "placement": evidence.value,
                "low": evidence.low,
                "high": evidence.high,
            } | facts["table"].get("others", {})
        rows.append(row)
    return pd.DataFrame(rows)


def table(models: pd.DataFrame, by: Sequence[str], claim: str = "table") -> pd.DataFrame:
    """Yes, no, open and not asked of right and wrong attentions by a claim's column; exact
    intervals, and over rules."""
    rows = []
    for key, own in models[models["kind"].isin(["right", "wrong"])].groupby(
        [*by, "kind"], observed=True
    ):
        said = own[claim].replace(SAID).fillna("not asked")
        counts = {name: int((said == name).sum()) for name in ("yes", "no", "open", "not asked")}
        share, low, high = clopper_pearson(counts["yes"], len(own))
        row = dict(zip([*by, "kind"], key, strict=True)) | {"models": len(own)} | counts
        row["yes, share"] = f"{100 * share:.0f} % [{100 * low:.0f}, {100 * high:.0f}]"
        if "rule" not in by:
            row["over rules"] = "[{:.0f}, {:.0f}]".format(*over_rules(own["rule"], said == "yes"))
        rows.append(row)
    return pd.DataFrame(rows)


def over_rules(rules: "pd.Series[str]", yes: "pd.Series[bool]") -> tuple[float, float]:
    """95 % interval of the share of yes in per cent, by a bootstrap over rules: models of one rule
    are alike."""
    counts = yes.groupby(rules).agg(["sum", "size"]).to_numpy()
    drawn = counts[np.random.default_rng(0).integers(len(counts), size=(10_000, len(counts)))].sum(
        1
    )
    low, high = np.quantile(100 * drawn[:, 0] / drawn[:, 1], [0.025, 0.975])
    return float(low), float(high)


def record(models: pd.DataFrame, path: Path) -> None:
    """Put what verdicts cite into the shipped table in place of what it had: per encoder (of a
    checkpoint its family) and kind of attention how many models were asked, decided and said yes
    of; of the swap test with `FIRST_PART`."""
    shipped = pq.read_table(path)
    rows = []
    known = shipped.to_pandas()
    before = pd.read_csv(FIRST_PART).set_index(["encoder", "kind"]).T
    decided = models[models["kind"].isin(["right", "wrong"])]
    family = [
        one if one in ENCODERS else "transformer" if one in LAYERS else "bert"
        for one in decided["encoder"]
    ]
    for (criterion, claim), column in RECORDED.items():
        if column not in models:
            continue
        known = known[(known["claim"] != claim) | ~known["rightness"].isin(["right", "wrong"])]
        for key, said in decided.groupby(
            [pd.Series(family, decided.index, name="encoder"), "kind"]
        )[column]:
            if said.isna().all():  # this probe was not asked
                continue
            counts = said.replace(SAID).fillna("not asked").value_counts()
            if column == "table" and key in before:
                counts = counts.add(before[key], fill_value=0)
            yes, no = (int(counts.get(one, 0)) for one in ("yes", "no"))
            about = {
                "criterion": criterion,
                "level": "word",
                "encoder": key[0],
                "rightness": key[1],
                "claim": claim,
            }
            rows.append(about | {"models": yes + no, "meets": yes, "asked": int(counts.sum())})
    joined = pd.concat([known, pd.DataFrame(rows, columns=known.columns).astype(known.dtypes)])
    metadata = dict(shipped.schema.metadata)
    counted = len(decided) + int(before.to_numpy().sum())
    facts = json.loads(metadata[b"attnprobe"]) | {
        "words": f"python -m research.words: {counted} models"
    }
    written = pa.Table.from_pandas(joined, schema=shipped.schema, preserve_index=False)
    written = written.replace_schema_metadata(metadata | {b"attnprobe": json.dumps(facts).encode()})
    write_atomically(path, lambda target: pq.write_table(written, target))


def main() -> None:
    """Train and ask, or read."""
    parser = argparse.ArgumentParser(prog="python -m research.words", description=__doc__)
    parser.add_argument(
        "folder", type=Path, help="of the models; with --table also a file that --keep wrote"
    )
    parser.add_argument(
        "--rules",
        default=",".join(BLIND),
        help=f"of {', '.join(RULES)}, reviews_word, reviews_negation, …",
    )
    parser.add_argument(
        "--encoders", default="lstm,cnn,average,transformer", help="or the folder of a checkpoint"
    )
    parser.add_argument("--attentions", default="rationale,first_70,learned,common_70,last_70")
    parser.add_argument(
        "--draws", default="100,101,102,103,104", help="of texts, weights and everything random"
    )
    parser.add_argument("--texts", type=int, default=100)
    parser.add_argument(
        "--null", action="store_true", help="also each model's own weights in random order"
    )
    parser.add_argument(
        "--table", action="store_true", help="train nothing: the tables of what is there"
    )
    parser.add_argument(
        "--record", type=Path, help="with --table: the shipped calibration.parquet, told of it"
    )
    parser.add_argument(
        "--keep", type=Path, help="with --table: a parquet file of a row per model, added to"
    )
    given = parser.parse_args()
    if given.table:
        models = judged(given.folder) if given.folder.is_dir() else pd.read_parquet(given.folder)
        if given.keep is not None:
            if given.keep.exists():
                models = pd.concat([pd.read_parquet(given.keep), models], ignore_index=True)
                models = models.drop_duplicates(
                    ["rule", "encoder", "attention", "draw"], keep="last"
                )
            models.to_parquet(given.keep, index=False)
        if given.record is not None:
            record(models, given.record)
        models["all"] = "all"
        tables = [(by, "table") for by in (["all"], ["encoder"], ["rule"], ["rule", "encoder"])]
        primary = [
            one.name
            for claims in CLAIMS.values()
            for one in claims
            if one.primary and one.name in models
        ]
        for by, claim in [*tables, *((["encoder"], one) for one in primary)]:
            of_states = claim == "top_state_decides" and "state kind" in models
            said = table(
                models.assign(kind=models["state kind"]) if of_states else models, by, claim
            )
            print(claim, markdown(said), sep="\n\n", end="\n\n")
        print(
            *(
                models[one].value_counts().to_dict() if one in models else ""
                for one in ("kind", "null")
            )
        )
        return
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    named = (one.split(",") for one in (given.draws, given.rules, given.encoders, given.attentions))
    with composing():
        for draw, rule, encoder, attention in product(*named):
            path = given.folder / f"{rule}-{Path(encoder).name}-{attention}-{draw}.json"
            impossible = encoder == "average" and (
                rule not in SINGLE_WORD or attention in OF_PLACES
            )
            if path.exists() or impossible or (rule == "very_long" and encoder == "transformer"):
                continue
            facts = of_model(rule, encoder, attention, int(draw), given.texts, null=given.null)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_text(json.dumps(facts), path)
            print(
                f"{path.stem}: accuracy {facts['accuracy']:.2f}, rightness {facts['rightness']:.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
