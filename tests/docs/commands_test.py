"""Every command in README.md, in docs/ and in the --help texts runs, with small matrices.

    commands_test.py ROOT SPAID SPAIDCTL SPAID_LOAD

A command is a line of a fenced `sh` block, or an example line of a --help text. It runs in a folder that
has the files it names; handles like matrices/... become real ones, and sizes small ones. A command
that neither runs nor stands in NOT_RUN fails.
"""

import contextlib
import gzip
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(sys.argv[1])
SPAID, SPAIDCTL, SPAID_LOAD = sys.argv[2:5]
sys.path.insert(0, str(ROOT / 'tests/deploy'))
import daemon  # noqa: E402

# Commands that are not run, by how they begin, and why.
NOT_RUN = {
    'deploy/demo': 'a test of its own in CI, which builds',
    'tests/run': 'runs this test',
    'cmake --install': 'deploy.package installs the component',
    'g++ ': 'deploy.package compiles a client with these flags',
    'gcc ': 'deploy.package compiles the program of docs/c.md with these flags',
    'gfortran ': 'deploy.package compiles the program of docs/c.md with these flags',
    'python3 -m build': 'python.package builds the wheel',
    'python3 -m venv': 'python.environment makes one',
    'v/bin/pip': 'python.environment installs the wheel',
    'deploy/install-deps': 'tests/run does',
    'export PETSC_OPTIONS': 'PetscClients.Documented runs programs with it',
    'export SPAID_ADDRESS': 'the same',
    './ex': 'the same, where PETSc and its examples are',
    'mpirun ': 'the same',
    'mpirun --bind-to none': "MpiDaemon's tests start daemons so",
    'sbatch': 'needs Slurm; deploy.slurm starts one and submits the script',
    'haproxy ': 'Fleet.routing starts it with the file before three daemons',
    'docker build': 'needs Docker and a network; deploy.docker checks the file',
    'kubectl': 'needs a cluster; deploy.kustomize renders the manifests',
}

# Sizes of gallery matrices that solve in milliseconds.
SIZES = {'elasticity': 4, 'varcoef': 6, 'neumann': 6, 'circuit': 300, 'random': 300, 'graph': 300, 'aniso': 16,
         'badscale': 16, 'helmholtz': 16, 'stokes': 6}
LOAD = {'--duration': '0.3', '--jobs': '20', '--rate': '20', '--warmup': '0.1', '--time-steps': '3'}
QUICK = ('--address=127.0.0.1:0', '--ops-address=127.0.0.1:0', '--drain-grace=0s', '--devices=cpu')
# Flags in inline code that belong to other programs.
FOREIGN_FLAGS = {'--list', '--bind-to', '--map-by', '--cpus-per-task', '--signal'}
ADMIN_TOKEN = 'a-token-of-this-test'


def pages():
    yield ROOT / 'README.md'
    yield from sorted((ROOT / 'docs').rglob('*.md'))


def fenced_blocks(text):
    return re.findall(r'^```(\w*)\n(.*?)^```$', text, re.MULTILINE | re.DOTALL)


def output_of(*words):
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def help_texts():
    """(where, text) of every --help."""
    yield 'spaid --help', output_of(SPAID, '--help')
    yield 'spaid-load --help', output_of(SPAID_LOAD, '--help')
    own = output_of(SPAIDCTL, '--help')
    yield 'spaidctl --help', own
    listed = own.split('Subcommands:\n')[1].split('\n\n')[0]
    for name in re.findall(r'^  (\w+)', listed, re.MULTILINE):
        yield f'spaidctl {name} --help', output_of(SPAIDCTL, name, '--help')


def documented():
    """(where, command) of each line that a reader would type."""
    for page in pages():
        for language, block in fenced_blocks(page.read_text()):
            if language == 'sh':
                for line in block.replace('\\\n', ' ').splitlines():
                    if line.strip() and not line.startswith('#'):
                        yield str(page.relative_to(ROOT)), line
    for where, text in help_texts():
        # What a line does stands two spaces or more behind it.
        for line in re.findall(r'^  ((?:[A-Z_]+=\S+ )?spaid(?:ctl|-load)? .*)$', text, re.MULTILINE):
            yield where, re.split(r'\s{2,}', line)[0]


def simple_commands(text):
    """Words of each command of a line: ({variable: value}, [program, argument...])."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=';>')
    lexer.whitespace_split = True
    words, lists = [], []
    for word in [*lexer, ';']:
        if word != ';':
            words.append(word)
        elif words:
            lists.append(words)
            words = []
    for words in lists:
        variables = {}
        while re.fullmatch(r'[A-Z_]+=.*', words[0]):
            name, value = words.pop(0).split('=', 1)
            variables[name] = value
        if '>' in words:
            words = words[:words.index('>')]
        yield variables, words


def small_gallery(text):
    return re.sub(r'\b([a-z]\w*):\d+', lambda m: f'{m[1]}:{SIZES.get(m[1], 6)}', text)


class CommandsTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        stack = contextlib.ExitStack()
        cls.addClassCleanup(stack.close)
        cls.folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        cls.make_credentials()
        env = cls.env = {**os.environ, 'LC_ALL': 'C.UTF-8'}
        cls.address = stack.enter_context(daemon.running(
            SPAID, [*QUICK, f'--admin-tokens={cls.folder}/admins', '--allow-anonymous'], env))
        cls.tls_address = stack.enter_context(daemon.running(
            SPAID, [*QUICK, f'--tls-cert={cls.folder}/tls.crt', f'--tls-key={cls.folder}/tls.key'], env))
        cls.tenants_address = stack.enter_context(daemon.running(
            SPAID, [*QUICK, '--trust-tenant-header'], env))
        cls.make_matrices()

    @classmethod
    def make_credentials(cls):
        subprocess.run(['openssl', 'req', '-x509', '-newkey', 'ec', '-pkeyopt',
                        'ec_paramgen_curve:P-256', '-nodes', '-days', '2', '-subj', '/CN=localhost',
                        '-addext', 'subjectAltName=DNS:localhost,IP:127.0.0.1', '-keyout', 'tls.key',
                        '-out', 'tls.crt'], cwd=cls.folder, check=True, capture_output=True)
        (cls.folder / 'ca.pem').write_bytes((cls.folder / 'tls.crt').read_bytes())
        (cls.folder / 'tokens').write_text('another-token-of-this-test alice\n')
        (cls.folder / 'admins').write_text(f'{ADMIN_TOKEN} root\n')
        for name in ('tls.key', 'tokens', 'admins'):
            (cls.folder / name).chmod(0o400)

    @classmethod
    def make_matrices(cls):
        cls.spaidctl('gallery', 'poisson', '--size=6', '--out=A.mtx')
        cls.spaidctl('gallery', 'poisson', '--size=6', '--out=A.mtx.gz')
        cls.spaidctl('gallery', 'poisson', '--size=7', '--out=big.mtx')
        n = 6**3
        (cls.folder / 'b.mtx').write_text(
            f'%%MatrixMarket matrix array real general\n{n} 1\n' + '1.0\n' * n)
        pattern = f'%%MatrixMarket matrix coordinate pattern general\n{n} {n} {n}\n' + ''.join(
            f'{k} {k}\n' for k in range(1, n + 1))
        for name in ('P.mtx', 'pattern.mtx'):
            (cls.folder / name).write_text(pattern)

    @classmethod
    def spaidctl(cls, *arguments):
        """Its standard output."""
        return subprocess.run([SPAIDCTL, f'--address={cls.address}', *arguments], cwd=cls.folder,
                              env=cls.env, check=True, text=True, stdout=subprocess.PIPE).stdout

    @classmethod
    def new_handle(cls, kind):
        """A handle that nobody has used; it may be deleted."""
        if kind == 'jobs':
            text = cls.spaidctl('solve', 'big.mtx', '--detach')
        elif kind == 'matrices':
            text = cls.spaidctl('upload', 'A.mtx')
        else:
            text = cls.spaidctl('build', 'A.mtx', '--engine=static-spai')
        return re.search(rf'{kind}/[\w-]+', text)[0]

    def real_words(self, words):
        for word in words:
            word = re.sub(r'(matrices|preconditioners|jobs)/(?:\.\.\.|…)',
                          lambda m: self.new_handle(m[1]), word)
            yield small_gallery(word) if 'gallery:' in word or word.startswith('--mix=') else word

    def run_client(self, program, words, env):
        result = subprocess.run([program, *words], cwd=self.folder, env=env, text=True, check=False,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120)
        self.assertEqual(result.returncode, 0, result.stdout)

    def run_spaidctl(self, words, env):
        if '--help' not in words and 'gpu7:7433' in ' '.join(words):
            words = [w.replace('gpu7:7433', self.tls_address) for w in words]
        elif '--help' not in words:
            words = [f'--address={self.address}', *words]
        self.run_client(SPAIDCTL, [re.sub(r'^--size=\d+$', '--size=4', w) for w in words], env)

    def run_spaid_load(self, words, env):
        words = [re.sub(r'^(--[\w-]+)=.*$', lambda m: f'{m[1]}={LOAD[m[1]]}' if m[1] in LOAD else m[0], w)
                 for w in words]
        given = {w.split('=')[0] for w in words}
        if not given & {'--duration', '--jobs'}:
            words.append('--duration=0.3')
        if '--mix' not in given:
            words.append('--mix=poisson:6')
        self.run_client(SPAID_LOAD, [f'--address={self.tenants_address}', *words], env)

    def run_spaid(self, words, env):
        words = [re.sub(r'^--(ops-)?address=.*', '', w) for w in words]
        with daemon.running(SPAID, [*QUICK, *(re.sub(r'=(tls\.\w+|tokens)$', rf'={self.folder}/\1', w)
                                              for w in words if w)], env):
            pass

    def run_one(self, text):
        for variables, (program, *words) in simple_commands(text):
            words = list(self.real_words(words))
            env = {**self.env, **{name: ADMIN_TOKEN if name == 'SPAID_ADMIN_TOKEN' else value
                                  for name, value in variables.items()}}
            run = {'spaidctl': self.run_spaidctl, 'spaid-load': self.run_spaid_load,
                   'spaid': self.run_spaid}.get(pathlib.Path(program).name)
            self.assertIsNotNone(run, f'NOT_RUN says nothing of {program}')
            run(words, env)

    def test_every_command_runs_or_is_listed(self):
        unused = set(NOT_RUN)
        count = 0
        for where, text in documented():
            listed = {prefix for prefix in NOT_RUN if text.startswith(prefix)}
            unused -= listed
            if listed:
                continue
            count += 1
            with self.subTest(where=where, command=text):
                self.run_one(text)
        self.assertGreater(count, 60, 'the texts have lost their examples, or their form')
        self.assertEqual(unused, set(), 'NOT_RUN lists what no text has')

    def test_the_readme_is_short(self):
        self.assertLessEqual(len((ROOT / 'README.md').read_text().splitlines()), 150)

    def test_blocks_say_what_they_are(self):
        for page in pages():
            for language, block in fenced_blocks(page.read_text()):
                with self.subTest(page=page.name, block=block.splitlines()[0]):
                    self.assertIn(language, ('sh', 'c', 'cpp', 'fortran', 'python', 'text', 'json', 'yaml'))
                    if language != 'sh':
                        self.assertNotRegex(block, r'(?m)^(\S+/)?spaid(ctl|-load)? ')

    def test_every_flag_that_is_named_exists(self):
        known = set(FOREIGN_FLAGS)
        for _, text in help_texts():
            known.update(re.findall(r'--[a-z][\w-]*', text))
        for page in pages():
            for code in re.findall(r'`([^`\n]+)`', page.read_text()):
                for flag in re.findall(r'(?<!\S)--[a-z][\w-]*', code):
                    with self.subTest(page=page.name, code=code):
                        self.assertIn(flag, known)

    def test_links_lead_to_files(self):
        for page in pages():
            for target in re.findall(r'\]\(([^)#\s]+)', page.read_text()):
                if not target.startswith('http'):
                    with self.subTest(page=page.name, target=target):
                        self.assertTrue((page.parent / target).exists())


if __name__ == '__main__':
    # Ctrl-C of the run ends the daemons, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    unittest.main(argv=sys.argv[:1], verbosity=2)
