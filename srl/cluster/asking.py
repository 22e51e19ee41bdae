"""Questions about a run from a machine that can reach its controller: a short call each, by TLS, with a token of their own."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import grpc
import msgpack

from srl.cluster.security import SERVER_NAME, write_private
from srl.cluster.wire import ASK, SERVICE, TOKEN
from srl.control.desk import Request, answer
from srl.core.errors import SrlError, UserError
from srl.core.load import dump, load
from srl.store.run_folder import RunFolder

_WITHIN = 10.0
"""Seconds for an answer."""


@dataclass(frozen=True, kw_only=True)
class Access:
    """How a run can be asked: the contents of `control.json`."""

    run: str
    """Its folder, for people."""
    address: str
    ca: str = field(repr=False)
    token: str = field(repr=False)

    def write(self, path: Path) -> None:
        """Readable by its owner only."""
        write_private(path, json.dumps(asdict(self)) + "\n")


def served(folder: Path, data: bytes) -> bytes:
    """The answer to a packed question, packed: what was found, or the error."""
    try:
        request = load(Request, msgpack.unpackb(data))
        found = {"found": answer(RunFolder(folder), request)}
    except SrlError as error:
        found = {"error": error.to_data()}
    except Exception:
        found = {"error": UserError("the request is not understood").to_data()}
    packed: bytes = msgpack.packb(found)
    return packed


def ask(access: Access, request: Request, address: str | None = None) -> dict[str, Any]:
    """Ask a run that is under way on another machine. `address`: the other end of a tunnel, for example."""
    secure = grpc.ssl_channel_credentials(access.ca.encode())
    options = [("grpc.ssl_target_name_override", SERVER_NAME), ("grpc.enable_http_proxy", 0)]
    try:
        with grpc.secure_channel(address or access.address, secure, options) as channel:
            call = channel.unary_unary(f"/{SERVICE}/{ASK}")
            reply = msgpack.unpackb(call(msgpack.packb(dump(request)), timeout=_WITHIN, metadata=[(TOKEN, access.token)]))
    except grpc.RpcError as error:
        raise _not_answered(access, address or access.address, error) from error
    if "error" in reply:
        raise SrlError.from_data(reply["error"])
    found: dict[str, Any] = reply["found"]
    return found


def _not_answered(access: Access, address: str, error: Any) -> UserError:
    if error.code() == grpc.StatusCode.UNAUTHENTICATED:
        return UserError(
            f"the run at {address} does not accept this token",
            ("because", "it is of an earlier start, or of another run"),
            ("try", f"the file control.json that is now in {access.run}"),
        )
    port = access.address.rpartition(":")[2]
    return UserError(
        f"the run at {address} does not answer",
        ("because", "it has ended, or this machine cannot reach it"),
        ("cause", str(error.details())[:200]),
        ("try", f"ssh -L {port}:{access.address} HOST, and --address 127.0.0.1:{port}"),
    )
