"""Every command of deploy/README.md runs, without a cluster: helm renders what it would install, with the values that
the commands before have set; kubectl makes what it can make alone, and what needs a cluster it understands, about
objects that are there by then; spaidctl talks to a daemon.

    runbook_test.py ROOT SPAID SPAIDCTL NPM_FOLDER    exit 77 where npm's programs are not to be had, with the reason
"""

import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

import daemon
import npm_tools
import yaml
from manifests_test import make_secrets

ROOT = pathlib.Path()
SPAID = SPAIDCTL = NPM = ''
NOT_RUN = {
    'cmake --preset': 'tests/run configures and builds',
    'cmake --build': 'the same',
}
KINDS = {'deployment': 'Deployment', 'statefulset': 'StatefulSet', 'service': 'Service', 'certificate': 'Certificate'}
# The words of kubectl when it has understood all, and then finds no cluster.
NO_CLUSTER = re.compile(r'connection to the server \S+ was refused|connect: connection refused')


def commands():
    """Each line of the blocks that an operator would type, with the heading above it."""
    heading = ''
    block = False
    for line in (ROOT / 'deploy/README.md').read_text().splitlines():
        if line.startswith('#') and not block:
            heading = line.lstrip('# ')
        elif line.startswith('```'):
            block = line == '```sh'
        elif block:
            yield heading, line


class RunbookTest(unittest.TestCase):

    def setUp(self):
        self.tools = npm_tools.tools(NPM)
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)
        make_secrets(self.folder)
        shutil.copy(self.folder / 'tokens', self.folder / 'admin-tokens')
        (self.folder / 'admin-tokens').chmod(0o600)
        (self.folder / 'admin-tokens').write_text('another-token-of-a-test root\n')
        (self.folder / 'deploy').symlink_to(ROOT / 'deploy')
        subprocess.run([SPAIDCTL, 'gallery', 'poisson', '--size=4', '--out', self.folder / 'A.mtx'], check=True, capture_output=True)
        self.values = []      # that helm has been told so far
        self.objects = {}     # that are there then
        self.seen = set()

    def run_in_folder(self, *words, env=None, given=None):
        return subprocess.run([str(w) for w in words], cwd=self.folder, capture_output=True, text=True, check=False,
                              timeout=120, env=env, input=given)

    def helm(self, words):
        action, release, chart, *options = words
        self.assertEqual((release, chart), ('spaid', 'deploy/helm/spaid'))
        if action == 'install':
            self.values = options
        else:
            self.assertEqual(action, 'upgrade')
            self.assertEqual(options[0], '--reuse-values')
            self.values += options[1:]
        result = self.run_in_folder(self.tools.helm, 'template', release, chart, *self.values)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.objects = {(o['kind'], o['metadata']['name']): o for o in yaml.safe_load_all(result.stdout) if o}

    def kubectl(self, words, given=None):
        if '|' in words:
            made = words.index('|')
            self.assertEqual(words[made + 1], 'kubectl')
            return self.kubectl(words[made + 2:], given=yaml.safe_dump(self.kubectl(words[:made])))
        if words[:2] == ['apply', '-k']:
            return self.must(self.tools.kubectl, 'kustomize', words[2])
        if words[0] == 'create':
            alone = [] if '--dry-run=client' in words else ['--dry-run=client', '--output=yaml']
            made = yaml.safe_load(self.must(self.tools.kubectl, *words, *alone))
            # It has the name and the keys that the chart looks for.
            self.assertIn(made['metadata']['name'], (ROOT / 'deploy/README.md').read_text())
            self.assertLessEqual(set(made['data']), {'tls.crt', 'tls.key', 'tokens'})
            return made
        named = re.findall(r'\b(deployment|statefulset|service|certificate)[/ ](\w+)', ' '.join(words))
        for kind, name in named:
            # A certificate is there for who has it made.
            if kind != 'certificate':
                self.assertIn((KINDS[kind], name), self.objects, words)
        for pod in re.findall(r'pod (spaid-\d+)', ' '.join(words)):
            self.assertIn(('StatefulSet', 'spaid'), self.objects, pod)
        for selector in re.findall(r'--selector=(\S+)', ' '.join(words)):
            name, value = selector.split('=')
            self.assertTrue([o for o in self.objects.values()
                             if o['metadata']['labels'].get(name) == value], selector)
        result = self.run_in_folder(self.tools.kubectl, *words[:1], '--server=http://127.0.0.1:9',
                                    '--request-timeout=5s', *words[1:], env={'HOME': str(self.folder)}, given=given)
        self.assertRegex(result.stderr, NO_CLUSTER, words)
        return result

    def must(self, *words, env=None):
        result = self.run_in_folder(*words, env=env)
        self.assertEqual(result.returncode, 0, f'{words}: {result.stdout}{result.stderr}')
        return result.stdout

    def image(self, words):
        # deploy.image makes one; here the options are understood.
        result = self.run_in_folder(ROOT / 'deploy/image', *[re.sub('^--build=.*', '--build=/nowhere', w) for w in words])
        self.assertEqual(result.returncode, 1)
        self.assertIn('there is no /nowhere/bin/spaid', result.stderr)

    def run_command(self, line, address):
        program, *words = shlex.split(line)
        if program == 'helm':
            self.helm(words)
        elif program == 'kubectl':
            self.kubectl(words)
        elif program == 'deploy/image':
            self.image(words)
        elif program == 'spaidctl':
            self.must(SPAIDCTL, *words, env={'SPAID_ADDRESS': address, 'SPAID_TOKEN': 'a-token-of-a-test',
                                             'SPAID_ADMIN_TOKEN': 'another-token-of-a-test', 'PATH': '/usr/bin:/bin'})
        else:
            reasons = [start for start in NOT_RUN if line.startswith(start)]
            self.assertTrue(reasons, f'{line}: neither run nor among those that are not')
            self.seen.update(reasons)

    def test_every_command_runs(self):
        lines = list(commands())
        self.assertGreater(len(lines), 20)
        with daemon.running(SPAID, ['--address=127.0.0.1:0', '--ops-address=127.0.0.1:0', '--devices=cpu',
                                    '--drain-grace=0s', f'--tokens={self.folder}/tokens',
                                    f'--admin-tokens={self.folder}/admin-tokens']) as address:
            for heading, line in lines:
                with self.subTest(heading=heading, line=line):
                    self.run_command(line, address)
        self.assertEqual(self.seen, set(NOT_RUN), 'reasons for commands that are not there')

    def test_files_and_values_that_it_names_are_there(self):
        text = (ROOT / 'deploy/README.md').read_text()
        for path in re.findall(r'`((?:deploy|docs)/[\w./-]+)`', text):
            self.assertTrue((ROOT / path).exists(), path)
        values = yaml.safe_load((ROOT / 'deploy/helm/spaid/values.yaml').read_text())
        for name in re.findall(r'`(\w+(?:\.\w+)+)(?::[^`]*)?`', text):
            at = values
            parts = name.split('.')
            if parts[0] not in values:
                continue
            for part in parts if parts[0] != 'limits' else parts[:1]:
                self.assertIn(part, at, name)
                at = at[part]


def main():
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(RunbookTest)
    result = unittest.TextTestRunner(verbosity=2).run(suite)
    if not result.wasSuccessful():
        return 1
    if result.skipped:
        print(f'skipped: {result.skipped[0][1]}')
        return 77
    return 0


if __name__ == '__main__':
    ROOT = pathlib.Path(sys.argv[1])
    SPAID, SPAIDCTL, NPM = sys.argv[2:5]
    sys.exit(main())
