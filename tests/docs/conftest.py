import csv
import json
import sqlite3
import sys
import tomllib

import pytest

from attnprobe.readings import registry
from tests.docs.extending import FILES, FOREIGN, reviews


@pytest.fixture(scope="module")
def mine(tmp_path_factory):
    """The page's folder, its package importable and as good as installed."""
    folder = tmp_path_factory.mktemp("mine")
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    with (folder / "hotels.csv").open("a", newline="") as file:
        rows = [
            (row["text"], (1, 5)[row["label"]] - row["label"] * (number % 2))
            for number, row in reviews()
        ]
        csv.writer(file).writerows(rows)
    with (folder / "watched.jsonl").open("a") as file:
        for number, row in reviews():
            looks = [100 * (place + number) % 700 for place in range(len(row["tokens"]))]
            file.write(
                json.dumps(
                    {"review": row["text"], "stars": (1, 5)[row["label"]], "milliseconds": looks}
                )
                + "\n"
            )
    connection = sqlite3.connect(folder / "stays.db")
    connection.execute("create table stays (review text, stars integer)")
    connection.executemany("insert into stays values (?, ?)", [*rows, ("neither", 3)])
    connection.commit()
    connection.close()
    # what `pip install` makes of pyproject.toml
    project = tomllib.loads(FILES["pyproject.toml"])["project"]
    information = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(
        f"Name: {project['name']}\nVersion: {project['version']}\n"
    )
    groups = [
        f"[{group}]\n" + "".join(f"{name} = {place}\n" for name, place in entries.items())
        for group, entries in project["entry-points"].items()
    ]
    (information / "entry_points.txt").write_text("\n".join(groups))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        patch.chdir(folder)
        registry.readings.cache_clear()
        yield folder
    for name in [name for name in sys.modules if name.split(".")[0] in FOREIGN]:
        del sys.modules[name]
    registry.readings.cache_clear()
