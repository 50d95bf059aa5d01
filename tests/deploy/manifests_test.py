"""The manifests say what the daemon understands: every flag exists and is accepted, the times that the
daemon may drain fit into the times that Kubernetes and systemd grant, both overlays render.

    manifests_test.py ROOT SPAID CLASS    exit 77 where CLASS is skipped, with the reason
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import daemon
import yaml

ROOT = pathlib.Path()
SPAID = ''


# server/main.cc: kShutdownLimit for the server, and again for a job that does not stop.
GIVEN_UP_AFTER = 60


def seconds(text):
    match = re.fullmatch(r'(\d+(?:\.\d+)?)(ms|s|m)?', text)
    if not match:
        raise AssertionError(f'{text!r} is no duration')
    return float(match.group(1)) * {'ms': 1e-3, 's': 1, 'm': 60, None: 1}[match.group(2)]


def flag(arguments, name):
    values = [a.split('=', 1)[1] for a in arguments if a.startswith(f'--{name}=')]
    if len(values) != 1:
        raise AssertionError(f'--{name} stands {len(values)} times in {arguments}')
    return values[0]


def unit_text():
    return (ROOT / 'deploy/systemd/spaid.service').read_text()


def start_and_stop(arguments):
    """Starts the daemon with `arguments`, its ports replaced by free ones of loopback; stops it."""
    with daemon.running(SPAID, [re.sub(r'=0\.0\.0\.0:\d+$', '=127.0.0.1:0', a) for a in arguments]):
        pass


@unittest.skipUnless(shutil.which('kubectl'), 'kubectl is not installed')
class KustomizeTest(unittest.TestCase):

    def render(self, folder):
        result = subprocess.run(['kubectl', 'kustomize', ROOT / 'deploy/kustomize' / folder],
                                capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        objects = {o['kind']: o for o in yaml.safe_load_all(result.stdout)}
        self.assertEqual(len(objects), 3)
        pod = objects['Deployment']['spec']['template']['spec']
        return objects, pod, pod['containers'][0]

    def test_base_asks_for_a_gpu(self):
        _, _, container = self.render('base')
        self.assertEqual(container['resources']['limits']['nvidia.com/gpu'], '1')
        self.assertEqual(container['image'], 'spaid:cuda')

    def test_cpu_overlay_asks_for_none(self):
        _, _, container = self.render('overlays/cpu')
        self.assertNotIn('nvidia.com/gpu', container['resources']['limits'])
        self.assertEqual(flag(container['args'], 'devices'), 'cpu')
        self.assertEqual(container['image'], 'spaid:cpu')

    def test_ports_and_probes_agree(self):
        for folder in ('base', 'overlays/cpu'):
            objects, _, container = self.render(folder)
            ports = {p['name']: p['containerPort'] for p in container['ports']}
            self.assertEqual(flag(container['args'], 'address'), f'0.0.0.0:{ports["grpc"]}')
            self.assertEqual(flag(container['args'], 'ops-address'), f'0.0.0.0:{ports["ops"]}')
            self.assertEqual({p['targetPort'] for p in objects['Service']['spec']['ports']},
                             set(ports))
            self.assertEqual(container['livenessProbe']['grpc'],
                             {'port': ports['grpc'], 'service': 'liveness'})
            self.assertEqual(container['readinessProbe']['grpc'],
                             {'port': ports['grpc'], 'service': 'readiness'})

    def test_the_policy_covers_the_pod_and_its_ports(self):
        objects, _, container = self.render('base')
        policy = objects['NetworkPolicy']['spec']
        labels = objects['Deployment']['spec']['template']['metadata']['labels']
        self.assertEqual(policy['podSelector'], {'matchLabels': labels})
        named = {port['port'] for rule in policy['ingress'] for port in rule['ports']}
        self.assertEqual(named, {port['name'] for port in container['ports']})
        # The status page names tenants: no tenant's pod reaches it.
        for rule in policy['ingress']:
            if 'ops' in {port['port'] for port in rule['ports']}:
                self.assertTrue(all('namespaceSelector' in peer for peer in rule['from']))

    def test_a_drain_fits_into_the_grace_period(self):
        for folder in ('base', 'overlays/cpu'):
            _, pod, container = self.render(folder)
            drain = (seconds(flag(container['args'], 'drain-grace')) +
                     seconds(flag(container['args'], 'drain-deadline')))
            self.assertLess(drain + GIVEN_UP_AFTER, pod['terminationGracePeriodSeconds'])

    def test_pods_have_no_rights(self):
        _, pod, container = self.render('base')
        self.assertTrue(pod['securityContext']['runAsNonRoot'])
        self.assertFalse(pod['automountServiceAccountToken'])
        self.assertFalse(container['securityContext']['allowPrivilegeEscalation'])
        self.assertTrue(container['securityContext']['readOnlyRootFilesystem'])
        self.assertEqual(container['securityContext']['capabilities']['drop'], ['ALL'])

    def test_the_daemon_takes_the_arguments(self):
        _, _, container = self.render('overlays/cpu')
        # The drain itself is tested where the daemon is; here it need not last.
        start_and_stop([a.replace('--drain-grace=5s', '--drain-grace=0s')
                        for a in container['args']])


class DockerTest(unittest.TestCase):

    def setUp(self):
        self.text = (ROOT / 'deploy/docker/Dockerfile').read_text()

    def test_the_daemon_takes_the_command(self):
        match = re.search(r'^CMD (\[.*\])$', self.text, re.MULTILINE)
        start_and_stop([*yaml.safe_load(match.group(1)), '--drain-grace=0s'])

    def test_only_our_list_of_packages_is_installed(self):
        stages = re.split(r'^FROM ', self.text, flags=re.MULTILINE)[1:]
        for stage in stages:
            # NVIDIA's toolkit is no part of Debian.
            if 'AS build-cuda' not in stage.splitlines()[0]:
                self.assertNotIn('apt-get install', stage)
        for group in re.findall(r'install-deps (\w+)', self.text):
            subprocess.run([ROOT / 'deploy/install-deps', '--list', group], check=True,
                           stdout=subprocess.DEVNULL)


class SystemdTest(unittest.TestCase):

    def test_a_drain_fits_into_the_stop_time(self):
        stop = re.search(r'^TimeoutStopSec=(\d+)$', unit_text(), re.MULTILINE)
        defaults = subprocess.run([SPAID, '--help'], capture_output=True, text=True, check=True)
        total = 0
        for name in ('drain-grace', 'drain-deadline'):
            match = re.search(rf'--{name} TIME=(\w+)', defaults.stdout)
            self.assertIsNotNone(match, f'--help tells no default of --{name}')
            total += seconds(match.group(1))
        self.assertGreater(int(stop.group(1)), total + GIVEN_UP_AFTER)


@unittest.skipUnless(shutil.which('systemd-analyze'), 'systemd-analyze is not installed')
class SystemdAnalyzeTest(unittest.TestCase):

    def test_systemd_understands_the_unit(self):
        with tempfile.TemporaryDirectory() as folder:
            # The program need not be installed for its unit to be right.
            unit = pathlib.Path(folder, 'spaid.service')
            unit.write_text(unit_text().replace('/opt/spaid/bin/spaid', '/bin/true'))
            result = subprocess.run(['systemd-analyze', 'verify', '--man=no', unit],
                                    capture_output=True, text=True, check=False)
            self.assertEqual((result.returncode, result.stderr), (0, ''))


def main(argv):
    suite = unittest.defaultTestLoader.loadTestsFromName(argv[3], sys.modules[__name__])
    result = unittest.TextTestRunner(verbosity=2).run(suite)
    if not result.wasSuccessful() or result.testsRun == 0:
        return 1
    if result.skipped:
        print(f'skipped: {result.skipped[0][1]}')
        return 77
    return 0


if __name__ == '__main__':
    ROOT, SPAID = pathlib.Path(sys.argv[1]), sys.argv[2]
    sys.exit(main(sys.argv))
