"""Brings the wire contract, as protoc's descriptor set, and the licence into wheel and sdist.

A wheel that is built from an sdist takes what the sdist brought.
"""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import tempfile
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = pathlib.Path(__file__).resolve().parent
PROTO = ROOT.parent.parent / 'proto'
BROUGHT = {'spaid.binpb': ROOT / 'src/spaid/spaid.binpb', 'LICENSE': ROOT / 'src/spaid/LICENSE'}


def make_descriptors(target: pathlib.Path) -> None:
    """Writes the descriptor set of the contract; imports come before the files that import them."""
    protoc = shutil.which('protoc')
    if protoc is None:
        raise RuntimeError('no protoc (Debian: protobuf-compiler), which the messages are made by')
    protos = sorted(str(p.relative_to(PROTO)) for folder in ('google', 'spaid') for p in (PROTO / folder).rglob('*.proto'))
    subprocess.run([protoc, f'--proto_path={PROTO}', f'--descriptor_set_out={target}', '--include_imports',
                    *protos], check=True)


class CustomBuildHook(BuildHookInterface):  # type: ignore[misc]
    """Adds the files to what hatchling finds in src/."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if PROTO.is_dir():
            self.made = tempfile.TemporaryDirectory()
            descriptors = pathlib.Path(self.made.name, 'spaid.binpb')
            make_descriptors(descriptors)
            descriptors.chmod(0o644)
            files = {'spaid.binpb': descriptors, 'LICENSE': PROTO.parent / 'LICENSE'}
        else:
            files = BROUGHT
        wheel = self.target_name == 'wheel'
        for name, path in files.items():
            if not path.is_file():
                raise RuntimeError(f'{path} is missing; build from a checkout, or from an sdist')
            place = f'spaid/{name}' if wheel else str(BROUGHT[name].relative_to(ROOT))
            build_data['force_include'][str(path)] = place

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if hasattr(self, 'made'):
            self.made.cleanup()
