"""What the daemon keeps of matrices that lie over the ranks alone: over a restart, while others take their place, and
of one time step for the next; and what it says where the ranks have no memory.

    kept_test.py [Restart | Full | Values]
"""

import contextlib
import os
import pathlib
import subprocess
import uuid

import job
import matrices

# Matrices here are larger; pointers have to be within it.
SMALL, MEDIUM = '--max-matrix-bytes=50000', '--max-matrix-bytes=2000000'
MEMORY = pathlib.Path('/sys/fs/cgroup/memory')
COMING = 36  # bytes of an entry that is on its way (kSpreadEntry)


class Arrays(job.TestCase):
    """Clients of the bare protocol."""

    def setUp(self):
        super().setUp()
        self.grpc, self.numpy, self.arrays, self.matrix, self.matrix_grpc = self.bare_protocol()
        from spaid.v1 import preconditioner_pb2, preconditioner_pb2_grpc, preconditioner_spec_pb2
        self.m, self.m_grpc, self.spec = preconditioner_pb2, preconditioner_pb2_grpc, preconditioner_spec_pb2

    def banded(self, n, half, diagonal=60.0, skew=0.25):
        """(pointers, indices, values) by columns; without `skew` rows are the same."""
        numpy = self.numpy
        offsets = numpy.arange(-half, half + 1)
        rows = numpy.arange(n)[:, None] + offsets
        inside = (rows >= 0) & (rows < n)
        pointers = numpy.concatenate([[0], numpy.cumsum(inside.sum(axis=1))]).astype(numpy.int64)
        values = numpy.where(offsets == 0, diagonal, -1.0 - skew * offsets / half)
        return pointers, rows[inside].astype(numpy.int32), values[None, :].repeat(n, axis=0)[inside]

    def upload(self, daemon, arrays, by_rows=False, affinity=None, **header):
        """The matrix, or grpc.RpcError. `affinity`: what the handle is to end in."""
        pointers, indices, values = arrays

        def messages():
            yield self.matrix.UploadMatrixRequest(header=self.matrix.MatrixHeader(
                n=len(pointers) - 1, nnz=len(values), value_type=self.arrays.VALUE_TYPE_FLOAT64,
                layout=self.arrays.LAYOUT_CSR if by_rows else self.arrays.LAYOUT_CSC, **header))
            for kind, array in ((self.arrays.ARRAY_KIND_POINTERS, pointers),
                                (self.arrays.ARRAY_KIND_INDICES, indices),
                                (self.arrays.ARRAY_KIND_VALUES, values)):
                if 'same_pattern_as' in header and kind != self.arrays.ARRAY_KIND_VALUES:
                    continue
                piece = (1 << 20) // array.itemsize
                for first in range(0, len(array), piece):
                    yield self.matrix.UploadMatrixRequest(chunk=self.arrays.ArrayChunk(
                        array=kind, offset=first, data=array[first:first + piece].tobytes()))

        with self.grpc.insecure_channel(daemon.address) as channel:
            events = list(self.matrix_grpc.MatrixServiceStub(channel).UploadMatrix(
                messages(), metadata=[('x-spaid-affinity', affinity)] if affinity else None))
        return [event.done for event in events if event.HasField('done')][0]

    def build(self, daemon, matrix, engine):
        header = self.m.BuildHeader(matrix=matrix, spec=self.spec.PreconditionerSpec(engine=engine))
        with self.grpc.insecure_channel(daemon.address) as channel:
            events = list(self.m_grpc.PreconditionerServiceStub(channel).BuildPreconditioner(
                iter([self.m.BuildPreconditionerRequest(header=header)])))
        return [event.done for event in events if event.HasField('done')][0].preconditioner

    def refused(self, *words, **more):
        with self.assertRaises(self.grpc.RpcError) as told:
            self.upload(*words, **more)
        return told.exception


class Restart(Arrays):

    def keeping(self, ranks, most=SMALL):
        return self.start(ranks, '--devices=cpu,mpi', most, f'--spill-dir={self.folder / "spill"}')

    def written(self, daemon, records):
        daemon.wait(lambda: daemon.metric('spaid_spill_records') == records, f'has written {records}', 60)

    def rhs(self, n):
        return matrices.write_vectors(self.folder / f'b{n}.mtx', [[1.0 + i % 7 for i in range(n)]])

    def x_of(self, daemon, handle, n, *options):
        path = self.folder / 'x.mtx'
        told = self.ctl(daemon, 'solve', handle, f'--rhs={self.rhs(n)}', f'--out={path}', *options)
        self.assertEqual(told['outcome'], 'CONVERGED', told)
        return told, matrices.read_vectors(path)[0]

    def test_handles_answer_on_other_numbers_of_ranks(self):
        cases = {'permuted': (matrices.permuted(side=40), ['--engine=fsai', '--method=cg']),
                 'irregular': (matrices.irregular(n=1200), ['--engine=static-spai', '--method=gmres']),
                 'reducible': (matrices.reducible(n=1200), ['--engine=static-spai', '--method=bicgstab'])}
        daemon, handles, before = self.keeping(2), {}, {}
        for name, (matrix, options) in cases.items():
            handles[name] = self.ctl(daemon, 'upload', self.file(name, matrix))
            before[name] = self.x_of(daemon, handles[name]['name'], matrix[0], *options)
        for ranks in (3, 1, 4):
            # A matrix that is not written yet is written after SIGTERM.
            self.assertEqual(daemon.stop(), 0, daemon.text())
            daemon = self.keeping(ranks)
            self.assertEqual(self.there(daemon, f'mpi:{ranks}'), 0, 'nothing comes before it is asked for')
            for name, (matrix, options) in cases.items():
                handle = handles[name]['name']
                with self.subTest(matrix=name, ranks=ranks):
                    told = self.ctl(daemon, 'matrices', handle)
                    self.assertEqual((told['n'], told['nnz']), (handles[name]['n'], handles[name]['nnz']))
                    self.assertEqual(told['diagnosis'], handles[name]['diagnosis'])
                    solved, x = self.x_of(daemon, handle, matrix[0], *options)
                    self.assertEqual(solved['device'], f'mpi:{ranks}', solved)
                    earlier, y = before[name]
                    self.assertLessEqual(abs(solved['iterations'] - earlier['iterations']), 2)
                    self.assertLess(max(abs(u - v) for u, v in zip(x, y)), 1e-5 * max(map(abs, y)))
                    again = self.ctl(daemon, 'upload', self.file(name, matrix))
                    self.assertEqual((again['name'], again['reused']), (handle, True))

    def test_m_is_not_kept_and_told_so(self):
        daemon = self.keeping(2)
        path = self.file('permuted', matrices.permuted(side=40))
        built = self.ctl(daemon, 'build', path, '--engine=fsai')
        self.assertEqual(built['device'], 'mpi:2')
        daemon.stop()
        daemon = self.keeping(2)
        told = self.ctl(daemon, 'preconditioners', built['preconditioner'], status=1)
        self.assertEqual(told['error']['reason'], 'HANDLE_UNKNOWN', told)

    def test_a_daemon_without_ranks_says_what_it_lacks(self):
        daemon = self.keeping(2)
        handle = self.ctl(daemon, 'upload', self.file('permuted', matrices.permuted(side=40)))['name']
        daemon.stop()
        plain = self.start_plain(f'--spill-dir={self.folder / "spill"}')
        told = self.ctl(plain, 'solve', handle, f'--rhs={self.rhs(1600)}', status=1)
        self.assertEqual(told['error']['reason'], 'MATRIX_OVER_RANKS', told)
        self.assertIn('--devices=mpi', told['error']['message'])
        plain.stop()
        daemon = self.keeping(2)  # it is there as before
        self.x_of(daemon, handle, 1600, '--engine=fsai', '--method=cg')

    def test_a_damaged_file_is_found_out(self):
        daemon = self.keeping(2, MEDIUM)
        arrays = self.banded(n=40_000, half=4)  # several pieces of a mebibyte
        handle = self.upload(daemon, arrays).matrix.name
        self.written(daemon, 1)
        daemon.stop()
        (file,) = (self.folder / 'spill' / 'files').iterdir()
        whole = bytearray(file.read_bytes())
        self.assertGreater(len(whole), sum(array.nbytes for array in arrays))
        whole[-100_000] ^= 1  # among the last values: most has gone to the ranks by then
        file.write_bytes(whole)
        daemon = self.keeping(3, MEDIUM)
        told = self.ctl(daemon, 'solve', handle, f'--rhs={self.rhs(40_000)}', status=1)
        self.assertEqual(told['error']['reason'], 'HANDLE_EVICTED', told)
        daemon.wait(lambda: self.there(daemon, 'mpi:3') == 0, 'frees what had come')
        self.assertEqual(daemon.metric('spaid_spill_damaged_total'), 1)
        self.assertNotEqual(self.upload(daemon, arrays).matrix.name, handle)

    def test_rank_0_never_holds_it(self):
        arrays = self.banded(n=400_000, half=25)
        size = sum(array.nbytes for array in arrays)
        name = None
        for ranks in (4, 3):
            daemon = self.keeping(ranks, '--max-matrix-bytes=100000000')
            if name is None:
                name = self.upload(daemon, arrays).matrix.name
            pids = daemon.pids()
            idle = {rank: field(pid, 'VmRSS') for rank, pid in pids.items()}
            for pid in pids.values():
                pathlib.Path(f'/proc/{pid}/clear_refs').write_text('5')  # the peak is from now on
            if ranks == 4:
                self.written(daemon, 1)
            else:
                self.ctl(daemon, 'build', name, '--engine=jacobi')
            above = {rank: field(pid, 'VmHWM') - idle[rank] for rank, pid in pids.items()}
            print(f'A of {size} bytes, {ranks} ranks, at most: {above}', flush=True)
            # By columns and by rows; rank 0 not more than others.
            others = max(taken for rank, taken in above.items() if rank > 0)
            self.assertLessEqual(above[0], others + (64 << 20))
            daemon.stop()


class Full(Arrays):
    """Ranks with little memory, as a control group says while they start."""

    def little(self, nbytes, *flags):
        group = MEMORY / f'spaid-{uuid.uuid4().hex}'
        try:
            group.mkdir()
            self.addCleanup(group.rmdir)
            (group / 'memory.limit_in_bytes').write_text(str(nbytes))
        except OSError as error:
            self.skipTest(f'no control group of one\'s own for memory: {error}')
        command = ['sh', '-c', f'echo $$ > {group}/cgroup.procs; exec "$@"', 'sh', job.MPIEXEC, '-n', '2']
        daemon = self.start(2, '--devices=cpu,mpi', MEDIUM, *flags, command=command)
        with contextlib.suppress(OSError):
            (group / 'memory.limit_in_bytes').write_text('-1')  # they know it, and nothing else does
        info = next(d for d in self.ctl(daemon, 'info')['devices'] if d['name'] == 'mpi:2')
        self.assertLess(info['memory_bytes'], nbytes + 1)
        return daemon

    def test_who_comes_takes_the_place_of_who_was_used_longest_ago(self):
        daemon = self.little(400_000_000, f'--spill-dir={self.folder / "spill"}')
        # 36 bytes an entry while it comes, 24 then: four are there when the fifth finds no room.
        names = []
        for k in range(7):
            done = self.upload(daemon, self.banded(n=100_000, half=15, diagonal=60.0 + k))
            names.append(done.matrix.name)
            daemon.wait(lambda: daemon.metric('spaid_spill_records') == len(names), 'has written it', 60)
        self.assertLess(self.there(daemon, 'mpi:2'), 400_000_000)
        b = matrices.write_vectors(self.folder / 'b.mtx', [[1.0] * 100_000])
        for name in (names[0], names[6], names[1]):  # the first and the second went, and come back
            told = self.ctl(daemon, 'solve', name, f'--rhs={b}', '--engine=jacobi', '--method=bicgstab')
            self.assertEqual((told['outcome'], told['device']), ('CONVERGED', 'mpi:2'))
        self.assertGreaterEqual(daemon.metric('spaid_store_evictions_total'), 4)
        self.assertGreaterEqual(daemon.metric('spaid_spill_loaded_total'), 2)

    def test_what_is_on_its_way_has_its_place(self):
        daemon = self.little(400_000_000)
        memory = next(d for d in self.ctl(daemon, 'info')['devices'] if d['name'] == 'mpi:2')['memory_bytes']
        n = 50_000
        half = int(0.65 * memory / COMING / n) // 2  # of 2 half + 1 entries in a row one fits, and two do not
        arrays = self.banded(n, half)
        entries = len(arrays[2])

        def first(of):
            call, _ = self.half_an_upload(daemon, n, of)
            daemon.wait(lambda: self.there(daemon, 'mpi:2') == COMING * n * of, 'has its place', 60)
            return call

        def gives_back(what):
            daemon.wait(lambda: self.there(daemon, 'mpi:2') == 0, f'gives back: {what}', 60)

        call = first(2 * half)
        told = self.refused(daemon, arrays)
        self.assertEqual(told.code(), self.grpc.StatusCode.RESOURCE_EXHAUSTED)
        self.assertIn(f'may take {COMING * entries} bytes over all ranks, which have {memory} and use '
                      f'{COMING * n * 2 * half}, {COMING * n * 2 * half} of these for what is on its way: try again',
                      told.details())
        self.assertEqual(self.there(daemon, 'mpi:2'), COMING * n * 2 * half, 'that of the other one')
        call.cancel()
        gives_back('cancelled')
        # Refused on the way, and at the end.
        pointers, indices, values = arrays
        for bad in ((self.numpy.where(self.numpy.arange(n + 1) == 7, -1, pointers), indices, values),
                    (pointers, indices[::-1].copy(), values),
                    (pointers, indices, self.numpy.where(self.numpy.arange(entries) == 5, float('nan'), values))):
            self.assertEqual(self.refused(daemon, bad).code(), self.grpc.StatusCode.INVALID_ARGUMENT)
            gives_back('refused')
        # It fits by itself; what it takes then is its arrays.
        name = self.upload(daemon, arrays).matrix.name
        there = self.there(daemon, 'mpi:2')
        self.assertGreaterEqual(there, 24 * entries)
        self.assertLess(there, 24 * entries + 24 * n)
        # The next values on its pattern have a place of their own.
        told = self.refused(daemon, (pointers, indices, values * 2), same_pattern_as=name)
        self.assertIn(f'may take {COMING * entries} bytes', told.details())
        self.assertNotIn('on its way:', told.details())
        self.ctl(daemon, 'matrices', name, '--delete')
        gives_back('deleted')

    def test_where_nothing_may_go_the_sizes_are_told(self):
        daemon = self.little(400_000_000)  # no folder: what is given up would be lost
        for half in (12, 3, 1):  # ever smaller ones, until none fits
            for k in range(60):
                arrays = self.banded(n=100_000, half=half, diagonal=60.0 + k, skew=0)
                if half == 12 and k == 0:
                    name = self.upload(daemon, arrays).matrix.name
                    built = self.ctl(daemon, 'build', name, '--engine=fsai')['preconditioner']
                    continue
                try:
                    self.upload(daemon, arrays)
                except self.grpc.RpcError as full:
                    self.assertEqual(full.code(), self.grpc.StatusCode.RESOURCE_EXHAUSTED)
                    self.assertIn('bytes over all ranks, which have', full.details())
                    break
            else:
                self.fail('there is room for everything')
        there = self.there(daemon, 'mpi:2')
        # G is turned on its way out, which takes a copy.
        told = self.ctl(daemon, 'preconditioners', built, f'--download={self.folder / "G.mtx"}', status=1)
        self.assertEqual(told['error']['reason'], 'DEVICE_OUT_OF_MEMORY', told)
        self.assertIn('a matrix is turned before it is sent', told['error']['message'])
        self.assertEqual(self.there(daemon, 'mpi:2'), there)
        b = matrices.write_vectors(self.folder / 'b.mtx', [[1.0] * 100_000])
        solved = self.ctl(daemon, 'solve', name, f'--preconditioner={built}', '--method=bicgstab', f'--rhs={b}')
        self.assertEqual(solved['outcome'], 'CONVERGED')


class Values(Arrays):
    """The next time step: values alone."""

    def x_of(self, daemon, name, n):
        path = self.folder / 'x.mtx'
        b = matrices.write_vectors(self.folder / f'b{n}.mtx', [[1.0 + i % 5 for i in range(n)]])
        told = self.ctl(daemon, 'solve', name, f'--rhs={b}', '--engine=static-spai', '--method=gmres',
                        '--rtol=1e-12', f'--out={path}')
        self.assertEqual(told['outcome'], 'CONVERGED', told)
        return matrices.read_vectors(path)[0]

    def test_come_by_columns_and_by_rows(self):
        n = 3000
        pointers, indices, values = self.banded(n, half=2)
        numbers = self.numpy.random.default_rng(5)
        new = values * (1 + 0.1 * numbers.random(len(values)))
        for ranks in (1, 3):
            daemon, plain = self.start(ranks, '--devices=cpu,mpi', SMALL), self.start_plain()
            for first_by_rows in (False, True):
                for by_rows in (False, True):
                    with self.subTest(ranks=ranks, first_by_rows=first_by_rows, by_rows=by_rows):
                        # The band is symmetric in its pattern: its arrays are those of a matrix by rows, too.
                        first = self.upload(daemon, (pointers, indices, values), by_rows=first_by_rows).matrix.name
                        done = self.upload(daemon, (pointers, indices, new), by_rows=by_rows, same_pattern_as=first)
                        self.assertNotEqual(done.matrix.name, first)
                        self.assertEqual(done.timings.bytes_up, new.nbytes)
                        whole = self.upload(plain, (pointers, indices, new), by_rows=by_rows).matrix.name
                        x = self.x_of(daemon, done.matrix.name, n)
                        y = self.x_of(plain, whole, n)
                        self.assertLess(max(abs(u - v) for u, v in zip(x, y)), 1e-9 * max(map(abs, y)))
                        # The same as one that came with its pattern.
                        again = self.upload(daemon, (pointers, indices, new), by_rows=by_rows)
                        self.assertEqual(again.matrix.diagnosis, done.matrix.diagnosis)

    def test_keep_the_plan(self):
        n = 3000
        pointers, indices, values = self.banded(n, half=2)
        daemon, plain = self.start(2, '--devices=cpu,mpi', SMALL), self.start_plain()
        first = self.upload(daemon, (pointers, indices, values)).matrix.name
        self.assertFalse(self.build(daemon, first, self.spec.ENGINE_KIND_STATIC_SPAI).build_timings.rebuild)
        for factor in (2.0, 3.0):
            new = (pointers, indices, values * factor)
            name = self.upload(daemon, new, same_pattern_as=first).matrix.name
            built = self.build(daemon, name, self.spec.ENGINE_KIND_STATIC_SPAI)
            self.assertTrue(built.build_timings.rebuild, 'the plan of the first serves')
            files = [self.folder / f'{side}.mtx' for side in ('there', 'here')]
            self.ctl(daemon, 'preconditioners', built.name, f'--download={files[0]}')
            here = self.build(plain, self.upload(plain, new).matrix.name, self.spec.ENGINE_KIND_STATIC_SPAI)
            self.ctl(plain, 'preconditioners', here.name, f'--download={files[1]}')
            self.assertEqual(files[0].read_bytes(), files[1].read_bytes(), 'the bits of one process')
            first = name  # a chain of them has one pattern
        # All of it, as if for the first time: another pattern, for all that anybody knows.
        whole = self.upload(daemon, (pointers, indices, values * 5)).matrix.name
        self.assertFalse(self.build(daemon, whole, self.spec.ENGINE_KIND_STATIC_SPAI).build_timings.rebuild)

    def test_come_by_shared_memory(self):
        n, socket = 200_000, self.folder / 'local'  # a million entries: pieces of a mebibyte
        daemon = self.start(3, '--devices=cpu,mpi', MEDIUM, f'--local-socket={socket}')
        ran = subprocess.run([os.environ['SPAID_LOCAL_CLIENT'], daemon.address, str(socket), str(n)],
                             capture_output=True, text=True, check=False, timeout=job.LIMIT)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        first, second, fallback = ran.stdout.split()
        pointers, indices, values = self.banded(n, half=2)
        self.assertEqual(int(fallback), 0)
        self.assertEqual(daemon.metric('spaid_local_array_bytes_total', direction='read'),
                         pointers.nbytes + indices.nbytes + 2 * values.nbytes)
        # One that comes by chunks is found to be the same.
        again = self.upload(daemon, (pointers, indices, values), affinity=first.split('-')[1])
        self.assertEqual(again.matrix.name, first)
        there = self.there(daemon, 'mpi:3')
        self.assertGreater(there, 2 * 24 * len(values))
        x, y = self.x_of(daemon, first, n), self.x_of(daemon, second, n)
        self.assertLess(max(abs(u - 2 * v) for u, v in zip(x, y)), 1e-9 * max(map(abs, x)))

    def test_what_does_not_fit_is_refused(self):
        daemon = self.start(2, '--devices=cpu,mpi', SMALL)
        pointers, indices, values = self.banded(3000, half=2)
        there = self.upload(daemon, (pointers, indices, values)).matrix.name
        other = self.banded(3000, half=3)
        told = self.refused(daemon, other, same_pattern_as=there)
        self.assertIn('the matrix of same_pattern_as has n = 3000', told.details())
        small = self.upload(daemon, self.banded(60, half=1)).matrix.name
        told = self.refused(daemon, (pointers, indices, values), same_pattern_as=small)
        self.assertIn('same_pattern_as', told.details())
        told = self.refused(daemon, (pointers, indices, values), same_pattern_as='matrices/none')
        self.assertEqual(told.code(), self.grpc.StatusCode.NOT_FOUND)
        bad = values.copy()
        bad[7] = float('nan')
        told = self.refused(daemon, (pointers, indices, bad), same_pattern_as=there)
        self.assertEqual(told.code(), self.grpc.StatusCode.INVALID_ARGUMENT)
        self.assertIn('7', told.details())
        self.ctl(daemon, 'matrices', there, '--delete')
        self.assertEqual(self.refused(daemon, (pointers, indices, values), same_pattern_as=there).code(),
                         self.grpc.StatusCode.NOT_FOUND)


def field(pid, name):
    for line in pathlib.Path(f'/proc/{pid}/status').read_text().splitlines():
        if line.startswith(name + ':'):
            return int(line.split()[1]) * 1024
    raise AssertionError(name)


if __name__ == '__main__':
    job.main()
