"""Matrices that are too large for rank 0 lie over the ranks alone: they come piece by piece, are built for
and solved there, and what ranks do not do with them is refused.

SPAID_RANKS: how many.
"""

import os
import pathlib

import job
import matrices

RANKS = int(os.environ['SPAID_RANKS'])
DEVICE = f'mpi:{RANKS}'
SMALL = '--max-matrix-bytes=50000'  # most matrices here are larger
LIES_THERE = f'{DEVICE}: the matrix lies there alone'


class Spread(job.TestCase):

    def setUp(self):
        super().setUp()
        self.daemon = self.start(RANKS, '--devices=cpu,mpi', SMALL)
        self.plain = self.start_plain()

    def refused(self, *words, status=1):
        """The reason and the text with which spaidctl ends."""
        told = self.ctl(self.daemon, *words, status=status)
        return told['error']['reason'], told['error']['message']

    def x_of(self, daemon, *words):
        path = self.folder / 'x.mtx'
        told = self.ctl(daemon, 'solve', *words, f'--out={path}')
        return told, matrices.read_vectors(path)[0]

    def assert_solves(self, matrix, *options, engine):
        told, x = self.x_of(self.daemon, matrix, *options)
        other, y = self.x_of(self.plain, matrix, *(options or [f'--engine={engine}', f'--method={told["method"]}']))
        self.assertEqual((told['outcome'], told['device']), ('CONVERGED', DEVICE), told)
        self.assertEqual(told['engine'], engine)
        self.assertIn(LIES_THERE, told['placement'])
        self.assertLessEqual(abs(told['iterations'] - other['iterations']), 2)
        self.assertLessEqual(told['true_relative_residual'], 1e-8)
        scale = max(map(abs, y))
        self.assertLess(max(abs(u - v) for u, v in zip(x, y)), 1e-5 * scale)
        return told

    def test_is_solved_where_it_lies(self):
        spd = self.file('permuted', matrices.permuted(side=40))
        general = self.file('irregular', matrices.irregular(n=1200))
        self.assert_solves(spd, engine='fsai')  # AUTO's choice
        self.assert_solves(general, engine='static-spai')
        self.assert_solves(spd, '--engine=fsai', '--method=cg', engine='fsai')
        self.assert_solves(general, '--engine=static-spai', '--pattern-power=2', '--method=gmres',
                           engine='static-spai')
        self.assert_solves(general, '--engine=dynamic-spai', '--method=gmres', engine='dynamic-spai')
        self.assert_solves(spd, '--engine=afsai', '--method=cg', engine='afsai')

    def test_constants_of_a_singular_matrix_are_projected_out(self):
        n, entries = matrices.laplacian(side=40)
        degrees = [0.0] * n
        for (i, j), value in entries.items():
            degrees[i] -= value if i != j else 0.0
        entries.update({(i, i): degrees[i] for i in range(n)})
        path = self.file('neumann', (n, entries))
        for engine in ('none', 'static-spai', 'boomeramg'):
            told = self.ctl(self.daemon, 'solve', path, f'--engine={engine}', '--rhs=random', '--method=bicgstab')
            self.assertEqual((told['outcome'], told['device'], told['null_space']),
                             ('CONVERGED', DEVICE, 'constants'), told)

    def test_is_told_of_and_freed(self):
        path = self.file('permuted', matrices.permuted(side=40))
        told = self.ctl(self.daemon, 'upload', path)
        whole = self.ctl(self.plain, 'upload', path)
        self.assertEqual((told['n'], told['nnz']), (whole['n'], whole['nnz']))
        mine, theirs = told['diagnosis'], whole['diagnosis']
        self.assertIn('lies over the ranks alone', mine['findings'][-1])
        self.assertEqual(mine['findings'][:-1], theirs['findings'])
        for figure in theirs:
            if figure != 'findings':
                self.assertEqual(mine[figure], theirs[figure], figure)
        self.assertGreaterEqual(self.there(self.daemon, DEVICE), 24 * told['nnz'])
        handle = told['name']
        built = self.ctl(self.daemon, 'build', handle, '--engine=fsai')
        self.assertEqual(built['device'], DEVICE)
        again = self.ctl(self.daemon, 'solve', handle, f'--preconditioner={built["preconditioner"]}',
                         '--method=cg', f'--rhs={self.vectors(1600, 2)}')
        self.assertEqual([rhs['outcome'] for rhs in again['rhs']], ['CONVERGED'] * 2)
        self.ctl(self.daemon, 'preconditioners', built['preconditioner'], '--delete')
        self.ctl(self.daemon, 'matrices', handle, '--delete')
        self.daemon.wait(lambda: self.there(self.daemon, DEVICE) == 0, 'frees what lay over the ranks')

    def vectors(self, n, count):
        columns = [[1.0 + (i * (k + 3)) % 7 for i in range(n)] for k in range(count)]
        return matrices.write_vectors(self.folder / f'b{count}.mtx', columns)

    def test_what_ranks_do_not_do_is_refused(self):
        path = self.file('permuted', matrices.permuted(side=40))
        handle = self.ctl(self.daemon, 'upload', path)['name']
        built = self.ctl(self.daemon, 'build', handle, '--engine=fsai')['preconditioner']
        small = self.file('small', matrices.laplacian(side=8))
        # Its 1,600 rows are here: 1,600 entries take less than the limit.
        of_its_size = self.file('diagonal', (1600, {(i, i): 2.0 + i % 3 for i in range(1600)}))
        refusals = [
            ['build', handle, '--engine=amg'],
            ['build', handle, '--engine=jacobi'],
            ['build', handle, '--engine=static-spai', '--row-match'],
            ['build', handle, '--engine=afsai', '--time-budget=1'],
            ['build', handle, '--engine=fsai', f'--precond-out={self.folder / "M.mtx"}'],
            ['solve', handle, '--engine=none', '--method=minres', f'--rhs={self.vectors(1600, 1)}'],
            ['solve', handle, '--engine=none', '--null-space=constants', f'--rhs={self.vectors(1600, 1)}'],
            ['solve', of_its_size, f'--preconditioner={built}', '--method=bicgstab'],
            ['preconditioners', built, f'--download={self.folder / "M.mtx"}'],
            ['solve', small, '--engine=static-spai', f'--pattern={handle}'],
        ]
        for words in refusals:
            with self.subTest(words=words[:3]):
                reason, text = self.refused(*words)
                self.assertEqual(reason, 'MATRIX_OVER_RANKS', text)
                self.assertIn('; ', text)
        self.assert_solves(path, '--engine=fsai', '--method=cg', engine='fsai')  # it serves on


class Memory(job.TestCase):
    """Rank 0 holds its share, and little more, while a matrix comes."""

    def test_rank_0_never_holds_it(self):
        grpc, numpy, arrays_pb2, matrix_pb2, matrix_pb2_grpc = self.bare_protocol()
        n, half = 400_000, 25
        offsets = numpy.arange(-half, half + 1)
        columns = numpy.arange(n)[:, None] + offsets
        inside = (columns >= 0) & (columns < n)
        indices = columns[inside].astype(numpy.int32)
        pointers = numpy.concatenate([[0], numpy.cumsum(inside.sum(axis=1))]).astype(numpy.int64)
        values = numpy.where(offsets == 0, 60.0, -1.0)[None, :].repeat(n, axis=0)[inside]
        size = 12 * len(indices) + 8 * len(pointers)
        daemon = self.start(RANKS, '--devices=cpu,mpi', '--max-matrix-bytes=100000000')
        rank_0 = daemon.pids()[0]
        idle = resident(rank_0)
        pathlib.Path(f'/proc/{rank_0}/clear_refs').write_text('5')  # the peak is from now on
        peaks = []

        def messages():
            yield matrix_pb2.UploadMatrixRequest(header=matrix_pb2.MatrixHeader(
                n=n, nnz=len(indices), layout=arrays_pb2.LAYOUT_CSR,
                value_type=arrays_pb2.VALUE_TYPE_FLOAT64))
            for kind, array in ((arrays_pb2.ARRAY_KIND_POINTERS, pointers),
                                (arrays_pb2.ARRAY_KIND_INDICES, indices),
                                (arrays_pb2.ARRAY_KIND_VALUES, values)):
                piece = (1 << 20) // array.itemsize
                for first in range(0, len(array), piece):
                    yield matrix_pb2.UploadMatrixRequest(chunk=arrays_pb2.ArrayChunk(
                        array=kind, offset=first, data=array[first:first + piece].tobytes()))
            # All but what is in the buffers of the connection has arrived.
            peaks.append(peak(rank_0))

        with grpc.insecure_channel(daemon.address) as channel:
            stub = matrix_pb2_grpc.MatrixServiceStub(channel)
            done = [m.done for m in stub.UploadMatrix(messages()) if m.HasField('done')]
        self.assertEqual(done[0].matrix.nnz, len(indices))
        above = peaks[0] - idle
        self.assertLessEqual(above, size / RANKS + (64 << 20), f'A takes {size} bytes')
        self.assertGreaterEqual(above, size / RANKS / 2, 'its own share')


def resident(pid):
    return field(pid, 'VmRSS')


def peak(pid):
    return field(pid, 'VmHWM')


def field(pid, name):
    for line in pathlib.Path(f'/proc/{pid}/status').read_text().splitlines():
        if line.startswith(name + ':'):
            return int(line.split()[1]) * 1024
    raise AssertionError(name)


if __name__ == '__main__':
    job.main()
