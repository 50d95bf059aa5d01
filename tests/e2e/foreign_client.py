"""A client of spaid with nothing of spaid's code in it.

Debian's grpcio and protobuf with code generated here from the protos, zlib's CRC-32, and NumPy and
SciPy to judge the answers. Starts a daemon on a free port, uploads, builds, downloads, solves, decodes
an error's reason from the trailer, and stops the daemon.

    foreign_client.py --daemon build/bin/spaid --protos proto --protoc protoc --plugin
        grpc_python_plugin --work FOLDER

Exit code 0: all checks hold; 77: skipped, because a Python package is missing; else it failed.
"""

import argparse
import hashlib
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import zlib

try:
    import google.protobuf  # noqa: F401
    import grpc
    import numpy
    import scipy.sparse
    import scipy.sparse.linalg
except ImportError as missing:
    print(f'skipped: {missing} (Debian: python3-grpcio python3-protobuf python3-scipy)')
    sys.exit(77)

import stubs

CHUNK_ELEMENTS = 1000  # small, so that arrays take several chunks


class Daemon:
    """The daemon as a child; killed at the end whatever happens."""

    def __init__(self, program):
        self.folder = tempfile.TemporaryDirectory(prefix='spaid-foreign-')
        self.port_file = pathlib.Path(self.folder.name) / 'port'
        self.log = open(pathlib.Path(self.folder.name) / 'log', 'w+')
        self.process = subprocess.Popen(
            [program, '--address=127.0.0.1:0', f'--port-file={self.port_file}',
             '--ops-address=127.0.0.1:0', '--drain-grace=0s'],
            stdout=self.log, stderr=subprocess.STDOUT)

    def __enter__(self):
        end = time.monotonic() + 30
        while not self.port_file.exists():
            check(self.process.poll() is None and time.monotonic() < end,
                  'the daemon did not start:\n' + self.text())
            # waitpid with a time-out is the event here: it returns at once if the daemon dies.
            try:
                self.process.wait(timeout=0.02)
            except subprocess.TimeoutExpired:
                pass
        self.address = self.port_file.read_text().strip()
        return self

    def text(self):
        return pathlib.Path(self.log.name).read_text()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60)

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.log.close()
        self.folder.cleanup()


def check(condition, text):
    if not condition:
        raise AssertionError(text)


def chunks_of(arrays_pb2, kind, array):
    """An array as chunks: raw little-endian bytes, element offsets, zlib's CRC-32."""
    for offset in range(0, len(array), CHUNK_ELEMENTS):
        data = array[offset:offset + CHUNK_ELEMENTS].tobytes()
        yield arrays_pb2.ArrayChunk(array=kind, offset=offset, data=data, crc32=zlib.crc32(data))


class Collector:
    """Received chunks put together, each checked."""

    def __init__(self, types):
        self.types = types
        self.arrays = {kind: bytearray() for kind in types}

    def take(self, chunk):
        array = self.arrays[chunk.array]
        size = numpy.dtype(self.types[chunk.array]).itemsize
        check(chunk.offset * size == len(array), f'chunk at {chunk.offset} is out of order')
        check(chunk.HasField('crc32') and zlib.crc32(chunk.data) == chunk.crc32,
              f'chunk at {chunk.offset}: wrong CRC-32')
        array += chunk.data

    def get(self, kind):
        return numpy.frombuffer(bytes(self.arrays[kind]), dtype=self.types[kind])


def convection_diffusion(n, wind):
    """The upwind scheme on an n by n grid, as SciPy makes it."""
    one = scipy.sparse.diags([-1 - wind, 2 + wind, -1], [-1, 0, 1], shape=(n, n))
    two = scipy.sparse.diags([-1, 2, -1], [-1, 0, 1], shape=(n, n))
    eye = scipy.sparse.identity(n)
    a = (scipy.sparse.kron(eye, one) + scipy.sparse.kron(two, eye)).tocsc()
    a.sort_indices()
    return a


def hard_systems(rng):
    """{name: matrix} that AUTO has to climb for, or that are singular; the sizes are those of a test."""
    n = 20
    wind = convection_diffusion(n, 0.8)
    order = rng.permutation(n * n)
    powers = lambda: scipy.sparse.diags(numpy.ldexp(1.0, rng.integers(-40, 41, n * n)))
    grid = scipy.sparse.diags([-1.0, 2.0, -1.0], [-1, 0, 1], shape=(n, n))
    laplace = scipy.sparse.kron(scipy.sparse.identity(n), grid) + scipy.sparse.kron(grid, scipy.sparse.identity(n))
    neumann = laplace - scipy.sparse.diags(numpy.asarray(laplace.sum(axis=1)).ravel())
    shuffled = scipy.sparse.identity(300, format='csr')[rng.permutation(300)]
    few = scipy.sparse.random(300, 300, 0.02, random_state=5) + shuffled
    systems = {'rows in another order': wind[order],
               'scaled by powers of two': powers() @ wind[order] @ powers(),
               'symmetric and indefinite': laplace - 2.1 * scipy.sparse.identity(n * n),
               'constants in the null space': neumann,
               'a few entries at random': few}
    for name, a in systems.items():
        systems[name] = scipy.sparse.csc_matrix(a)
        systems[name].sum_duplicates()
    return systems


def run(options):
    stubs.generate(options.protos, options.protoc, options.plugin, options.work)
    sys.path.insert(0, options.work)
    from google_rpc import error_details_pb2, status_pb2
    from spaid.v1 import (arrays_pb2, matrix_pb2, matrix_pb2_grpc, preconditioner_pb2,
                          preconditioner_pb2_grpc, preconditioner_spec_pb2, server_pb2,
                          server_pb2_grpc, solve_types_pb2, solver_pb2, solver_pb2_grpc)

    def reason_of(error):
        """(code, reason, text) out of the trailer grpc-status-details-bin."""
        details = dict(error.trailing_metadata()).get('grpc-status-details-bin')
        check(details is not None, f'no details in the trailer of: {error}')
        status = status_pb2.Status.FromString(details)
        check(status.code == error.code().value[0], 'the codes differ')
        check(status.message == error.details(), 'the texts differ')
        for detail in status.details:
            if detail.type_url.endswith('google.rpc.ErrorInfo'):
                info = error_details_pb2.ErrorInfo.FromString(detail.value)
                return error.code(), info.reason, status.message
        raise AssertionError(f'no ErrorInfo in {status}')

    def refused(call):
        try:
            call()
        except grpc.RpcError as error:
            return reason_of(error)
        raise AssertionError('a bad request was accepted')

    def by_digest(stub, a, digest):
        """The answer to a header with these digests and nothing behind it."""
        header = matrix_pb2.MatrixHeader(
            n=a.shape[0], nnz=a.nnz, layout=arrays_pb2.LAYOUT_CSC,
            value_type=arrays_pb2.VALUE_TYPE_FLOAT64, digest=digest)
        request = matrix_pb2.UploadMatrixRequest(header=header)
        return list(stub.UploadMatrix(iter([request])))

    def upload(stub, a, break_crc=False):
        header = matrix_pb2.MatrixHeader(
            n=a.shape[0], nnz=a.nnz, layout=arrays_pb2.LAYOUT_CSC,
            value_type=arrays_pb2.VALUE_TYPE_FLOAT64, label='from SciPy')
        parts = [(arrays_pb2.ARRAY_KIND_POINTERS, a.indptr.astype('<i8')),
                 (arrays_pb2.ARRAY_KIND_INDICES, a.indices.astype('<i4')),
                 (arrays_pb2.ARRAY_KIND_VALUES, a.data.astype('<f8'))]

        def requests():
            yield matrix_pb2.UploadMatrixRequest(header=header)
            for kind, array in parts:
                for chunk in chunks_of(arrays_pb2, kind, array):
                    if break_crc:
                        chunk.crc32 ^= 1
                    yield matrix_pb2.UploadMatrixRequest(chunk=chunk)
        events = list(stub.UploadMatrix(requests()))
        check(events[-1].WhichOneof('event') == 'done', f'last event: {events[-1]}')
        return events[-1].done

    with Daemon(options.daemon) as daemon, grpc.insecure_channel(daemon.address) as channel:
        info = server_pb2_grpc.ServerServiceStub(channel).GetServerInfo(
            server_pb2.GetServerInfoRequest())
        for engine in ('STATIC_SPAI', 'FSAI', 'AFSAI'):
            check(preconditioner_spec_pb2.EngineKind.Value(f'ENGINE_KIND_{engine}') in info.engines,
                  f'no {engine}')

        a = convection_diffusion(40, 0.8)
        n = a.shape[0]
        matrices = matrix_pb2_grpc.MatrixServiceStub(channel)
        done = upload(matrices, a)
        matrix = done.matrix
        check((matrix.n, matrix.nnz) == (n, a.nnz), 'another matrix was stored')
        check(done.timings.bytes_up == 8 * (n + 1) + 12 * a.nnz, 'bytes_up is wrong')
        check(not matrix.diagnosis.numerically_symmetric, 'diagnosed as symmetric')

        # Known content need not be sent: XXH3 from the first answer, SHA-256 by Python.
        sizes = numpy.array([n, a.nnz], '<i8').tobytes()
        pattern = sizes + a.indptr.astype('<i8').tobytes() + a.indices.astype('<i4').tobytes()
        xxh3 = arrays_pb2.MatrixDigest(pattern=matrix.digest.pattern, values=matrix.digest.values)
        sha256 = arrays_pb2.MatrixDigest(
            pattern=xxh3.pattern, pattern_sha256=hashlib.sha256(pattern).digest(),
            values=xxh3.values, values_sha256=hashlib.sha256(a.data.astype('<f8')).digest())
        answer = by_digest(matrices, a, sha256)
        check(answer[-1].done.matrix.name == matrix.name, f'known content: {answer}')
        check(answer[-1].done.matrix.digest == sha256, 'other digests')
        other = arrays_pb2.MatrixDigest()
        other.CopyFrom(sha256)
        other.values_sha256 = hashlib.sha256(b'other').digest()
        # The second question may come before the server is through with the first one: then it waits, too.
        for digest, expected in ((xxh3, [['wait', 'need']]), (other, [['need'], ['wait', 'need']])):
            kinds = [event.WhichOneof('event') for event in by_digest(matrices, a, digest)]
            check(kinds in expected, f'{kinds}, not {expected}')

        # Build, with the result on the stream.
        spec = preconditioner_spec_pb2.PreconditionerSpec(
            engine=preconditioner_spec_pb2.ENGINE_KIND_STATIC_SPAI,
            static_spai=preconditioner_spec_pb2.StaticSpaiSpec(
                pattern_power=2, local_solver=preconditioner_spec_pb2.LOCAL_SOLVER_AUTO))
        preconditioners = preconditioner_pb2_grpc.PreconditionerServiceStub(channel)
        request = preconditioner_pb2.BuildPreconditionerRequest(
            header=preconditioner_pb2.BuildHeader(matrix=matrix.name, spec=spec,
                                                  stream_result=True))
        types = {arrays_pb2.ARRAY_KIND_POINTERS: '<i8', arrays_pb2.ARRAY_KIND_INDICES: '<i4',
                 arrays_pb2.ARRAY_KIND_VALUES: '<f8'}
        streamed, seen, built = Collector(types), set(), None
        for response in preconditioners.BuildPreconditioner(iter([request])):
            event = response.WhichOneof('event')
            if event == 'job':
                seen.add(response.job.WhichOneof('event'))
            elif event == 'chunk':
                streamed.take(response.chunk)
            elif event == 'done':
                built = response.done.preconditioner
        check(built is not None, 'the build ended without a result')
        check({'queued', 'started', 'quality', 'finished'} <= seen, f'events: {seen}')

        # The same M, downloaded later.
        fetched = Collector(types)
        for response in preconditioners.DownloadPreconditioner(
                preconditioner_pb2.DownloadPreconditionerRequest(name=built.name)):
            if response.WhichOneof('event') == 'chunk':
                fetched.take(response.chunk)
        for kind in types:
            check(numpy.array_equal(streamed.get(kind), fetched.get(kind)),
                  'the streamed and the downloaded M differ')
        m = scipy.sparse.csc_matrix(
            (fetched.get(arrays_pb2.ARRAY_KIND_VALUES), fetched.get(arrays_pb2.ARRAY_KIND_INDICES),
             fetched.get(arrays_pb2.ARRAY_KIND_POINTERS)), shape=(n, n))
        pattern = abs(a) @ abs(a)  # power 2; no cancellation: all entries are positive
        check((abs(m) - abs(m).multiply(pattern != 0)).nnz == 0,
              'M is outside the pattern of A squared')
        residual = scipy.sparse.linalg.norm(a @ m - scipy.sparse.identity(n))
        check(abs(residual - built.quality.residual_frobenius) <= 1e-9 * residual,
              f'SciPy finds {residual}, spaid said {built.quality.residual_frobenius}')
        # Each column solves its least-squares problem: A^T (A m_k - e_k) vanishes on the pattern.
        gradient = (a.T @ (a @ m - scipy.sparse.identity(n))).multiply(m != 0)
        check(abs(gradient).max() < 1e-9, f'not a minimum: gradient {abs(gradient).max()}')

        # Solve two right-hand sides with it.
        rng = numpy.random.default_rng(7)
        b = rng.standard_normal((2, n))
        header = solver_pb2.SolveHeader(
            matrix=matrix.name, preconditioner=built.name, method=solve_types_pb2.METHOD_BICGSTAB,
            rtol=1e-10, rhs_count=2)

        def solve(header, b):
            """(SolveDone, x, how many residuals came)"""
            def requests():
                yield solver_pb2.SolveRequest(header=header)
                for chunk in chunks_of(arrays_pb2, arrays_pb2.ARRAY_KIND_RHS,
                                       b.reshape(-1).astype('<f8')):
                    yield solver_pb2.SolveRequest(chunk=chunk)
            solution = Collector({arrays_pb2.ARRAY_KIND_SOLUTION: '<f8'})
            result, residuals = None, 0
            for response in solver_pb2_grpc.SolverServiceStub(channel).Solve(requests()):
                event = response.WhichOneof('event')
                if event == 'chunk':
                    solution.take(response.chunk)
                elif event == 'job' and response.job.WhichOneof('event') == 'residuals':
                    residuals += len(response.job.residuals.residuals)
                elif event == 'done':
                    result = response.done
            return result, solution.get(arrays_pb2.ARRAY_KIND_SOLUTION).reshape(b.shape), residuals

        result, x, residuals = solve(header, b)
        check(residuals > 0, 'no residuals came')
        check(len(result.outcomes) == 2, 'two outcomes were expected')
        for i in range(2):
            check(result.outcomes[i].outcome == solve_types_pb2.OUTCOME_CONVERGED,
                  f'outcome {result.outcomes[i]}')
            found = numpy.linalg.norm(b[i] - a @ x[i]) / numpy.linalg.norm(b[i])
            check(found <= 1.001e-10, f'SciPy finds a relative residual of {found}')

        # AUTO climbs, and what it says of each residual is so; once from the bottom, once from what it learned.
        climbed = 0
        for name, hard in hard_systems(rng).items():
            handle = upload(matrices, hard).matrix.name
            rhs = hard @ rng.standard_normal(hard.shape[0])
            for _ in range(2):
                done, x, _ = solve(solver_pb2.SolveHeader(
                    matrix=handle, rtol=1e-9, method=solve_types_pb2.METHOD_AUTO,
                    spec=preconditioner_spec_pb2.PreconditionerSpec(
                        engine=preconditioner_spec_pb2.ENGINE_KIND_AUTO)), rhs)
                outcome = done.outcomes[0]
                found = numpy.linalg.norm(rhs - hard @ x) / numpy.linalg.norm(rhs)
                check(outcome.outcome == solve_types_pb2.OUTCOME_CONVERGED, f'{name}: {outcome}')
                check(found <= 1.001e-9, f'{name}: SciPy finds a relative residual of {found}')
                check(abs(found - outcome.true_relative_residual) <= 1e-12,
                      f'{name}: SciPy finds {found}, spaid said {outcome.true_relative_residual}')
                check(not done.rungs or done.rungs[-1].left == '' and
                      abs(done.rungs[-1].relative_residual - found) <= 1e-12, f'{name}: {done.rungs}')
                check(all(rung.left for rung in done.rungs[:-1]), f'{name}: {done.rungs}')
                climbed += len(done.rungs) > 1
        check(climbed >= 3, f'only {climbed} of these climbed')

        # Errors, from the trailer alone.
        code, reason, text = refused(lambda: matrices.GetMatrix(
            matrix_pb2.GetMatrixRequest(name='matrices/nobody')))
        check((code, reason) == (grpc.StatusCode.NOT_FOUND, 'HANDLE_UNKNOWN'),
              (code, reason, text))
        code, reason, text = refused(lambda: upload(matrices, a, break_crc=True))
        check((code, reason) == (grpc.StatusCode.INVALID_ARGUMENT, 'CHECKSUM_MISMATCH'),
              (code, reason, text))
        bad = a.copy()
        bad.indices = bad.indices.copy()
        bad.indices[0] = n
        code, reason, text = refused(lambda: upload(matrices, bad))
        check((code, reason) == (grpc.StatusCode.INVALID_ARGUMENT, 'INDEX_OUT_OF_RANGE'),
              (code, reason, text))

        status = daemon.stop()
        check(status == 0, f'the daemon ended with {status}:\n' + daemon.text())
    print(f'foreign client: ok (n = {n}, {a.nnz} entries, residual of M {residual:.4g}, '
          f'{result.outcomes[0].iterations} and {result.outcomes[1].iterations} iterations)')


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n', maxsplit=1)[0])
    for name in ['daemon', 'protos', 'protoc', 'plugin', 'work']:
        parser.add_argument(f'--{name}', required=True)
    run(parser.parse_args())


if __name__ == '__main__':
    main()
