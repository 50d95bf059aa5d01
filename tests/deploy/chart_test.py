"""The Helm chart, without a cluster: every file of deploy/helm/spaid/ci is linted, rendered, and checked by the
schemas of Kubernetes; the daemon takes the arguments; contradictions are refused; the Kustomize files are its
rendering; rules and dashboard are checked by promtool and against /metrics of a daemon.

    chart_test.py ROOT SPAID SPAIDCTL NPM_FOLDER CLASS    exit 77 where CLASS is skipped, with the reason
"""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import urllib.request

import daemon
import npm_tools
import yaml
from manifests_test import GIVEN_UP_AFTER, flag, make_secrets, seconds

ROOT = pathlib.Path()
SPAID = SPAIDCTL = NPM = ''
# Metrics of rules and dashboard that are not a daemon's: of Prometheus itself, and of NVIDIA's DCGM exporter.
OF_OTHERS = {'up', 'DCGM_FI_DEV_GPU_UTIL', 'DCGM_FI_DEV_FB_USED', 'DCGM_FI_DEV_FB_FREE'}
SECURE = ('--set=tls.secret=spaid-tls', '--set=tokens.secret=spaid-tokens')


def chart():
    return ROOT / 'deploy/helm/spaid'


def values_files():
    files = sorted((chart() / 'ci').glob('*-values.yaml'))
    assert len(files) >= 12, files
    return files


class ChartCase(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.tools = npm_tools.tools(NPM)

    def helm(self, *arguments):
        return subprocess.run([self.tools.helm, *arguments], capture_output=True, text=True, check=False)

    def render(self, *arguments):
        """The objects of `helm template`, by (kind, name)."""
        result = self.helm('template', 'spaid', chart(), *arguments)
        self.assertEqual(result.returncode, 0, f'{arguments}: {result.stderr}')
        objects = [o for o in yaml.safe_load_all(result.stdout) if o]
        named = {(o['kind'], o['metadata']['name']): o for o in objects}
        self.assertEqual(len(named), len(objects), arguments)
        return named

    def workload(self, *arguments):
        """The object that has the pods, their spec, and the daemon's container."""
        (found,) = [o for (kind, _), o in self.render(*arguments).items()
                    if kind in ('Deployment', 'StatefulSet', 'DaemonSet')]
        pod = found['spec']['template']['spec']
        return found, pod, pod['containers'][0]


class RenderingTest(ChartCase):

    def strict(self, objects):
        return subprocess.run(['node', self.tools.folder / 'strict.mjs'], input=json.dumps(objects),
                              capture_output=True, text=True, check=False)

    def test_every_file_of_values_is_linted_and_known_to_kubernetes(self):
        for file in values_files():
            with self.subTest(file.name):
                lint = self.helm('lint', '--strict', chart(), '-f', file)
                self.assertEqual(lint.returncode, 0, lint.stdout + lint.stderr)
                checked = self.strict(list(self.render('-f', file).values()))
                self.assertEqual((checked.returncode, checked.stdout), (0, ''), checked.stderr)

    def test_the_check_finds_misspelt_keys_wrong_types_and_unknown_kinds(self):
        _, pod, container = self.workload(*SECURE)
        deployment = self.render(*SECURE)['Deployment', 'spaid']
        spec = deployment['spec']['template']['spec']
        deployment['spec']['replicas'] = '1'
        spec['containers'][0]['readinessProbe']['failureTreshold'] = 1
        spec['containers'][0]['securityContext']['readonlyRootFilesystem'] = True
        monitor = self.render('-f', chart() / 'ci/monitoring-values.yaml')['PodMonitor', 'spaid']
        monitor['spec']['podMetricsEndpoints'][0]['intervall'] = '15s'
        unknown = {'apiVersion': 'apps/v7', 'kind': 'Deployment', 'metadata': {'name': 'spaid'}}
        found = self.strict([deployment, monitor, unknown])
        self.assertEqual(found.returncode, 1)
        for text in ('/spec/replicas must be integer', 'readinessProbe/failureTreshold',
                     'securityContext/readonlyRootFilesystem', 'podMetricsEndpoints/0/intervall', 'no schema of apps/v7'):
            self.assertIn(text, found.stdout)
        self.assertEqual(len(found.stdout.splitlines()), 5, found.stdout)

    def test_contradictions_are_refused_with_the_cure(self):
        for arguments, text in (
                ((), 'tls: name a secret'),
                (('--set=tls.secret=a',), 'tokens: name a secret'),
                (('--set=tls.secret=a', '--set=tls.certManager.issuer=b', '--set=tokens.secret=c'),
                 'exclude each other'),
                (('--set=insecure=true', '--set=tls.clientCertificates=true'), 'tls.clientCertificates: needs'),
                ((*SECURE, '--set=replicas=2'), 'set mode: fleet'),
                ((*SECURE, '--set=autoscaling.mode=keda'), 'set mode: fleet'),
                ((*SECURE, '--set=mode=fleet', '--set=replicas=9', '--set=autoscaling.mode=keda'),
                 'autoscaling.maxReplicas: 8 is under replicas, 9'),
                ((*SECURE, '--set=mode=fleet', '--set=autoscaling.mode=hpa'), 'monitoring.prometheusRule: true'),
                ((*SECURE, '--set=gpu.sharedBy=2'), 'gpu.memory: 80Gi'),
                ((*SECURE, '--set=mode=daemonset', '--set=spill.size=1Gi'), 'set mode: fleet'),
                ((*SECURE, '--set=mode=fleet', '--set=spill.existingClaim=a', '--set=spill.size=1Gi'),
                 'is for mode deployment'),
                ((*SECURE, '--set=mode=flee'), "'deployment', 'fleet', 'daemonset'"),
                ((*SECURE, '--set=replica=2'), "'replica' not allowed"),
                ((*SECURE, '--set=gpu.memory=80G'), 'does not match pattern'),
                ((*SECURE, '--set=limits.matrix-store-byte=1GiB'), "'matrix-store-byte' not allowed"),
                ((*SECURE, '--set-json=resources.limits={"memory":null}'), "'memory'")):
            with self.subTest(arguments):
                result = self.helm('template', 'spaid', chart(), *arguments)
                self.assertNotEqual(result.returncode, 0)
                self.assertIn(text, result.stderr)

    def test_values_that_follow_from_others(self):
        for file in values_files():
            with self.subTest(file.name):
                found, pod, container = self.workload('-f', file)
                arguments = container['args']
                drain = seconds(flag(arguments, 'drain-grace')) + seconds(flag(arguments, 'drain-deadline'))
                spills = [a for a in arguments if a.startswith('--spill-dir=')]
                self.assertGreater(pod['terminationGracePeriodSeconds'],
                                   drain + GIVEN_UP_AFTER + (20 if spills else 0))
                self.assertEqual(flag(arguments, 'threads'), '$(SPAID_THREADS)')
                self.assertEqual(container['env'][0]['valueFrom']['resourceFieldRef']['resource'], 'requests.cpu')
                mounted = {m['name'] for m in container.get('volumeMounts', [])}
                volumes = {v['name'] for v in pod.get('volumes', [])}
                claims = {c['metadata']['name'] for c in found['spec'].get('volumeClaimTemplates', [])}
                self.assertEqual(mounted, volumes | claims)
                paths = tuple(m['mountPath'] + '/' for m in container.get('volumeMounts', []))
                for argument in arguments:
                    path = argument.partition('=')[2]
                    if path.startswith('/'):
                        self.assertTrue(path.startswith(paths), argument)

    def test_memory_of_a_gpu_is_shared(self):
        _, _, container = self.workload('-f', chart() / 'ci/shared-gpu-values.yaml')
        self.assertEqual(flag(container['args'], 'device-memory'), f'{80 * 1024 * 95 // 100 // 4}MiB')
        _, _, container = self.workload('-f', chart() / 'ci/mig-values.yaml')
        self.assertEqual(flag(container['args'], 'device-memory'), f'{10 * 1024 * 95 // 100}MiB')
        self.assertEqual(container['resources']['limits']['nvidia.com/mig-1g.10gb'], '1')

    def test_gpus_come_by_plugin_or_claim_or_not_at_all(self):
        for mode, limits, devices, claims in (('devicePlugin', True, 'cpu,gpu:0,gpu:1', False),
                                              ('dra', False, 'cpu,gpu:0,gpu:1', True),
                                              ('none', False, 'cpu', False)):
            _, pod, container = self.workload(*SECURE, f'--set=gpu.mode={mode}', '--set=gpu.count=2')
            self.assertEqual(flag(container['args'], 'devices'), devices)
            self.assertEqual('nvidia.com/gpu' in container['resources']['limits'], limits)
            self.assertEqual('claims' in container['resources'], claims)
            self.assertEqual('resourceClaims' in pod, claims)
            self.assertEqual(container['image'], 'spaid:cpu' if mode == 'none' else 'spaid:cuda')
        claim = self.render('-f', chart() / 'ci/dra-values.yaml')['ResourceClaimTemplate', 'spaid-gpu']
        (request,) = claim['spec']['spec']['devices']['requests']
        self.assertEqual(request['exactly']['count'], 2)

    def test_a_fleet_has_names_volumes_and_no_address_of_its_own(self):
        objects = self.render('-f', chart() / 'ci/fleet-spill-values.yaml')
        fleet, service = objects['StatefulSet', 'spaid']['spec'], objects['Service', 'spaid-fleet']['spec']
        self.assertEqual(fleet['serviceName'], 'spaid-fleet')
        self.assertNotIn(('Service', 'spaid'), objects, 'a service cannot become headless by an upgrade')
        self.assertEqual(service['clusterIP'], 'None')
        self.assertFalse(service.get('publishNotReadyAddresses', False), 'who drains leaves the name')
        self.assertEqual(fleet['volumeClaimTemplates'][0]['spec']['resources']['requests']['storage'], '200Gi')
        container = fleet['template']['spec']['containers'][0]
        self.assertEqual(flag(container['args'], 'spill-bytes'), f'{200 * 1024 * 9 // 10}MiB')
        self.assertEqual(objects['PodDisruptionBudget', 'spaid']['spec']['maxUnavailable'], 1)
        self.assertEqual(self.render('-f', chart() / 'ci/keda-values.yaml')['StatefulSet', 'spaid']['spec'].get(
            'replicas'), None, 'who scales it says how many there are')

    def test_selectors_meet_the_pods(self):
        for file in values_files():
            objects = self.render('-f', file)
            workload, _, container = self.workload('-f', file)
            labels = workload['spec']['template']['metadata']['labels']
            ports = {p['name'] for p in container['ports']}
            for (kind, name), o in objects.items():
                spec = o.get('spec', {})
                selector = {'Service': lambda s: s['selector'],
                            'NetworkPolicy': lambda s: s['podSelector']['matchLabels'],
                            'PodDisruptionBudget': lambda s: s['selector']['matchLabels'],
                            'PodMonitor': lambda s: s['selector']['matchLabels'],
                            'StatefulSet': lambda s: s['selector']['matchLabels']}.get(kind)
                if selector:
                    self.assertLessEqual(selector(spec).items(), labels.items(), (file.name, kind))
                if kind == 'PodMonitor':
                    self.assertLessEqual({e['port'] for e in spec['podMetricsEndpoints']}, ports)
                if kind in ('ScaledObject', 'HorizontalPodAutoscaler'):
                    target = spec['scaleTargetRef']
                    self.assertIn((target['kind'], target['name']), objects)
                if kind == 'Certificate':
                    services = [name for kind, name in objects if kind == 'Service']
                    self.assertIn(f'{services[0]}.default.svc', spec['dnsNames'])
                    secrets = [v['secret']['secretName'] for v in self.workload('-f', file)[1]['volumes']
                               if 'secret' in v]
                    self.assertIn(spec['secretName'], secrets)

    def test_series_are_those_of_its_own_pods(self):
        for mode, own, others in (('deployment', 'spaid-7d9c6b8f45-x2x4z', ('spaid-two-7d9c6b8f45-x2x4z', 'spaid-0')),
                                  ('fleet', 'spaid-12', ('spaid-two-0', 'spaid-7d9c6b8f45-x2x4z')),
                                  ('daemonset', 'spaid-x2x4z', ('spaid-two-x2x4z', 'spaid-0'))):
            rules = self.render(*SECURE, '--set=monitoring.prometheusRule=true', f'--set=mode={mode}')
            text = yaml.safe_dump(rules['PrometheusRule', 'spaid']['spec'], width=10000)
            (pods,) = set(re.findall(r'pod=~"([^"]+)"', text))
            self.assertRegex(own, f'^(?:{pods})$')  # as Prometheus anchors it
            for other in others:
                self.assertNotRegex(other, f'^(?:{pods})$')

    def test_pods_have_no_rights(self):
        for file in values_files():
            _, pod, container = self.workload('-f', file)
            self.assertTrue(pod['securityContext']['runAsNonRoot'])
            self.assertEqual(pod['securityContext']['seccompProfile'], {'type': 'RuntimeDefault'})
            self.assertFalse(pod['automountServiceAccountToken'])
            self.assertEqual(container['securityContext'],
                             {'allowPrivilegeEscalation': False, 'readOnlyRootFilesystem': True,
                              'capabilities': {'drop': ['ALL']}})
            # A folder of the node can be made by root alone.
            rights = [c['securityContext']['capabilities'].get('add', []) for c in pod.get('initContainers', [])]
            self.assertEqual(rights, [['CHOWN', 'FOWNER']] if file.name.startswith('daemonset') else [])

    def test_the_daemon_takes_the_arguments(self):
        for file in values_files():
            with self.subTest(file.name), tempfile.TemporaryDirectory() as folder:
                make_secrets(folder)
                shutil.copy(pathlib.Path(folder, 'tls.crt'), pathlib.Path(folder, 'ca.crt'))
                _, _, container = self.workload('-f', file, '--set=gpu.mode=none')
                places = {'/etc/spaid/tls': folder, '/etc/spaid/tokens': folder, '/etc/spaid/admin-tokens': folder,
                          '/var/spill': folder, '/run/spaid': folder, '$(SPAID_THREADS)': '1', '0.0.0.0:7433':
                          '127.0.0.1:0', '0.0.0.0:7434': '127.0.0.1:0', '--drain-grace=5s': '--drain-grace=0s',
                          '--drain-grace=10s': '--drain-grace=0s'}
                arguments = []
                for argument in container['args']:
                    for old, new in places.items():
                        argument = argument.replace(old, new)
                    # Shares of the machine that the pod will have, not of this one.
                    if not re.match('--(matrix-store-bytes|admin-tokens)=', argument):
                        arguments.append(argument)
                with daemon.running(SPAID, arguments):
                    pass

    def test_the_schema_names_flags_of_the_daemon(self):
        schema = json.loads((chart() / 'values.schema.json').read_text())
        named = set(schema['properties']['limits']['properties'])
        known = set(re.findall(r'^  --([\w-]+)',
                               subprocess.run([SPAID, '--help'], capture_output=True, text=True, check=True).stdout,
                               re.MULTILINE))
        self.assertTrue(named)
        self.assertEqual(named - known, set())
        # Each value has a place in the schema, and none there is without a default.
        values = yaml.safe_load((chart() / 'values.yaml').read_text())
        self.assertEqual(set(schema['properties']) - {'global'}, set(values))

    def test_it_is_of_the_version_of_the_daemon(self):
        version = subprocess.run([SPAID, '--version'], capture_output=True, text=True, check=True).stdout.split()[1]
        self.assertEqual(yaml.safe_load((chart() / 'Chart.yaml').read_text())['appVersion'], version)

    def test_the_kustomize_files_are_its_rendering(self):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([ROOT / 'deploy/helm/render', folder], env={'HELM': str(self.tools.helm),
                           'PATH': '/usr/bin:/bin'}, check=True)
            rendered = sorted(pathlib.Path(folder).iterdir())
            self.assertEqual(len(rendered), 3)
            for file in rendered:
                self.assertEqual(file.read_text(), (ROOT / 'deploy/kustomize/base' / file.name).read_text(),
                                 f'{file.name}: run deploy/helm/render')
        for overlay, values in (('base', 'gpu'), ('overlays/cpu', 'cpu')):
            built = subprocess.run([self.tools.kubectl, 'kustomize', ROOT / 'deploy/kustomize' / overlay],
                                   capture_output=True, text=True, check=True).stdout
            objects = {(o['kind'], o['metadata']['name']): o for o in yaml.safe_load_all(built)}
            self.assertEqual(objects, self.render('-f', chart() / f'ci/{values}-values.yaml'), overlay)


@unittest.skipUnless(shutil.which('promtool'), 'promtool is not installed (Debian: prometheus)')
class RulesTest(ChartCase):

    def setUp(self):
        self.objects = self.render('-f', chart() / 'ci/monitoring-values.yaml', '--set=mode=fleet')
        self.rules = self.objects['PrometheusRule', 'spaid']['spec']
        self.alerts = [r for g in self.rules['groups'] for r in g['rules'] if 'alert' in r]

    def promtool(self, folder, *arguments):
        return subprocess.run(['promtool', *arguments], cwd=folder, capture_output=True, text=True, check=False)

    def promtool_tests(self, rules):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, 'rules.yaml').write_text(yaml.safe_dump(rules))
            shutil.copy(chart() / 'alerts_test.yaml', folder)
            checked = self.promtool(folder, 'check', 'rules', 'rules.yaml')
            self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)
            return self.promtool(folder, 'test', 'rules', 'alerts_test.yaml')

    def test_each_alert_fires_and_is_silent(self):
        tested = self.promtool_tests(self.rules)
        self.assertEqual(tested.returncode, 0, tested.stdout + tested.stderr)
        cases = [c for t in yaml.safe_load((chart() / 'alerts_test.yaml').read_text())['tests']
                 for c in t['alert_rule_test']]
        names = [a['alert'] for a in self.alerts]
        self.assertEqual({c['alertname'] for c in cases if c.get('exp_alerts')}, set(names))
        self.assertEqual({c['alertname'] for c in cases if not c.get('exp_alerts')}, set(names))

    def test_a_rule_that_never_fires_is_found(self):
        for alert in self.alerts:
            expression, alert['expr'] = alert['expr'], f'({alert["expr"]}) and vector(1) > 2'
            self.assertNotEqual(self.promtool_tests(self.rules).returncode, 0, alert['alert'])
            alert['expr'] = expression

    def test_the_runbook_has_each_alert(self):
        text = (ROOT / 'deploy/README.md').read_text()
        headings = re.findall(r'^### (Spaid\w+)$', text, re.MULTILINE)
        self.assertEqual(headings, [a['alert'] for a in self.alerts])

    def dashboard(self):
        (text,) = self.objects['ConfigMap', 'spaid-dashboard']['data'].values()
        return json.loads(text)

    def expressions(self):
        """Of rules, dashboard and autoscaler."""
        for group in self.rules['groups']:
            yield from (rule['expr'] for rule in group['rules'])
        for panel in self.dashboard()['panels']:
            for target in panel.get('targets', []):
                yield target['expr'].replace('$namespace', 'default').replace('$pod', '.+')
        scaled = self.render('-f', chart() / 'ci/keda-values.yaml')['ScaledObject', 'spaid']
        yield scaled['spec']['triggers'][0]['metadata']['query']

    def test_expressions_of_dashboard_and_autoscaler_are_understood(self):
        rules = [{'record': f'expression_{i}', 'expr': e} for i, e in enumerate(self.expressions())]
        self.assertGreater(len(rules), 40)
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, 'all.yaml').write_text(yaml.safe_dump({'groups': [{'name': 'all', 'rules': rules}]}))
            checked = self.promtool(folder, 'check', 'rules', '--lint=none', 'all.yaml')
            self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)

    def test_the_dashboard_is_whole(self):
        panels = self.dashboard()['panels']
        self.assertEqual([p['title'] for p in panels if p['type'] == 'row'],
                         ['Users', 'Queue', 'Devices', 'Stores and wire'])
        self.assertEqual(len({p['id'] for p in panels}), len(panels))
        self.assertEqual(len({(p['gridPos']['x'], p['gridPos']['y']) for p in panels}), len(panels))

    def test_every_metric_is_one_of_a_daemon(self):
        text = ' '.join(self.expressions())
        recorded = {r['record'] for g in self.rules['groups'] for r in g['rules'] if 'record' in r}
        words = re.findall(r'\b(?:spaid|process)_\w+|\b\w+(?=\{)', text)
        named = {re.sub('_bucket$', '', n) for n in words} - recorded - OF_OTHERS
        self.assertGreater(len(named), 25)
        self.assertLessEqual(OF_OTHERS, set(words))
        # Those of GPUs, and of clients that share memory, which no program of ours here does.
        declared = set(re.findall(r'"(spaid_\w+)"', (ROOT / 'server/base/metrics.cc').read_text()))
        elsewhere = {'spaid_device_memory_bytes', 'spaid_device_memory_limit_bytes', 'spaid_local_array_bytes_total'}
        self.assertLessEqual(elsewhere, declared)
        shown = self.families()
        self.assertFalse(elsewhere & shown)
        self.assertEqual(named - shown, elsewhere)

    def families(self):
        """Names of the metrics that a daemon shows once all kinds of things have happened to it."""
        with tempfile.TemporaryDirectory() as folder:
            make_secrets(folder)
            environment = {'SPAID_TOKEN': 'a-token-of-a-test', 'PATH': ''}
            log = pathlib.Path(folder, 'log')
            with daemon.running(SPAID, [
                    '--address=127.0.0.1:0', '--ops-address=127.0.0.1:0', '--devices=cpu', '--drain-grace=0s',
                    f'--tls-cert={folder}/tls.crt', f'--tls-key={folder}/tls.key', f'--tokens={folder}/tokens',
                    f'--spill-dir={folder}/spill', '--max-queued-jobs=1', '--lanes=1', '--drain-deadline=0s'], log=log) as address:
                def spaidctl(*arguments, fails=False):
                    ran = subprocess.run([SPAIDCTL, f'--address=localhost:{address.split(":")[1]}',
                                          f'--tls-ca={folder}/tls.crt', *arguments], env=environment,
                                         capture_output=True, text=True, check=False)
                    if fails is not None:
                        self.assertEqual(ran.returncode != 0, fails, ran.stdout + ran.stderr)

                spaidctl('solve', 'gallery:poisson:12', '--engine=jacobi')
                spaidctl('solve', 'gallery:poisson:12', '--engine=jacobi')
                spaidctl('matrices', 'matrices/nothing', fails=True)
                spaidctl('solve', 'gallery:poisson:12', '--timeout=0.0001', fails=True)
                for _ in range(4):  # one more than run and wait at once
                    spaidctl('solve', 'gallery:helmholtz:200', '--engine=none', '--method=idr', '--rtol=1e-15',
                             '--max-iterations=1000000', '--detach', fails=None)
                ops = re.search(r'ops_address=(\S+)', log.read_text()).group(1)
                with urllib.request.urlopen(f'http://{ops}/metrics') as metrics:
                    return set(re.findall(r'^# TYPE (\w+)', metrics.read().decode(), re.MULTILINE))


def main(argv):
    suite = unittest.defaultTestLoader.loadTestsFromName(argv[5], sys.modules[__name__])
    result = unittest.TextTestRunner(verbosity=2).run(suite)
    if not result.wasSuccessful():
        return 1
    if result.skipped:
        print(f'skipped: {result.skipped[0][1]}')
        return 77
    return 0 if result.testsRun else 1


if __name__ == '__main__':
    ROOT = pathlib.Path(sys.argv[1])
    SPAID, SPAIDCTL, NPM = sys.argv[2:5]
    sys.exit(main(sys.argv))
