"""One result: who failed first, why, what was saved, how to resume."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from srl.core.errors import UserError
from srl.core.types import Waiting
from srl.observe.result import EXIT_CODES, Failure, RunResult

KILLED = Failure(
    worker="actor/7",
    at=761.0,
    exit_code=-9,
    log="runs/x/logs/actor-7.log",
    tail=tuple(f"line {number}" for number in range(30)),
    rss=3_100_000_000,
    host_free=200_000_000,
    out_of_memory=True,
    last_step=41_203,
    policy="workers.actor.on_failure=stop -> stopping",
)
LATER = Failure(worker="trainer/0", at=762.5, exit_code=1)


def test_a_killed_worker_word_for_word() -> None:
    result = RunResult(
        kind="worker failure",
        failures=(LATER, KILLED),
        run="runs/x",
        checkpoint="step_000400000",
    )
    assert result.format().splitlines() == [
        "error[R01]: actor/7 died (signal 9) 00:12:41 after start; last step 41,203",
        "  cause: kernel OOM killer (rss 3.1 GB; host free 0.2 GB)   logs: runs/x/logs/actor-7.log (last 20 lines below)",
        "  then: trainer/0 failed after it",
        "  policy: workers.actor.on_failure=stop -> stopping; checkpoint step_000400000 is complete",
        "  next: python -m srl.launch --resume runs/x",
        *[f"  | line {number}" for number in range(10, 30)],
    ]
    assert result.exit_code == 3


def test_a_worker_that_raised_shows_its_traceback() -> None:
    program = "def step():\n    raise ValueError('box is empty')\nstep()"
    ended = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    failure = Failure(worker="actor/0", at=1.0, exit_code=ended.returncode, error=ended.stderr, tail=("unrelated",), log="a.log")
    text = RunResult(kind="worker failure", failures=(failure,), run="runs/x").format()
    assert text.startswith(
        "error[R01]: actor/0 raised ValueError 00:00:01 after start\n  cause: ValueError: box is empty   logs: a.log\n"
    )
    assert "  policy: no checkpoint was written\n" in text
    assert "  | Traceback (most recent call last):\n" in text and text.endswith("  | ValueError: box is empty")
    assert "next:" not in text and "unrelated" not in text


@pytest.mark.parametrize(
    ("raised", "how", "cause"),
    [
        ("ValueError('boom: in env')", "raised ValueError", "ValueError: boom: in env; in env 'X.py:Raises' (actor/0, env 0)"),
        ("OSError()", "raised OSError", "OSError; in env 'X.py:Raises' (actor/0, env 0)"),
        (
            "RuntimeError('no kernel\\nfor debugging set this\\n  or that')",
            "raised RuntimeError",
            "RuntimeError: no kernel; in env 'X.py:Raises' (actor/0, env 0)",
        ),
    ],
)
def test_the_cause_is_what_was_raised_and_the_note_on_it_says_where(raised: str, how: str, cause: str) -> None:
    program = f"""
try:
    raise {raised}
except Exception as problem:
    problem.add_note("in env 'X.py:Raises' (actor/0, env 0)")
    raise
"""
    ended = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    failure = Failure(worker="actor/0", at=1.0, exit_code=ended.returncode, error=ended.stderr)
    assert (failure.how, failure.cause) == (how, cause)


def test_an_error_of_our_own_is_named_by_its_headline() -> None:
    failure = Failure(worker="actor/0", at=1.0, error="error[E05]: env 'X' returned nonsense\n  key: obs")
    assert failure.cause == "error[E05]: env 'X' returned nonsense"


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL, signal.SIGTERM])
def test_the_cause_of_a_real_death_is_named(number: signal.Signals) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import os, sys; os.kill(os.getpid(), int(sys.argv[1]))", str(number.value)])
    failure = Failure(worker="actor/0", at=0.0, exit_code=child.wait())
    words = {
        signal.SIGSEGV: "crash in native code (SIGSEGV)",
        signal.SIGKILL: "killed from outside (SIGKILL)",
        signal.SIGTERM: "ended by SIGTERM",
    }
    assert failure.how == f"died (signal {number.value})"
    assert failure.cause == words[number]


@pytest.mark.parametrize(
    ("rss", "free", "counted", "cause"),
    [
        (60_000_000, 20_000_000_000, False, "killed from outside (SIGKILL) (rss 60 MB; host free 20.0 GB)"),
        (60_000_000, 20_000_000_000, True, "killed from outside (SIGKILL) (rss 60 MB; host free 20.0 GB)"),
        (3_100_000_000, 3_200_000_000, True, "kernel OOM killer (rss 3.1 GB; host free 3.2 GB)"),
        (
            3_100_000_000,
            3_200_000_000,
            False,
            "killed from outside (SIGKILL); memory was short: probably the kernel's OOM killer (rss 3.1 GB; host free 3.2 GB)",
        ),
        (0, None, False, "killed from outside (SIGKILL)"),
    ],
)
def test_the_oom_killer_is_named_only_where_memory_was_short(rss: int, free: int | None, counted: bool, cause: str) -> None:
    assert Failure(worker="a/0", at=0.0, exit_code=-9, rss=rss, host_free=free, out_of_memory=counted).cause == cause


def test_a_real_time_signal_without_a_name_is_still_told() -> None:
    assert Failure(worker="a/0", at=0.0, exit_code=-37).cause == "ended by signal 37"


def test_a_worker_that_exits_is_told_with_its_code_if_it_has_one() -> None:
    assert Failure(worker="a/0", at=0.0, exit_code=3).how == "exited with code 3"
    assert Failure(worker="a/0", at=0.0).how == "exited without an error message"


def test_a_good_end_names_checkpoint_and_next_steps() -> None:
    result = RunResult(
        kind="solved",
        headline="return 480.1 >= 475 after 118,784 env steps in 00:00:31",
        run="runs/cartpole/a",
        checkpoint="step_000118784",
        summary=(("ledger", "samples: 58 put = 58 taken + 0 in flight"),),
    )
    assert result.format().splitlines() == [
        "solved      return 480.1 >= 475 after 118,784 env steps in 00:00:31",
        "ledger      samples: 58 put = 58 taken + 0 in flight",
        "checkpoint  runs/cartpole/a/checkpoints/step_000118784",
        "resume      python -m srl.launch --resume runs/cartpole/a",
        "watch       python -m srl watch runs/cartpole/a",
    ]


def test_an_interrupted_run_says_how_to_resume() -> None:
    text = RunResult(kind="interrupted", headline="Ctrl-C after 00:01:00", run="runs/x", checkpoint="step_000000100").format()
    assert text.startswith("interrupted  Ctrl-C after 00:01:00\n")
    assert "resume       python -m srl.launch --resume runs/x" in text


def test_a_stall_says_who_waits_for_what() -> None:
    waits = {"trainer/0": [Waiting("slabs", ("actor/0", "actor/1"))]}
    result = RunResult(
        kind="stalled",
        headline="no env step for 60 s",
        run="r",
        checkpoint="step_000000001",
        waits=waits,
    )
    assert result.format().splitlines() == [
        "error[R02]: no env step for 60 s",
        "  trainer/0: waits for slabs from actor/0, actor/1",
        "  next: python -m srl.launch --resume r",
    ]


def test_a_user_error_is_shown_as_it_is() -> None:
    error = UserError("'trainer' has no setting 'batch_sise'", ("from", "my.yaml:14:3"), code="E02")
    result = RunResult(kind="user error", error=error)
    assert result.format() == error.format()
    assert result.exit_code == error.exit_code == 2


def test_every_kind_has_the_exit_code_of_the_manual() -> None:
    assert EXIT_CODES == {
        "done": 0,
        "submitted": 0,
        "solved": 0,
        "user error": 2,
        "worker failure": 3,
        "stalled": 4,
        "preempted": 75,
        "interrupted": 130,
    }
