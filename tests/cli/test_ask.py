import io
import json
import os
import pty
import select
import shutil
import signal
import sqlite3
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from relpref.ask import Loop
from relpref.ask.terminal import Keys
from relpref.cli import main
from relpref.errors import InferenceError
from relpref.explore import ExpectedGain
from relpref.infer import Result, UtilityPosterior


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, write_tables: Any, held: str) -> Path:
    """Tables and a run whose hyperparameters are held, so that an answer is learned at once."""
    folder = tmp_path_factory.mktemp("held")
    write_tables(folder / "tables")
    fit = f"fit --folder {folder}/tables --out {folder}/run --quiet {held}"
    assert main(fit.split()) == 0
    return folder


@pytest.fixture
def typed(place: Path, ask: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Ask about the run with lines as if they were typed."""

    def run(lines: str, options: str = "") -> str:
        monkeypatch.setattr(
            sys, "stdin", io.StringIO("".join(f"{line}\n" for line in lines.split()))
        )
        return str(ask(f"ask run --score variance {options}"))  # which needs no compilation

    return run


@pytest.fixture
def unrefined(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out what takes seconds and is tested once: the refinement in the background."""
    monkeypatch.setattr(Loop, "refine", lambda _: False)


def events(place: Path, columns: str = "kind") -> list[Any]:
    with sqlite3.connect(place / "run" / "answers.sqlite") as connection:
        found = connection.execute(
            f"SELECT {columns} FROM event WHERE question IS NOT NULL OR withdrawn"
        ).fetchall()
    connection.close()
    return [row[0] if len(row) == 1 else row for row in found]


@pytest.mark.usefixtures("unrefined")
def test_answers_are_asked_for_kept_and_published(typed: Any, place: Path) -> None:
    said = typed("a b t s u why r nonsense q")
    assert events(place) == ["answer", "answer", "answer", "skip", "withdrawal"]
    assert "3 answers given now, all kept in run/answers.sqlite: try relpref rank run" in said
    assert "Question 4 for me: 3 answered, 1 skipped" not in said  # the skip was undone before
    assert "That means nothing here" in said and "●" in said
    again = typed("")
    assert "Question 4 for me: 3 answered" in again and "from now on" not in again


@pytest.mark.usefixtures("unrefined")
def test_it_stops_after_so_many_answers(typed: Any, place: Path) -> None:
    options = "--answers 2 --rater ann --no-ties --items 'tea,\"coffee\",007'"
    said = typed("a a a a", options)
    assert "2 answers given now" in said and "equally good" not in said
    assert events(place, "rater") == ['"ann"', '"ann"']


@pytest.mark.usefixtures("unrefined")
def test_the_end_of_what_can_be_asked(typed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    progress = Loop.progress
    monkeypatch.setattr(
        Loop,
        "progress",
        lambda *about: replace(progress(*about), worth=ExpectedGain(10, 0.3, 0.25)),
    )
    said = typed("a a r", "--items water,NA")
    assert "1 answer given now" in said
    end = said[said.index("No new pair is left.") :]
    assert "u undo   r ranking   q quit" in end and "That means nothing here" in end and "●" in end
    assert "in the wrong order; 10 more answers" in said and "in the wrong order" not in end
    again = typed("u b u u u q", "--items water,NA")
    assert again.count("No new pair is left.") == 2
    assert "1 answer taken back now" in again


@pytest.mark.usefixtures("unrefined")
def test_what_is_shown_is_kept_and_cannot_act_on_the_terminal(
    typed: Any, refused: Any, place: Path
) -> None:
    text = "\x1b[2Jclear \u202egnirts " + "long " * 2000
    (place / "items.csv").write_text(
        f'name,text,image,link,colour\ntea,"{text}",../../etc/passwd,https://x.org/a,\x07red\ncoffee,black,,,\n'
    )
    said = typed("q", "--show items.csv --items tea,coffee --repeats 9")
    assert "\\x1b[2Jclear \\u202egnirts" in said and "colour  \\x07red" in said
    assert not any(char in said for char in "\x1b\u202e\x07") and "passwd" not in said
    assert "black" in said and "https://x.org/a" in said and len(said) < 3000
    assert typed("q") == said.split("\n", 1)[1]
    (place / "wide.csv").write_bytes("name,text\ntea,warm\n".encode("utf-16-le"))
    assert "warm" in typed("q", "--show wide.csv --encoding utf-16-le --items tea,coffee")
    (place / "items.csv").write_text("name,text\nteas,hot\n")
    said = refused("ask run --score variance --show items.csv")
    assert "items.csv, line 2" in said and "nearest: 'tea'" in said


@pytest.mark.usefixtures("unrefined")
def test_answers_go_out_and_come_in_as_a_table(
    typed: Any, ask: Any, refused: Any, place: Path
) -> None:
    typed("a t", "--rater ann")
    assert ask("ask run --export all.csv") == "Written to all.csv: 12 answers\n"
    assert (place / "all.csv").read_text().splitlines()[
        0
    ] == "winner,loser,count,tie,rater,shown_first"
    refused("ask run --import all.csv")
    (place / "more.csv").write_text("first,second,winner,rater\ntea,NA,NA,ben\n")
    said = ask("ask run --import more.csv")
    assert said == "Added to run/answers.sqlite: 1 answer of more.csv\n"
    (place / "wide.csv").write_bytes("winner,loser,rater\ntea,NA,µ\n".encode("utf-16-le"))
    assert "--encoding utf-16-le" in refused("ask run --import wide.csv")
    ask("ask run --import wide.csv --encoding utf-16-le")
    (place / "bad.csv").write_text("winner,loser\ntea,coffe\n")
    assert "bad.csv, line 2" in refused("ask run --import bad.csv")
    refused("ask run --export table.txt")


@pytest.mark.usefixtures("unrefined")
def test_a_run_of_a_table_with_blank_winners_reads_as_before(
    ask: Any, refused: Any, place: Path
) -> None:
    """An earlier version took a blank winner for a tie; the copy of such a table is in its runs."""
    copy, record = place / "run" / "data" / "comparisons.csv", place / "run" / "run.json"
    copy.write_text("first,second,winner\ntea,coffee,tea\nwater,tea,\n")
    known = json.loads(record.read_text())
    for table in known["tables"]:
        if table["file"] == "data/comparisons.csv":
            table["sha256"] = sha256(copy.read_bytes()).hexdigest()
    record.write_text(json.dumps(known))
    ask("rank run")
    ask("ask run --export all.csv")
    assert "comparisons.csv, line 3, column 'winner': the winner is blank" in refused(
        "fit --folder run/data --out again"
    )


@pytest.mark.slow
def test_who_has_no_copy_of_damaged_answers_can_go_on(
    typed: Any, ask: Any, refused: Any, place: Path
) -> None:
    typed("a b")
    store = place / "run" / "answers.sqlite"
    store.write_bytes(store.read_bytes()[:4096])
    assert "out of the folder and try again" in refused("ask run")
    for file in place.glob("run/answers.sqlite*"):
        file.rename(place / file.name)
    for command in ("ask run", "rank run", "ask run --import tables/comparisons.csv"):
        assert "relpref ask run --export answers.csv" in refused(command) and not store.exists()
    said = ask("ask run --export answers.csv")
    assert "is gone or empty. Written to answers.csv: the 12 answers" in said
    said = ask("fit --items run/data/entities.csv --answers answers.csv --out new")
    refused("ask run --score variance --answers 1")
    ask("ask new --export again.csv")
    assert (place / "again.csv").read_text() == (place / "answers.csv").read_text()


@pytest.mark.usefixtures("unrefined")
def test_a_damaged_log_is_named_and_what_is_left_is_written(
    typed: Any, ask: Any, refused: Any, place: Path
) -> None:
    with closing(sqlite3.connect(place / "run" / "answers.sqlite")) as reader:
        typed("a q")
        reader.execute(
            "SELECT count(*) FROM event"
        ).fetchall()  # the log stays while somebody reads
        for _ in range(3):
            typed("b q")
        shutil.copytree(place / "run", place / "copy", ignore=shutil.ignore_patterns("*-shm"))
        ask("ask run --export all.csv")
    log = place / "copy" / "answers.sqlite-wal"
    content = bytearray(log.read_bytes())
    content[-1] ^= 1
    log.write_bytes(content)
    for command in ("rank copy", "ask copy", "ask copy --import all.csv"):
        said = refused(command)
        assert "the last 1 of " in said and "ask copy --export answers.csv" in said
    said = ask("ask copy --export left.csv")
    assert "The last 1 of " in said
    # The last change was a question.
    assert (place / "left.csv").read_text() == (place / "all.csv").read_text()


@pytest.mark.usefixtures("unrefined")
def test_a_run_with_answers_is_not_replaced(typed: Any, refused: Any, place: Path) -> None:
    typed("a")
    said = refused("fit --folder tables --out run --force --quiet")
    assert "people's answers are in it" in said and "--export comparisons.csv" in said
    assert events(place) == ["answer"]


def test_answers_are_published_and_count_before(
    typed: Any, ask: Any, invoke: Any, place: Path
) -> None:
    shutil.copytree(place / "run", place / "before")
    first = ask("prefer run tea water")
    typed("a a b")
    published = ask("prefer run tea water")
    assert published != first
    for file in ("run.json", "posterior.nc"):  # as if it had been killed before it published
        shutil.copy(place / "before" / file, place / "run" / file)
    said = invoke("prefer run tea water")
    assert "3 answers are newer than the posterior in run" in said.err
    assert said.out == published
    assert "3 answers are newer" in invoke("rank run").err


@pytest.mark.usefixtures("unrefined")
def test_an_interrupt_keeps_everything_and_says_so(
    invoke: Any, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted(io.StringIO):
        def readline(self, *_: Any) -> str:  # type: ignore[override]
            line = super().readline()
            if not line:
                raise KeyboardInterrupt
            return line

    monkeypatch.setattr(sys, "stdin", Interrupted("a\nb\n"))
    said = invoke("ask run --score variance")
    assert said.code == 130
    assert "interrupted; 2 answers given now, all kept in run/answers.sqlite" in said.err
    assert events(place) == ["answer", "answer"]


@pytest.mark.usefixtures("unrefined")
def test_asking_goes_on_where_nothing_can_be_learnt(
    typed: Any, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise InferenceError("diverged", Result.diverged)

    monkeypatch.setattr(UtilityPosterior, "update", fail)
    said = typed("a b u a q")
    assert "2 answers given now" in said
    assert said.count("the ranking does not know the last ones yet: diverged") == 4
    assert events(place) == ["answer", "answer", "withdrawal", "answer"]


@pytest.mark.usefixtures("unrefined")
def test_a_page_without_its_packages(
    refused: Any, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without(name: str) -> Any:
        raise ImportError("No module named 'starlette'", name="starlette")

    monkeypatch.setattr("relpref.cli.ask.import_module", without)
    assert "pip install 'relpref[web]'" in refused("ask run --web")
    assert not (place / "run" / "answers.sqlite").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--score cleverest", "cleverest"),
        ("--items tea,cofee", "cofee"),
        ("--max-wrong 2", "max_wrong"),
        ("--rater ''", "rater"),
        (f"--rater {'x' * 81} --web", "1 to 80 characters"),
        ("--answers 0", "less than 1"),
        ("--export a.csv --web", "not allowed with"),
        ("--answers 3 --web", "--answers ends a session in the terminal"),
        ("--port 8000", "add --web"),
    ],
)
@pytest.mark.usefixtures("unrefined")
def test_what_cannot_be_used_is_named(place: Path, invoke: Any, arguments: str, words: str) -> None:
    said = invoke(f"ask run {arguments}")
    assert said.code == 2 and words in said.err and "Traceback" not in said.err
    assert not said.out or "rater" not in words


def test_files_that_are_not_to_be_used_are_named(place: Path, refused: Any) -> None:
    (place / "run" / "answers.sqlite").write_bytes(b"winner,loser\n" * 99)
    for command in ("ask run", "rank run", "prefer run tea water"):
        assert "run/answers.sqlite: this is no file of answers" in refused(command)
    record = place / "run" / "run.json"
    record.write_text(record.read_text().replace('"relpref_run": 1', '"relpref_run": 2'))
    assert "pip install --upgrade relpref" in refused("ask run")


@pytest.mark.usefixtures("unrefined")
def test_single_keys_on_a_terminal(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, program = pty.openpty()
    monkeypatch.setenv("COLUMNS", "100")
    seen: list[bytes] = []

    def person() -> None:
        """Presses a key whenever a question is on the screen."""
        for key in (b"\x1b[D", b"\x1bOC", b"\x1b[B", b"s", b"u", b"q"):
            drawn = b""
            while b"q quit" not in drawn:
                drawn += os.read(terminal, 4096)
            seen.append(drawn)
            os.write(terminal, key)
        while b"given now" not in drawn:
            drawn += os.read(terminal, 4096)

    watching = threading.Thread(target=person, daemon=True)
    watching.start()
    with (
        open(program, encoding="utf-8") as keys,
        open(os.dup(program), "w", encoding="utf-8") as screen,
    ):
        monkeypatch.setattr(sys, "stdin", keys)
        monkeypatch.setattr(sys, "stdout", screen)
        assert main(["ask", "run", "--score", "variance"]) == 0
        watching.join(30)
    os.close(terminal)
    assert events(place) == ["answer", "answer", "answer", "skip", "withdrawal"]
    outcomes = events(place, "(SELECT left FROM question WHERE id = question) = winner, tie")
    assert outcomes[:3] == [(1, 0), (0, 0), (outcomes[2][0], 1)]
    assert all(b"\x1b[H\x1b[2J" in drawn for drawn in seen)
    assert "●".encode() not in b"".join(seen)  # the ranking may influence the answers


KEYS = """
import signal
from relpref.ask.terminal import Keys
for number in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)  # who runs the tests may ignore them, as nohup does
keys = Keys()
with keys.listening():
    print("listening", flush=True)
    print(keys.next(), flush=True)
    keys.next()
"""


@pytest.mark.parametrize(
    ("pressed", "meaning"),
    [
        (b"\x1b[B", "tie"),
        (b"\x1bOC", "right"),
        (b"\x1b[1;5B", None),
        (b"\x1b[[B", None),
        (b"\x1bb", None),  # Alt-b
        (b"\x1b", None),
        (b"\xc3\xa4", None),
        (b"B", "right"),
        (b"sab", "skip"),  # pasted
        (b"\x0c", "redraw"),
        (b"\x04", "quit"),
    ],
)
def test_keys(monkeypatch: pytest.MonkeyPatch, pressed: bytes, meaning: str | None) -> None:
    """Letters after the first key are no answers, nor are keys that came before the question."""
    terminal, program = pty.openpty()
    with open(program, encoding="utf-8") as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        keys = Keys()
        with keys.listening():
            os.write(terminal, pressed)
            assert keys.next() == meaning
            os.write(terminal, b"xyz\x1b[B")
            while not select.select([stdin], [], [], 0)[0]:
                pass
            keys.forget()
            os.write(terminal, b"s")
            assert keys.next() == "skip"
    os.close(terminal)


@pytest.fixture
def listening() -> Iterator[Any]:
    """A process that reads keys, its terminal, and the terminal's modes before, which come back."""
    terminal, program = pty.openpty()
    cooked = termios.tcgetattr(program)
    with subprocess.Popen(
        [sys.executable, "-c", KEYS],
        stdin=program,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.getcwd()},
    ) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == b"listening\n"
            yield process, program, cooked
        finally:
            process.kill()
    assert termios.tcgetattr(program) == cooked
    os.close(terminal)
    os.close(program)


def test_stopped_and_gone_on(listening: Any) -> None:
    process, program, cooked = listening
    modes = termios.tcgetattr(program)
    process.send_signal(signal.SIGSTOP)
    os.waitpid(process.pid, os.WUNTRACED)
    termios.tcsetattr(program, termios.TCSANOW, cooked)  # as the shell does
    process.send_signal(signal.SIGCONT)
    assert process.stdout.readline() == b"redraw\n"
    assert termios.tcgetattr(program) == modes != cooked
    process.terminate()
    process.wait(30)


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGHUP])
def test_a_terminal_is_left_as_it_was(listening: Any, end: signal.Signals) -> None:
    process, program, cooked = listening
    assert termios.tcgetattr(program) != cooked
    process.send_signal(end)
    assert process.wait(30) == -end


SLOW = """
import signal, sys, time
from relpref.cli import main
from relpref.ask import Loop
signal.signal(signal.SIGINT, signal.default_int_handler)
Loop.refine = lambda loop: time.sleep(60)
sys.exit(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize("page", [False, True])
def test_a_second_interrupt_leaves_the_ranking_as_it_is(
    place: Path, invoke: Any, page: bool
) -> None:
    if page:
        pytest.importorskip("uvicorn")
    with subprocess.Popen(
        [sys.executable, "-c", SLOW, "ask", "run", "--score", "variance", *["--web"] * page],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
    ) as process:
        assert process.stdin and process.stdout and process.stderr
        shown = until("Answer at" if page else "Question 1", process.stdout)
        if page:
            urlopen(shown.split()[-1]).close()  # it has begun, then
        else:
            process.stdin.write("a\n")
            process.stdin.flush()
            until("Question 2", process.stdout)
        process.send_signal(signal.SIGINT)
        until("Ctrl-C leaves that to the next command", process.stdout)
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130 and time.monotonic() - began < 5
        said = process.stderr.read()
    assert said.startswith("relpref: interrupted; ") and said.count("\n") == 1
    assert "kept in run/answers.sqlite; the next command brings the ranking up to date" in said
    assert page or events(place) == ["answer"]
    assert page or "1 answer is newer than the posterior in run" in invoke("rank run").err


def until(words: str, lines: Any) -> str:
    for line in lines:
        if words in line:
            return str(line)
    raise AssertionError(f"it ended without saying {words!r}")


@pytest.mark.usefixtures("unrefined")
def test_questions_show_the_users_cells_in_the_users_words(typed: Any, place: Path) -> None:
    """Cells are those of the table of items; words are kept for the next questions."""
    table = place / "run/data/entities.csv"
    head, *rows = table.read_text().splitlines()
    rows = [f"{head},Röster", *[f"{row},Kaffeemühle" for row in rows]]
    table.write_text("\n".join(rows), encoding="utf-8")
    said = typed("a q", "--items tea,NA --item-word drink --answer-word entry/entries")
    assert "Which of the two drinks do you prefer?" in said
    assert "Röster  Kaffeemühle" in said and "1 entry given now" in said
    assert "0 entries given now" in typed("q")
    table.write_text("no,table\n,")
    assert "size" in typed("q")  # the attributes that the run knows
