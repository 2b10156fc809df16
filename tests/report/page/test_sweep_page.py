"""The report of a whole sweep, made by the command line and opened in a browser."""

import csv
import random

import pytest

from attnprobe.report.__main__ import main
from attnprobe.results.table import read_results
from attnprobe.running.run import run
from tests.report.page.conftest import until
from tests.report.page.test_page import choose_run, count, listed, put
from tests.runs import SMALL_ADVERSARY, composed, small_run

HOSTILE = "<script>window.hacked=1</script>"
ENCODERS, ATTENTIONS, SEEDS = ("lstm", "cnn", "average"), ("additive", "dot"), (1, 2)


@pytest.fixture
def hostile(tmp_path):
    """A file whose words and labels are markup."""
    draw, path = random.Random(0), tmp_path / "hostile.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"])
        for number in range(200):
            word, label = (("lovely", "good & fine"), ("awful", "<b>bad</b>"))[number % 2]
            words = [word, HOSTILE, "&amp;", *(f"w{draw.randrange(30)}" for _ in range(draw.randint(2, 9)))]
            writer.writerow([" ".join(draw.sample(words, len(words))), label])
    return path


@pytest.mark.slow
def test_the_report_of_two_data_sets_three_encoders_two_attentions_and_two_seeds(tmp_path, hostile, visit, capsys):
    own = ["data=files", f"data.path={hostile}", "data.name=hostile", "data.tokenizer=whitespace"]
    quick = ["data.embedding_size=12", "training.epochs=2", "trainer.accelerator=cpu", "figures=false"]
    for encoder in ENCODERS:
        for attention in ATTENTIONS:
            for seed in SEEDS:
                one = [f"model={encoder}", f"model/attention={attention}", f"seed={seed}", *SMALL_ADVERSARY]
                probes = "[permutation,adversarial]"
                run(small_run(tmp_path / "runs", *one, probes=probes))
                run(composed(*own, *quick, *one, f"probe={probes}", f"output={tmp_path / 'runs'}"))
    page = tmp_path / "report.html"
    main([str(tmp_path / "runs"), "-o", str(page)])
    assert f"report: {page}" in capsys.readouterr().out
    driver = visit(page)
    assert driver.get_log("browser") == []
    assert driver.execute_script("return document.querySelectorAll('details.card').length") == 12
    assert driver.execute_script("return document.querySelectorAll('.runs tbody tr').length") == 12
    for name in ("verdicts", "tests", "browser"):
        assert driver.execute_script("return document.getElementById(arguments[0])", name), name

    choose_run(driver, "hostile")
    until(driver, "return document.querySelector('#browser-list tbody button')")
    everything = count(driver)
    put(driver, "sort", "adversarial-optimum_jsd")
    sorted_by = "return document.getElementById('browser-by-measure').getAttribute('aria-sort') === 'descending'"
    assert until(driver, sorted_by)
    results = read_results(tmp_path / "runs", probe="adversarial")
    mine = results[(results["data"] == "hostile") & (results["metric"] == "optimum_jsd")]
    mine = mine.assign(value=-mine["value"].round(6))  # ties in the order of the examples
    each = [
        part.sort_values(["value", "example_id"])["example_id"] for _, part in mine.groupby("run_id", observed=True)
    ]
    assert listed(driver)[:5] in [part.iloc[:5].tolist() for part in each]
    put(driver, "query", "lovely")
    assert 0 < count(driver) < everything
    put(driver, "query", HOSTILE)
    assert count(driver) == everything
    assert driver.execute_script("return window.hacked") is None
    assert "<b>bad</b>" in driver.execute_script("return document.body.textContent")
    assert driver.execute_script("return document.querySelectorAll('main b b, #browser script').length") == 0
    assert driver.get_log("browser") == []
