"""deploy/slurm/spaid.sbatch in a Slurm of one node, which the test starts for itself.

    slurm_test.py ROOT SPAID SPAIDCTL    exit 77 where Slurm is not installed

The Slurm (munged, slurmctld, slurmd) has its own folder, ports and key, and knows nothing of one that the
machine may have. It runs as whoever runs the test.
"""

import contextlib
import ctypes
import getpass
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(sys.argv[1])
SPAID, SPAIDCTL = sys.argv[2:4]
TOKEN = 'a-token-of-this-test'
PROGRAMS = ('munged', 'slurmctld', 'slurmd', 'sbatch', 'srun', 'scancel', 'scontrol')
# Daemons of the system are not in everybody's PATH.
PATH = os.environ['PATH'] + ':/usr/sbin:/sbin'
MISSING = [name for name in PROGRAMS if not shutil.which(name, path=PATH)]
PR_SET_CHILD_SUBREAPER = 36


def wait_for(condition, what, limit=90):
    """The first true value of condition()."""
    give_up = time.monotonic() + limit
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > give_up:
            raise AssertionError(f'waited {limit} s for {what}')
        time.sleep(0.05)


def free_ports(count):
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(('', 0))
        return [each.getsockname()[1] for each in sockets]


def processes():
    """(pid, parent, is a zombie) of each."""
    for stat in pathlib.Path('/proc').glob('[0-9]*/stat'):
        with contextlib.suppress(OSError):
            state, parent = stat.read_text().rpartition(')')[2].split()[:2]
            yield int(stat.parent.name), int(parent), state == 'Z'


def descendants():
    """Pids of what this process has started, directly or not. Needs the subreaper: else who loses its
    parent becomes another's."""
    children = {}
    for pid, parent, zombie in processes():
        if not zombie:
            children.setdefault(parent, []).append(pid)
    found, todo = [], [os.getpid()]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


def command_line(pid):
    with contextlib.suppress(OSError):
        return pathlib.Path(f'/proc/{pid}/cmdline').read_bytes().replace(b'\0', b' ').decode()
    return ''


class Slurm:
    """One node, named localhost, that pretends to have cores and memory for the script's wishes."""

    def __init__(self, folder):
        self.folder = folder
        self.env = {key: value for key, value in os.environ.items()
                    if not key.startswith(('SLURM', 'SBATCH', 'PMI', 'OMPI'))}
        self.env.update(PATH=PATH, SLURM_CONF=str(folder / 'slurm.conf'), TMPDIR=str(folder / 'tmp'))
        self.daemons = []

    def start(self):
        # Munge wants that everybody may go as far as its socket.
        self.folder.chmod(0o711)
        for name in ('munge', 'state', 'spool', 'tmp'):
            (self.folder / name).mkdir(mode=0o755)
        key = self.folder / 'munge/key'
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(128))
        controller, node = free_ports(2)
        (self.folder / 'slurm.conf').write_text(f'''
ClusterName=test
SlurmctldHost=localhost
SlurmctldPort={controller}
SlurmdPort={node}
SlurmUser={getpass.getuser()}
SlurmdUser={getpass.getuser()}
AuthType=auth/munge
AuthInfo=socket={self.folder}/munge/socket
CredType=cred/munge
StateSaveLocation={self.folder}/state
SlurmdSpoolDir={self.folder}/spool
SlurmctldPidFile={self.folder}/slurmctld.pid
SlurmdPidFile={self.folder}/slurmd.pid
MailProg=/bin/true
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=5
NodeName=localhost CPUs=16 RealMemory=1000000
PartitionName=all Nodes=ALL Default=YES
''')
        self.run_daemon('munged', '--foreground', '--num-threads=2', f'--socket={self.folder}/munge/socket',
                        f'--key-file={key}', *(f'--{name}-file={self.folder}/munge/{name}'
                                               for name in ('pid', 'log', 'seed')))
        wait_for(lambda: (self.folder / 'munge/socket').exists(), "munged's socket")
        self.run_daemon('slurmctld', '-D')
        self.run_daemon('slurmd', '-D', '-N', 'localhost')
        wait_for(lambda: self.output('sinfo', '--noheader', '--format=%T') == 'idle', 'an idle node')

    def run_daemon(self, program, *arguments):
        with open(self.folder / f'{program}.log', 'w') as log:
            self.daemons.append(subprocess.Popen([program, *arguments], env=self.env, stdout=log,
                                                 stderr=subprocess.STDOUT, cwd=self.folder))

    def stop(self):
        """Ends the daemons, slurmd first; says what is left of what they have started, and ends that, too."""
        for daemon in reversed(self.daemons):
            daemon.terminate()
            try:
                daemon.wait(30)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        # The last process of a job that has ended may still be on its way.
        with contextlib.suppress(AssertionError):
            wait_for(lambda: not descendants(), 'all processes', limit=10)
        left = {pid: command_line(pid) for pid in descendants()}
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return left

    def output(self, *words):
        """What a command of Slurm's says; empty where it fails."""
        return subprocess.run(words, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                              check=False, timeout=60).stdout.strip()

    def logs(self):
        return ''.join(f'--- {path.name}\n{path.read_text()[-6000:]}\n' for path in sorted(self.folder.glob('*.log')))


@unittest.skipIf(MISSING, f'no {", ".join(MISSING)} (deploy/install-deps slurm)')
class SlurmTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        # Short, for the paths of sockets.
        folder = tempfile.TemporaryDirectory(prefix='slurm')
        cls.addClassCleanup(folder.cleanup)
        cls.slurm = Slurm(pathlib.Path(folder.name))
        cls.folder = cls.slurm.folder
        cls.addClassCleanup(cls.stop)
        cls.slurm.start()
        cls.make_credentials()

    @classmethod
    def stop(cls):
        left = cls.slurm.stop()
        if left:
            raise AssertionError(f'left behind: {left}\n{cls.slurm.logs()}')

    @classmethod
    def make_credentials(cls):
        folder = cls.folder / 'spaid'
        folder.mkdir()
        subprocess.run(['openssl', 'req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes',
                        '-days', '2', '-subj', '/CN=localhost', '-addext', 'subjectAltName=IP:127.0.0.1',
                        '-keyout', folder / 'tls.key', '-out', folder / 'tls.crt'], check=True, capture_output=True)
        (folder / 'tokens').write_text(f'{TOKEN} alice\n')
        for name in ('tls.key', 'tokens'):
            (folder / name).chmod(0o400)

    def submit(self):
        """Runs the script as it is, but for one node with two ranks of one core each; its job's number."""
        env = {**self.slurm.env, 'HOME': str(self.folder), 'SPAID': SPAID, 'OMPI_MCA_mpi_yield_when_idle': '1'}
        result = subprocess.run(
            ['sbatch', '--parsable', '--nodes=1', '--ntasks-per-node=2', '--cpus-per-task=1',
             ROOT / 'deploy/slurm/spaid.sbatch', '--drain-grace=0s'],
            env=env, cwd=self.folder, capture_output=True, text=True, check=False, timeout=60)
        self.assertEqual(result.returncode, 0, result.stderr)
        job = result.stdout.strip()
        self.addCleanup(self.slurm.output, 'scancel', job)
        return job

    def wait_for(self, condition, what):
        try:
            return wait_for(condition, what)
        except AssertionError as error:
            self.fail(f'{error}\n{self.slurm.logs()}')

    def state(self, job):
        """('RUNNING', '0:0')"""
        text = self.slurm.output('scontrol', '--oneliner', 'show', 'job', job)
        return tuple((re.search(rf'\b{name}=(\S+)', text) or [None, ''])[1] for name in ('JobState', 'ExitCode'))

    def ended(self, job):
        state = self.state(job)
        return state if state[0] not in ('', 'PENDING', 'RUNNING', 'COMPLETING') else None

    def address(self, job):
        """HOST:PORT that the script writes for clients."""
        path = self.folder / f'spaid-{job}.address'
        self.wait_for(lambda: path.exists() or self.ended(job), path.name)
        if not path.exists():
            self.fail(f'job {job} ended as {self.state(job)} before it served\n{self.slurm.logs()}')
        return path.read_text().strip()

    def spaidctl(self, address, *words):
        # Names of the test's machine need not be in any DNS.
        port = address.rpartition(':')[2]
        result = subprocess.run(
            [SPAIDCTL, f'--address=127.0.0.1:{port}', f'--tls-ca={self.folder}/spaid/tls.crt', '--json', *words],
            env={**os.environ, 'SPAID_TOKEN': TOKEN}, capture_output=True, text=True, check=False, timeout=120)
        self.assertEqual(result.returncode, 0, f'{words}: {result.stdout}{result.stderr}\n{self.slurm.logs()}')
        return json.loads(result.stdout)

    def assert_ends(self, job, state, exit_code):
        self.wait_for(lambda: self.ended(job), f'the end of job {job}')
        self.assertEqual(self.state(job), (state, exit_code), self.slurm.logs())
        self.assertEqual([path.name for path in self.folder.glob(f'spaid-{job}.*')], [f'spaid-{job}.log'])
        # Slurm calls a job ended a moment before its last process is gone.
        self.wait_for(lambda: not self.ranks(job), 'the end of all ranks')

    def ranks(self, job):
        """{rank: pid} of the daemon's processes."""
        found = {}
        for pid in descendants():
            with contextlib.suppress(OSError):
                environment = dict(pair.split(b'=', 1) for pair in
                                   pathlib.Path(f'/proc/{pid}/environ').read_bytes().split(b'\0') if b'=' in pair)
                if (environment.get(b'SLURM_JOB_ID') == job.encode() and
                        os.path.samefile(f'/proc/{pid}/exe', SPAID)):
                    found[int(environment[b'PMIX_RANK'])] = pid
        return found

    def test_it_builds_solves_and_drains(self):
        job = self.submit()
        address = self.address(job)
        name = subprocess.run('hostname -f || hostname', shell=True, capture_output=True, text=True,
                              check=True).stdout.strip()
        self.assertEqual(address.rpartition(':')[0], name)
        devices = {device['name'] for device in self.spaidctl(address, 'info')['devices']}
        self.assertIn('mpi:2', devices)
        built = self.spaidctl(address, 'build', 'gallery:convdiff:10', '--engine=static-spai')
        self.assertEqual(built['device'], 'mpi:2')
        solved = self.spaidctl(address, 'solve', 'gallery:convdiff:10', f'--preconditioner={built["preconditioner"]}')
        self.assertEqual(solved['device'], 'mpi:2')
        self.assertEqual(solved['outcome'], 'CONVERGED')
        # As Slurm does before the time limit: the script alone gets the signal.
        self.slurm.output('scancel', '--signal=TERM', '--batch', job)
        self.assert_ends(job, 'COMPLETED', '0:0')

    def test_a_signal_to_the_job_drains_too(self):
        job = self.submit()
        self.address(job)
        self.slurm.output('scancel', '--signal=TERM', job)
        self.assert_ends(job, 'COMPLETED', '0:0')

    def test_a_lost_rank_fails_the_job(self):
        job = self.submit()
        self.address(job)
        ranks = self.ranks(job)
        self.assertEqual(sorted(ranks), [0, 1])
        os.kill(ranks[1], signal.SIGKILL)
        self.wait_for(lambda: self.ended(job), f'the end of job {job}')
        self.assertEqual(self.state(job)[0], 'FAILED', self.slurm.logs())
        self.assertRegex((self.folder / f'spaid-{job}.log').read_text(), r'\[RANK_LOST\] rank 1 on \S+ has died')
        self.assertEqual(list(self.folder.glob(f'spaid-{job}.address')), [])


if __name__ == '__main__':
    if MISSING:
        print(f'skipped: no {", ".join(MISSING)} (deploy/install-deps slurm)')
        sys.exit(77)
    # Ctrl-C of the run ends the daemons, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    unittest.main(argv=sys.argv[:1], verbosity=2)
