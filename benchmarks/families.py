"""What each family of `transformers` does: the table of docs/transformers.md.

python -m benchmarks.families
"""

import torch

from tests.models.pretrained.families import FAMILIES, batch_of, classifier

QUERIES = {"first": "first piece", "last": "last piece", "all": "all pieces"}


def row(family: str) -> list[str]:
    """One line of the table: a tiny untrained classifier of this family.

    Examined in both precisions.
    """
    worst = {}
    for precision in (torch.float32, torch.float64):
        model = classifier(family)
        model.prepare(batch_of(model))
        worst[precision] = {}
        if precision is torch.float32 or model.precision is torch.float64:
            model.to(precision).prepare(batch_of(model))
            worst[precision] = model.examination.differences
        examination = model.examination
    replaced = [shown(differences, "replaced") for differences in worst.values()]
    short = [shown(differences, "short way") for differences in worst.values()]
    return [
        family,
        examination.door,
        str(examination.calls),
        QUERIES[examination.queries],
        *replaced,
        *short,
        "yes" if model.tail else "no",
    ]


def shown(differences: dict[str, float], name: str) -> str:
    """A difference, or that there is none."""
    return f"{differences[name]:.0e}" if name in differences else "–"


def main() -> None:
    """Print the table."""
    heads = [
        "family",
        "door",
        "attentions",
        "read from",
        "replaced, float32",
        "float64",
        "short way, float32",
        "float64",
        "taken",
    ]
    print("| " + " | ".join(heads) + " |\n|" + "---|" * len(heads))
    for family in FAMILIES:
        print("| " + " | ".join(row(family)) + " |", flush=True)


if __name__ == "__main__":
    main()
