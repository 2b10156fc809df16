"""attnprobe vectors SETTING… --encoder PATH: word vectors for every word of a corpus."""

import os
from collections.abc import Sequence
from pathlib import Path

from attnprobe.cli.main import Parser, answering

EPILOG = """examples:
  attnprobe vectors data=sst -o sst.vec \\
    --encoder sentence-transformers/all-MiniLM-L6-v2
  attnprobe run +experiment=jain data=sst data.vectors=sst.vec"""


def vectors_parser() -> Parser:
    """The arguments of the command."""
    parser = Parser(
        "vectors", usage="attnprobe vectors SETTING ... --encoder PATH -o FILE", epilog=EPILOG
    )
    parser.add_argument(
        "settings", metavar="SETTING", nargs="+", help="which data, as after run: data=sst"
    )
    parser.add_argument(
        "--encoder",
        required=True,
        metavar="PATH",
        help="a pretrained encoder: a folder as save_pretrained writes it, or a name on the hub",
    )
    parser.add_argument("-o", "--output", required=True, type=Path, metavar="FILE.vec")
    parser.add_argument(
        "--size", type=int, metavar="N", help="numbers a word: its first principal components"
    )
    parser.add_argument("--offline", action="store_true", help="never use the network")
    return parser


def vectors(arguments: Sequence[str]) -> None:
    """Encode every word of the vocabulary by itself, and write a file for `data.vectors`.

    Args:
        arguments: what follows the command's name.
    """
    options = vectors_parser().parse_args(arguments)
    with answering(typed={"model.path=": "--encoder "}):
        from attnprobe.core.errors import UserError, answering_disk
        from attnprobe.data.vocabulary import SPECIAL
        from attnprobe.models.pretrained.word_vectors import word_vectors
        from attnprobe.results.writer import refuse_unwritable
        from attnprobe.runs.composition import composed, composing
        from attnprobe.runs.settings import Settings

        if os.path.lexists(options.output):
            raise UserError(
                f"-o {options.output}: something is there already, which is left as it is: name "
                f"another file"
            )
        refuse_unwritable(options.output.parent)
        with composing():
            data = Settings.of(composed([*options.settings, "probe=[]"])).parts.data
        data.setup("fit")
        words = data.vocabulary.words[len(SPECIAL) :]
        encoded = word_vectors(words, options.encoder, size=options.size, offline=options.offline)
        with answering_disk(options.output):
            encoded.save(options.output)
        print(
            f"{options.output}: {len(encoded.words):,} of {len(words):,} words, "
            f"{encoded.vectors.shape[1]} numbers each; data.vectors={options.output} starts from "
            f"them"
        )
