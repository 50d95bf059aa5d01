"""deploy/mpi/mpijob.yaml says what the operator, Kubernetes, mpirun and the daemon understand.

    mpijob_test.py ROOT SPAID CLASS    exit 77 where CLASS is skipped, with the reason

No cluster: the objects are compared with mpijob_schema.json, which knows nothing but what they use, and the
launcher's own command starts the daemon here, on two ranks.
"""

import contextlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

import manifests_test
import yaml
from manifests_test import GIVEN_UP_AFTER, flag, seconds

try:
    import jsonschema
except ImportError:
    jsonschema = None

ROOT = pathlib.Path()
SPAID = ''
PROGRAM = '/opt/spaid/bin/spaid'


def objects():
    return {o['kind']: o for o in yaml.safe_load_all((ROOT / 'deploy/mpi/mpijob.yaml').read_text())}


def pods():
    """Templates of the launcher's pod and the workers'."""
    replicas = objects()['MPIJob']['spec']['mpiReplicaSpecs']
    return replicas['Launcher']['template'], replicas['Worker']['template']


def container_of(pod):
    container, = pod['spec']['containers']
    return container


def daemon_flags(container):
    """What the daemon is started with."""
    return container['args'][container['args'].index(PROGRAM) + 1:]


@unittest.skipUnless(jsonschema, "Python's jsonschema is not installed")
class SchemaTest(unittest.TestCase):

    def errors(self, thing):
        schema = json.loads((ROOT / 'tests/deploy/mpijob_schema.json').read_text())
        jsonschema.Draft202012Validator.check_schema(schema)
        # Among three alternatives the errors of the one that is meant say more.
        schema = {'$ref': f'#/$defs/{thing["kind"]}', '$defs': schema['$defs']}
        return [f'{"/".join(map(str, e.absolute_path))}: {e.message}'
                for e in jsonschema.Draft202012Validator(schema).iter_errors(thing)]

    def test_all_objects_are_as_their_apis_say(self):
        self.assertEqual(sorted(objects()), ['MPIJob', 'NetworkPolicy', 'Service'])
        for thing in objects().values():
            self.assertEqual(self.errors(thing), [])

    def test_what_the_apis_do_not_have_is_refused(self):
        def changed(change):
            job = objects()['MPIJob']
            change(job['spec'], job['spec']['mpiReplicaSpecs']['Launcher'])
            return self.errors(job)

        for change in (
                lambda spec, launcher: spec.update(runLauncherAsworker=True),
                lambda spec, launcher: spec.update(launcherCreationPolicy='WhenReady'),
                lambda spec, launcher: spec.update(slotsPerWorker='1'),
                lambda spec, launcher: spec.update(cleanPodPolicy='Running'),  # that is v1
                lambda spec, launcher: spec.pop('mpiReplicaSpecs'),
                lambda spec, launcher: launcher.update(replicas=2),
                lambda spec, launcher: launcher.update(restartPolicy='Always'),
                lambda spec, launcher: launcher['template']['spec'].update(hostName='x'),
                lambda spec, launcher: container_of(launcher['template'])['args'].append(7),
                lambda spec, launcher: container_of(launcher['template']).pop('image'),
                lambda spec, launcher: container_of(launcher['template'])['startupProbe'].pop('httpGet'),
                lambda spec, launcher: container_of(launcher['template'])['resources'].update(cpu='4')):
            self.assertEqual(len(changed(change)), 1)


class ManifestTest(unittest.TestCase):

    def test_the_service_selects_rank_0_alone(self):
        launcher, worker = pods()
        service = objects()['Service']
        selector = service['spec']['selector'].items()
        self.assertLessEqual(selector, launcher['metadata']['labels'].items())
        self.assertFalse(selector <= worker['metadata']['labels'].items())
        # The operator makes a service of the job's name itself.
        self.assertNotEqual(service['metadata']['name'], objects()['MPIJob']['metadata']['name'])
        named = {port['name'] for port in container_of(launcher)['ports']}
        self.assertEqual({port['targetPort'] for port in service['spec']['ports']}, named)
        self.assertTrue(objects()['MPIJob']['spec']['runLauncherAsWorker'])

    def test_ports_and_probes_agree(self):
        launcher, worker = map(container_of, pods())
        ports = {p['name']: p['containerPort'] for p in launcher['ports']}
        self.assertEqual(flag(launcher['args'], 'address'), f'0.0.0.0:{ports["grpc"]}')
        self.assertEqual(flag(launcher['args'], 'ops-address'), f'0.0.0.0:{ports["ops"]}')
        for probe, path in (('startup', '/healthz'), ('liveness', '/healthz'), ('readiness', '/readyz')):
            self.assertEqual(launcher[f'{probe}Probe']['httpGet'], {'port': 'ops', 'path': path})
        # The launcher is made when workers are ready: their probe asks for what mpirun needs.
        self.assertEqual(worker['readinessProbe']['tcpSocket'], {'port': 'ssh'})
        ssh, = (p['containerPort'] for p in worker['ports'])
        self.assertIn(f'-oPort={ssh}', worker['command'])
        arguments = launcher['args']
        self.assertTrue(arguments[arguments.index('plm_rsh_args') + 1].startswith(f'-p {ssh} '))

    def test_keys_are_where_the_operator_puts_them(self):
        path = objects()['MPIJob']['spec']['sshAuthMountPath']
        command = container_of(pods()[1])['command']
        self.assertIn(f'-oHostKey={path}/id_rsa', command)
        self.assertIn(f'-oAuthorizedKeysFile={path}/authorized_keys', command)

    def test_the_policy_lets_ranks_talk_and_strangers_call_rank_0(self):
        policy = objects()['NetworkPolicy']['spec']
        mine = {'podSelector': policy['podSelector']}
        for pod in pods():
            self.assertLessEqual(policy['podSelector']['matchLabels'].items(), pod['metadata']['labels'].items())
        self.assertEqual(policy['policyTypes'], ['Ingress', 'Egress'])
        self.assertIn({'from': [mine]}, policy['ingress'])
        self.assertIn({'to': [mine]}, policy['egress'])
        open_to_others = {port['port'] for rule in policy['ingress'] for port in rule.get('ports', [])}
        self.assertEqual(open_to_others, {'grpc', 'ops'})
        # The status page names tenants: no tenant's pod reaches it.
        for rule in policy['ingress']:
            if 'ops' in {port['port'] for port in rule.get('ports', [])}:
                self.assertTrue(all('namespaceSelector' in peer for peer in rule['from']))

    def test_ranks_are_alike(self):
        launcher, worker = pods()
        for key in ('securityContext', 'affinity', 'terminationGracePeriodSeconds', 'automountServiceAccountToken'):
            self.assertEqual(launcher['spec'][key], worker['spec'][key])
        for key in ('image', 'resources', 'securityContext'):
            self.assertEqual(container_of(launcher)[key], container_of(worker)[key])

    def test_pods_have_no_rights(self):
        for pod in pods():
            self.assertTrue(pod['spec']['securityContext']['runAsNonRoot'])
            self.assertFalse(pod['spec']['automountServiceAccountToken'])
            self.assertEqual(container_of(pod)['securityContext'], {
                'allowPrivilegeEscalation': False, 'readOnlyRootFilesystem': True,
                'capabilities': {'drop': ['ALL']}})

    def test_nothing_is_served_in_the_clear_or_to_anybody(self):
        launcher, _ = pods()
        flags = daemon_flags(container_of(launcher))
        self.assertNotIn('--insecure', flags)
        self.assertNotIn('--allow-anonymous', flags)
        mounts = {m['name']: m['mountPath'] for m in container_of(launcher)['volumeMounts']}
        secrets = {v['name']: v['secret'] for v in launcher['spec']['volumes'] if 'secret' in v}
        for name, volume in (('tls-cert', 'tls'), ('tls-key', 'tls'), ('tokens', 'tokens')):
            self.assertTrue(flag(flags, name).startswith(mounts[volume] + '/'))
            self.assertEqual(secrets[volume]['defaultMode'], 0o440)

    def test_a_drain_fits_into_the_grace_period(self):
        for pod in pods():
            flags = daemon_flags(container_of(pods()[0]))
            drain = seconds(flag(flags, 'drain-grace')) + seconds(flag(flags, 'drain-deadline'))
            self.assertLess(drain + GIVEN_UP_AFTER, pod['spec']['terminationGracePeriodSeconds'])

    def test_every_flag_exists(self):
        text = subprocess.run([SPAID, '--help'], capture_output=True, text=True, check=True).stdout
        known = set(re.findall(r'--[a-z][\w-]*', text))
        for argument in daemon_flags(container_of(pods()[0])):
            self.assertIn(argument.split('=')[0], known)
        self.assertEqual(flag(daemon_flags(container_of(pods()[0])), 'devices'), 'mpi')


@unittest.skipUnless(shutil.which('mpirun'), 'mpirun is not installed (deploy/install-deps mpi)')
class RanksTest(unittest.TestCase):
    """The launcher's command, with two ranks in its pod and none elsewhere."""

    @classmethod
    def setUpClass(cls):
        cls.launcher = container_of(pods()[0])

    @contextlib.contextmanager
    def launched(self, folder):
        """Yields (mpirun's Popen, {rank: pid}) once the daemon serves."""
        manifests_test.make_secrets(folder)
        (folder / 'hosts').write_text('spaid-launcher.spaid.default.svc slots=2\n')
        port = folder / 'port'

        def here(word):
            for old, new in (('/etc/mpi/hostfile', f'{folder}/hosts'), ('/tmp/hostfile', f'{folder}/hostfile'),
                             (PROGRAM, SPAID), ('$(SPAID_THREADS)', '1'),
                             ('--drain-grace=5s', '--drain-grace=0s')):
                word = word.replace(old, new)
            word = re.sub(r'=0\.0\.0\.0:\d+$', '=127.0.0.1:0', word)
            return re.sub(r'=/etc/spaid/\w+/', f'={folder}/', word)

        words = [*map(here, [*self.launcher['command'], *self.launcher['args']]), f'--port-file={port}']
        # A pod has no root; this may. Idle ranks leave the cores to whoever else tests here.
        env = {**os.environ, 'OMPI_ALLOW_RUN_AS_ROOT': '1', 'OMPI_ALLOW_RUN_AS_ROOT_CONFIRM': '1',
               'OMPI_MCA_mpi_yield_when_idle': '1'}
        with open(folder / 'log', 'w+') as log:
            mpirun = subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT, env=env)

            def fail(what):
                log.seek(0)
                raise AssertionError(f'{" ".join(words)}: {what}\n{log.read()}')

            try:
                give_up = time.monotonic() + 60
                while not (port.exists() and port.read_text().strip()):
                    if mpirun.poll() is not None:
                        fail(f'ended with {mpirun.returncode} before it served')
                    if time.monotonic() > give_up:
                        fail('does not serve')
                    time.sleep(0.05)
                yield mpirun, self.ranks_of(mpirun.pid)
                if mpirun.poll() is None:
                    fail('still runs')
                elif mpirun.returncode != 0:
                    fail(f'ended with {mpirun.returncode}')
            finally:
                if mpirun.poll() is None:
                    mpirun.kill()  # its ranks end with it
                    mpirun.wait()

    @staticmethod
    def ranks_of(mpirun):
        """{rank: pid} of the daemon's processes that this mpirun has started."""
        found = {}
        for children in pathlib.Path(f'/proc/{mpirun}/task').glob('*/children'):
            for pid in children.read_text().split():
                rank = re.search(rb'\0OMPI_COMM_WORLD_RANK=(\d+)\0', pathlib.Path(f'/proc/{pid}/environ').read_bytes())
                found[int(rank[1])] = int(pid)
        return found

    def test_the_command_serves_and_the_hook_drains(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            with self.launched(folder) as (mpirun, ranks):
                self.assertEqual(sorted(ranks), [0, 1])
                # A pod sees its own processes; here the hook is shown those of this daemon.
                (folder / 'proc').mkdir()
                for pid in ranks.values():
                    (folder / f'proc/{pid}').symlink_to(f'/proc/{pid}')
                *shell, script = self.launcher['lifecycle']['preStop']['exec']['command']
                self.assertIn('cd /proc && ', script)
                subprocess.run([*shell, script.replace('cd /proc ', f'cd {folder}/proc ')], check=False, timeout=60)
                for pid in ranks.values():
                    self.assertFalse(pathlib.Path(f'/proc/{pid}/exe').exists(), 'the hook ended before the ranks')
                mpirun.wait(30)


if __name__ == '__main__':
    ROOT = manifests_test.ROOT = pathlib.Path(sys.argv[1])
    SPAID = manifests_test.SPAID = sys.argv[2]
    suite = unittest.defaultTestLoader.loadTestsFromName(sys.argv[3], sys.modules[__name__])
    result = unittest.TextTestRunner(verbosity=2).run(suite)
    if not result.wasSuccessful() or result.testsRun == 0:
        sys.exit(1)
    if result.skipped:
        print(f'skipped: {result.skipped[0][1]}')
        sys.exit(77)
