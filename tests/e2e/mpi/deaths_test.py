"""A rank dies (kill -9): the whole job ends at once, says who died, and leaves nobody behind.

    deaths_test.py [Rank0 | Rank1 | Rank2]
"""

import os
import re
import signal
import time

import job
import matrices

RANKS = 3


class Death:
    rank = None

    def setUp(self):
        super().setUp()
        self.daemon = self.start_to_fail(RANKS)

    def kill(self, client=None, daemon=None):
        self.daemon = daemon or self.daemon
        pids = self.daemon.pids()
        self.assertEqual(sorted(pids), list(range(RANKS)))
        others = set(self.daemon.processes()) - {self.daemon.process.pid}
        os.kill(pids[self.rank], signal.SIGKILL)
        killed = time.monotonic()
        if client is not None:
            told = self.finish(client, status=1, seconds=20)
            self.assertEqual(told['error']['code'], 'UNAVAILABLE', told)
            print(f'the client was told after {time.monotonic() - killed:.2f} s', flush=True)
        self.assert_ends_badly(self.daemon)
        print(f'all over after {time.monotonic() - killed:.2f} s', flush=True)
        self.assertEqual([pid for pid in others if os.path.exists(f'/proc/{pid}/exe')], [])
        words = self.daemon.sentences()
        dead = (f'spaid: [RANK_LOST] rank {self.rank} on {job.host()} has died (its connection was closed); '
                'start the job again')
        if self.rank == 0:  # whoever of the others comes to say it before mpiexec ends it
            self.assertEqual(set(words) - {dead}, set(), self.daemon.text())
        else:
            self.assertEqual(words, [dead], self.daemon.text())
        self.assertIsNone(re.search(r'Segmentation|Assertion|terminate called', self.daemon.text()))

    def test_idle(self):
        self.kill()

    def test_idle_after_work(self):
        matrix = self.file('irregular', matrices.irregular())
        m = self.ctl(self.daemon, 'build', matrix, '--engine=static-spai')['preconditioner']
        self.ctl(self.daemon, 'solve', matrix, f'--preconditioner={m}', '--method=gmres')
        self.kill()

    def test_while_a_matrix_comes(self):
        daemon = self.start_to_fail(RANKS, '--devices=cpu,mpi', '--max-matrix-bytes=1000000')
        call, grpc = self.half_an_upload(daemon, 100_000, 40)
        self.kill(daemon=daemon)
        with self.assertRaises(grpc.RpcError) as told:
            for _ in call:
                pass
        self.assertEqual(told.exception.code(), grpc.StatusCode.UNAVAILABLE)

    def test_while_m_goes(self):
        daemon = self.start_to_fail(RANKS, '--devices=cpu,mpi', '--max-matrix-bytes=2000000')
        matrix = self.file('chain', matrices.chain(200_000))
        m = self.ctl(daemon, 'build', matrix, '--engine=static-spai', '--pattern-power=8')
        call, grpc = self.half_a_download(daemon, m['preconditioner'])
        self.kill(daemon=daemon)
        with self.assertRaises(grpc.RpcError) as told:
            for _ in call:
                pass
        self.assertEqual(told.exception.code(), grpc.StatusCode.UNAVAILABLE)

    def test_in_auto(self):
        daemon = self.start_to_fail(RANKS, '--devices=cpu,mpi', '--max-matrix-bytes=1000000')
        matrix = self.file('chain', matrices.chain(100_000))
        client = self.begin(daemon, 'solve', matrix, '--rtol=1e-13', '--max-iterations=2000000000', '--rhs=random')
        self.daemon = daemon
        self.running(daemon, 'solve')
        self.kill(client, daemon=daemon)

    def test_in_a_plan(self):
        matrix = self.file('slow', matrices.slow_to_build())
        client = self.begin(self.daemon, 'build', matrix, '--engine=static-spai', '--pattern-power=3')
        self.running(self.daemon, 'plan')
        self.kill(client)

    def test_in_a_build(self):
        matrix = self.file('slow', matrices.slow_to_build())
        client = self.begin(self.daemon, 'build', matrix, '--engine=static-spai', '--pattern-power=2')
        self.running(self.daemon, 'build')
        self.kill(client)

    def test_in_a_solve(self):
        matrix = self.file('chain', matrices.chain(100_000))
        client = self.begin(self.daemon, 'solve', matrix, '--engine=none', '--method=cg', '--rtol=1e-300',
                            '--max-iterations=2000000000')
        self.running(self.daemon, 'solve')
        self.kill(client)


class Rank0(Death, job.TestCase):
    rank = 0


class Rank1(Death, job.TestCase):
    rank = 1


class Rank2(Death, job.TestCase):
    rank = 2


if __name__ == '__main__':
    job.main()
