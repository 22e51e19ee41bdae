"""Tensors that cross between the two sides of an exact split learner: questions, answers, and gradients on the way back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgpack
import numpy as np
import torch
from torch import Tensor

from srl.api.parts import Part, Tensors
from srl.core.errors import RunError
from srl.core.tree import Array

PLACES = 4
"""Messages of one direction that may be on their way."""
_HEAD = 1024
"""Bytes of a place for the shapes of what lies in it."""
_ALIGN = 64


class Link(Protocol):
    """How a side sees the other one."""

    waited: float
    """Seconds, in all."""

    def wait(self, ready: Callable[[], bool]) -> None:
        """Sleep until the other side has made this true."""

    def ring(self) -> None:
        """Wake the other side."""


class Channel:
    """One direction of tensors through shared memory, in order. It waits while all places are taken, or nothing has come."""

    def __init__(self, link: Link, words: Any, places: Sequence[Array]) -> None:
        """`words`: how many were sent and taken. `places`: bytes."""
        self._link, self._words, self._places = link, words, places

    @torch.no_grad()
    def send(self, tensors: Sequence[Tensor | None]) -> None:
        """Copy them for the other side."""
        words = self._words
        self._link.wait(lambda: words[0] - words[1] < len(self._places))
        place = self._places[words[0] % len(self._places)]
        head = msgpack.packb([None if one is None else [one.numpy().dtype.str, list(one.shape)] for one in map(_plain, tensors)])
        size, at = len(head), _HEAD
        if size + 4 > _HEAD:
            raise RunError(f"{len(tensors)} tensors are exchanged between actor and critics at once, which is too many")
        place[:4].view(np.uint32)[0] = size
        place[4 : 4 + size] = np.frombuffer(head, np.uint8)
        for one in map(_plain, tensors):
            if one is None:
                continue
            data = one.contiguous().numpy().reshape(-1).view(np.uint8)
            if at + len(data) > len(place):
                raise RunError(
                    f"the data exchanged between actor and critics takes more than {len(place):,} bytes",
                    ("try", "mode: simultaneous, which exchanges parameters instead"),
                )
            place[at : at + len(data)] = data
            at += -(-len(data) // _ALIGN) * _ALIGN
        words[0] += 1
        self._link.ring()

    def receive(self) -> list[Tensor | None]:
        """Copies of the next ones."""
        words = self._words
        self._link.wait(lambda: words[0] > words[1])
        place = self._places[words[1] % len(self._places)]
        size, at = int(place[:4].view(np.uint32)[0]), _HEAD
        found: list[Tensor | None] = []
        for told in msgpack.unpackb(place[4 : 4 + size].tobytes()):
            if told is None:
                found.append(None)
                continue
            kind, shape = np.dtype(told[0]), tuple(told[1])
            bytes_ = int(np.prod(shape)) * kind.itemsize
            found.append(torch.from_numpy(place[at : at + bytes_].view(kind).reshape(shape).copy()))
            at += -(-bytes_ // _ALIGN) * _ALIGN
        words[1] += 1
        self._link.ring()
        return found


class Crossing(Protocol):
    """One direction."""

    def send(self, tensors: Sequence[Tensor | None]) -> None: ...

    def receive(self) -> list[Tensor | None]: ...


class Questions:
    """What a side asks the other one, and what it answers."""

    def __init__(self, out: Crossing, back: Crossing) -> None:
        self._out, self._back = out, back

    def ask(self, part: Part, offered: Tensors) -> Tensors:
        """`part.asks`, computed on the other side. Gradients flow through it to what is offered."""
        answers: Tensors = _Asked.apply(self, *offered) if part.does_ask else ()  # type: ignore[no-untyped-call]
        return answers

    def answer(self, part: Part, batch: Any, given: Any) -> None:
        """What the other side asks for its part."""
        if not part.does_ask:
            return
        offered = [one.requires_grad_() for one in _present(self._back.receive())] if part.does_offer else []
        with torch.set_grad_enabled(part.does_offer):
            answers = part.asks(batch, given, *offered)
        self._out.send(answers)
        if part.does_offer:
            grads = _present(self._back.receive())
            self._out.send(torch.autograd.grad(answers, offered, grads, allow_unused=True))


class _Asked(torch.autograd.Function):
    """Both directions of a question."""

    @staticmethod
    def forward(ctx: Any, questions: Questions, *offered: Tensor) -> tuple[Tensor, ...]:
        ctx.questions = questions
        if offered:
            questions._out.send(offered)
        return tuple(_present(questions._back.receive()))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        ctx.questions._out.send(grads)
        return (None, *ctx.questions._back.receive())


def _plain(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.detach()


def _present(tensors: Sequence[Tensor | None]) -> list[Tensor]:
    assert all(one is not None for one in tensors)
    return [one for one in tensors if one is not None]
