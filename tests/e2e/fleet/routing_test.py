"""Three daemons behind the delivered proxies, and behind clients that know them all."""

import os
import pathlib
import random
import re
import signal
import shutil
import subprocess
import sys
import time
import unittest

for tool in ('haproxy', 'nginx'):
    if shutil.which(tool) is None:
        print(f'skipped: {tool} is not installed (Debian: {tool})')
        sys.exit(77)

import attack
import fleet
import grpc
import yaml
from spaid.v1 import arrays_pb2, solver_pb2, solver_pb2_grpc

AFFINITIES = [f'{random.Random(1).getrandbits(32) ^ (k * 2654435761 & 0xffffffff):08x}' for k in range(1000)]


class FleetTest(attack.TestCase):

    def daemons(self, count=3, *flags):
        return [self.start('--threads=1', *flags) for _ in range(count)]

    def before(self, kind, daemons):
        proxy = kind(daemons)
        self.addCleanup(proxy.close)
        return proxy

    def load(self, address, *flags):
        load = fleet.Load(address, *flags)
        self.addCleanup(load.close)
        return load

    def kill(self, daemon):
        """As a machine that dies."""
        daemon.process.kill()
        daemon.process.wait()

    def doomed(self):
        return self.start('--threads=1', status=-signal.SIGKILL)


class Patterns(FleetTest):
    """A thousand patterns, each on a replica of its own choice."""

    def check(self, kind):
        first, second, third = self.start('--threads=1'), self.doomed(), self.start('--threads=1')
        old = [first, second, third]
        proxy = self.before(kind, old)
        before = fleet.places(proxy, old, AFFINITIES)
        self.assertEqual(set(before.values()), {0, 1, 2})
        self.assertEqual(fleet.places(proxy, old, AFFINITIES), before)

        # A fourth joins, in a proxy that is started anew: its places are not the process's memory.
        fourth = self.start('--threads=1')
        grown = self.before(kind, [*old, fourth])
        joined = fleet.places(grown, [*old, fourth], AFFINITIES)
        moved = [a for a in AFFINITIES if joined[a] != before[a]]
        self.assertEqual({joined[a] for a in moved}, {3}, 'nothing moves between the old ones')
        print(f'{kind.__name__}: {len(moved) / 10:.1f} % go to a fourth', flush=True)
        self.assertGreater(len(moved), 100)
        self.assertLessEqual(len(moved), 330)

        self.kill(second)
        if kind is fleet.HaProxy:  # till its checks fail it refuses what was on that one
            old[0].wait(lambda: proxy.state(1) == 'DOWN', 'has a proxy that has seen it')
        after = fleet.places(proxy, old, AFFINITIES)
        its = [a for a in AFFINITIES if before[a] == 1]
        print(f'{kind.__name__}: {len(its) / 10:.1f} % were on the one that died', flush=True)
        self.assertLessEqual(len(its), 400)
        self.assertEqual([a for a in AFFINITIES if after[a] != before[a]], its)

    def test_haproxy_moves_what_it_must_and_nothing_else(self):
        self.check(fleet.HaProxy)

    def test_nginx_moves_what_it_must_and_nothing_else(self):
        self.check(fleet.Nginx)


class Drain(FleetTest):
    """SIGTERM for one of three under load: no job fails."""

    STEPS = ('--time-steps=6', '--concurrency=6', '--duration=6')
    GRACE = ('--drain-grace=2s', '--drain-deadline=60s')

    def check(self, address, daemons, drain, *flags):
        load = self.load(address, *self.STEPS, *flags)
        daemons[1].wait(lambda: all((one.metric('spaid_solves_total') or 0) > 2 for one in daemons), 'has work like the rest')
        drain()
        status, report = load.report()
        self.assertEqual((status, report['failed'], report['errors']), (0, 0, {}))
        self.assertGreater(report['succeeded'], 20)
        return report

    def test_by_haproxy(self):
        daemons = self.daemons(3, *self.GRACE)
        proxy = self.before(fleet.HaProxy, daemons)
        self.check(proxy.address, daemons, lambda: daemons[1].process.send_signal(signal.SIGTERM))
        self.assertEqual(proxy.state(1), 'DOWN')
        self.assertEqual(daemons[1].process.wait(timeout=60), 0)

    def test_by_clients_that_know_all(self):
        daemons = self.daemons(3, *self.GRACE)
        # Every refusal counts in spaid-load, unless it may come back.
        report = self.check(','.join(one.address for one in daemons), daemons,
                            lambda: daemons[1].process.send_signal(signal.SIGTERM), '--retries=3')
        self.assertEqual(daemons[1].process.wait(timeout=60), 0)
        print(f'{report["succeeded"]} jobs, {report["refused"]} refused by the one that drained', flush=True)

    def test_a_long_stream_ends_well(self):
        for kind in (fleet.HaProxy, fleet.Nginx):
            with self.subTest(kind.__name__):
                daemons = self.daemons(3, *self.GRACE)
                proxy = self.before(kind, daemons)
                # Never converges: it ends with its iterations, some seconds later.
                solve = subprocess.Popen(
                    [os.environ['SPAIDCTL'], 'solve', 'gallery:helmholtz:200', '--engine=none', '--method=gmres',
                     '--rtol=1e-15', '--max-iterations=6000', f'--address={proxy.address}', '--json'],
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                self.addCleanup(solve.wait)
                self.addCleanup(solve.kill)
                running = []

                def found():
                    running[:] = [k for k, one in enumerate(daemons) if one.metric('spaid_rpcs_live', method='SolverService/Solve')]
                    return running

                daemons[0].wait(found, 'has a job that runs, or another', 30)
                k = running[0]
                if kind is fleet.Nginx:
                    proxy.drain(k)
                daemons[k].process.send_signal(signal.SIGTERM)
                out, err = solve.communicate(timeout=120)
                self.assertIn('MAX_ITERATIONS', out, err)
                self.assertEqual(daemons[k].process.wait(timeout=120), 0)


class Death(FleetTest):
    """kill -9 for one of three under load: its own calls in flight come back, once each, and nothing else."""

    CONCURRENCY = 6

    def check(self, address_of):
        daemons = [self.start('--threads=1'), self.doomed(), self.start('--threads=1')]
        load = self.load(address_of(daemons), '--time-steps=6', f'--concurrency={self.CONCURRENCY}', '--duration=6',
                         '--retries=20')
        daemons[1].wait(lambda: all((one.metric('spaid_solves_total') or 0) > 2 for one in daemons), 'has work like the rest')
        self.kill(daemons[1])
        status, report = load.report()
        self.assertEqual((status, report['failed'], report['errors']), (0, 0, {}))
        return report

    def test_by_haproxy(self):
        report = self.check(lambda daemons: self.before(fleet.HaProxy, daemons).address)
        print(f'HAProxy: {report["refused"]} calls came back', flush=True)
        # Those in flight; and those that came before its checks had failed twice, within 0.4 s: a worker tries again
        # after 10, 20, 40, 80, 160 and 320 ms.
        self.assertLessEqual(report['retried'], 7 * self.CONCURRENCY)

    def test_by_clients_that_know_all(self):
        report = self.check(lambda daemons: ','.join(one.address for one in daemons))
        print(f'clients: {report["refused"]} calls came back', flush=True)
        self.assertLessEqual(report['retried'], self.CONCURRENCY)


class Handles(FleetTest):

    def spaidctl(self, *arguments):
        return subprocess.run([os.environ['SPAIDCTL'], *arguments], capture_output=True, text=True, check=False,
                              timeout=60)

    def test_a_handle_alone_finds_its_daemon_again(self):
        daemons = self.daemons()
        listed = ','.join(one.address for one in daemons)
        for address in (self.before(fleet.HaProxy, daemons).address, self.before(fleet.Nginx, daemons).address, listed):
            for n in range(4, 12):
                stored = self.spaidctl('upload', f'gallery:poisson:{n}', f'--address={address}')
                handle = re.search(r'matrices/[0-9a-f]{32}-[0-9a-f]{8}', stored.stdout)
                self.assertTrue(handle, stored.stdout + stored.stderr)
                # Another process, which knows nothing but the handle.
                shown = self.spaidctl('matrices', handle.group(), f'--address={address}')
                self.assertEqual(shown.returncode, 0, shown.stderr)
                solved = self.spaidctl('solve', handle.group(), f'--address={address}', '--rhs=' + self.rhs(n))
                self.assertEqual(solved.returncode, 0, solved.stderr)

    def test_errors_keep_their_reasons(self):
        """Also where the daemon has refused what the client is still sending."""
        daemons = self.daemons()
        for kind in (fleet.HaProxy, fleet.Nginx):
            proxy = self.before(kind, daemons)
            with attack.channel(proxy) as channel:
                solve = solver_pb2_grpc.SolverServiceStub(channel).Solve
                for _ in range(300):
                    header = solver_pb2.SolveHeader(matrix='matrices/none', rhs_count=1)
                    chunk = arrays_pb2.ArrayChunk(array=arrays_pb2.ARRAY_KIND_RHS, data=bytes(80000))
                    requests = [solver_pb2.SolveRequest(header=header), solver_pb2.SolveRequest(chunk=chunk)]
                    self.assert_refused(lambda: list(solve(iter(requests), timeout=20)),
                                        grpc.StatusCode.NOT_FOUND, 'HANDLE_UNKNOWN')

    def rhs(self, n):
        path = pathlib.Path(self.folder(), f'{n}.mtx')
        path.write_text(f'%%MatrixMarket matrix array real general\n{n**3} 1\n' + '1\n' * n**3)
        return os.fspath(path)

    def folder(self):
        import tempfile
        if not hasattr(self, '_folder'):
            self._folder = tempfile.TemporaryDirectory()
            self.addCleanup(self._folder.cleanup)
        return self._folder.name


class Files(unittest.TestCase):
    """What the three files say of one fleet is the same."""

    def test_envoy_says_what_haproxy_says(self):
        haproxy = (fleet.DEPLOY / 'haproxy.cfg').read_text()
        nginx = (fleet.DEPLOY / 'nginx.conf').read_text()
        envoy = yaml.safe_load((fleet.DEPLOY / 'envoy.yaml').read_text())['static_resources']
        names = re.findall(r'^    server \S+ (\S+):7433 id', haproxy, re.MULTILINE)
        self.assertEqual(len(names), 3)
        self.assertEqual(re.findall(r'^        server (\S+):7433 ', nginx, re.MULTILINE), names)
        (cluster,) = envoy['clusters']
        endpoints = [one['endpoint'] for one in cluster['load_assignment']['endpoints'][0]['lb_endpoints']]
        self.assertEqual([one['hostname'] for one in endpoints], names)
        for one in endpoints:
            self.assertEqual(one['address']['socket_address'], {'address': one['hostname'], 'port_value': 7433})
            self.assertEqual(one['health_check_config']['port_value'], 7434)
        self.assertEqual(cluster['lb_policy'], 'RING_HASH')
        self.assertTrue(cluster['common_lb_config']['consistent_hashing_lb_config']['use_hostname_for_hashing'])
        self.assertNotIn('hash_balance_factor', str(cluster))
        self.assertNotRegex(haproxy, r'(?m)^\s*hash-balance-factor')
        self.assertEqual(cluster['health_checks'][0]['http_health_check']['path'], '/readyz')
        manager = envoy['listeners'][0]['filter_chains'][0]['filters'][0]['typed_config']
        (route,) = manager['route_config']['virtual_hosts'][0]['routes']
        self.assertEqual(route['route']['hash_policy'], [{'header': {'header_name': 'x-spaid-affinity'}}])
        self.assertEqual(route['route']['cluster'], cluster['name'])
        self.assertIn('hdr(x-spaid-affinity)', haproxy)
        self.assertIn('$http_x_spaid_affinity', nginx)


if __name__ == '__main__':
    attack.main()
