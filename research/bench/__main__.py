"""`python -m research.bench make FOLDER`: train the models of the bench, and store them.

`rank FOLDER` asks every importance of them, for the shipped rates and the docs; `rivals FOLDER`
asks other ways to tell a right attention from a wrong one. What is cut short goes on with the same
command.
"""

import argparse
import warnings
from collections.abc import Sequence
from pathlib import Path

import torch

from attnprobe.core.errors import UserError
from attnprobe.findings.bench.folder import BenchFolder
from attnprobe.probes.swaps import Swaps
from attnprobe.runs.composition import composing
from research.arguments import draws_of
from research.bench.baselines import compare, ways_as_markdown
from research.bench.making import make_model, name_of
from research.bench.ranking import DIGITS, as_markdown, rank, rates_by_encoder, write_rates
from research.grammar import DEVELOPMENT, RuleSpec, development_rules, drawn_rules
from research.markdown import put_between_markers, require_parts
from research.words.cells import OWN_ATTENTIONS, Grid


def main() -> None:
    """Carry out the command; a mistake is one line."""
    options = parser().parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    try:
        options.carry_out(options)
    except UserError as error:
        raise SystemExit(f"research.bench: {error}") from None


def parser() -> argparse.ArgumentParser:
    """The command line."""
    command_line = argparse.ArgumentParser(prog="python -m research.bench", description=__doc__)
    commands = command_line.add_subparsers(required=True)
    make_command = commands.add_parser("make", help="train models, and store them")
    make_command.set_defaults(carry_out=make)
    make_command.add_argument("folder", type=Path, help="of the bench; it is added to")
    make_command.add_argument(
        "--rules",
        default="development",
        help="names such as token,recency-2cues (research/grammar/spec.py), or of the rules of "
        "development; `development`: all of these",
    )
    make_command.add_argument(
        "--drawn", type=int, metavar="COUNT", help="so many rules that nobody has picked instead"
    )
    make_command.add_argument("--commit", default="", help="with --drawn: whose hash draws them")
    make_command.add_argument(
        "--half", default="first", help="with --drawn: `first`, or `second` for later looks"
    )
    make_command.add_argument("--encoders", default="lstm,cnn,transformer")
    make_command.add_argument("--attentions", default="learned")
    make_command.add_argument("--draws", default="0", help="of texts, weights and all randomness")
    make_command.add_argument(
        "--texts", type=int, help="of each model; as the calibration has, if it is left out"
    )
    make_command.add_argument("--passes", type=int, default=Swaps.passes)
    make_command.add_argument(
        "--most-passes", type=int, default=Swaps.most_passes, help="where effects are unreliable"
    )

    rank_command = commands.add_parser("rank", help="ask every importance of every model")
    rank_command.set_defaults(carry_out=rank_all)
    rank_command.add_argument("folder", type=Path, help="of the bench")
    rank_command.add_argument(
        "--rows", type=Path, required=True, help="parquet of a row per model, which is added to"
    )
    rank_command.add_argument(
        "--importances", default="", help="some of them, such as gradient,lime; all if left out"
    )
    rank_command.add_argument(
        "--texts", type=int, help="of each model, for methods of many passes; all if left out"
    )
    rank_command.add_argument("--shipped", type=Path, help="write the rates that verdicts cite")
    rank_command.add_argument("--page", type=Path, help="write the table into a page of the docs")

    rivals_command = commands.add_parser("rivals", help="other ways to tell right from wrong")
    rivals_command.set_defaults(carry_out=compare_rivals)
    rivals_command.add_argument("folder", type=Path, help="of the bench")
    rivals_command.add_argument("--rows", type=Path, required=True, help="as of rank")
    rivals_command.add_argument("--texts", type=int, help="of each model; all if left out")
    rivals_command.add_argument("--page", type=Path, help="as of rank")
    return command_line


def make(options: argparse.Namespace) -> None:
    """Make the models that are not there yet."""
    bench = BenchFolder(options.folder)
    done = {model.name for model in bench.all_models()}
    half, rules = rules_of(options)
    probe = Swaps(passes=options.passes, most_passes=options.most_passes)
    with composing():
        for cell in grid_of(options, rules).cells():
            if name_of(cell) in done:
                continue
            model = make_model(bench, cell, half, probe, options.texts)
            print(
                f"{model.name}: accuracy {model.accuracy:.2f}, follows {model.follows:.2f}, "
                f"{model.texts} texts of {model.passes} passes",
                flush=True,
            )


def rank_all(options: argparse.Namespace) -> None:
    """Rank the importances, and write the rates."""
    if options.page is not None:
        require_parts(options.page, ["bench"])
    bench = BenchFolder.open(options.folder)
    methods = [name for name in options.importances.split(",") if name]
    rows = rank(bench, options.rows, methods, options.texts)
    rates = rates_by_encoder(rows).round(DIGITS)
    if options.shipped is not None:
        write_rates(rates, options.shipped)
    if options.page is not None:
        put_between_markers(options.page, {"bench": as_markdown(rates)})
    print(as_markdown(rates))


def compare_rivals(options: argparse.Namespace) -> None:
    """Ask other ways whether attentions are right, and write the table."""
    if options.page is not None:
        require_parts(options.page, ["rivals"])
    rows = compare(BenchFolder.open(options.folder), options.rows, options.texts)
    if options.page is not None:
        put_between_markers(options.page, {"rivals": ways_as_markdown(rows)})
    print(ways_as_markdown(rows))


def grid_of(options: argparse.Namespace, rules: Sequence[RuleSpec]) -> Grid:
    """The models that an encoder can learn, draw by draw and rule by rule.

    Raises:
        UserError: an encoder or an attention is unknown, or a draw is no number.
    """
    attentions = options.attentions.split(",")
    unknown = [name for name in attentions if name not in OWN_ATTENTIONS]
    if unknown:
        raise UserError(f"--attentions {unknown[0]}: expected some of {', '.join(OWN_ATTENTIONS)}")
    return Grid(
        rules=rules,
        encoders=options.encoders.split(","),
        attentions=attentions,
        draws=draws_of(options.draws),
        mode="run",
    )


def rules_of(options: argparse.Namespace) -> tuple[str, list[RuleSpec]]:
    """The half that the rules are of, and the rules."""
    if options.drawn is not None:
        return options.half, drawn_rules(options.commit, options.drawn, options.half)
    if options.rules == "development":
        return "development", development_rules()
    names = options.rules.split(",")
    return "development", [DEVELOPMENT.get(name) or RuleSpec.named(name) for name in names]


if __name__ == "__main__":
    main()
