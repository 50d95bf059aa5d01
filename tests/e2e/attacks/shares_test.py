"""One tenant floods the daemon; what another one has and asks for survives."""

import array
import threading

import attack
import grpc
from spaid.v1 import (arrays_pb2, job_pb2, job_pb2_grpc, matrix_pb2, matrix_pb2_grpc, preconditioner_pb2,
                      preconditioner_pb2_grpc, preconditioner_spec_pb2, solve_types_pb2, solver_pb2,
                      solver_pb2_grpc)

FULL = grpc.StatusCode.RESOURCE_EXHAUSTED
NONE = preconditioner_spec_pb2.PreconditionerSpec(engine=preconditioner_spec_pb2.ENGINE_KIND_NONE)


def chunk(kind, typecode, numbers, at=0):
    return arrays_pb2.ArrayChunk(array=kind, offset=at, data=array.array(typecode, numbers).tobytes())


def rhs(n):
    return chunk(arrays_pb2.ARRAY_KIND_RHS, 'd', [1.0] * n)


class Tenant:
    """A client under a name of its own, over a connection of its own."""

    def __init__(self, daemon, name):
        self.channel = attack.channel(daemon)
        self.metadata = [('x-spaid-tenant', name)]
        self.matrices = matrix_pb2_grpc.MatrixServiceStub(self.channel)
        self.solver = solver_pb2_grpc.SolverServiceStub(self.channel)
        self.preconditioners = preconditioner_pb2_grpc.PreconditionerServiceStub(self.channel)
        self.jobs = job_pb2_grpc.JobServiceStub(self.channel)
        self.over = threading.Event()  # what is held back may end

    def close(self):
        self.over.set()
        self.channel.close()

    def upload_messages(self, n, diagonal, hold=False):
        """A tridiagonal matrix of -1 and `diagonal`, 44 n bytes; `hold`: all but the last number."""
        pointers, indices, values = [0], [], []
        for i in range(n):
            for j in range(max(i - 1, 0), min(i + 2, n)):
                indices.append(j)
                values.append(float(diagonal) if i == j else -1.0)
            pointers.append(len(indices))
        yield matrix_pb2.UploadMatrixRequest(header=matrix_pb2.MatrixHeader(
            n=n, nnz=len(indices), layout=arrays_pb2.LAYOUT_CSC, value_type=arrays_pb2.VALUE_TYPE_FLOAT64))
        for kind, typecode, numbers in [
                (arrays_pb2.ARRAY_KIND_POINTERS, 'q', pointers),
                (arrays_pb2.ARRAY_KIND_INDICES, 'i', indices),
                (arrays_pb2.ARRAY_KIND_VALUES, 'd', values[:-1] if hold else values)]:
            yield matrix_pb2.UploadMatrixRequest(chunk=chunk(kind, typecode, numbers))
        if hold:
            self.over.wait(120)

    def upload(self, n, diagonal=2):
        for event in self.matrices.UploadMatrix(self.upload_messages(n, diagonal), timeout=60,
                                                metadata=self.metadata):
            if event.HasField('done'):
                return event.done.matrix.name
        raise AssertionError('the upload ended without a matrix')

    def has(self, matrix):
        return self.matrices.GetMatrix(matrix_pb2.GetMatrixRequest(name=matrix), timeout=30,
                                       metadata=self.metadata).matrix.name == matrix

    def solve(self, matrix, n):
        header = solver_pb2.SolveHeader(matrix=matrix, spec=NONE, rtol=1e-8, rhs_count=1,
                                          method=solve_types_pb2.METHOD_CG)
        messages = [solver_pb2.SolveRequest(header=header), solver_pb2.SolveRequest(chunk=rhs(n))]
        for event in self.solver.Solve(iter(messages), timeout=60, metadata=self.metadata):
            if event.HasField('done'):
                return event.done.outcomes[0].outcome == solve_types_pb2.OUTCOME_CONVERGED
        return False

    def flood(self, calls, until=lambda event: True):
        """Opens calls until one is refused; keeps the others open. `until(event)`: a call stands."""
        held, error = [], None
        for call in calls:
            try:
                while not until(next(call)):
                    pass
                held.append(call)
            except grpc.RpcError as refusal:
                error = refusal
                break
        return held, error


class Shares(attack.TestCase):
    def start(self, *flags):
        daemon = super().start('--devices=cpu', '--threads=1', '--trust-tenant-header', *flags)
        self.flood, self.quiet = Tenant(daemon, 'flood'), Tenant(daemon, 'quiet')
        self.addCleanup(self.flood.close)
        self.addCleanup(self.quiet.close)
        return daemon

    def survives(self, matrix, n=1000):
        """What the quiet tenant has is there, and what it asks for is done."""
        self.assertTrue(self.quiet.has(matrix))
        self.assertTrue(self.quiet.solve(matrix, n))
        self.assertTrue(self.quiet.solve(self.quiet.upload(n, diagonal=7), n))

    def test_uploads_take_no_handles_of_others(self):
        daemon = self.start('--matrix-store-bytes=4MiB', '--max-matrix-bytes=1MiB')
        mine = self.quiet.upload(1000)
        first = self.flood.upload(10_000, diagonal=1)
        for i in range(2, 41):  # more than 17 MB
            self.flood.upload(10_000, diagonal=i)
        self.assertGreater(daemon.metric('spaid_store_evictions_total', store='matrices'), 20)
        self.assert_refused(lambda: self.flood.has(first), grpc.StatusCode.NOT_FOUND, 'HANDLE_EVICTED')
        self.survives(mine)
        self.assertEqual(daemon.metric('spaid_store_tenants', store='matrices'), 2)

    def test_uploads_in_flight_leave_room(self):
        daemon = self.start('--matrix-store-bytes=4MiB', '--max-matrix-bytes=1MiB')
        mine = self.quiet.upload(1000)
        calls = [self.flood.matrices.UploadMatrix(
            self.flood.upload_messages(10_000, i, hold=True), metadata=self.flood.metadata)
            for i in range(40)]
        daemon.wait(lambda: daemon.metric('spaid_rpcs_ended_total', method='MatrixService/UploadMatrix',
                                          reason='STORE_FULL') > 25, 'is full')
        self.survives(mine)
        self.assertTrue(self.quiet.upload(10_000))
        for call in calls:
            call.cancel()

    def test_streams_leave_places(self):
        daemon = self.start('--max-streams=64')
        mine = self.quiet.upload(1000)
        held, error = self.flood.flood(
            self.flood.matrices.UploadMatrix(
                self.flood.upload_messages(100, i, hold=True), metadata=self.flood.metadata)
            for i in range(100))
        self.assertEqual((error.code(), attack.reason(error)), (FULL, 'TOO_MANY_STREAMS'), error)
        self.assertEqual(len(held), 56)
        self.assertEqual(daemon.metric('spaid_streams_open'), 56)
        self.survives(mine)

    def test_right_hand_sides_leave_room(self):
        daemon = self.start('--rhs-bytes=4MiB')
        mine, n = self.quiet.upload(1000), 10_000
        theirs = self.flood.upload(n)

        def messages():  # all but the end: 160,000 bytes are held with the solution's
            yield solver_pb2.SolveRequest(header=solver_pb2.SolveHeader(
                matrix=theirs, spec=NONE, method=solve_types_pb2.METHOD_CG, rtol=1e-8,
                rhs_count=2))
            yield solver_pb2.SolveRequest(chunk=rhs(n))
            self.flood.over.wait(120)
        calls = [self.flood.solver.Solve(messages(), metadata=self.flood.metadata) for _ in range(40)]
        daemon.wait(lambda: daemon.metric('spaid_buffer_bytes', buffer='rhs') > 3.3 * 2**20, 'is full')
        self.survives(mine)
        self.assertLessEqual(daemon.metric('spaid_buffer_bytes', buffer='rhs'), 3.5 * 2**20)
        for call in calls:
            call.cancel()

    def test_solves_leave_places_in_the_queue(self):
        daemon = self.start('--max-queued-jobs=32', '--lanes=2')
        mine, n = self.quiet.upload(1000), 10_000
        theirs = self.flood.upload(n)
        # They never end: no residual is small enough.
        header = solver_pb2.SolveHeader(
            matrix=theirs, spec=NONE, method=solve_types_pb2.METHOD_CG, rtol=1e-300, atol=1e-300,
            max_iterations=2**31 - 1, rhs_count=1, detach=True)
        calls = (self.flood.solver.Solve(
            iter([solver_pb2.SolveRequest(header=header), solver_pb2.SolveRequest(chunk=rhs(n))]),
            timeout=60, metadata=self.flood.metadata) for _ in range(100))
        held, error = self.flood.flood(calls, until=lambda event: event.HasField('job'))
        self.assertEqual(error.code(), FULL, error)
        self.assertLessEqual(daemon.metric('spaid_jobs_queued'), 28)
        self.assertGreater(len(held), 0)
        self.survives(mine)
        for job in self.flood.jobs.ListJobs(job_pb2.ListJobsRequest(page_size=100), timeout=30,
                                            metadata=self.flood.metadata).jobs:
            self.flood.jobs.CancelJob(job_pb2.CancelJobRequest(name=job.name), timeout=30,
                                      metadata=self.flood.metadata)

    def test_estimates_take_turns(self):
        self.start()
        mine = self.quiet.upload(1000)
        theirs = self.flood.upload(50_000)
        request = preconditioner_pb2.EstimateBuildRequest(
            matrix=theirs, spec=preconditioner_spec_pb2.PreconditionerSpec(
                engine=preconditioner_spec_pb2.ENGINE_KIND_STATIC_SPAI))
        calls = [self.flood.preconditioners.EstimateBuild.future(
            request, timeout=120, metadata=self.flood.metadata) for _ in range(500)]
        self.survives(mine)
        for call in calls:
            call.cancel()

    def test_made_up_tenants_are_one(self):
        daemon = self.start('--matrix-store-bytes=1MiB', '--max-matrix-bytes=256KiB', '--max-tenants=8')
        mine = self.quiet.upload(1000)
        for i in range(300):
            self.flood.metadata = [('x-spaid-tenant', f'made up {i}')]
            self.flood.upload(1000)
        self.assertGreater(daemon.metric('spaid_store_evictions_total', store='matrices'), 200)
        self.assertEqual(daemon.metric('spaid_store_tenants', store='matrices'), 9)
        self.survives(mine)


if __name__ == '__main__':
    attack.main()
