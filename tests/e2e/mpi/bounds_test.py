"""What a rank takes of a build stays under the bound that the estimate tells.

SPAID_RANKS: how many.
"""

import os
import pathlib
import re
import sys

import job
import matrices

RANKS = int(os.environ['SPAID_RANKS'])
ENGINES = ['static-spai', 'fsai', 'dynamic-spai', 'afsai']
BOUND = r'; a rank takes at most (\d+) bytes, (\d+) of them columns of other ranks$'
# Many times what a rank takes of a grid: a bound that is larger says nothing. For what grows it is
# told as if every row grew as far as it may.
LOOSE = {'static-spai': 8, 'fsai': 14, 'dynamic-spai': 30, 'afsai': 15}
# Bounds for a matrix that lies there alone go by its longest row and column, and AᵀA's entries as they are.
LOOSE_ALONE = {'static-spai': 16, 'fsai': 28, 'dynamic-spai': 12, 'afsai': 30}


def field(pid, name):
    for line in pathlib.Path(f'/proc/{pid}/status').read_text().splitlines():
        if line.startswith(name + ':'):
            return int(line.split()[1]) * 1024
    raise AssertionError(name)


class Bounds(job.TestCase):

    def measure(self, matrix, engine, *options, flags=()):
        """(the bound, what the rank with most has taken, the estimate), of a daemon that has built nothing yet."""
        daemon = self.start(RANKS, '--threads=1', *flags)
        handle = self.ctl(daemon, 'upload', matrix)['name']
        estimate = self.ctl(daemon, 'estimate', handle, f'--engine={engine}', *options)
        found = re.search(BOUND, estimate['placement'])
        self.assertTrue(found, estimate['placement'])
        most, halo = map(int, found.groups())
        self.assertLess(halo, most)
        pids = daemon.pids()
        idle = {rank: field(pid, 'VmRSS') for rank, pid in pids.items()}
        for pid in pids.values():
            pathlib.Path(f'/proc/{pid}/clear_refs').write_text('5')  # the peak is from now on
        built = self.ctl(daemon, 'build', handle, f'--engine={engine}', *options)
        self.assertEqual(built['device'], f'mpi:{RANKS}')
        taken = {rank: field(pid, 'VmHWM') - idle[rank] for rank, pid in pids.items()}
        for rank, bytes_of_rank in taken.items():
            # Rank 0 gets M besides.
            limit = most + (estimate['host_bytes'] if rank == 0 else 0)
            self.assertLessEqual(bytes_of_rank, limit, (matrix, engine, rank, taken))
        daemon.stop()
        if os.environ.get('SPAID_SHOW_BOUNDS'):
            print(f'{matrix} {engine} {options}: {most} {halo} {taken}', file=sys.stderr)
        return most, max(taken[rank] for rank in taken if rank > 0 or RANKS == 1), estimate

    def test_of_a_grid(self):
        for engine in ENGINES:
            with self.subTest(engine=engine):
                most, taken, _ = self.measure('gallery:elasticity:24', engine)
                self.assertGreater(LOOSE[engine] * taken, most)

    def test_of_matrices_that_lie_over_the_ranks_alone(self):
        for engine in ENGINES:
            with self.subTest(engine=engine):
                most, taken, estimate = self.measure('gallery:elasticity:24', engine, flags=['--max-matrix-bytes=1000000'])
                self.assertIn('the matrix lies there alone', estimate['placement'])
                self.assertGreater(LOOSE_ALONE[engine] * taken, most)
        path = self.file('dense-row', matrices.dense_row(n=1500))
        for engine in ('static-spai', 'dynamic-spai'):
            with self.subTest(matrix='dense-row', engine=engine):
                self.measure(path, engine, flags=['--max-matrix-bytes=50000'])

    def test_of_matrices_with_one_difficulty_each(self):
        cases = {'irregular': matrices.irregular(n=4000), 'dense-row': matrices.dense_row(n=1500),
                 'permuted': matrices.permuted(side=70)}
        for name, matrix in cases.items():
            path = self.file(name, matrix)
            for engine in ENGINES:
                if engine in ('fsai', 'afsai') and name != 'permuted':
                    continue
                with self.subTest(matrix=name, engine=engine):
                    self.measure(path, engine)

    def test_of_other_options(self):
        for engine, *options in (['static-spai', '--pattern-power=2', '--post-filter=0.01'],
                                 ['fsai', '--pattern-power=2'],
                                 ['dynamic-spai', '--max-steps=4'],
                                 ['afsai', '--k-max=3', '--step-size=3', '--post-filter=0.01']):
            with self.subTest(engine=engine):
                self.measure('gallery:p27:24', engine, *options)


if __name__ == '__main__':
    job.main()
