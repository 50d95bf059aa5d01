"""The daemons that a client may ask, and which of them a call goes to: proto/spaid/v1/README.md, "Several replicas"."""

from __future__ import annotations

import hashlib
import re
import threading
import time

from spaid.errors import Code, SpaidError

_FIRST_AWAY, _LONGEST_AWAY = 1.0, 30.0  # seconds
_AFFINITY = re.compile('-([0-9a-f]{8})$')


def affinity_of(handle: str) -> str:
    """What a handle ends in; '': it has none."""
    found = _AFFINITY.search(handle)
    return found.group(1) if found else ''


def rendezvous(addresses: tuple[str, ...], affinity: str) -> list[str]:
    """The order in which an affinity tries them, of every client the same; '' takes them as they stand."""
    if not affinity:
        return list(addresses)
    return sorted(addresses, key=lambda address: hashlib.sha256(f'{affinity} {address}'.encode()).digest()[:8],
                  reverse=True)


class Replicas:
    """One that failed is skipped for a second, then one call tries it again, and so on for twice as long each time, up
    to 30 s. Thread-safe."""

    def __init__(self, addresses: tuple[str, ...]) -> None:
        self.addresses = addresses
        self._lock = threading.Lock()
        self._away: dict[str, tuple[float, float]] = {}  # how long, until when
        self._tried: set[str] = set()  # by a call that `pick` sent there again

    def pick(self, affinity: str) -> str:
        """The first that is not away, in the order of the affinity; the very first if all are."""
        order = rendezvous(self.addresses, affinity)
        now = time.monotonic()
        with self._lock:
            for address in order:
                if address not in self._away:
                    return address
                away, until = self._away[address]
                if now >= until:
                    self._away[address] = away, now + away  # this call tries it, the others do not wait
                    self._tried.add(address)
                    return address
        return order[0]

    def ended(self, address: str, error: SpaidError | None) -> bool:
        """How a call ended. True: it may be tried elsewhere now, as this one is unreachable, broke the connection or
        drains, and another is not away."""
        gone = (error is not None and error.code == Code.UNAVAILABLE
                and error.reason in ('UNREACHABLE', 'CONNECTION_LOST', 'DRAINING'))
        now = time.monotonic()
        with self._lock:
            if not gone:
                # These codes may be this side's own; any other is the daemon's word.
                if error is None or error.code not in (Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED, Code.CANCELLED):
                    self._away.pop(address, None)
                return False
            away = self._away.get(address, (0.0, 0.0))[0]
            if not away or address in self._tried:  # calls that fail together are one failure
                away = min(max(2 * away, _FIRST_AWAY), _LONGEST_AWAY)
            self._tried.discard(address)
            self._away[address] = away, now + away
            return any(one not in self._away or now >= self._away[one][1] for one in self.addresses)
