"""Two hosts with a network between them that takes its time, and fails.

A host is a network namespace with a name of its own, so this takes root. Skipped where it cannot be had.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
import uuid

import job
import matrices
import wire

DELAY = 0.001  # seconds from host to host
# TCP's, before it gives a connection up, after 26 s, longer than daemons take to notice. By Linux' own 15, a quarter of an
# hour, Open MPI's helpers stay for that.
RETRIES = 6
SIDE = int(os.environ.get('SPAID_SIDE', '40'))  # of the grid that is built for and solved over it
# The agent that mpiexec calls to start its helper on a host: AGENT [options] HOST COMMAND...
AGENT = """#!/bin/sh
while :; do case "$1" in -*) shift;; *) break;; esac; done
case "$1" in
  {addresses[0]}) ns={spaces[0]} name={names[0]};;
  {addresses[1]}) ns={spaces[1]} name={names[1]};;
  *) echo "no host $1" >&2; exit 1;;
esac
shift
exec ip netns exec "$ns" unshare --uts sh -c "hostname $name; $*"
"""
# Seconds from an address that answers to a door that is closed, and back; what is asked first pays for ARP.
ROUND_TRIP = """
import socket, sys, time
for _ in range(6):
    with socket.socket() as end:
        begin = time.monotonic()
        assert end.connect_ex((sys.argv[1], 9)) == 111
        took = time.monotonic() - begin
print(took)
"""


def run(*words):
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=job.LIMIT)


def missing():
    """Why there cannot be two hosts here; '' where there can."""
    if os.geteuid() != 0:
        return 'not root'
    for tool in ('ip', 'unshare'):
        if shutil.which(tool) is None:
            return f'no {tool} (Debian: iproute2, util-linux)'
    if not re.search('Open MPI|OpenRTE', run(job.MPIEXEC, '--version').stdout):
        return 'another MPI than Open MPI, which is told how to start its helpers'
    if not os.access(wire.TUN, os.R_OK | os.W_OK):
        return f'no {wire.TUN}, by which the hosts are joined'
    probe = f'spaid-{uuid.uuid4().hex[:8]}'
    made = run('ip', 'netns', 'add', probe)
    if made.returncode != 0:
        return f'no network namespaces: {made.stderr.strip()}'
    run('ip', 'netns', 'del', probe)
    return ''


class Hosts(job.TestCase):
    names = ('spaid-east', 'spaid-west')
    addresses = ('10.77.0.1', '10.77.0.2')

    def setUp(self):
        super().setUp()
        own = uuid.uuid4().hex[:6]
        self.spaces = [f'spaid-{own}-{side}' for side in 'ab']
        self.carrier = None
        for space in self.spaces:
            self.assertEqual(run('ip', 'netns', 'add', space).returncode, 0)
            self.addCleanup(run, 'ip', 'netns', 'del', space)
            set_there = run('ip', 'netns', 'exec', space, 'sh', '-c',
                            f'echo {RETRIES} > /proc/sys/net/ipv4/tcp_retries2')
            self.assertEqual(set_there.returncode, 0, set_there.stderr)
        self.agent = self.folder / 'agent'
        self.agent.write_text(AGENT.format(addresses=self.addresses, spaces=self.spaces, names=self.names))
        self.agent.chmod(0o755)

    def join(self, seconds):
        """Lays a wire between the hosts on which a frame takes so long; the seconds of a round trip."""
        if self.carrier is not None:
            self.end(self.carrier)
        words = [sys.executable, pathlib.Path(wire.__file__), *self.spaces, 'link0', str(seconds)]
        self.carrier = carrier = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        self.addCleanup(self.end, carrier)
        self.assertEqual(carrier.stdout.readline(), 'carries\n')
        for space, address in zip(self.spaces, self.addresses):
            for words in (['addr', 'add', f'{address}/24', 'dev', 'link0'], ['link', 'set', 'lo', 'up'],
                          ['link', 'set', 'link0', 'up', 'mtu', '9000']):
                done = run('ip', '-n', space, *words)
                self.assertEqual(done.returncode, 0, done.stderr)
        asked = run('ip', 'netns', 'exec', self.spaces[0], sys.executable, '-c', ROUND_TRIP, self.addresses[1])
        self.assertEqual(asked.returncode, 0, asked.stderr)
        return float(asked.stdout)

    @staticmethod
    def end(carrier):
        carrier.kill()  # both interfaces go with it
        carrier.wait()
        carrier.stdout.close()

    def command(self):
        net = '.'.join(self.addresses[0].split('.')[:3]) + '.0/24'
        mca = {'plm_rsh_agent': self.agent, 'oob_tcp_if_include': net, 'btl_tcp_if_include': net,
               'btl': 'self,tcp', 'plm': 'rsh'}
        words = [job.MPIEXEC, *(word for name, value in mca.items() for word in ('--mca', name, str(value))),
                 '-x', job.MARK, '--host', ','.join(f'{address}:1' for address in self.addresses), '-n', '2']
        return ['ip', 'netns', 'exec', self.spaces[0], 'unshare', '--uts', 'sh', '-c',
                f'hostname {self.names[0]}; exec "$@"', 'sh', *words]

    def begin(self, daemon, *words, **more):
        """Clients are on the first host."""
        inside = [job.SPAIDCTL, '--json', '-q', f'--address={daemon.address}', *map(str, words)]
        started = subprocess.Popen(['ip', 'netns', 'exec', self.spaces[0], *inside], text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=self.folder, **more)
        self.addCleanup(started.communicate)
        self.addCleanup(lambda: started.poll() is None and started.kill())
        return started

    def spaids(self, daemon):
        """{pid of a process of the daemon itself: its host}."""
        there = {}
        for pid, program in daemon.processes().items():
            if program == os.path.basename(job.DAEMON):
                own = os.stat(f'/proc/{pid}/ns/net').st_ino
                there[pid] = next(space for space in self.spaces
                                  if os.stat(f'/run/netns/{space}').st_ino == own)
        return there

    def test_a_millisecond_each_way_is_waited_for_and_changes_nothing(self):
        cases = (('static-spai', 'gmres'), ('fsai', 'cg'))
        took = {}
        for seconds in (0, DELAY):
            round_trip = self.join(seconds)
            self.assertGreaterEqual(round_trip, 2 * seconds)
            daemon = self.start(2, command=self.command())
            for engine, method in cases:
                words = [f'gallery:poisson:{SIDE}', f'--engine={engine}']
                # A comes with the first build, and its way is not what is measured.
                self.ctl(daemon, 'build', words[0], '--engine=jacobi')
                built = self.ctl(daemon, 'build', *words)
                told = self.ctl(daemon, 'solve', *words, f'--method={method}')
                self.assertEqual((built['device'], told['device'], told['outcome']), ('mpi:2', 'mpi:2', 'CONVERGED'))
                took[seconds, engine] = (built['setup_ms'], told['figures']['iterate_ms'], told['iterations'],
                                         told['true_relative_residual'])
            daemon.stop()
        for engine, _ in cases:
            (setup, iterate, *same), (setup_over, iterate_over, *same_over) = took[0, engine], took[DELAY, engine]
            print(f'{engine}: build {setup:.0f} ms, {setup_over:.0f} over {DELAY * 1e3:g} ms each way; '
                  f'{same[0]} iterations {iterate:.0f}, {iterate_over:.0f}', flush=True)
            self.assertEqual(same_over, same)
            # An iteration has a product, which waits for the other's values, and sums over both.
            self.assertGreaterEqual(iterate_over, 2 * DELAY * 1e3 * same[0])

    def test_a_cable_is_pulled(self):
        self.join(DELAY)
        daemon = self.start_to_fail(2, command=self.command())
        self.assertEqual(sorted(self.spaids(daemon).values()), sorted(self.spaces))
        hosts = re.findall(r'\brank rank=(\d) host=(\S+)', daemon.text())
        self.assertEqual(hosts, [('0', self.names[0]), ('1', self.names[1])])
        ranks = next(device for device in self.ctl(daemon, 'info')['devices'] if device['name'] == 'mpi:2')
        self.assertEqual(ranks['model'], '2 ranks on 2 hosts')

        general = self.file('irregular', matrices.irregular())
        m = self.ctl(daemon, 'build', general, '--engine=static-spai', '--pattern-power=2')
        told = self.ctl(daemon, 'solve', general, f'--preconditioner={m["preconditioner"]}', '--method=gmres')
        self.assertEqual((m['device'], told['device'], told['outcome']), ('mpi:2', 'mpi:2', 'CONVERGED'))

        chain = self.file('chain', matrices.chain(100_000))
        client = self.begin(daemon, 'solve', chain, '--engine=none', '--method=cg', '--rtol=1e-300',
                            '--max-iterations=2000000000')
        self.running(daemon, 'solve')
        down = run('ip', '-n', self.spaces[0], 'link', 'set', 'link0', 'down')
        self.assertEqual(down.returncode, 0, down.stderr)
        pulled = time.monotonic()
        told = self.finish(client, status=1, seconds=30)
        print(f'the client was told after {time.monotonic() - pulled:.1f} s', flush=True)
        self.assertEqual(told['error']['code'], 'UNAVAILABLE', told)
        while self.spaids(daemon):
            self.assertLess(time.monotonic() - pulled, 30, self.spaids(daemon))
            time.sleep(0.05)
        print(f'no daemon left after {time.monotonic() - pulled:.1f} s', flush=True)
        # Open MPI's own processes notice when TCP gives up (oob_tcp_keepalive_* change nothing).
        while daemon.processes():
            self.assertLess(time.monotonic() - pulled, 60, daemon.processes())
            time.sleep(0.05)
        status = daemon.process.wait(timeout=5)
        print(f'mpiexec ended with {status}, and nothing is left after {time.monotonic() - pulled:.1f} s', flush=True)
        self.assertNotEqual(status, 0)
        words = daemon.sentences()
        self.assertEqual(words[:1], [f'spaid: [RANK_LOST] rank 1 on {self.names[1]} has been silent for 15 s; '
                                     'start the job again'], daemon.text())


if __name__ == '__main__':
    why = missing()
    if why:
        print(f'skipped: {why}')
        sys.exit(77)
    job.main()
