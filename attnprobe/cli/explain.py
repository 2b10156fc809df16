"""attnprobe explain RUN TEXT…: what a trained run says about new texts, word by word."""

from collections.abc import Container, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnprobe import __version__
from attnprobe.cli.main import Parser, answering
from attnprobe.core.printing import tell

if TYPE_CHECKING:
    from attnprobe.report.notebook import Explanation
    from attnprobe.runs.load import TrainedRun

EPILOG = """examples:
  attnprobe explain runs/reviews/lstm_additive-seed0-2f6c1e3a9b \\
    "a film that is not good"
  attnprobe explain runs/reviews/lstm_additive-seed0-2f6c1e3a9b \\
    --file new_texts.txt --html explained.html"""
PAGE = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    '<meta name="generator" content="attnprobe {version}">'
    '<meta name="viewport" content="width=device-width">'
    '<meta name="color-scheme" content="light dark">'
    '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
    "style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'\">"
    "<title>attnprobe explain</title></head>"
    "<body><main><h1>{title}</h1>{table}</main></body></html>"
)
MOST = 8
"""Words that are shown, those with most attention first."""


def explain_parser() -> Parser:
    """The arguments of the command."""
    parser = Parser("explain", usage="attnprobe explain RUN [TEXT ...] [options]", epilog=EPILOG)
    parser.add_argument("run", metavar="RUN", help="directory of a finished run")
    parser.add_argument("texts", metavar="TEXT", nargs="*", help="texts; each in quotes")
    parser.add_argument("--file", type=Path, metavar="FILE", help="more texts, one a line, UTF-8")
    parser.add_argument(
        "--text2",
        action="append",
        metavar="TEXT",
        help="second text (question, or number of the word from 0) of each",
    )
    parser.add_argument(
        "--html", type=Path, metavar="FILE.html", help="write heat maps into a page"
    )
    parser.add_argument(
        "--trusted",
        action="append",
        default=[],
        metavar="PACKAGE",
        help="your package, for models of your own",
    )
    return parser


def explain(arguments: Sequence[str]) -> None:
    """Print each text's prediction and its most attended words; unknown words are marked with *.

    Args:
        arguments: what follows the command's name.
    """
    options = explain_parser().parse_args(arguments)
    with answering():
        texts = [*options.texts, *texts_in(options.file)]
        if not texts:
            explain_parser().error("no text: give some in quotes, or a file with --file")
        from attnprobe.results.directory import RunDirectory
        from attnprobe.results.writer import own_target

        RunDirectory(options.run).manifest()  # refused before what takes seconds to import
        if options.html is not None:
            own_target(options.html)  # refused before the work rather than after it
        from attnprobe.runs.load import load_run

        run = load_run(options.run, trusted=options.trusted)
        explanation = run.explain(texts, options.text2)
        vocabulary = known_words(run, explanation)
        for row in explanation.to_dict("records"):
            # a tagger's word is asked for by its number from 0
            print("\n".join(lines_of(row, vocabulary, 0 if run.pipeline.tags else 1)))
        if run.sentence:
            tell(f"what the tests say: {run.sentence}")
        if options.html is not None:
            write_page(options.html, run, explanation)


def texts_in(file: Path | None) -> list[str]:
    """The texts of a file, one a line; none where there is no file.

    Raises:
        UserError: it is no file, a table, or not in UTF-8.
    """
    if file is None:
        return []
    from attnprobe.core.errors import UserError
    from attnprobe.data.local_files import READABLE, ending_of, find_path

    path = find_path(file)
    if not path.is_file():
        raise UserError(f"--file {file}: expected a file with a text on every line")
    if ending_of(path) in READABLE:
        raise UserError(
            f"--file {file} is a table: expected a file with a text on every line and nothing "
            f"else. Save the column with the texts as a .txt file"
        )
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise UserError(
            f"--file {file}: line {line} is not UTF-8, expected a text file in UTF-8: save it "
            f"again in that encoding"
        ) from error
    return [line for line in lines if line.strip()]


def known_words(run: "TrainedRun", explanation: "Explanation") -> set[str]:
    """The words that the model knows: its vocabulary's, or those whose every piece it has."""
    reader = run.pipeline.pieces
    if reader is None:
        return set(run.vocabulary.words)
    words: set[str] = set().union(*explanation["tokens"])
    return words - reader.unknown(sorted(words))


def write_page(path: Path, run: "TrainedRun", explanation: "Explanation") -> None:
    """Write the heat maps as a page of their own."""
    from attnprobe.core.sanitise import visible
    from attnprobe.results.writer import write_page as write_own_page

    title = visible(f"{run.directory.name}: {len(explanation)} of your texts")
    table = explanation._repr_html_()
    page = PAGE.format(version=__version__, title=escape(title), table=table)
    write_own_page(page, path)
    print(f"heat maps: {path}")


def lines_of(row: Mapping[Any, Any], vocabulary: Container[str], first: int = 1) -> list[str]:
    """The lines that explain one text.

    Args:
        row: of `TrainedRun.explain`.
        vocabulary: the words that the model knows.
        first: number of the text's first word, where places are named.
    """
    from attnprobe.core.sanitise import visible

    tokens = row["tokens"]
    attention = row["attention"]
    # with its place each word that comes more than once
    names = [
        token if tokens.count(token) == 1 else f"{token} (word {place})"
        for place, token in enumerate(tokens, start=first)
    ]
    # of a hierarchical model the tokens are whole sentences
    is_unknown = ["words" not in row and token not in vocabulary for token in tokens]
    positions = sorted(range(len(tokens)), key=lambda position: -attention[position])[:MOST]
    attended = [
        f"{names[position]}{'*' if is_unknown[position] else ''} {attention[position]:.3f}"
        for position in positions
    ]
    lines = [f"text: {row['text']}"]
    if "question" in row:
        lines.append(f"  read with: {row['question']}")
    lines.append(f"  predicted: {', '.join(predictions_of(row)) or 'no label'}")
    lines.append(f"  attention: {', '.join(attended)}")
    if "flipping_set" in row:
        lines.append(f"  {erasure_words(names, row)}")
    if any(is_unknown[position] for position in positions):
        lines.append("  * unknown to the model: all unknown words look alike to it")
    return [visible(line) for line in lines]


def erasure_words(names: Sequence[str], row: Mapping[Any, Any]) -> str:
    """Which fewest words' attention decides, in words."""
    erased = [name for name, erase in zip(names, row["flipping_set"], strict=True) if erase]
    if not erased:
        return "no erasure of attention changes this decision"
    return f"erase the attention of {', '.join(erased)}: it becomes {row['flips_to']}"


def predictions_of(row: Mapping[Any, Any]) -> list[str]:
    """The predicted class, or the predicted labels, each with its probability."""
    from attnprobe.core.metrics import sureness

    predicted = row["prediction"]
    probability = row["probability"]
    predictions = []
    for name in predicted if isinstance(predicted, list) else [predicted]:
        sure = sureness(probability.values(), probability[name]).removeprefix("p = ")
        predictions.append(f"{name} {sure}")
    return predictions
