"""What ranks cannot do rank 0's CPU does, and says why; what the daemon tells of its ranks."""

import json
import os
import re

import job
import matrices

RANKS = 2
DEVICE = f'mpi:{RANKS}'


class OnlyRanks(job.TestCase):
    """--devices=mpi"""

    def setUp(self):
        super().setUp()
        self.daemon = self.start(RANKS)
        self.spd = self.file('spd', matrices.laplacian())
        self.general = self.file('irregular', matrices.irregular())

    def assert_cpu(self, told, why, key='placement'):
        self.assertEqual(told['device'], 'cpu')
        self.assertRegex(told[key], why)

    def test_builds_of_other_engines(self):
        for engine in ('amg', 'jacobi'):
            with self.subTest(engine=engine):
                told = self.ctl(self.daemon, 'build', self.spd, f'--engine={engine}')
                self.assert_cpu(told, '^cpu: .*(ranks|processes)')

    def test_builds_of_permuted_and_scaled_rows(self):
        for options in (['--row-match'], ['--scaling=equilibrate'], ['--scaling=matching']):
            with self.subTest(options=options):
                told = self.ctl(self.daemon, 'build', self.general, '--engine=static-spai', *options)
                self.assert_cpu(told, '^cpu: .*(ranks|processes)')

    def test_solves_by_other_methods(self):
        for method in ('minres', 'idr'):
            with self.subTest(method=method):
                told = self.ctl(self.daemon, 'solve', self.spd, '--engine=none', f'--method={method}')
                self.assertEqual(told['outcome'], 'CONVERGED')
                self.assert_cpu(told, '^cpu: several processes solve by CG, BiCGSTAB and GMRES alone$')

    def test_solves_behind_a_build_here(self):
        told = self.ctl(self.daemon, 'solve', self.spd, '--engine=afsai', '--time-budget=10', '--method=cg')
        self.assertEqual(told['outcome'], 'CONVERGED')
        self.assert_cpu(told, 'cpu: several processes do not end growth by the clock')

    def test_solves_with_multigrid(self):
        told = self.ctl(self.daemon, 'solve', self.spd, '--engine=amg')
        self.assertEqual(told['outcome'], 'CONVERGED')
        self.assert_cpu(told, 'cpu: several processes do not build amg|multigrid')

    def test_the_solve_alone_is_the_cpus(self):
        """M is built over the ranks, and solved with here."""
        told = self.ctl(self.daemon, 'solve', self.general, '--engine=static-spai', '--method=idr')
        self.assertEqual(told['outcome'], 'CONVERGED')
        self.assertIn('several processes solve by CG, BiCGSTAB and GMRES alone', told['placement'])
        self.assertTrue(told['m_placement'].startswith(f'{DEVICE}: '), told['m_placement'])
        built = self.ctl(self.daemon, 'preconditioners', told['preconditioner'])
        self.assertEqual(built['device'], DEVICE)

    def test_other_terms_of_a_solve(self):
        m = self.ctl(self.daemon, 'build', self.general, '--engine=static-spai')['preconditioner']
        told = self.ctl(self.daemon, 'solve', self.general, f'--preconditioner={m}', '--method=gmres',
                        '--m-precision=fp32')
        self.assertEqual((told['outcome'], told['m_precision']), ('CONVERGED', 'fp32'))
        self.assert_cpu(told, '^cpu: several processes store M in fp64 alone$')

    def test_estimates_tell_it_before(self):
        told = self.ctl(self.daemon, 'estimate', self.general, '--engine=static-spai')
        self.assertTrue(told['placement'].startswith(f'{DEVICE}: '), told['placement'])
        self.assertGreater(told['device_bytes'], 0)


class BesideTheCpu(job.TestCase):
    """--devices=cpu,mpi: what is quicker, and what is too large for one."""

    def test_small_ones_are_the_cpus(self):
        daemon = self.start(RANKS, '--devices=cpu,mpi')
        told = self.ctl(daemon, 'build', self.file('irregular', matrices.irregular()), '--engine=static-spai')
        self.assertEqual(told['device'], 'cpu')
        devices = {device['name'] for device in self.ctl(daemon, 'info')['devices']}
        self.assertEqual(devices & {'cpu', DEVICE}, {'cpu', DEVICE})

    def test_what_is_too_large_for_one_is_the_ranks(self):
        estimate = self.ctl(self.start_plain(), 'estimate', 'gallery:elasticity:6', '--engine=static-spai')
        limit = estimate['host_bytes'] - 1
        daemon = self.start(4, '--devices=cpu,mpi', f'--max-build-bytes={limit}')
        told = self.ctl(daemon, 'build', 'gallery:elasticity:6', '--engine=static-spai')
        self.assertEqual(told['device'], 'mpi:4')
        self.assertTrue(told['placement'].startswith(
            f'mpi:4: the build may take {limit + 1} bytes here, over the limit of {limit} (--max-build-bytes); '
            'a rank takes at most '), told['placement'])
        solved = self.ctl(daemon, 'solve', 'gallery:elasticity:6',
                          f'--preconditioner={told["preconditioner"]}', '--method=gmres')
        self.assertEqual(solved['outcome'], 'CONVERGED')


class Told(job.TestCase):

    def test_the_ranks_are_a_device(self):
        daemon = self.start(3, '--threads=1')
        there = {device['name']: device for device in self.ctl(daemon, 'info')['devices']}
        self.assertEqual(set(there) & {'cpu', 'mpi:3'}, {'cpu', 'mpi:3'})
        ranks = there['mpi:3']
        self.assertEqual((ranks['kind'], ranks['threads'], ranks['in_use'], ranks['healthy']),
                         ('ranks', 3, True, True))
        self.assertEqual(ranks['model'], '3 ranks on 1 host')
        self.assertGreater(ranks['memory_bytes'], 1 << 27)
        self.assertLess(ranks['memory_bytes'], 3 * there['cpu']['memory_bytes'] + 1)
        self.assertEqual(ranks['memory_limit_bytes'], ranks['memory_bytes'])
        before = ranks['memory_used_bytes']
        self.ctl(daemon, 'build', self.file('irregular', matrices.irregular()), '--engine=static-spai')
        self.assertEqual(daemon.metric('spaid_device_healthy', device='mpi:3'), 1)
        daemon.wait(lambda: daemon.metric('spaid_device_memory_bytes', device='mpi:3') > before,
                    'counts what lies over the ranks')
        self.assertIn('mpi:3', daemon.get('/'))
        self.assertIn('mpi:3', [device['name'] for device in json.loads(daemon.get('/status.json'))['devices']])
        lines = re.findall(r'\brank rank=(\d) host=(\S+) threads=(\d+) memory_bytes=(\d+)', daemon.text())
        self.assertEqual([line[:3] for line in lines], [(str(r), job.host(), '1') for r in range(3)])

    def test_threads_are_shares_of_the_cores(self):
        daemon = self.start(RANKS)
        ranks = next(device for device in self.ctl(daemon, 'info')['devices'] if device['name'] == DEVICE)
        cores = len(os.sched_getaffinity(0))
        self.assertEqual(ranks['threads'], RANKS * max(1, cores // RANKS))

    def test_memory_comes_back(self):
        daemon = self.start(RANKS)
        general = self.file('irregular', matrices.irregular())
        used = lambda: next(device['memory_used_bytes'] for device in self.ctl(daemon, 'info')['devices']  # noqa: E731
                            if device['name'] == DEVICE)
        m = self.ctl(daemon, 'build', general, '--engine=static-spai')
        self.assertGreater(used(), 0)
        self.ctl(daemon, 'preconditioners', m['preconditioner'], '--delete')
        self.ctl(daemon, 'matrices', m['matrix'], '--delete')
        daemon.wait(lambda: used() == 0 or self.skip_plans(used()), 'frees what lies over the ranks')

    def skip_plans(self, used):
        """Plans stay for the next values: a bound on what is kept."""
        return used < 4 << 20


if __name__ == '__main__':
    job.main()
