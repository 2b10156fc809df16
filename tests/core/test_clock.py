import io
import subprocess
import sys
import threading
from pathlib import Path
from time import monotonic

import pytest

from attnprobe.core import clock as module
from attnprobe.core.clock import Clock, TimeIsUp
from tests.invented_time import InventedTime


@pytest.fixture
def time():
    return InventedTime(1000.0)


@pytest.fixture
def clock(time):
    return Clock(now=time)


def test_a_line_says_phase_what_is_done_and_what_is_left(clock, time):
    with clock.phases("audit", 3):
        with clock.step("read the data"):
            time.passes(20)
        with clock.step("train the model", 8, "epochs") as step:
            time.passes(60)
            step.done = 2
            line = clock.line()
    assert line == "[ 1:20] 2 of 3 train the model 2/8 epochs; 3 min left of this"


def test_no_phase_is_beyond_the_last_and_one_that_was_not_planned_counts(clock):
    with clock.phases("", 1):
        with clock.step("train"):
            assert clock.line() == "[ 0:00] 1 of 1 train"
        assert clock.line() == "[ 0:00] 1 of 1 at work"
        with clock.step("decide"):
            assert clock.line() == "[ 0:00] 2 of 2 decide"


def test_the_first_command_of_a_process_began_with_it(clock, time, monkeypatch):
    monkeypatch.setattr(module, "seconds_of_process", lambda: 7.0)
    clock.begin_with_process()
    with clock.command(), clock.limited(10):
        assert clock.elapsed == 7
        time.passes(2)
        assert clock.remaining == 1
    with clock.command():
        assert clock.elapsed == 0


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux says it")
def test_a_process_knows_for_how_long_it_has_run():
    program = (
        "import time; time.sleep(0.3); from attnprobe.core import clock; "
        "print(clock.seconds_of_process())"
    )
    before = monotonic()
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    # in ticks of a hundredth
    assert 0.28 < float(ended.stdout) <= monotonic() - before + 0.02


def test_where_the_system_does_not_say_it_nothing_is_added(monkeypatch):
    monkeypatch.setattr(module, "Path", lambda name: Path("/nowhere"))
    assert module.seconds_of_process() == 0


def test_a_step_without_a_title_is_its_count(clock):
    batch = clock.step("", 9, "of this batch")
    with clock.phases("sweep"), clock.step("swaps", 64, "texts"), batch:
        assert clock.place == "swaps 0/64 texts, 0/9 of this batch"
    with clock.phases("sweep"), clock.step("", 4, "jobs"):
        assert clock.line() == "[ 0:00] 0/4 jobs"


def test_the_time_left_counts_what_is_done_within_a_part(clock, time):
    with clock.step("test", 1000, "words") as test:
        test.part = 500
        with clock.step("search", 100, "steps") as search:
            time.passes(10)
            search.done = 50
            # half of half of it took 10 s
            assert clock._left(clock.steps) == pytest.approx(30)


def test_planned_phases_take_longer_where_the_finished_ones_did(clock, time):
    with clock.phases("audit"):
        with clock.step("plan"):
            time.passes(7)
        clock.plan([10, 20, 30])
        with clock.step("seed 0"):
            time.passes(25)
        assert clock.slower == pytest.approx(2.5)
        with clock.step("seed 1"):
            time.passes(5)
            assert clock._left(clock.steps) == pytest.approx(2.5 * 20 - 5 + 2.5 * 30)
            assert clock.line() == "[ 0:37] 3 of 4 seed 1; 2 min left"


def test_the_limit_ends_whatever_is_worked_on_and_no_more(clock, time):
    done = []

    def work():
        with clock.phases("audit", 2), clock.limited(65):
            for number in clock.track(range(9), "read", "rows"):
                time.passes(10 if number else 20)
                done.append(number)

    with pytest.raises(TimeIsUp, match="time was up after 1:10, at: read 6/9 rows"):
        work()
    assert done == [0, 1, 2, 3, 4, 5]
    assert clock.deadline is None
    assert not clock.steps
    assert list(clock.track(range(3), "again")) == [0, 1, 2]


def test_a_step_that_begins_too_late_is_named(clock, time):
    with clock.phases("audit"), clock.limited(5):
        time.passes(6)
        with pytest.raises(TimeIsUp, match="time was up after 0:06, at: base, seed 0"):
            clock.step("base, seed 0").__enter__()
        assert clock.place == "audit"


def test_no_limit_and_no_command_is_no_hindrance(clock):
    assert clock.remaining == float("inf")
    with clock.limited(None):
        assert list(clock.track(iter("abc"), "letters")) == ["a", "b", "c"]
    assert clock.line() == "[ 0:00] at work"


def test_a_line_is_never_wider_than_asked_and_shows_no_control_character(clock, time):
    with clock.phases("", 12), clock.step("naïve\r\x1b[2Jfile " * 9, 1000, "texts") as step:
        time.passes(4000)
        step.done = 999
        for width in (60, 80, 200):
            line = clock.line(width)
            assert len(line) <= width
            assert line.isprintable()
            assert line.startswith("[1:06:40] 1 of 12 ")
            assert line.endswith("; 10 s left of this")


def test_a_line_that_is_too_long_leaves_out_whole_parts_and_words(clock, time):
    steps = (
        clock.step("test", 27, "batches"),
        clock.step("self-explaining probes", 14, "probes"),
        clock.step("", 64, "of this batch"),
    )
    with clock.phases("", 6), steps[0], steps[1], steps[2]:
        words = f"{clock.place}, …".replace(",", " ").split()
        for width in range(20, 100):
            line = clock.line(width)
            assert len(line) <= width
            shown = line.removeprefix("[ 0:00] 1 of 6 ").replace(",", " ").split()
            assert set(shown) <= set(words), line
            is_whole = "…" not in line
            assert is_whole == (len(f"[ 0:00] 1 of 6 {clock.place}") <= width)
        assert clock.line(60) == "[ 0:00] 1 of 6 test 0/27 batches, …, 0/64 of this batch"
        assert clock.line(50) == "[ 0:00] 1 of 6 test 0/27 batches, …"


def test_without_a_terminal_there_are_plain_lines_at_least_every_interval(monkeypatch):
    monkeypatch.setattr(module, "FIRST_SECONDS", 0.0)
    monkeypatch.setattr(module, "EVERY_SECONDS", 0.0)
    clock = Clock()
    stream = io.StringIO()
    written = threading.Event()
    write = stream.write

    def count(text):
        if stream.getvalue().count("\n") >= 2:
            written.set()
        return write(text)

    stream.write = count
    with clock.showing(stream), clock.phases("", 2), clock.step("read", 5, "rows"):
        assert written.wait(60)
        with clock.showing(stream):  # one owner: the inner one shows nothing of its own
            pass
    lines = stream.getvalue().splitlines()
    assert len(lines) >= 2
    assert "\r" not in stream.getvalue()
    assert any("1 of 2 read 0/5 rows" in line for line in lines)


def test_short_work_shows_nothing_without_a_terminal():
    stream = io.StringIO()
    clock = Clock()
    with clock.showing(stream), clock.phases("", 1), clock.step("read"):
        pass
    assert stream.getvalue() == ""


def test_a_terminal_has_one_live_line_and_it_is_gone_at_the_end(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")  # a dumb one has none

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    stream = Terminal()
    clock = Clock()
    before = sys.stdout
    with clock.phases("", 2), clock.step("read", 5, "rows"), clock.showing(stream):
        pass
    assert "1 of 2 read 0/5 rows" in stream.getvalue()
    assert sys.stdout is before
