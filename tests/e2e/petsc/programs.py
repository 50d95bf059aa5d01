"""Shared by tests of PETSc's programs: a daemon each, programs on any number of ranks, solutions."""

import array
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / 'attacks'))
import daemon as daemon_module  # noqa: E402

LIBRARY = os.environ['SPAID_PETSC_LIBRARY']
PROGRAMS = pathlib.Path(os.environ['SPAID_PETSC_PROGRAMS'])
# A program that hangs fails its test: ten times what the slowest takes alone.
LIMIT = 120


def read_vector(path):
    """A Vec as PETSc's binary viewer writes it."""
    data = pathlib.Path(path).read_bytes()
    classid, n = struct.unpack('>ii', data[:8])
    assert classid == 1211214, classid
    values = array.array('d', data[8:8 + 8 * n])
    values.byteswap()
    return list(values)


def number(pattern, text):
    """The number that `pattern` has as its group, in the last line that has it."""
    found = re.findall(pattern, text)
    assert found, f'no {pattern} in:\n{text}'
    return float(found[-1])


def only_sentences(text):
    """Returns the lines that PETSc prints of an error, without its configuration."""
    return '\n'.join(line for line in text.splitlines() if 'Configure options' not in line)


class TestCase(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix='spaid-petsc-')
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.daemon = daemon_module.Daemon('--devices=cpu')
        self.addCleanup(self.daemon.close)

    def command(self, program, options, ranks):
        own = PROGRAMS / program
        words = [str(own) if own.exists() else program, *options.split()]
        return words if ranks == 1 else [os.environ['MPIEXEC'], '-n', str(ranks), *words]

    def environment(self):
        """As a user has it, who changes no program."""
        return {**os.environ, 'SPAID_ADDRESS': self.daemon.address,
                'PETSC_OPTIONS': f'-dll_append {LIBRARY}'}

    def run_program(self, program, options, ranks=1, fails=False):
        """Its output; a status that is not 0 where it should, or the other way round, fails."""
        ran = subprocess.run(self.command(program, options, ranks), cwd=self.folder, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
                             env=self.environment(), timeout=LIMIT)
        self.assertEqual(ran.returncode != 0, fails, only_sentences(ran.stdout))
        return ran.stdout

    def solution(self, program, options, ranks=1, of='ksp'):
        """(the solution that it has, its output)."""
        path = self.folder / 'solution'
        path.unlink(missing_ok=True)
        text = self.run_program(program, f'{options} -{of}_view_solution binary:{path}', ranks)
        return read_vector(path), text

    def assert_near(self, x, y, relative):
        self.assertEqual(len(x), len(y))
        norm = sum(v * v for v in y) ** 0.5
        self.assertGreater(norm, 0)
        self.assertLess(sum((u - v) ** 2 for u, v in zip(x, y)) ** 0.5, relative * norm)

    def metric(self, name, **labels):
        return self.daemon.metric(name, **labels) or 0

    def worked(self, builds=None, solves=None):
        """The daemon's own counts of what ended well."""
        for kind, count in (('build', builds), ('solve', solves)):
            if count is not None:
                ended = self.metric('spaid_jobs_ended_total', kind=kind, state='succeeded')
                (self.assertEqual if count == 0 else self.assertGreaterEqual)(ended, count, kind)
