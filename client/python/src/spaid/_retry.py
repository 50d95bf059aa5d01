"""Decides whether a failed call is tried again, and after what wait; as the C++ client does."""

from __future__ import annotations

import enum

from spaid.errors import Code, SpaidError

_FIRST_DELAY, _MAX_DELAY, _MAX_SERVER_DELAY = 0.1, 5.0, 30.0  # seconds
_MOST_LOST = 1  # attempts lost in mid-call, after which one is repeated: the call may have ended the server


class Repeat(enum.Enum):
    """Whether a call may be done twice."""

    SAFE = 1  # reads, uploads, builds, attached solves
    FOLLOW = 2  # nor can it end the server: following a job
    ONLY_IF_REFUSED = 3  # a second detached job, a delete: only what the server refused before it began


def lost_in_mid_call(error: SpaidError) -> bool:
    """The connection broke in the middle. A retry delay comes only with a refusal; without a connection nothing was
    sent at all."""
    return error.code == Code.UNAVAILABLE and error.retry_after is None and error.reason != 'UNREACHABLE'


def _may_repeat(error: SpaidError, lost: int, repeat: Repeat) -> bool:
    if error.code == Code.RESOURCE_EXHAUSTED:
        return error.retry_after is not None
    if error.code != Code.UNAVAILABLE:
        return False
    if not lost_in_mid_call(error) or repeat == Repeat.FOLLOW:
        return True
    return repeat == Repeat.SAFE and lost <= _MOST_LOST


def next_delay(max_attempts: int, attempt: int, lost: int, error: SpaidError, repeat: Repeat,
               jitter: float) -> float | None:
    """Seconds before attempt `attempt` + 1 (they count from 1); None: give up.

    lost: attempts, with this one, that were lost in mid-call. jitter in [0, 1) spreads the wait over 50 .. 100 % of
    a doubling one; never shorter than the server's retry delay.
    """
    if attempt >= max_attempts or not _may_repeat(error, lost, repeat):
        return None
    own = min(_MAX_DELAY, _FIRST_DELAY * 2.0**min(attempt - 1, 30)) * (0.5 + 0.5 * jitter)
    if error.retry_after is None:
        return own
    # On top of the server's delay, so that its clients do not come back at once.
    return None if error.retry_after > _MAX_SERVER_DELAY else error.retry_after + own / 4
