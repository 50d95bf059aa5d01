"""The image, really built and run: by podman, as root, on this machine.

    image_test.py ROOT BUILD SPAIDCTL NPM_FOLDER    exit 77 where podman cannot run, with the reason
"""

import contextlib
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import unittest

import mpijob_test
import npm_tools
import yaml
from manifests_test import make_secrets

ROOT = BUILD = pathlib.Path()
SPAIDCTL = NPM = ''
IMAGE = 'localhost/spaid-of-a-test:cpu'
USER = 65532
# If podman's own limits of descriptors and processes are over those that this machine allows, nothing starts.
CONTAINERS = '[containers]\ndefault_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]\n'


def free_port():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


class ImageTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        if not shutil.which('podman'):
            raise unittest.SkipTest('podman is not installed (deploy/install-deps deploy)')
        if os.getuid() != 0:
            raise unittest.SkipTest('podman is run as root here: secrets become files of the daemon\'s user')
        holder = contextlib.ExitStack()
        cls.addClassCleanup(holder.close)
        cls.folder = pathlib.Path(holder.enter_context(tempfile.TemporaryDirectory()))
        (cls.folder / 'containers.conf').write_text(CONTAINERS)
        cls.environment = {**os.environ, 'CONTAINERS_CONF': str(cls.folder / 'containers.conf')}
        cls.secrets = cls.folder / 'secrets'
        cls.secrets.mkdir()
        make_secrets(cls.secrets)
        for file in cls.secrets.iterdir():
            os.chown(file, USER, USER)
        built = cls.build(IMAGE)
        cls.must(built)
        holder.callback(cls.podman, 'rmi', '--force', IMAGE)
        print(built.stdout)
        cls.told = built.stdout
        cls.must(cls.podman('run', '--rm', '--publish=127.0.0.1::7433', IMAGE, '--version', check=False))

    @classmethod
    def build(cls, tag, *options):
        """Runs deploy/image; skips where it has no base."""
        try:
            built = subprocess.run([ROOT / 'deploy/image', f'--build={BUILD}', f'--tag={tag}', *options],
                                   env=cls.environment, capture_output=True, text=True, check=False, timeout=200)
        except subprocess.TimeoutExpired as error:
            raise unittest.SkipTest('what the image is made of does not come in time') from error
        if built.returncode == 77:
            raise unittest.SkipTest('there is no base image: neither a registry nor Debian\'s archive answers')
        return built

    @staticmethod
    def must(result):
        """Fails where the command did, unless a place as small as another container is to blame."""
        if result.returncode == 0:
            return
        if re.search('not permitted|permission denied|cgroup|mount|iptables|netns', result.stderr, re.IGNORECASE):
            raise unittest.SkipTest(f'podman does not run here: {result.stderr.strip().splitlines()[-1]}')
        raise AssertionError(result.stderr)

    @classmethod
    def podman(cls, *arguments, check=True):
        result = subprocess.run(['podman', *arguments], env=cls.environment, capture_output=True, text=True,
                                check=False)
        if check and result.returncode != 0:
            raise AssertionError(f'podman {" ".join(arguments)}: {result.stderr}')
        return result

    def solve(self, port, matrix='gallery:poisson:20', *options):
        """The JSON of a solve from outside, by TLS and token; tried until somebody answers."""
        give_up = time.monotonic() + 60
        while True:
            ran = subprocess.run([SPAIDCTL, f'--address=localhost:{port}', f'--tls-ca={self.secrets}/tls.crt',
                                  '--json', 'solve', matrix, *options],
                                 env={'SPAID_TOKEN': 'a-token-of-a-test'}, capture_output=True, text=True, check=False)
            if ran.returncode == 0:
                return json.loads(ran.stdout)
            if 'UNREACHABLE' not in ran.stdout + ran.stderr or time.monotonic() > give_up:
                raise AssertionError(ran.stdout + ran.stderr)
            time.sleep(0.05)

    def stop(self, container, grace):
        """SIGTERM, and SIGKILL after `grace` seconds; the exit status and the seconds that it took."""
        begin = time.monotonic()
        self.podman('stop', '--time', str(grace), container)
        took = time.monotonic() - begin
        status = self.podman('inspect', '--format', '{{.State.ExitCode}}', container).stdout.strip()
        return int(status), took

    def test_it_says_what_it_is(self):
        (image,) = json.loads(self.podman('image', 'inspect', IMAGE).stdout)
        config, labels = image['Config'], image['Labels']
        self.assertEqual(config['User'], f'{USER}:{USER}')
        self.assertEqual(config['Entrypoint'], ['/opt/spaid/bin/spaid'])
        self.assertFalse([v for v in config['Env'] if v.startswith('NVIDIA_')])
        version = self.podman('run', '--rm', '--network=none', IMAGE, '--version').stdout.split()[1]
        self.assertEqual(labels['org.opencontainers.image.version'], version)
        self.assertEqual(labels['org.opencontainers.image.licenses'], 'Apache-2.0')
        self.assertRegex(labels['org.opencontainers.image.revision'], '^([0-9a-f]{40}|unknown)$')
        self.assertIn('debian', labels['org.opencontainers.image.base.name'])
        self.assertIn(image['Digest'], self.told)

    def test_the_same_tree_on_the_same_base_has_the_same_digest(self):
        self.podman('rmi', '--force', IMAGE)  # with its layers, which would be taken again
        again = self.build(IMAGE)
        self.assertEqual((again.returncode, again.stdout), (0, self.told), again.stderr)

    def test_it_lists_its_packages(self):
        def shown(name):
            return self.podman('run', '--rm', '--network=none', '--entrypoint=cat', IMAGE,
                               f'/opt/spaid/share/{name}.txt').stdout
        self.assertRegex(shown('packages'), r'(?m)^libc6(:\w+)?\t2\.36')
        self.assertRegex(shown('bundled'), r'(?m)^libgrpc\+\+1\.51(:\w+)?\t1\.51')
        libraries = self.podman('run', '--rm', '--network=none', '--entrypoint=ls', IMAGE, '/opt/spaid/lib').stdout
        self.assertEqual('libsqlite3' in libraries, 'libsqlite3' in shown('bundled'))

    def start(self, port, *more):
        """Starts the daemon as a pod of the chart would; returns the container."""
        return self.podman(
            'run', '--detach', '--read-only', '--read-only-tmpfs=false', '--cap-drop=all',
            '--security-opt=no-new-privileges', f'--user={USER}:{USER}', f'--publish=127.0.0.1:{port}:7433',
            f'--volume={self.secrets}:/etc/spaid:ro', *[m for m in more if m.startswith('--volume')], IMAGE,
            '--address=0.0.0.0:7433', '--devices=cpu', '--tls-cert=/etc/spaid/tls.crt',
            '--tls-key=/etc/spaid/tls.key', '--tokens=/etc/spaid/tokens', '--drain-grace=1s',
            *[m for m in more if not m.startswith('--volume')]).stdout.strip()

    def test_without_rights_it_serves_from_outside_and_ends_within_the_grace(self):
        port, grace = free_port(), 30
        begin = time.monotonic()
        container = self.start(port)
        try:
            solved = self.solve(port)
            print(f'cold start to the first solution: {time.monotonic() - begin:.2f} s')
            self.assertEqual(solved['outcome'], 'CONVERGED')
            (state,) = json.loads(self.podman('inspect', container).stdout)
            self.assertTrue(state['HostConfig']['ReadonlyRootfs'])
            self.assertFalse(state['EffectiveCaps'])
            # As the runbook has it.
            self.podman('exec', container, 'sh', '-c', 'kill -HUP 1')
            status, took = self.stop(container, grace)
            log = self.podman('logs', container).stderr
            self.assertIn('tokens_reloaded', log)
            self.assertEqual(status, 0, log)
            self.assertLess(took, grace - 5)
        finally:
            self.podman('rm', '--force', container)

    def test_after_a_rolling_update_every_handle_answers(self):
        """What a StatefulSet does: each pod goes, and comes back with its volume, when the one before is ready."""
        pods = {}
        rhs = self.folder / 'rhs.mtx'
        rhs.write_text('%%MatrixMarket matrix array real general\n8000 1\n' + '1\n' * 8000)
        try:
            for _ in range(3):
                port, volume = free_port(), tempfile.mkdtemp(dir=self.folder)
                os.chown(volume, USER, USER)  # what fsGroup is for
                pods[port] = (self.start(port, f'--volume={volume}:/var/spill', '--spill-dir=/var/spill/own'), volume)
            handles = {port: self.solve(port)['matrix_handle'] for port in pods}
            for port, (container, volume) in pods.items():
                self.assertEqual(self.stop(container, 60)[0], 0, self.podman('logs', container).stderr)
                self.podman('rm', container)
                pods[port] = (self.start(port, f'--volume={volume}:/var/spill', '--spill-dir=/var/spill/own'), volume)
                self.assertEqual(self.solve(port, handles[port], f'--rhs={rhs}')['outcome'], 'CONVERGED')
            for port, handle in handles.items():
                solved = self.solve(port, handle, f'--rhs={rhs}')
                self.assertEqual((solved['outcome'], solved['matrix_handle']), ('CONVERGED', handle))
        finally:
            for container, _ in pods.values():
                self.podman('rm', '--force', container, check=False)

    def test_the_variant_for_gpus_is_built(self):
        """It is not run: that takes NVIDIA's container runtime."""
        if not list(BUILD.glob('**/libspaid_cuda.so')):
            self.skipTest('the build has no libspaid_cuda.so')
        name = IMAGE.replace(':cpu', ':cuda')
        built = self.build(name, '--variant=cuda')
        self.assertEqual(built.returncode, 0, built.stderr)
        try:
            print(built.stdout)
            (image,) = json.loads(self.podman('image', 'inspect', name).stdout)
            self.assertIn('NVIDIA_VISIBLE_DEVICES=all', image['Config']['Env'])
            self.assertIn('libspaid_cuda.so', self.podman('run', '--rm', '--network=none', '--entrypoint=ls', name,
                                                          '/opt/spaid/lib').stdout)
        finally:
            self.podman('rmi', '--force', name)

    def test_the_variant_for_ranks_runs_two_and_drains(self):
        """The launcher's container of deploy/mpi, with both ranks in it, and its hook where Kubernetes calls that."""
        if not list(BUILD.glob('**/libspaid_mpi.so')):
            self.skipTest('the build has no libspaid_mpi.so')
        name = IMAGE.replace(':cpu', ':mpi')
        built = self.build(name, '--variant=mpi')
        self.assertEqual(built.returncode, 0, built.stderr)
        self.addCleanup(self.podman, 'rmi', '--force', name)
        print(built.stdout)
        hosts, port = self.folder / 'hostfile', free_port()
        hosts.write_text('spaid-launcher.spaid.default.svc slots=2\n')
        template, _ = mpijob_test.pods()
        launcher = mpijob_test.container_of(template)
        command, *arguments = launcher['command'] + [a.replace('$(SPAID_THREADS)', '1') for a in launcher['args']]
        grace = template['spec']['terminationGracePeriodSeconds']
        container = self.podman(
            'run', '--detach', '--read-only', '--read-only-tmpfs=false', '--tmpfs=/tmp', '--cap-drop=all',
            '--security-opt=no-new-privileges', f'--user={USER}:{USER}', f'--publish=127.0.0.1:{port}:7433',
            f'--volume={hosts}:/etc/mpi/hostfile:ro', f'--volume={self.secrets}:/etc/spaid/tls:ro',
            f'--volume={self.secrets}:/etc/spaid/tokens:ro', f'--entrypoint={command}', name, *arguments).stdout.strip()
        try:
            solved = self.solve(port, 'gallery:poisson:20', '--engine=fsai', '--method=cg')
            self.assertEqual((solved['outcome'], solved['device']), ('CONVERGED', 'mpi:2'))
            begin = time.monotonic()
            # It waits for the ranks, and is killed with the container where mpirun ends before it has looked again.
            self.podman('exec', container, *launcher['lifecycle']['preStop']['exec']['command'], check=False)
            status = self.podman('wait', container).stdout.strip()
            took = time.monotonic() - begin
            print(f'two ranks ended {took:.1f} s after SIGTERM')
            log = self.podman('logs', container)
            self.assertEqual(status, '0', log.stdout + log.stderr)
            self.assertLess(took, grace / 4)
        finally:
            self.podman('rm', '--force', container)

    def played(self, port):
        """The chart's Deployment for a CPU, but for what podman 4.3 does not do: it puts no variables into arguments,
        has no secrets with modes and owners (they are folders here), and probes with a curl in the image."""
        helm = npm_tools.tools(NPM).helm
        text = subprocess.run([helm, 'template', 'spaid', ROOT / 'deploy/helm/spaid', '--show-only',
                               'templates/workload.yaml', '-f', ROOT / 'deploy/helm/spaid/ci/cpu-values.yaml',
                               '--set=image.repository=localhost/spaid-of-a-test', '--set=resources.requests.cpu=1',
                               '--set=resources.requests.memory=2Gi', '--set=resources.limits.memory=2Gi'],
                              capture_output=True, text=True, check=True).stdout
        deployment = yaml.safe_load(text)
        pod = deployment['spec']['template']['spec']
        (container,) = pod['containers']
        container['args'] = [a.replace('$(SPAID_THREADS)', '1') for a in container['args']]
        for volume in pod['volumes']:
            del volume['secret']
            volume['hostPath'] = {'path': str(self.secrets), 'type': 'Directory'}
        for probe in ('startupProbe', 'livenessProbe', 'readinessProbe'):
            del container[probe]
        container['ports'][0]['hostPort'] = port
        return deployment

    def test_podman_plays_the_deployment_of_the_chart(self):
        port = free_port()
        deployment = self.played(port)
        grace = deployment['spec']['template']['spec']['terminationGracePeriodSeconds']
        file = self.folder / 'deployment.yaml'
        file.write_text(yaml.safe_dump(deployment))
        container = 'spaid-pod-0-spaid'
        try:
            self.podman('play', 'kube', str(file))
            self.assertEqual(self.solve(port)['outcome'], 'CONVERGED')
            (state,) = json.loads(self.podman('inspect', container).stdout)
            self.assertEqual(state['HostConfig']['Memory'], 2 << 30)
            self.assertEqual(state['Config']['User'], f'{USER}:{USER}')
            self.assertTrue(state['HostConfig']['ReadonlyRootfs'])
            self.assertFalse(state['EffectiveCaps'])
            # A quarter of the pod's memory, not of the machine's.
            self.assertIn(f'matrix_store_bytes={(2 << 30) // 4}', self.podman('logs', container).stderr)
            status, took = self.stop(container, grace)
            self.assertEqual(status, 0, self.podman('logs', container).stderr)
            self.assertLess(took, 20)
        finally:
            self.podman('play', 'kube', '--down', str(file), check=False)


def main():
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(ImageTest)
    result = unittest.TextTestRunner(verbosity=2).run(suite)
    if not result.wasSuccessful():
        return 1
    for _, reason in result.skipped:
        print(f'skipped: {reason}')
    return 0 if result.testsRun > len(result.skipped) else 77


if __name__ == '__main__':
    ROOT = mpijob_test.ROOT = pathlib.Path(sys.argv[1])
    BUILD = pathlib.Path(sys.argv[2])
    SPAIDCTL, NPM = sys.argv[3:5]
    sys.exit(main())
