"""What each family of `transformers` does: the table of docs/transformers.md.

python -m benchmarks.families
"""

import torch

from tests.models.pretrained.families import FAMILIES, batch_of, classifier

QUERIES = {"first": "first piece", "last": "last piece", "all": "all pieces"}


def row(family: str) -> list[str]:
    """One line of the table: a tiny untrained classifier of this family, examined in both
    precisions."""
    worst = {}
    for precision in (torch.float32, torch.float64):
        model = classifier(family)
        model.prepare(batch_of(model))
        worst[precision] = {}
        if precision is torch.float32 or model.precision is torch.float64:
            model.to(precision).prepare(batch_of(model))
            worst[precision] = model.examination.differences
        found = model.examination
    replaced = [shown(one, "replaced") for one in worst.values()]
    short = [shown(one, "short way") for one in worst.values()]
    return [
        family,
        found.door,
        str(found.calls),
        QUERIES[found.queries],
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
