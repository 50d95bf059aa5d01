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


# server/serve.cc: kShutdownLimit for the server, and again for a job that does not stop.
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


def unit_values(name):
    return re.findall(rf'^{name}=(.*)$', unit_text(), re.MULTILINE)


def start_and_stop(arguments):
    """Starts the daemon with `arguments`, its ports replaced by free ones of loopback; stops it."""
    with daemon.running(SPAID, [re.sub(r'=0\.0\.0\.0:\d+$', '=127.0.0.1:0', a) for a in arguments]):
        pass


def make_secrets(folder):
    """What the operator puts into the secrets: a certificate, its key, and tokens."""
    folder = pathlib.Path(folder)
    subprocess.run(['openssl', 'req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256',
                    '-nodes', '-days', '2', '-subj', '/CN=localhost', '-keyout', folder / 'tls.key',
                    '-out', folder / 'tls.crt'], check=True, capture_output=True)
    (folder / 'tokens').write_text('a-token-of-a-test alice\n')
    for file in folder.iterdir():
        file.chmod(0o440)


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
            for probe, path in (('startup', '/healthz'), ('liveness', '/healthz'),
                                ('readiness', '/readyz')):
                self.assertEqual(container[f'{probe}Probe']['httpGet'], {'port': 'ops', 'path': path})

    def test_the_policy_covers_the_pod_and_its_ports(self):
        objects, _, container = self.render('base')
        policy = objects['NetworkPolicy']['spec']
        self.assertEqual(policy['policyTypes'], ['Ingress', 'Egress'])
        self.assertEqual(policy.get('egress', []), [], 'the daemon calls nobody')
        labels = objects['Deployment']['spec']['template']['metadata']['labels']
        self.assertLessEqual(policy['podSelector']['matchLabels'].items(), labels.items())
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

    def test_nothing_is_served_in_the_clear_or_to_anybody(self):
        for folder in ('base', 'overlays/cpu'):
            _, pod, container = self.render(folder)
            arguments = container['args']
            self.assertNotIn('--insecure', arguments)
            self.assertNotIn('--allow-anonymous', arguments)
            mounts = {m['name']: m for m in container['volumeMounts']}
            secrets = {v['name']: v['secret'] for v in pod['volumes']}
            self.assertEqual(set(mounts), set(secrets))
            for name, volume in (('tls-cert', 'tls'), ('tls-key', 'tls'), ('tokens', 'tokens')):
                self.assertTrue(flag(arguments, name).startswith(mounts[volume]['mountPath'] + '/'))
            # The daemon's group reads them, and nobody else does.
            self.assertEqual(pod['securityContext']['fsGroup'], pod['securityContext']['runAsGroup'])
            for secret in secrets.values():
                self.assertEqual(secret['defaultMode'], 0o440)
                self.assertNotIn('optional', secret)

    def test_there_is_one_replica_and_it_says_why(self):
        for folder in ('base', 'overlays/cpu'):
            objects, _, _ = self.render(folder)
            self.assertEqual(objects['Deployment']['spec']['replicas'], 1)
            self.assertEqual(objects['Deployment']['spec']['strategy'], {'type': 'Recreate'})
        text = (ROOT / 'deploy/kustomize/base/deployment.yaml').read_text()
        self.assertRegex(text, r'(?m)(^ *# .*\n)+  replicas: 1$')

    def test_threads_are_what_was_asked_for(self):
        _, _, container = self.render('base')
        env = {e['name']: e['valueFrom']['resourceFieldRef'] for e in container['env']}
        name = re.fullmatch(r'\$\((\w+)\)', flag(container['args'], 'threads')).group(1)
        self.assertEqual(env[name], {'resource': 'requests.cpu', 'divisor': '1'})
        self.assertIn('cpu', container['resources']['requests'])

    def test_the_daemon_takes_the_arguments(self):
        _, _, container = self.render('overlays/cpu')
        with tempfile.TemporaryDirectory() as folder:
            make_secrets(folder)
            # The drain itself is tested where the daemon is; here it need not last.
            arguments = [a.replace('--drain-grace=5s', '--drain-grace=0s')
                         .replace('$(SPAID_THREADS)', container['resources']['requests']['cpu'])
                         for a in container['args']]
            start_and_stop([re.sub(r'=/etc/spaid/\w+/', f'={folder}/', a) for a in arguments])


class DockerTest(unittest.TestCase):

    def setUp(self):
        self.text = (ROOT / 'deploy/docker/Dockerfile').read_text()

        self.stages = dict(
            (re.search(r' AS (\S+)', stage.splitlines()[0] + ' AS last').group(1), stage)
            for stage in re.split(r'^FROM ', self.text, flags=re.MULTILINE)[1:])

    def test_without_arguments_nobody_else_is_served(self):
        self.assertEqual(re.findall(r'^ENTRYPOINT (.*)$', self.text, re.MULTILINE),
                         ['["/opt/spaid/bin/spaid"]'])
        self.assertNotRegex(self.text, r'(?m)^CMD')
        help_text = subprocess.run([SPAID, '--help'], capture_output=True, text=True,
                                   check=True).stdout
        for name in ('address', 'ops-address'):
            self.assertRegex(help_text, rf'--{name} TEXT=127\.0\.0\.1:\d+')

    def test_what_is_downloaded_has_a_checksum(self):
        downloads = re.findall(r'^ADD .*(?:\\\n.*)*', self.text, re.MULTILINE)
        self.assertTrue(downloads)
        for download in downloads:
            self.assertRegex(download, r'^ADD --checksum=sha256:[0-9a-f]{64}\s')
        self.assertNotRegex(self.text, r'\b(curl|wget)\b')

    def test_variables_of_nvidia_are_in_the_image_for_its_gpus_alone(self):
        self.assertEqual([name for name, stage in self.stages.items() if 'NVIDIA_' in stage],
                         ['host-cuda'])
        self.assertTrue(self.stages['last'].startswith('host-${VARIANT}\n'))

    def test_only_our_list_of_packages_is_installed(self):
        for name, stage in self.stages.items():
            # NVIDIA's toolkit is no part of Debian.
            if name != 'build-cuda':
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

    def test_without_flags_loopback_alone_is_served(self):
        self.assertEqual(unit_values('ExecStart'), ['/opt/spaid/bin/spaid $SPAID_FLAGS'])
        self.assertEqual(unit_values('EnvironmentFile'), ['-/etc/default/spaid'])
        self.assertEqual(unit_values('Environment'), [])

    def test_credentials_are_those_that_the_example_names(self):
        loaded = unit_values('LoadCredential')
        # Without a path: those that are not there are left out, and the daemon serves loopback.
        self.assertFalse([name for name in loaded if ':' in name])
        named = re.findall(r'/run/credentials/spaid\.service/([\w.]+)', unit_text())
        self.assertEqual(sorted(named), sorted(loaded))
        self.assertIn('spaid.tokens', loaded)

    def test_limits_of_the_process(self):
        self.assertGreaterEqual(int(unit_values('LimitNOFILE')[0]), 4096)
        self.assertEqual(unit_values('LimitCORE'), ['0'])
        high, most = (int(unit_values(name)[0].rstrip('%')) for name in ('MemoryHigh', 'MemoryMax'))
        self.assertLess(high, most)
        self.assertGreaterEqual(high, 0.9 * most, 'the byte limits are 0.9 of it in all')


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
