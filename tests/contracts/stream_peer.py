"""A process of its own at the far end of a stream, to be killed: told what to be by JSON lines, says so the same way."""

from __future__ import annotations

import json
import sys
from typing import Any

from srl.core.spec import Leaf, from_plain
from srl.streams.base import StreamSpec
from srl.streams.open import open_end
from srl.streams.wakeup import Wakeup
from tests.contracts.rig import answer_to, fill, params, rows


def main() -> None:
    """Open the end, exchange addresses, then do what its side does until killed."""
    told = json.loads(sys.stdin.readline())
    spec = StreamSpec(
        name=told["kind"],
        kind=told["kind"],
        via=told["via"],
        record=from_plain(told["record"], [Leaf]),
        answer=from_plain(told["answer"], [Leaf]),
    )
    wakeup = Wakeup()
    end = open_end(spec, told["side"], name=told["name"], wakeup=wakeup, **told["sizes"])
    say({**end.address(), "key": ""})
    peer = json.loads(sys.stdin.readline())
    peer["key"] = b""
    end.attach(peer["name"], peer)
    step = {"producer": produce, "consumer": consume, "server": serve, "client": ask, "publisher": publish}[told["side"]]
    state: dict[str, Any] = {"number": 0, "incarnation": told["incarnation"]}
    while True:
        if not wakeup.deliver() + step(end, state):
            wakeup.wait(1.0)


def say(data: Any) -> None:
    print(json.dumps(data), flush=True)


def produce(end: Any, state: dict[str, Any]) -> int:
    slab = end.alloc()
    if slab is None:
        return 0
    fill(slab.tree, state["incarnation"], state["number"])
    state["number"] += 1
    end.put(slab)
    return 1


def consume(end: Any, state: dict[str, Any]) -> int:
    """Credit three at a time; take all, release every second one."""
    if not state["number"]:
        for number in range(3):
            end.credit(number, 0)
        state["number"] = 3
    loan = end.get()
    if loan is None:
        return 0
    if state["number"] % 2:
        loan.release()
    end.credit(state["number"], 0)
    state["number"] += 1
    return 1


def serve(end: Any, state: dict[str, Any]) -> int:
    asked = end.take(64, 1)
    if asked is None:
        return 0
    asked.reply(answer_to(asked.rows), 1)
    return 1


def ask(end: Any, state: dict[str, Any]) -> int:
    if state["number"] and end.ready(0) is None:
        return 0
    state["number"] += 1
    end.post(0, rows(2, state["number"]), 0)
    return 1


def publish(end: Any, state: dict[str, Any]) -> int:
    """As fast as it can: a reader that copies slowly must notice."""
    for _ in range(200):
        state["number"] += 1
        end.publish(((state["incarnation"] + 1) << 40) | state["number"], params(state["number"]))
    return 1


if __name__ == "__main__":
    main()
