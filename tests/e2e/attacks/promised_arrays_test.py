"""Headers that promise large arrays, and next to nothing of them: memory follows what comes."""

import struct
import time

import attack
import http2
from spaid.v1 import arrays_pb2 as arrays
from spaid.v1 import matrix_pb2 as matrix
from spaid.v1 import preconditioner_spec_pb2 as spec
from spaid.v1 import solve_types_pb2 as solve_types
from spaid.v1 import solver_pb2 as solver
from spaid.v1 import solver_pb2_grpc as solver_grpc

STREAMS = 60
N, NNZ = 600_000, 1_100_000  # each array over the size that gets huge pages
SIZES = {arrays.ARRAY_KIND_POINTERS: 8, arrays.ARRAY_KIND_INDICES: 4, arrays.ARRAY_KIND_VALUES: 8,
         arrays.ARRAY_KIND_RHS: 8, arrays.ARRAY_KIND_INITIAL_GUESS: 8}
MIB = 1 << 20
SOLVE, UPLOAD = '/spaid.v1.SolverService/Solve', '/spaid.v1.MatrixService/UploadMatrix'


def matrix_header(**more):
    return matrix.MatrixHeader(n=N, nnz=NNZ, layout=arrays.LAYOUT_CSC,
                               value_type=arrays.VALUE_TYPE_FLOAT64, **more)


def solve(elements, rhs_count=1):
    """A solve's header with its matrix, and so many elements of each array."""
    header = solver.SolveHeader(method=solve_types.METHOD_BICGSTAB, rtol=1e-8, rhs_count=rhs_count,
                                has_initial_guess=True, inline_matrix=matrix_header())
    header.spec.engine = spec.ENGINE_KIND_NONE
    body = http2.message(solver.SolveRequest(header=header).SerializeToString())
    for kind, size in SIZES.items():
        chunk = arrays.ArrayChunk(array=kind, data=bytes(elements * size))
        body += http2.message(solver.SolveRequest(chunk=chunk).SerializeToString())
    return body


def upload(**more):
    body = http2.message(matrix.UploadMatrixRequest(header=matrix_header(**more)).SerializeToString())
    for kind in (arrays.ARRAY_KIND_POINTERS, arrays.ARRAY_KIND_INDICES):
        chunk = arrays.ArrayChunk(array=kind, data=bytes(SIZES[kind]))
        body += http2.message(matrix.UploadMatrixRequest(chunk=chunk).SerializeToString())
    return body


def one_equation():
    """Requests of an honest solve."""
    header = solver.SolveHeader(method=solve_types.METHOD_CG, rtol=1e-8, rhs_count=1)
    header.spec.engine = spec.ENGINE_KIND_NONE
    header.inline_matrix.CopyFrom(matrix_header())
    header.inline_matrix.n = header.inline_matrix.nnz = 1
    yield solver.SolveRequest(header=header)
    for kind, data in ((arrays.ARRAY_KIND_POINTERS, struct.pack('<qq', 0, 1)),
                       (arrays.ARRAY_KIND_INDICES, struct.pack('<i', 0)),
                       (arrays.ARRAY_KIND_VALUES, struct.pack('<d', 2)),
                       (arrays.ARRAY_KIND_RHS, struct.pack('<d', 2))):
        yield solver.SolveRequest(chunk=arrays.ArrayChunk(array=kind, data=data))


class PromisedArrays(attack.TestCase):
    def settled(self):
        """A daemon that has measured its devices, which takes memory for a while: solves wait for that."""
        daemon = self.start('--keep-freed-memory=0s')
        with attack.channel(daemon) as channel:
            for _ in solver_grpc.SolverServiceStub(channel).Solve(one_equation(), timeout=60):
                pass
        daemon.wait(lambda: daemon.metric('spaid_streams_open') == 0, 'has answered')
        self.received = daemon.metric('spaid_array_bytes_received_total')
        return daemon

    def hold(self, daemon, connection, path, body, elements, streams=STREAMS):
        """Opens so many calls that send `body`, with so many bytes of elements, and no more; MiB that
        the daemon had before."""
        before = daemon.memory()
        for _ in range(streams):
            stream = connection.open(path)
            sent = connection.data(stream, body)
            while sent < len(body):
                connection.read(10, until=lambda: min(connection.window, connection.windows[stream]) > 0)
                more = connection.data(stream, body[sent:])
                self.assertGreater(more, 0, 'the daemon takes no more')
                sent += more
        daemon.wait(lambda: daemon.metric('spaid_streams_open') == streams, 'has them all open')
        all_of_it = self.received + elements * streams
        daemon.wait(lambda: daemon.metric('spaid_array_bytes_received_total') == all_of_it,
                    'has taken what was sent')
        self.assertEqual([e for e in connection.events if e[0] == http2.RST_STREAM], [])
        return before

    def small(self, path, body, elements):
        daemon = self.settled()
        with http2.Connection(daemon.port) as connection:
            before = self.hold(daemon, connection, path, body, elements)
            self.assert_memory(daemon, before + STREAMS * 0.5)
            attack.ask(daemon)

    def test_of_a_solve_with_its_matrix_cost_nothing(self):
        self.small(SOLVE, solve(1), sum(SIZES.values()))

    def test_of_many_right_hand_sides_cost_nothing(self):
        self.small(SOLVE, solve(1, rhs_count=40), sum(SIZES.values()))

    def test_of_uploads_cost_nothing(self):
        self.small(UPLOAD, upload(), 8 + 4)

    def test_of_which_some_comes_cost_what_comes_and_no_more_than_as_much_again(self):
        daemon = self.settled()
        body = solve(100_000)  # 3.4 MiB of 36 MB
        streams = 10
        with http2.Connection(daemon.port) as connection:
            before = self.hold(daemon, connection, SOLVE, body, 100_000 * sum(SIZES.values()), streams)
            self.assert_memory(daemon, before + streams * (2 * len(body) / MIB + 0.5))
            booked = daemon.metric('spaid_buffer_bytes', buffer='rhs')
            self.assertGreaterEqual(booked, streams * 3 * 100_000 * 8)
            booked = daemon.metric('spaid_store_bytes', store='matrices')
            self.assertGreaterEqual(booked, streams * 100_000 * (8 + 4 + 8))
        start = time.monotonic()
        daemon.wait(lambda: daemon.metric('spaid_streams_open') == 0, 'sees them gone')
        if not attack.SANITIZED:
            daemon.wait(lambda: daemon.memory() < 100, 'gives the memory back', 30)
        self.assertLess(time.monotonic() - start, 30)


if __name__ == '__main__':
    attack.main()
