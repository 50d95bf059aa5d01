"""Two matrices of one XXH3 digest: nobody is given the forger's in place of the own one."""

import hashlib
import struct

import attack
from spaid.v1 import (arrays_pb2, matrix_pb2, matrix_pb2_grpc, preconditioner_pb2,
                      preconditioner_pb2_grpc, preconditioner_spec_pb2, solve_types_pb2, solver_pb2,
                      solver_pb2_grpc)

N = 64


def pair():
    """Two diagonals near 4 of one XXH3-128: the lower halves of two values are those of the words of
    its published secret that XXH3 mixes them with. It then sums them up unmixed: what one upper half
    has more, the other one has less."""
    def diagonal(step):
        values = [4.0] * N
        for at, low, high in ((9, 0xe96dd4de, 0x40100000 + step), (17, 0xa4a44072, 0x40100000 - step)):
            values[at], = struct.unpack('<d', struct.pack('<II', low, high))
        return values
    return diagonal(0), diagonal(0x10000)


def pack(kind, values):
    return struct.pack(f'<{len(values)}{kind}', *values)


POINTERS, INDICES = pack('q', range(N + 1)), pack('i', range(N))


class ForgedMatrix(attack.TestCase):
    def setUp(self):
        self.channel = attack.channel(self.start())
        self.addCleanup(self.channel.close)
        self.matrices = matrix_pb2_grpc.MatrixServiceStub(self.channel)

    def upload(self, values=None, digest=None):
        header = matrix_pb2.MatrixHeader(
            n=N, nnz=N, layout=arrays_pb2.LAYOUT_CSC, value_type=arrays_pb2.VALUE_TYPE_FLOAT64,
            digest=digest)
        requests = [matrix_pb2.UploadMatrixRequest(header=header)]
        if values is not None:
            for kind, data in ((arrays_pb2.ARRAY_KIND_POINTERS, POINTERS),
                               (arrays_pb2.ARRAY_KIND_INDICES, INDICES),
                               (arrays_pb2.ARRAY_KIND_VALUES, pack('d', values))):
                requests.append(matrix_pb2.UploadMatrixRequest(
                    chunk=arrays_pb2.ArrayChunk(array=kind, data=data)))
        return list(self.matrices.UploadMatrix(iter(requests), timeout=60))

    def stored(self, values):
        return self.upload(values)[-1].done.matrix

    def solve(self, matrix, preconditioner):
        spec = preconditioner_spec_pb2.PreconditionerSpec(engine=preconditioner)
        header = solver_pb2.SolveHeader(matrix=matrix, method=solve_types_pb2.METHOD_CG, rtol=1e-10,
                                        rhs_count=1, spec=spec)
        chunk = arrays_pb2.ArrayChunk(array=arrays_pb2.ARRAY_KIND_RHS, data=pack('d', [1.0] * N))
        events = list(solver_pb2_grpc.SolverServiceStub(self.channel).Solve(
            iter([solver_pb2.SolveRequest(header=header), solver_pb2.SolveRequest(chunk=chunk)]),
            timeout=60))
        return struct.unpack(f'<{N}d', b''.join(event.chunk.data for event in events))

    def build(self, matrix):
        spec = preconditioner_spec_pb2.PreconditionerSpec(
            engine=preconditioner_spec_pb2.ENGINE_KIND_JACOBI)
        request = preconditioner_pb2.BuildPreconditionerRequest(
            header=preconditioner_pb2.BuildHeader(matrix=matrix, spec=spec))
        stub = preconditioner_pb2_grpc.PreconditionerServiceStub(self.channel)
        return list(stub.BuildPreconditioner(iter([request]), timeout=60))[-1].done.preconditioner

    def test_is_another_matrix(self):
        honest, forged = pair()
        first, second = self.stored(forged), self.stored(honest)
        self.assertEqual(first.digest, second.digest, 'no forgery: the test is wrong')
        self.assertNotEqual(first.name, second.name)
        self.assertEqual((self.stored(forged).name, self.stored(honest).name),
                         (first.name, second.name))

        xxh3 = second.digest
        self.assertEqual([event.WhichOneof('event') for event in self.upload(digest=xxh3)],
                         ['wait', 'need'])
        sizes = pack('q', [N, N])
        for values, name in ((honest, second.name), (forged, first.name)):
            asked = arrays_pb2.MatrixDigest(
                pattern=xxh3.pattern, pattern_sha256=hashlib.sha256(
                    sizes + POINTERS + INDICES).digest(),
                values=xxh3.values, values_sha256=hashlib.sha256(pack('d', values)).digest())
            self.assertEqual(self.upload(digest=asked)[-1].done.matrix.name, name)

        built = {self.build(name).name for name in (first.name, second.name)}
        self.assertEqual(len(built), 2)
        for engine in (preconditioner_spec_pb2.ENGINE_KIND_NONE,
                       preconditioner_spec_pb2.ENGINE_KIND_JACOBI):
            for values, name in ((forged, first.name), (honest, second.name)):
                x = self.solve(name, engine)
                self.assertLess(max(abs(1 - a * y) for a, y in zip(values, x)), 1e-9)


if __name__ == '__main__':
    attack.main()
