"""What a suite found, check by check."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from srl.core.errors import SrlError, UserError
from srl.core.load import meant
from srl.core.text import aligned, count
from srl.core.types import Component
from srl.core.user_code import user_code

T = TypeVar("T")
REFUSALS = ("E00", "E10")
"""Errors of what cannot be built for a case; another one is about a setting."""


class Broken(SrlError):
    """A check does not hold: what was seen, and what it is usually caused by."""

    def __init__(self, found: str, likely: str) -> None:
        super().__init__(found)
        self.found, self.likely = found, likely


class NotHere(SrlError):
    """A check says nothing about this subject, because of that."""


Check: TypeAlias = "Callable[[], None]"


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of one check over all cases in which it was tried."""

    name: str
    claim: str
    tried: tuple[str, ...]
    """The cases in which it holds."""
    broken: tuple[tuple[str, str, str], ...] = ()
    """(case, what was seen, the likely cause)"""
    why_not: str = ""
    """Why it was tried in no case."""

    @property
    def holds(self) -> bool:
        return not self.broken

    def rows(self) -> Iterator[tuple[str, str]]:
        if self.broken:
            yield "FAILED", f"{self.name}: {self.claim}"
            for found, cases in _together(self.broken).items():
                yield "", f"with {', '.join(cases)}: {found[0]}"
                yield "", f"likely: {found[1]}"
        elif self.tried:
            yield "OK", f"{self.name}: {self.claim}"
        else:
            yield "-", f"{self.name}: {self.why_not}"


@dataclass(slots=True)
class SuiteReport:
    """All findings about one subject."""

    subject: str
    findings: list[Finding] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        return all(finding.holds for finding in self.findings)

    @property
    def failed(self) -> tuple[str, ...]:
        """The names of the checks that do not hold."""
        return tuple(finding.name for finding in self.findings if not finding.holds)

    def lines(self) -> list[str]:
        """What `srl check` prints."""
        rows = [("checked", self.subject), *(row for finding in self.findings for row in finding.rows())]
        held = sum(finding.holds and bool(finding.tried) for finding in self.findings)
        tried = sum(bool(finding.tried or finding.broken) for finding in self.findings)
        end = f"{held} of {count(tried, 'check')} hold"
        return [*aligned(rows).splitlines(), end]


def chosen(checks: dict[str, T], only: Collection[str]) -> dict[str, T]:
    """All of them, or those that are named."""
    if unknown := [name for name in only if name not in checks]:
        raise UserError(f"there is no check '{unknown[0]}'", *meant(unknown[0], list(checks)), ("checks", ", ".join(checks)))
    return {name: check for name, check in checks.items() if not only or name in only}


def judged(name: str, claim: str, cases: dict[str, Check], subject: str) -> Finding:
    """Try one check in all cases. An error of the subject's own code counts as broken."""
    tried, broken, why_not = [], [], "there is no case for it"
    for case, check in cases.items():
        try:
            with user_code(f"{subject} failed", ("try", "--trace, which shows the traceback")):
                check()
        except NotHere as reason:
            why_not = reason.headline
        except Broken as wrong:
            broken.append((case, wrong.found, wrong.likely))
        except SrlError as error:
            facts = dict(error.facts)
            at = f" ({facts['from']})" if "from" in facts else ""
            broken.append((case, f"{facts.get('cause', error.headline)}{at}", facts.get("try", "see the place named")))
        else:
            tried.append(case)
    return Finding(name, claim, tuple(tried), tuple(broken), why_not)


def refused(subject: str, reasons: dict[str, UserError], env: Component | None) -> UserError:
    """Nothing could be built to try anything with."""
    first = next(iter(reasons.values()))
    with_ = f"the inputs of env {env.use}" if env is not None else "any of the small inputs that checks are made with"
    error = UserError(f"{subject} cannot be built for {with_}", ("because", first.headline), code="E10")
    if env is not None:
        error.facts += first.facts
        return error
    error.facts += [fact for fact in first.facts if fact[0] != "try"]
    return error.add("try", "env=NAME, whose observations and actions it then gets")


def _together(broken: tuple[tuple[str, str, str], ...]) -> dict[tuple[str, str], list[str]]:
    """(what was seen, likely cause) -> cases"""
    found: dict[tuple[str, str], list[str]] = {}
    for case, seen, likely in broken:
        found.setdefault((seen, likely), []).append(case)
    return found
