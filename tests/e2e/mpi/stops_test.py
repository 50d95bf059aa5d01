"""Jobs over ranks that are cancelled or out of time end soon, and the ranks are there for the next one."""

import time

import job
import matrices

RANKS = 2
# The time that a stop may take, beside whatever else the machine runs; by itself it takes some hundredths.
SOON = 5
ENDLESS = ['--engine=none', '--method=cg', '--rtol=1e-300', '--max-iterations=2000000000']
SLOW = ['--engine=static-spai', '--pattern-power=2']


class Stops(job.TestCase):
    flags = []

    def setUp(self):
        super().setUp()
        self.daemon = self.start(RANKS, *self.flags)
        self.chain = self.file('chain', matrices.chain(100_000))
        self.slow = self.file('slow', matrices.slow_to_build())

    def assert_works(self):
        """The next job is the ranks', too."""
        general = self.file('irregular', matrices.irregular())
        m = self.ctl(self.daemon, 'build', general, '--engine=static-spai')
        told = self.ctl(self.daemon, 'solve', general, f'--preconditioner={m["preconditioner"]}',
                        '--method=gmres')
        self.assertEqual((m['device'], told['device'], told['outcome']),
                         (f'mpi:{RANKS}', f'mpi:{RANKS}', 'CONVERGED'))
        self.assertEqual(sorted(self.daemon.pids()), list(range(RANKS)))

    def begin_detached(self, stage, *words):
        name = self.ctl(self.daemon, *words, '--detach')['job']
        return self.running(self.daemon, stage, name)

    def assert_soon(self, start, what):
        took = time.monotonic() - start
        print(f'{what}: {took:.2f} s', flush=True)
        self.assertLess(took, SOON)

    def cancel(self, stage, *words):
        name = self.begin_detached(stage, *words)
        start = time.monotonic()
        self.ctl(self.daemon, 'cancel', name)
        end = self.end_of(self.daemon, name)
        self.assert_soon(start, f'cancelled in {stage}')
        self.assertEqual(end['state'], 'cancelled', end)
        self.assert_works()
        return end

    def leave(self, stage, *words):
        """The client dies."""
        client = self.begin(self.daemon, *words)
        name = self.running(self.daemon, stage)
        start = time.monotonic()
        client.kill()
        end = self.end_of(self.daemon, name)
        self.assert_soon(start, f'left in {stage}')
        self.assertEqual(end['state'], 'cancelled', end)
        self.assert_works()


class Cancelled(Stops):

    def test_a_plan(self):
        self.cancel('plan', 'build', self.slow, '--engine=static-spai', '--pattern-power=3')

    def test_a_build(self):
        self.cancel('build', 'build', self.slow, *SLOW)

    def test_a_solve(self):
        self.cancel('solve', 'solve', self.chain, *ENDLESS)

    def test_in_the_queue(self):
        running = self.begin_detached('solve', 'solve', self.chain, *ENDLESS)
        waiting = self.ctl(self.daemon, 'build', self.file('irregular', matrices.irregular()),
                           '--engine=static-spai', '--detach')['job']
        for name in (waiting, running):
            self.ctl(self.daemon, 'cancel', name)
        self.assertEqual(self.end_of(self.daemon, running)['state'], 'cancelled')
        self.assertIn(self.end_of(self.daemon, waiting)['state'], ('cancelled', 'succeeded'))
        self.assert_works()


class Left(Stops):

    def test_a_build(self):
        self.leave('build', 'build', self.slow, *SLOW)

    def test_a_solve(self):
        self.leave('solve', 'solve', self.chain, *ENDLESS)


class LeftWhileAMatrixComes(Stops):
    flags = ['--devices=cpu,mpi', '--max-matrix-bytes=2000000']

    def test_the_next_one_is_served(self):
        irregular = self.file('irregular', matrices.irregular())
        call, grpc = self.half_an_upload(self.daemon, 100_000, 40)
        start = time.monotonic()
        call.cancel()
        with self.assertRaises(grpc.RpcError) as told:
            for _ in call:
                pass
        self.assertEqual(told.exception.code(), grpc.StatusCode.CANCELLED)
        told = self.ctl(self.daemon, 'solve', irregular, '--engine=static-spai', '--method=gmres')
        self.assertEqual(told['outcome'], 'CONVERGED')
        self.assert_soon(start, 'left while a matrix comes, and solved another')


class OverTheRanksAlone(Stops):
    flags = ['--max-matrix-bytes=2000000']  # the chain is larger

    def test_auto_is_cancelled(self):
        self.cancel('solve', 'solve', self.chain, '--rhs=random', '--rtol=1e-13', '--max-iterations=2000000000')

    def test_a_download_is_left(self):
        m = self.ctl(self.daemon, 'build', self.chain, '--engine=static-spai', '--pattern-power=8')['preconditioner']
        device = f'mpi:{RANKS}'
        before = self.there(self.daemon, device)
        call, _ = self.half_a_download(self.daemon, m)
        self.assertGreater(self.there(self.daemon, device), before, 'M turned')
        start = time.monotonic()
        call.cancel()
        self.daemon.wait(lambda: self.there(self.daemon, device) == before, 'frees what was turned')
        self.assert_soon(start, 'left while M goes')
        self.assert_works()


class Limited(Stops):

    def test_a_build_is_out_of_time(self):
        start = time.monotonic()
        told = self.finish(self.begin(self.daemon, 'build', self.slow, *SLOW, '--max-run=1'), status=1)
        self.assertEqual(told['error']['code'], 'DEADLINE_EXCEEDED', told)
        self.assert_soon(start + 1, 'out of time in a build, uploaded before')
        self.assert_works()

    def test_a_solve_is_out_of_time(self):
        start = time.monotonic()
        told = self.finish(self.begin(self.daemon, 'solve', self.chain, *ENDLESS, '--max-run=1'), status=3)
        self.assertEqual((told['outcome'], told['device']), ('TIME_LIMIT', f'mpi:{RANKS}'))
        self.assertGreater(told['iterations'], 0)
        self.assert_soon(start + 1, 'out of time in a solve, uploaded before')
        self.assert_works()

    def test_a_call_has_a_deadline(self):
        # Long enough for the upload on a busy machine.
        client = self.begin(self.daemon, '--timeout=6', 'solve', self.chain, *ENDLESS)
        name = self.running(self.daemon, 'solve')
        told = self.finish(client, status=1)
        self.assertEqual(told['error']['code'], 'DEADLINE_EXCEEDED', told)
        start = time.monotonic()
        end = self.end_of(self.daemon, name)
        self.assert_soon(start, 'past the deadline of its call')
        self.assertIn(end['state'], ('cancelled', 'failed'), end)
        self.assert_works()


class LimitedByTheDaemon(Stops):
    flags = ['--max-run=1s']

    def test_of_all_jobs(self):
        name = self.ctl(self.daemon, 'solve', self.chain, *ENDLESS, '--detach')['job']
        end = self.end_of(self.daemon, name)
        self.assertEqual(end['outcomes'][0]['outcome'], 'TIME_LIMIT', end)
        self.assert_works()


if __name__ == '__main__':
    job.main()
