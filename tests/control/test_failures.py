"""The failure policy: which worker is named, restart or stop, limits, stalls. No process is started."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rig import graph, with_node

from srl.control.failures import Ending, Failures
from srl.control.members import Member, Members
from srl.core.errors import UserError
from srl.core.readings import Reading
from srl.observe.result import Failure
from srl.observe.totals import Totals
from srl.store.run_folder import RunFolder
from srl.workers.messages import Message, ProcessReport, WorkerReport

KILLED = {
    "type": "exit", "process": "counter/0", "code": -9, "log": ["last words"],
    "rss": 0, "free": 3_200_000_000, "out_of_memory": True,
}  # fmt: skip


class Deaths:
    """The failure policy of one graph, a clock that stands still, and deaths to decide on."""

    def __init__(self, work: Any, folder: RunFolder | None = None) -> None:
        self.now = 1000.0
        self.totals = Totals(work)
        self.failures = Failures(work, self.totals, folder, stall=60.0, clock=lambda: self.now)
        self.members = Members(work)

    def death(
        self, process: str = "counter/0", error: Exception | None = None, worker: str = "", **more: Any
    ) -> tuple[Member, Message]:
        member = self.members[process]
        if error is not None:
            data = error.to_data() if isinstance(error, UserError) else None
            trace = f"Traceback:\nValueError: {error}"
            member.failure = {"worker": worker or process, "error": data, "trace": trace, "counted": True}
        return member, {**KILLED, "process": process, **more}

    def after(self, seconds: int, phases: dict[str, str]) -> Ending | None:
        """Look once a second: what is said at the end of so many."""
        ending = None
        for _ in range(max(seconds, 1)):
            self.now += min(seconds, 1)
            ending = self.failures.silent(phases)
        return ending

    def dies(self, *args: Any, **more: Any) -> tuple[Failure, Ending | None]:
        return self.failures.died(*self.death(*args, **more))


def test_a_death_ends_a_run_that_says_stop_and_is_told_with_its_log(tmp_path: Path) -> None:
    deaths = Deaths(graph(), RunFolder.create(tmp_path, "rig", 1))
    failure, ending = deaths.dies(rss=3_100_000_000)
    assert ending == Ending("worker failure", "died (signal 9)", drain=False)
    assert (failure.worker, failure.exit_code, failure.tail) == ("counter/0", -9, ("last words",))
    assert failure.policy == "workers.counter.on_failure=stop -> stopping" and failure.log.endswith("counter-0.log")
    assert failure.cause == "kernel OOM killer (rss 3.1 GB; host free 3.2 GB)"  # its last report says what it held
    assert deaths.failures.result(ending).failures == (failure,)


def test_the_worker_that_raised_is_named_not_the_owner_of_its_process() -> None:
    deaths = Deaths(graph(inside=True))
    failure, _ = deaths.dies("adder/0", ValueError("lost count"), worker="counter/0")
    assert failure.worker == "counter/0" and failure.exit_code is None
    assert failure.how == "raised ValueError" and failure.cause == "ValueError: lost count"


def test_restarts_are_granted_up_to_their_limit_in_any_hour() -> None:
    deaths = Deaths(graph(on_failure="restart", restarts=2))
    for _ in range(2):
        failure, ending = deaths.dies()
        assert ending is None and failure.policy == "workers.counter.on_failure=restart -> restarting"
        deaths.now += 1000
    failure, refused = deaths.dies()
    assert refused is not None and refused.kind == "worker failure"
    assert failure.policy == "workers.counter.on_failure=restart, but restarts=2 an hour are used up -> stopping"
    assert deaths.totals.restarts == {"counter": 2}
    deaths.now += 1700  # the first is more than an hour ago
    assert deaths.dies()[1] is None


def test_workers_that_are_lost_at_the_same_moment_count_once() -> None:
    deaths = Deaths(graph(counters=4, on_failure="restart", restarts=2))
    for moment in (10.0, 20.0):
        assert [deaths.dies(f"counter/{i}", at=moment)[1] for i in range(4)] == [None] * 4
        deaths.now += 1000
    assert deaths.dies(at=30.0)[1] is not None
    assert deaths.totals.restarts == {"counter": 8}


def test_a_process_restarts_only_if_all_its_nodes_may_and_counts_for_all() -> None:
    work = graph(inside=True, on_failure="restart")
    deaths = Deaths(work)
    assert deaths.dies("adder/0")[1] is None and deaths.totals.restarts == {"counter": 1, "adder": 1}
    strict = Deaths(with_node(work, "counter", on_failure="stop"))
    assert strict.dies("adder/0")[0].policy == "workers.counter.on_failure=stop -> stopping"
    assert not strict.totals.restarts


def test_what_the_user_must_change_is_a_user_error_and_not_tried_again() -> None:
    deaths = Deaths(graph(on_failure="restart"))
    _, ending = deaths.dies(error=UserError("cannot count", ("try", "another")))
    assert ending is not None and ending.kind == "user error" and ending.error is not None
    result = deaths.failures.result(ending)
    assert result.exit_code == 2 and result.failures == () and "try: another" in result.format()


def test_inline_workers_are_never_restarted() -> None:
    deaths = Deaths(graph(mode="inline", on_failure="restart"))
    assert deaths.dies("counter/0")[0].policy == "mode=inline -> stopping"


@pytest.mark.parametrize("kind", ["done", "solved", "interrupted", "preempted"])
def test_a_death_at_the_end_spoils_a_good_end(kind: Any) -> None:
    deaths = Deaths(graph(on_failure="restart"))
    failure, ending = deaths.failures.died_at_the_end(*deaths.death(), Ending(kind, "1,000 env steps"))
    assert ending == Ending("worker failure", "during the end of the run: 1,000 env steps")
    assert not deaths.totals.restarts and failure.policy == "the run was ending -> stopping"


def test_a_death_after_a_failure_is_a_victim() -> None:
    deaths = Deaths(graph(counters=2))
    _, first = deaths.dies("counter/1")
    assert first is not None
    _, ending = deaths.failures.died_at_the_end(*deaths.death("counter/0"), first)
    assert ending is first
    assert "counter/0 failed after it" in deaths.failures.result(ending).format()


def test_silence_is_a_stall_and_names_who_is_late() -> None:
    deaths = Deaths(graph())
    phases = {"counter/0": "running", "adder/0": "made"}
    assert deaths.after(0, phases) is None
    assert deaths.after(60, phases) is None
    ending = deaths.after(1, phases)
    assert ending == Ending("stalled", "no progress for 60 seconds; not ready: adder/0", drain=False)
    assert deaths.failures.result(ending).exit_code == 4


def test_a_controller_that_was_stopped_itself_has_not_waited_meanwhile() -> None:
    deaths = Deaths(graph())
    phases = {"counter/0": "running", "adder/0": "running"}
    assert deaths.after(30, phases) is None
    deaths.now += 3600
    assert deaths.failures.silent(phases) is None
    assert deaths.after(20, phases) is None
    assert deaths.after(20, phases) is not None


def test_a_phase_a_report_or_a_restart_breaks_the_silence() -> None:
    deaths = Deaths(graph(on_failure="restart"))
    phases = {"counter/0": "running", "adder/0": "made"}
    assert deaths.after(59, phases) is None
    phases["adder/0"] = "running"
    assert deaths.after(59, phases) is None
    deaths.dies()
    assert deaths.after(59, phases) is None
    report = WorkerReport(Reading.from_plain({"env_steps": ["count", 5]}), 0.0, (), False, {})
    deaths.totals.take("counter/0", ProcessReport(1.0, 0.0, 1, {"counter/0": report}))
    assert deaths.after(59, phases) is None
    ending = deaths.after(3, phases)
    assert ending is not None and ending.text == "no progress for 60 seconds; all workers are alive"


def test_the_headline_counts_what_is_done_when_the_run_is_over() -> None:
    """Of two trainers the first one is finished before the second: what that one does after it is in the result too."""
    deaths = Deaths(graph())
    ending = Ending("done", "1 env steps, 0 updates", counted=True)
    reading = Reading.from_plain({"env_steps": ["count", 1000.0]})
    deaths.totals.take("counter/0", ProcessReport(1.0, 0.0, 1, {"counter/0": WorkerReport(reading, 0.0, (), True, {})}))
    assert deaths.failures.result(ending).headline == "1,000 env steps, 0 updates"


def test_processes_that_are_not_ready_are_listed_once(tmp_path: Path) -> None:
    deaths = Deaths(graph(counters=2), RunFolder.create(tmp_path, "rig", 1))
    for member in deaths.members.values():
        member.phase = "made"

    def told_after(seconds: int) -> str:
        deaths.after(seconds, deaths.members.phases)
        return deaths.failures.late(deaths.members)

    assert told_after(9) == ""
    told = told_after(2)
    assert told.startswith("waiting for counter/0 and 2 others to make envs") and told.endswith("counter-0.log)")
    assert told_after(20) == ""
    for name in ("counter/0", "counter/1"):
        deaths.members[name].phase = "ready"
    assert told_after(12).startswith("waiting for adder/0 to make envs")
    deaths.members["adder/0"].phase = "running"
    assert told_after(30) == ""
