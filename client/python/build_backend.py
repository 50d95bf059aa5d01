"""hatchling as the build backend, asked for only where it is missing.

Debian's hatchling names `editables` as a dependency, which Debian does not have; `python3 -m build --no-isolation`
would refuse for that, although nothing here needs it.
"""

from __future__ import annotations

import importlib.util
from typing import Any

if importlib.util.find_spec('hatchling') is not None:
    from hatchling.build import build_sdist, build_wheel  # noqa: F401


def get_requires_for_build_wheel(_: Any = None) -> list[str]:
    return [] if importlib.util.find_spec('hatchling') is not None else ['hatchling']


get_requires_for_build_sdist = get_requires_for_build_wheel
