"""Simulated supervisors attach and report as often as real ones. python benchmarks/attach.py [--hosts 480] [--workers 32]

Each is a call of its own with TLS and token, from processes of this machine; they share its cores with the controller.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import resource
import time
from typing import Any

import grpc

from srl.cluster.rpc import RemoteBackend
from srl.cluster.security import SERVER_NAME, Join, new_credentials
from srl.cluster.supervisor import _REPORTS, REPORT_EVERY
from srl.cluster.wire import KEEPALIVE, METHOD, SERVICE, TOKEN
from srl.core.readings import Reading
from srl.core.types import Counts
from srl.workers.messages import ProcessReport, WorkerReport, pack

_CLIENTS = 4
"""Processes that the supervisors live in."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=480)
    parser.add_argument("--workers", type=int, default=32, help="on each host, in its report")
    parser.add_argument("--seconds", type=float, default=10.0, help="of reports")
    given = parser.parse_args()
    before = resident()
    backend = RemoteBackend(given.hosts, lambda name: int(name.partition("/")[2]) // given.workers, credentials=new_credentials())
    fork = multiprocessing.get_context("spawn")
    every = REPORT_EVERY * max(1.0, given.hosts * given.workers / _REPORTS)
    start = fork.Barrier(_CLIENTS + 1)
    parts = [range(part, given.hosts, _CLIENTS) for part in range(_CLIENTS)]
    clients = [
        fork.Process(target=supervisors, args=(backend.join, part, given.workers, start, every), daemon=True) for part in parts
    ]
    for client in clients:
        client.start()
    start.wait()
    begun, used = time.perf_counter(), cpu()
    while not all(backend.has_joined(host) for host in range(given.hosts)):
        backend.poll(0.01)
    attached, attaching = time.perf_counter() - begun, cpu() - used
    while sum(1 for host in backend._hosts if host.call is not None) < given.hosts:
        backend.poll(0.01)
    begun, used, reports = time.perf_counter(), cpu(), 0
    while time.perf_counter() < begun + given.seconds:
        reports += sum(len(message["processes"]) for message in backend.poll(0.1) if message["type"] == "report")
    passed, spent = time.perf_counter() - begun, cpu() - used
    print(f"{given.hosts} hosts attached in {attached:.2f} s ({attaching:.2f} s of processor time of the controller)")
    print(f"{reports / passed:,.0f} reports of workers a second, each worker every {every:.1f} s, {spent / passed:.0%} of a core")
    print(f"{(resident() - before) / 1e6:.0f} MB more than before the first attached")
    for client in clients:
        client.terminate()
        client.join()
    backend.close()


def supervisors(join: Join, hosts: range, workers: int, start: Any, every: float) -> None:
    asyncio.run(attach_all(join, hosts, workers, start, every))


async def attach_all(join: Join, hosts: range, workers: int, start: Any, every: float) -> None:
    secure = grpc.ssl_channel_credentials(join.ca.encode())
    options = [*KEEPALIVE, ("grpc.ssl_target_name_override", SERVER_NAME), ("grpc.use_local_subchannel_pool", 1)]
    calls = [(host, grpc.aio.secure_channel(join.address, secure, [*options, ("srl.host", host)])) for host in hosts]
    await asyncio.to_thread(start.wait)
    await asyncio.gather(*(attach(join, host, channel, workers, every) for host, channel in calls))


async def attach(join: Join, host: int, channel: Any, workers: int, every: float) -> None:
    """One supervisor: hello, then reports."""
    call = channel.stream_stream(f"/{SERVICE}/{METHOD}")(metadata=[(TOKEN, join.token)])
    await call.write(pack({"type": "hello", "run": join.run, "host": host, "life": host + 1, "taken": 0}))
    await call.read()
    own = {f"actor/{number}": report(f"actor/{number}") for number in range(host * workers, (host + 1) * workers)}
    data = pack({"type": "report", "processes": own, "ack": 0})
    await asyncio.sleep(every * (host % 100) / 100)
    while True:
        await call.write(data)
        await asyncio.sleep(every)


def report(name: str) -> ProcessReport:
    """What an actor with its policy says of itself."""
    reading = Reading()
    for key in ("env_steps", "episodes", "infer/rows", "frames"):
        reading.count(key, 12345.0)
    for key in ("episode/return", "episode/length", "infer/batch"):
        reading.mean(key, 1.5)
    counts = {"samples:main": Counts(put=100, taken=0, released=99, bytes=10**9)}
    return ProcessReport(1.0, 2.0, 50 << 20, {name: WorkerReport(reading.flush(), 1.0, (), False, counts)})


def cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def resident() -> float:
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()


if __name__ == "__main__":
    main()
