"""A relay passes on the newest version, to its host and to other relays, and never an older one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from srl.workers.relay import RelayArgs, RelayWorker
from tests.contracts.rig import Rig, params


def test_versions_reach_readers_behind_two_relays_in_order_and_none_goes_back() -> None:
    rig = Rig("curve")
    trainer, reader = rig.publisher(), rig.subscriber("policy/0")
    relays: list[Any] = []
    above = trainer
    for number in range(2):
        source, near, far = rig.subscriber(f"relay/{number}"), rig.publisher(f"near/{number}"), rig.publisher(f"far/{number}")
        rig.join([source], [above])
        ends = {"source": source, "near": near, "far": far}
        relays.append(RelayWorker(RelayArgs(), ends, cast(Any, SimpleNamespace())))
        above = far
    rig.join([reader], [relays[1].ends["near"]])
    seen = [-1]

    def sweep() -> bool:
        for relay in relays:
            relay.poll()
        if (found := reader.latest(seen[-1])) is not None:
            assert (found[1]["w"] == found[0]).all()
            seen.append(found[0])
        return seen[-1] == trainer._version

    for version in range(6):
        trainer.publish(version, params(version))
        if version % 2:  # every other one may be skipped
            rig.until(sweep)
    assert seen[-1] == 5 and seen == sorted(set(seen))
    assert relays[0].poll() == 0, "nothing is passed on twice"
    rig.close()
