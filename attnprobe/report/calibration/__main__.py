"""`python -m attnprobe.report.calibration STUDY -o FILE`: the table that the package ships, from a finished study."""

import argparse
import sys
from pathlib import Path

from attnprobe.errors import UserError
from attnprobe.report.calibration.collect import collected, ship
from attnprobe.report.studies import STUDY
from attnprobe.results.checksums import read_sealed


def main(arguments: list[str] | None = None) -> None:
    """Write it, and say of how many models it is."""
    parser = argparse.ArgumentParser(prog="attnprobe.report.calibration", description=__doc__)
    parser.add_argument("study", type=Path, help="directory of a finished +experiment=calibration")
    parser.add_argument("-o", "--output", type=Path, default=Path("calibration.parquet"))
    given = parser.parse_args(arguments)
    try:
        if not (given.study / STUDY).exists():
            raise UserError(
                f"{given.study} holds no finished study: expected the directory of a +experiment=calibration"
            )
        content = read_sealed(given.study / STUDY)
        if content.get("study") != "calibration":
            raise UserError(f"{given.study} is of the study {content.get('study')!r}: expected calibration")
        models, answered = collected(given.study / one["directory"] for one in content["members"])
        settings = content["settings"]
        told = " ".join(f"study.{name}={shown(settings[name])}" for name in ("controls", "encoders", "data", "seeds"))
        ship(answered, given.output, f"python -m attnprobe +experiment=calibration {told}")
    except UserError as error:
        print(f"attnprobe: {error}", file=sys.stderr)
        raise SystemExit(1) from None
    unsolved = int((models["rightness_label"] == "not solved").sum())
    print(f"{given.output}: {len(models)} models, {unsolved} did not solve their task")


def shown(values: list[object]) -> str:
    """A list as the command line takes it."""
    return "[" + ",".join(map(str, values)) + "]"


if __name__ == "__main__":
    main()
