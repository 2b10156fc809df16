"""attnprobe explain RUN TEXT…: what a trained run says about new texts, word by word."""

from collections.abc import Sequence
from html import escape
from pathlib import Path

from attnprobe import __version__
from attnprobe.cli.main import Parser, answering

EPILOG = """examples:
  attnprobe explain runs/reviews/lstm_additive-seed0-2f6c1e3a9b "a film that is not good"
  attnprobe explain runs/reviews/lstm_additive-seed0-2f6c1e3a9b --file new_texts.txt --html explained.html"""
PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="generator" content="attnprobe {version}">\
<meta name="viewport" content="width=device-width"><meta name="color-scheme" content="light dark">\
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; \
form-action 'none'"><title>attnprobe explain</title></head><body><main><h1>{title}</h1>{table}</main></body></html>"""
MOST = 8
"""Words that are shown, those with most attention first."""


def explain_parser() -> Parser:
    """The arguments of the command."""
    made = Parser("explain", usage="attnprobe explain RUN [TEXT ...] [options]", epilog=EPILOG)
    made.add_argument("run", metavar="RUN", help="directory of a finished run")
    made.add_argument("texts", metavar="TEXT", nargs="*", help="texts; each in quotes")
    made.add_argument("--file", type=Path, metavar="FILE", help="more texts, one a line, UTF-8")
    made.add_argument(
        "--text2",
        action="append",
        metavar="TEXT",
        help="second text (question, or number of the word from 0) of each",
    )
    made.add_argument("--html", type=Path, metavar="FILE.html", help="write heat maps into a page")
    made.add_argument(
        "--trusted",
        action="append",
        default=[],
        metavar="PACKAGE",
        help="your package, for models of your own",
    )
    return made


def explain(arguments: Sequence[str]) -> None:
    """Print the prediction and the words that get most attention; unknown words are marked with
    *."""
    asked = explain_parser().parse_args(arguments)
    with answering():
        texts = list(asked.texts)
        if asked.file is not None:
            from attnprobe.data.local_files import find_path

            texts += [
                line
                for line in find_path(asked.file).read_text(encoding="utf-8-sig").splitlines()
                if line.strip()
            ]
        if not texts:
            explain_parser().error("no text: give some in quotes, or a file with --file")
        from attnprobe.core.sanitise import visible
        from attnprobe.results.files import write_text
        from attnprobe.results.writer import own_target
        from attnprobe.runs.load import load_run

        if asked.html is not None:
            own_target(asked.html)
        run = load_run(asked.run, trusted=asked.trusted)
        explanation = run.explain(texts, asked.text2)
        known = set(run.vocabulary.words)
        reader = run.pipeline.pieces
        if reader is not None:
            known = (spelled := set().union(*explanation["tokens"])) - reader.unknown(
                sorted(spelled)
            )
        for row in explanation.to_dict("records"):
            print("\n".join(lines_of(row, known)))
        if run.sentence:
            print(f"what the tests say: {run.sentence}")
        if asked.html is not None:
            title = escape(visible(f"{run.directory.name}: {len(texts)} of your texts"))
            page = PAGE.format(version=__version__, title=title, table=explanation._repr_html_())
            write_text(page.encode(errors="replace").decode(), own_target(asked.html))
            print(f"heat maps: {asked.html}")


def lines_of(row: dict, known: set[str]) -> list[str]:
    """One text in a few lines."""
    from attnprobe.core.metrics import sureness
    from attnprobe.core.sanitise import visible

    predicted = row["prediction"]
    probability = row["probability"]
    tokens = row["tokens"]
    names = predicted if isinstance(predicted, list) else [predicted]
    sure = [
        f"{one} {sureness(probability.values(), probability[one]).removeprefix('p = ')}"
        for one in names
    ]
    # each word that comes more than once with its place
    words = [
        one if tokens.count(one) == 1 else f"{one} (word {place})"
        for place, one in enumerate(tokens, start=1)
    ]
    strange = ["words" not in row and word not in known for word in tokens]
    order = sorted(range(len(tokens)), key=lambda place: -row["attention"][place])[:MOST]
    shown = [
        f"{words[place]}{'*' * strange[place]} {row['attention'][place]:.3f}" for place in order
    ]
    lines = [
        f"text: {row['text']}",
        *([f"  read with: {row['question']}"] if "question" in row else []),
    ]
    lines += [f"  predicted: {', '.join(sure) or 'no label'}", f"  attention: {', '.join(shown)}"]
    if "flipping_set" in row:
        erased = ", ".join(
            word for word, erase in zip(words, row["flipping_set"], strict=True) if erase
        )
        becomes = f"  erase the attention of {erased}: it becomes {row['flips_to']}"
        lines.append(becomes if erased else "  no erasure of attention changes this decision")
    if any(strange[place] for place in order):
        lines.append("  * unknown to the model: all unknown words look alike to it")
    return [visible(line) for line in lines]
