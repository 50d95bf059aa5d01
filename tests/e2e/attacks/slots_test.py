"""Solves without end, queues full of them, everything called urgent, predictions bent: others' work goes on."""

import random
import struct
import threading
import time

import attack
from spaid.v1 import (arrays_pb2, job_pb2, job_pb2_grpc, matrix_pb2, matrix_pb2_grpc,
                      preconditioner_spec_pb2, server_pb2, server_pb2_grpc, solve_types_pb2,
                      solver_pb2, solver_pb2_grpc)

FLAGS = ['--trust-tenant-header', '--devices=cpu', '--threads=1', '--drain-deadline=1s']
GMRES, CG = solve_types_pb2.METHOD_GMRES, solve_types_pb2.METHOD_CG
NORMAL, URGENT = job_pb2.PRIORITY_NORMAL, job_pb2.PRIORITY_INTERACTIVE


def of(tenant):
    return [('x-spaid-tenant', tenant)]


def chunks(kind, code, numbers, message):
    step = 1 << 16
    for at in range(0, len(numbers), step):
        data = struct.pack(f'<{len(numbers[at:at + step])}{code}', *numbers[at:at + step])
        yield message(chunk=arrays_pb2.ArrayChunk(array=kind, offset=at, data=data))


def store_poisson(channel, tenant, n, diagonal=2.0):
    """The one-dimensional one, on which CG without M takes n iterations."""
    pointers, indices, values = [0], [], []
    for j in range(n):
        for i, value in ((j - 1, -1.0), (j, diagonal), (j + 1, -1.0)):
            if 0 <= i < n:
                indices.append(i)
                values.append(value)
        pointers.append(len(indices))

    def requests():
        yield matrix_pb2.UploadMatrixRequest(header=matrix_pb2.MatrixHeader(
            n=n, nnz=len(indices), layout=arrays_pb2.LAYOUT_CSC,
            value_type=arrays_pb2.VALUE_TYPE_FLOAT64))
        for kind, code, numbers in ((arrays_pb2.ARRAY_KIND_POINTERS, 'q', pointers),
                                    (arrays_pb2.ARRAY_KIND_INDICES, 'i', indices),
                                    (arrays_pb2.ARRAY_KIND_VALUES, 'd', values)):
            yield from chunks(kind, code, numbers, matrix_pb2.UploadMatrixRequest)
    *_, last = matrix_pb2_grpc.MatrixServiceStub(channel).UploadMatrix(
        requests(), timeout=60, metadata=of(tenant))
    return last.done.matrix.name


def open_solve(channel, tenant, matrix, b, timeout=60, **header):
    header.setdefault('method', CG)
    asked = solver_pb2.SolveHeader(matrix=matrix, rhs_count=1, **header)
    asked.spec.engine = preconditioner_spec_pb2.ENGINE_KIND_NONE

    def requests():
        yield solver_pb2.SolveRequest(header=asked)
        yield from chunks(arrays_pb2.ARRAY_KIND_RHS, 'd', b, solver_pb2.SolveRequest)
    return solver_pb2_grpc.SolverServiceStub(channel).Solve(
        requests(), timeout=timeout, metadata=of(tenant))


def solve(channel, tenant, matrix, b, timeout=60, **header):
    """Its SolveDone."""
    done = None
    for response in open_solve(channel, tenant, matrix, b, timeout, **header):
        if response.HasField('done'):
            done = response.done
    return done


def leave_endless(channel, tenant, matrix, n, started=False):
    """A detached solve that never ends; its name."""
    call = open_solve(channel, tenant, matrix, [1.0] * n, rtol=1e-300, atol=1e-300,
                      max_iterations=2**31 - 1, detach=True)
    name = None
    for response in call:
        if not response.HasField('job'):
            continue
        name = name or response.job.queued.job
        if not started or response.job.HasField('started'):
            break
    call.cancel()
    return name


class Slots(attack.TestCase):
    def test_a_solve_without_end_takes_turns(self):
        daemon = self.start(*FLAGS, '--lanes=1')
        with attack.channel(daemon) as ch:
            n = 100_000
            evil = store_poisson(ch, 'evil', n)
            names = [leave_endless(ch, 'evil', evil, n, started=k == 0) for k in range(3)]
            good = store_poisson(ch, 'good', 40_000, 2.1)
            start = time.monotonic()
            for tenant, matrix in (('good', good), ('evil', store_poisson(ch, 'evil', 50, 2.1))):
                done = solve(ch, tenant, matrix, [1.0] * (40_000 if tenant == 'good' else 50),
                             rtol=1e-8)
                self.assertEqual(done.outcomes[0].outcome, solve_types_pb2.OUTCOME_CONVERGED)
            self.assertLess(time.monotonic() - start, 30)
            jobs = job_pb2_grpc.JobServiceStub(ch)
            job = jobs.GetJob(job_pb2.GetJobRequest(name=names[0]), metadata=of('evil')).job
            self.assertEqual(job.state, job_pb2.JOB_STATE_RUNNING)
            for name in names:  # whether they are paused or not
                jobs.CancelJob(job_pb2.CancelJobRequest(name=name), metadata=of('evil'))
                for _ in jobs.WatchJob(job_pb2.WatchJobRequest(name=name), timeout=30,
                                       metadata=of('evil')):
                    pass

    def test_a_run_has_an_end(self):
        daemon = self.start(*FLAGS, '--lanes=1', '--max-run=1s')
        with attack.channel(daemon) as ch:
            limits = server_pb2_grpc.ServerServiceStub(ch).GetServerInfo(
                server_pb2.GetServerInfoRequest()).limits
            self.assertEqual(limits.max_run.seconds, 1)
            self.assertEqual(limits.max_queue.seconds, 24 * 3600)
            n = 100_000
            evil = store_poisson(ch, 'evil', n)
            names = [leave_endless(ch, 'evil', evil, n) for _ in range(2)]
            jobs = job_pb2_grpc.JobServiceStub(ch)
            for name in names:
                *_, last = jobs.WatchJob(job_pb2.WatchJobRequest(name=name), timeout=60,
                                         metadata=of('evil'))
                self.assertEqual(last.event.finished.job.outcomes[0].outcome,
                                 solve_types_pb2.OUTCOME_TIME_LIMIT)

    def test_one_tenant_does_not_fill_the_queue(self):
        daemon = self.start(*FLAGS, '--lanes=1', '--max-queued-jobs=40',
                            '--max-detached-jobs-per-tenant=10')
        with attack.channel(daemon) as ch:
            n = 20_000
            evil = store_poisson(ch, 'evil', n)
            for _ in range(10):
                leave_endless(ch, 'evil', evil, n)
            self.assert_refused(lambda: leave_endless(ch, 'evil', evil, n),
                                attack.grpc.StatusCode.RESOURCE_EXHAUSTED, 'TOO_MANY_DETACHED')
            waiting = [open_solve(ch, 'evil', evil, [1.0] * n, rtol=1e-300, atol=1e-300,
                                  max_iterations=2**31 - 1) for _ in range(40)]
            refused = 0
            for call in waiting:
                try:
                    next(call)
                except attack.grpc.RpcError as error:
                    self.assertEqual(attack.reason(error), 'QUEUE_FULL')
                    refused += 1
            self.assertGreater(refused, 5)
            good = store_poisson(ch, 'good', 50, 2.1)
            done = solve(ch, 'good', good, [1.0] * 50, rtol=1e-8)
            self.assertEqual(done.outcomes[0].outcome, solve_types_pb2.OUTCOME_CONVERGED)

    def test_calling_all_urgent_takes_nothing_from_others(self):
        daemon = self.start(*FLAGS, '--lanes=1')
        with attack.channel(daemon) as ch:
            n, numbers = 2000, random.Random(3)
            b = [numbers.uniform(-1, 1) for _ in range(n)]
            matrices = {tenant: store_poisson(ch, tenant, n) for tenant in ('modest', 'greedy')}
            spent = dict.fromkeys(matrices, 0.0)
            guard, end = threading.Lock(), time.monotonic() + 5

            def ask(tenant, priority):
                while time.monotonic() < end:
                    done = solve(ch, tenant, matrices[tenant], b, method=GMRES, restart=2, rtol=1e-300,
                                 atol=1e-300, max_iterations=1500, omit_solution=True,
                                 priority=priority)
                    with guard:
                        spent[tenant] += done.timings.solve_ms

            threads = [threading.Thread(target=ask, args=of_whom)
                       for of_whom in (('modest', NORMAL), ('greedy', URGENT)) for _ in range(5)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertGreater(spent['modest'], 0.7 * spent['greedy'], spent)

    def test_nobody_bends_what_is_expected_of_others(self):
        daemon = self.start(*FLAGS)
        with attack.channel(daemon) as ch:
            n = 2000
            good, evil = store_poisson(ch, 'good', n, 2.5), store_poisson(ch, 'evil', n)
            solve(ch, 'good', good, [1.0] * n, rtol=1e-8)
            for _ in range(6):
                solve(ch, 'evil', evil, [1.0] * n, method=GMRES, restart=2, rtol=1e-300,
                      atol=1e-300, max_iterations=10_000, omit_solution=True)
            for tenant in ('good', 'new'):
                matrix = store_poisson(ch, tenant, n, 2.5)
                done = solve(ch, tenant, matrix, [1.0] * n, timeout=2 * attack.busy(), rtol=1e-8)
                self.assertEqual(done.outcomes[0].outcome, solve_types_pb2.OUTCOME_CONVERGED)


if __name__ == '__main__':
    attack.main()
