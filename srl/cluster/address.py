"""The address of this host towards another one, and whether the other can be reached."""

from __future__ import annotations

import platform
import socket
import time

from srl.core.errors import UserError

_WITHIN = 5.0
"""Seconds to connect."""
_PAUSE = 1.0
_ANYWHERE = "192.0.2.1"
"""An address that no machine should have: packets to it would leave by the usual way."""


def address_towards(name: str, port: int = 9) -> str:
    """The address of this host on the way to another one, where that one and its neighbours can reach it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((name, port))  # sends nothing
        return str(probe.getsockname()[0])


def usual_address() -> str:
    """The address of this host that packets to anywhere have; UserError without a network."""
    try:
        return address_towards(_ANYWHERE)
    except OSError as error:
        raise UserError(
            "cannot find an address at which the hosts reach this machine",
            ("cause", error.strerror or str(error)),
            ("try", "launcher.address=10.0.0.1 (the address of this machine)"),
            path=("launcher", "address"),
        ) from error


def check_listen(address: str) -> None:
    """UserError if this host cannot listen at this address."""
    name, _, port = address.rpartition(":")
    try:
        socket.create_server((name, int(port))).close()
    except OSError as error:
        raise UserError(
            f"this machine cannot listen at {address}",
            ("cause", error.strerror or str(error)),
            ("try", "launcher.address=... with an address of this machine, launcher.port=0 for any free port"),
            path=("launcher",),
        ) from error


def check_reach(address: str, wait: float = 0.0) -> None:
    """UserError if nothing answers at the address of the controller, for `wait` seconds."""
    name, _, port = address.rpartition(":")
    until = time.monotonic() + wait
    try:
        while True:
            try:
                return socket.create_connection((name, int(port)), _WITHIN).close()
            except OSError:
                if time.monotonic() > until:
                    raise
            time.sleep(_PAUSE)
    except OSError as error:
        raise UserError(
            f"host {platform.node()} cannot reach the controller at {address}",
            ("cause", error.strerror or str(error)),
            ("try", "launcher.address=... with an address that this host can reach, launcher.port=... with a port that is open"),
        ) from error
