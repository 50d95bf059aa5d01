"""Matrices that are too large for rank 0 lie over the ranks alone: they come piece by piece, are built for
and solved there, and what ranks do not do with them is refused.

SPAID_RANKS: how many.
"""

import json
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
        self.assert_solves(spd, '--engine=fsai', '--method=cg', engine='fsai')
        self.assert_solves(general, '--engine=static-spai', '--pattern-power=2', '--method=gmres',
                           engine='static-spai')
        self.assert_solves(general, '--engine=dynamic-spai', '--method=gmres', engine='dynamic-spai')
        self.assert_solves(spd, '--engine=afsai', '--method=cg', engine='afsai')

    def test_auto_takes_the_rungs_of_one_process(self):
        cases = {'permuted': matrices.permuted(side=40), 'irregular': matrices.irregular(n=1200),
                 'reducible': matrices.reducible(n=1200), 'weak': matrices.weak(1500),
                 'biharmonic': matrices.biharmonic(1500)}
        climbed = set()
        for name, matrix in cases.items():
            with self.subTest(matrix=name):
                path = self.file(name, matrix)
                there, x = self.x_of(self.daemon, path, '--rhs=random')
                here, y = self.x_of(self.plain, path, '--rhs=random')
                self.assertEqual((there['outcome'], there['engine'], there['device']),
                                 ('CONVERGED', here['engine'], DEVICE), (there, here))
                self.assertEqual(here['outcome'], 'CONVERGED')
                self.assertIn('which have no multigrid', there['choice_reason'])
                self.assertEqual([rung['engine'] for rung in there.get('rungs', [])][-1:],
                                 [rung['engine'] for rung in here.get('rungs', [])][-1:])
                climbed.add(there['engine'])
                self.assertLessEqual(there['true_relative_residual'], 1e-8)
                if name != 'biharmonic':  # whose condition is 1e12
                    scale = max(map(abs, y))
                    self.assertLess(max(abs(u - v) for u, v in zip(x, y)), 1e-4 * scale)
        self.assertGreaterEqual(climbed, {'jacobi', 'fsai', 'dynamic-spai'})

    def test_auto_builds_what_a_solve_comes_to(self):
        for name, matrix in (('permuted', matrices.permuted(side=40)), ('biharmonic', matrices.biharmonic(1500))):
            path = self.file(name, matrix)
            there = self.ctl(self.daemon, 'build', path)
            here = self.ctl(self.plain, 'build', path)
            self.assertEqual((there['engine'], there['device']), (here['engine'], DEVICE), there)

    def test_what_nothing_solves_is_told_with_what_was_not_tried(self):
        n = 1500
        entries = {(i, j): 1.0 for i in range(n) for j in (i, (i + 1) % n)}
        entries.update({(n - 1, j): 0.0 for j in range(n - 1)})
        entries[n - 1, n - 1] = 0.0
        path = self.file('singular', (n, entries))
        told = self.ctl(self.daemon, 'solve', path, f'--rhs={self.vectors(n, 1)}', status=3)
        self.assertNotEqual(told['outcome'], 'CONVERGED')
        self.assertIn('over ranks there was no multigrid', told['detail'])

    def test_m_is_downloaded(self):
        cases = {'permuted': (matrices.permuted(side=40),
                              (['fsai'], ['afsai'], ['jacobi'], ['static-spai', '--pattern-power=2'])),
                 'irregular': (matrices.irregular(n=1200), (['static-spai'], ['dynamic-spai']))}
        for name, (matrix, engines) in cases.items():
            path = self.file(name, matrix)
            for engine, *options in engines:
                with self.subTest(matrix=name, engine=engine):
                    files = [self.folder / f'{name}-{engine}-{k}.mtx' for k in range(3)]
                    words = [f'--engine={engine}', *options]
                    built = self.ctl(self.daemon, 'build', path, *words, f'--precond-out={files[0]}')
                    self.assertEqual(built['device'], DEVICE)
                    self.ctl(self.daemon, 'preconditioners', built['preconditioner'], f'--download={files[1]}')
                    self.ctl(self.plain, 'build', path, *words, f'--precond-out={files[2]}')
                    texts = [file.read_bytes() for file in files]
                    self.assertGreater(len(texts[2]), 1000)
                    self.assertEqual(texts[0], texts[2], 'with the result')
                    self.assertEqual(texts[1], texts[2], 'by its handle')
        # The turned copy has gone.
        before = self.there(self.daemon, DEVICE)
        self.ctl(self.daemon, 'preconditioners', built['preconditioner'], f'--download={files[1]}')
        self.daemon.wait(lambda: self.there(self.daemon, DEVICE) == before, 'frees what was turned')

    def test_a_second_upload_is_recognised(self):
        matrix = matrices.irregular(n=1200)
        path = self.file('irregular', matrix)
        first = self.ctl(self.daemon, 'upload', path)
        there = self.there(self.daemon, DEVICE)
        again = self.ctl(self.daemon, 'upload', path)
        self.assertEqual(again['name'], first['name'])
        self.assertTrue(again['reused'], again)
        self.assertEqual(self.there(self.daemon, DEVICE), there)
        # One entry, of the last column.
        n, entries = matrix
        last = max(entries, key=lambda at: (at[1], at[0]))
        other = self.file('other', (n, {**entries, last: entries[last] * 2}))
        other = self.ctl(self.daemon, 'upload', other)
        self.assertNotEqual(other['name'], first['name'])
        self.assertFalse(other['reused'])

    def test_constants_of_a_singular_matrix_are_projected_out(self):
        n, entries = matrices.laplacian(side=40)
        degrees = [0.0] * n
        for (i, j), value in entries.items():
            degrees[i] -= value if i != j else 0.0
        entries.update({(i, i): degrees[i] for i in range(n)})
        path = self.file('neumann', (n, entries))
        for engine in ('auto', 'none', 'static-spai', 'boomeramg'):
            told = self.ctl(self.daemon, 'solve', path, f'--engine={engine}', '--rhs=random', '--method=bicgstab')
            self.assertEqual((told['outcome'], told['device'], told['null_space']),
                             ('CONVERGED', DEVICE, 'constants'), told)
        # Shares of b that no x reaches are told as by one process, by AUTO, too, which solves the rest.
        b = f'--rhs={self.vectors(n, 1)}'
        there, here = (json.loads(self.begin(daemon, 'solve', path, b).communicate()[0])
                       for daemon in (self.daemon, self.plain))
        self.assertEqual((there['outcome'], there['null_space']), (here['outcome'], here['null_space']))
        self.assertGreater(there['unreachable'], 0.1)
        self.assertAlmostEqual(there['unreachable'], here['unreachable'], 9)

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
        for engine in ('auto', 'fsai'):
            estimate = self.ctl(self.daemon, 'estimate', handle, f'--engine={engine}')
            self.assertIn(f'{LIES_THERE}; a rank takes at most ', estimate['placement'])
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
        algebraic = self.ctl(self.daemon, 'build', handle, '--engine=boomeramg')['preconditioner']
        small = self.file('small', matrices.laplacian(side=8))
        # Its 1,600 rows are here: 1,600 entries take less than the limit.
        of_its_size = self.file('diagonal', (1600, {(i, i): 2.0 + i % 3 for i in range(1600)}))
        refusals = [
            ['build', handle, '--engine=amg'],
            ['build', handle, '--engine=jacobi', '--block-size=4'],
            ['build', handle, '--engine=static-spai', '--row-match'],
            ['build', handle, '--engine=afsai', '--time-budget=1'],
            ['solve', handle, '--engine=none', '--method=minres', f'--rhs={self.vectors(1600, 1)}'],
            ['solve', handle, '--engine=none', '--null-space=constants', f'--rhs={self.vectors(1600, 1)}'],
            ['solve', of_its_size, f'--preconditioner={built}', '--method=bicgstab'],
            ['preconditioners', algebraic, f'--download={self.folder / "M.mtx"}'],
            ['solve', small, '--engine=static-spai', f'--pattern={handle}'],
        ]
        for words in refusals:
            with self.subTest(words=words[:3]):
                reason, text = self.refused(*words)
                self.assertEqual(reason, 'MATRIX_OVER_RANKS', text)
                self.assertIn('; ', text)
        self.assert_solves(path, '--engine=fsai', '--method=cg', engine='fsai')  # it serves on


class Memory(job.TestCase):
    """Rank 0 holds its share, and little more, while a matrix comes, and while its M goes."""

    def setUp(self):
        super().setUp()
        self.grpc, self.numpy, self.arrays, self.matrix, self.matrix_grpc = self.bare_protocol()
        from spaid.v1 import preconditioner_pb2, preconditioner_pb2_grpc, preconditioner_spec_pb2
        self.m, self.m_grpc, self.spec = preconditioner_pb2, preconditioner_pb2_grpc, preconditioner_spec_pb2

    def banded(self, n, half):
        """(pointers, indices, values) by rows, which are the columns, too."""
        numpy = self.numpy
        offsets = numpy.arange(-half, half + 1)
        columns = numpy.arange(n)[:, None] + offsets
        inside = (columns >= 0) & (columns < n)
        indices = columns[inside].astype(numpy.int32)
        pointers = numpy.concatenate([[0], numpy.cumsum(inside.sum(axis=1))]).astype(numpy.int64)
        values = numpy.where(offsets == 0, 60.0, -1.0)[None, :].repeat(n, axis=0)[inside]
        return pointers, indices, values

    def upload(self, channel, arrays, last=lambda: None, layout=None):
        pointers, indices, values = arrays

        def messages():
            yield self.matrix.UploadMatrixRequest(header=self.matrix.MatrixHeader(
                n=len(pointers) - 1, nnz=len(indices), layout=layout or self.arrays.LAYOUT_CSR,
                value_type=self.arrays.VALUE_TYPE_FLOAT64))
            for kind, array in ((self.arrays.ARRAY_KIND_POINTERS, pointers),
                                (self.arrays.ARRAY_KIND_INDICES, indices),
                                (self.arrays.ARRAY_KIND_VALUES, values)):
                piece = (1 << 20) // array.itemsize
                for first in range(0, len(array), piece):
                    yield self.matrix.UploadMatrixRequest(chunk=self.arrays.ArrayChunk(
                        array=kind, offset=first, data=array[first:first + piece].tobytes()))
            last()

        stub = self.matrix_grpc.MatrixServiceStub(channel)
        done = [m.done for m in stub.UploadMatrix(messages()) if m.HasField('done')]
        self.assertEqual(done[0].matrix.nnz, len(indices))
        return done[0].matrix.name

    def build(self, channel, matrix, engine):
        header = self.m.BuildHeader(matrix=matrix, spec=self.spec.PreconditionerSpec(engine=engine))
        stub = self.m_grpc.PreconditionerServiceStub(channel)
        events = stub.BuildPreconditioner(iter([self.m.BuildPreconditionerRequest(header=header)]))
        return [e.done for e in events if e.HasField('done')][0].preconditioner

    def download(self, channel, m, **more):
        return self.m_grpc.PreconditionerServiceStub(channel).DownloadPreconditioner(
            self.m.DownloadPreconditionerRequest(name=m, **more))

    def collect(self, events):
        """(header, {kind: bytes}), with offsets and checksums looked at."""
        import zlib
        header, arrays = None, {}
        for event in events:
            if event.HasField('header'):
                header = event.header
            elif event.HasField('chunk'):
                chunk = event.chunk
                self.assertEqual(zlib.crc32(chunk.data), chunk.crc32)
                of = arrays.setdefault(chunk.array, bytearray())
                size = {self.arrays.ARRAY_KIND_POINTERS: 8, self.arrays.ARRAY_KIND_INDICES: 4}.get(
                    chunk.array, 4 if header.value_type == self.arrays.VALUE_TYPE_FLOAT32 else 8)
                self.assertEqual(chunk.offset * size, len(of))
                of += chunk.data
        return header, arrays

    def test_rank_0_never_holds_it(self):
        arrays = self.banded(n=400_000, half=25)
        size = sum(array.nbytes for array in arrays)
        daemon = self.start(RANKS, '--devices=cpu,mpi', '--max-matrix-bytes=100000000')
        rank_0 = daemon.pids()[0]
        idle = resident(rank_0)
        pathlib.Path(f'/proc/{rank_0}/clear_refs').write_text('5')  # the peak is from now on
        peaks = []
        with self.grpc.insecure_channel(daemon.address) as channel:
            # All but what is in the buffers of the connection has arrived.
            name = self.upload(channel, arrays, last=lambda: peaks.append(peak(rank_0)))
            above = peaks[0] - idle
            self.assertLessEqual(above, size / RANKS + (64 << 20), f'A takes {size} bytes')
            self.assertGreaterEqual(above, size / RANKS / 2, 'its own share')

            m = self.build(channel, name, self.spec.ENGINE_KIND_FSAI)
            size = 12 * m.nnz + 8 * (m.n + 1)
            self.assertGreater(size, 100_000_000)
            before = resident(rank_0)
            pathlib.Path(f'/proc/{rank_0}/clear_refs').write_text('5')
            bytes_down = 0
            for event in self.download(channel, m.name):
                bytes_down += len(event.chunk.data)
            self.assertEqual(bytes_down, size)
            above = peak(rank_0) - before
            self.assertLessEqual(above, size / RANKS + (64 << 20), f'M takes {size} bytes')
            print(f'A to {RANKS} ranks: rank 0 at most {peaks[0] - idle}; M of {size} bytes: {above}', flush=True)

    def test_order_takes_little_more_than_both_forms(self):
        """By columns and by rows are two shares, and what AᵀA is counted by a part of one."""
        arrays = self.banded(n=400_000, half=25)
        share = sum(array.nbytes for array in arrays) / RANKS
        for layout in (self.arrays.LAYOUT_CSC, self.arrays.LAYOUT_CSR):
            daemon = self.start(RANKS, '--devices=cpu,mpi', '--max-matrix-bytes=100000000')
            pids = daemon.pids()
            idle = {rank: resident(pid) for rank, pid in pids.items()}
            for pid in pids.values():
                pathlib.Path(f'/proc/{pid}/clear_refs').write_text('5')
            with self.grpc.insecure_channel(daemon.address) as channel:
                self.upload(channel, arrays, layout=layout)
            above = {rank: peak(pid) - idle[rank] for rank, pid in pids.items()}
            print(f'a share of {share:.0f} bytes, at most: {above}', flush=True)
            for rank, taken in above.items():
                self.assertLessEqual(taken, 2.25 * share + (32 << 20), f'rank {rank}')
                self.assertGreaterEqual(taken, 1.5 * share, f'rank {rank}')
            daemon.stop()

    def test_m_goes_as_the_contract_says(self):
        arrays = self.banded(n=20_000, half=3)
        daemon = self.start(RANKS, '--devices=cpu,mpi', '--max-matrix-bytes=500000')
        plain = self.start_plain()
        with self.grpc.insecure_channel(daemon.address) as channel, self.grpc.insecure_channel(plain.address) as other:
            m = self.build(channel, self.upload(channel, arrays), self.spec.ENGINE_KIND_STATIC_SPAI)
            here = self.build(other, self.upload(other, arrays), self.spec.ENGINE_KIND_STATIC_SPAI)
            for value_type in (self.arrays.VALUE_TYPE_FLOAT64, self.arrays.VALUE_TYPE_FLOAT32):
                header, found = self.collect(self.download(channel, m.name, value_type=value_type))
                expected_header, expected = self.collect(self.download(other, here.name, value_type=value_type))
                self.assertEqual(header, expected_header)
                self.assertEqual(found, expected)
            # A reader that is slow holds up nobody, and gets the same.
            slow = self.download(channel, m.name)
            events = [next(slow)]
            x = self.build(channel, self.upload(channel, self.banded(n=20_000, half=4)), self.spec.ENGINE_KIND_JACOBI)
            self.assertEqual(x.n, 20_000)
            events.extend(slow)
            self.assertEqual(self.collect(events)[1], self.collect(self.download(channel, m.name))[1])
            # One that leaves in the middle: what was made for it goes.
            before = self.there(daemon, DEVICE)
            leaving = self.download(channel, m.name)
            for _ in range(2):
                next(leaving)
            leaving.cancel()
            daemon.wait(lambda: self.there(daemon, DEVICE) == before, 'frees what was turned')
            self.assertEqual(self.collect(self.download(channel, m.name))[1],
                             self.collect(self.download(other, here.name))[1])

    def test_rows_that_come_again_are_recognised(self):
        pointers, indices, values = arrays = self.banded(n=20_000, half=3)
        daemon = self.start(RANKS, '--devices=cpu,mpi', '--max-matrix-bytes=500000')
        with self.grpc.insecure_channel(daemon.address) as channel:
            name = self.upload(channel, arrays)
            there = self.there(daemon, DEVICE)
            # Whoever sends all of it without a digest is recognised in the end.
            self.assertEqual(self.upload(channel, arrays), name)
            daemon.wait(lambda: self.there(daemon, DEVICE) == there, 'keeps one of the two')
            self.assertNotEqual(self.upload(channel, (pointers, indices, values * 2)), name)


def resident(pid):
    """Bytes in memory but for pages of files, which a machine may take back at any time."""
    return field(pid, 'RssAnon') + field(pid, 'RssShmem')


def peak(pid):
    """The most of resident(), but for what files took since then."""
    return field(pid, 'VmHWM') - field(pid, 'RssFile')


def field(pid, name):
    for line in pathlib.Path(f'/proc/{pid}/status').read_text().splitlines():
        if line.startswith(name + ':'):
            return int(line.split()[1]) * 1024
    raise AssertionError(name)


if __name__ == '__main__':
    job.main()
