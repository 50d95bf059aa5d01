"""The delivery: the wheel and the sdist, built offline from a clean checkout, twice the same; types; versions."""

import filecmp
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile

import pytest

import spaid
from conftest import SOURCE
from spaid import _wire

SYSTEM_PYTHON = '/usr/bin/python3'


def run(*words, cwd=None, **env):
    """Its output; without what a user's environment might bring."""
    result = subprocess.run([str(w) for w in words], cwd=cwd, text=True, check=False, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, env={'PATH': '/usr/bin:/bin', 'HOME': '/nonexistent', **env})
    assert result.returncode == 0, result.stdout
    return result.stdout


@pytest.fixture(scope='module')
def checkout(tmp_path_factory):
    """The files that git knows, of the parts that a wheel is made of."""
    folder = tmp_path_factory.mktemp('checkout')
    listed = subprocess.run(['git', '-C', SOURCE, 'ls-files', 'client/python', 'proto', 'LICENSE', 'CMakeLists.txt'],
                            check=False, text=True, stdout=subprocess.PIPE)
    if listed.returncode != 0 or not listed.stdout:
        pytest.skip('the sources are no git checkout')
    for name in listed.stdout.split():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(SOURCE / name, target)
    return folder


def built(folder, out, what='--wheel', **env):
    run(SYSTEM_PYTHON, '-m', 'build', '--no-isolation', what, folder, '--outdir', out, **env)
    return next(out.glob('*.whl' if what == '--wheel' else '*.tar.gz'))


@pytest.fixture(scope='module')
def wheel(checkout, tmp_path_factory):
    return built(checkout / 'client/python', tmp_path_factory.mktemp('wheel'))


def test_the_wheel_is_pure_and_whole(wheel):
    assert wheel.name == f'spaid-{spaid.__version__}-py3-none-any.whl'
    with zipfile.ZipFile(wheel) as files:
        names = set(files.namelist())
        metadata = files.read(f'spaid-{spaid.__version__}.dist-info/METADATA').decode()
    modules = {f'spaid/{p.name}' for p in (SOURCE / 'client/python/src/spaid').glob('*.py')}
    assert modules | {'spaid/py.typed', 'spaid/spaid.binpb', 'spaid/LICENSE'} <= names
    assert not [n for n in names if n.endswith(('.so', '.pyc', '_pb2.py'))]
    for needed in ('grpcio', 'protobuf', 'numpy'):
        assert re.search(rf'^Requires-Dist: {needed}\b', metadata, re.MULTILINE)
    assert 'License: Apache-2.0' in metadata


def test_it_is_built_twice_the_same(checkout, wheel, tmp_path):
    again = tmp_path / 'elsewhere'
    shutil.copytree(checkout, again)
    for path in again.rglob('*.py'):
        os.utime(path, (1, 1))
    assert filecmp.cmp(wheel, built(again / 'client/python', tmp_path / 'out'), shallow=False)
    assert not list(again.rglob('*.binpb'))  # nothing is left in the sources
    one, two = tmp_path / 'one', tmp_path / 'two'
    assert filecmp.cmp(built(checkout / 'client/python', one, '--sdist', SOURCE_DATE_EPOCH='0'),
                       built(again / 'client/python', two, '--sdist', SOURCE_DATE_EPOCH='0'), shallow=False)


def test_the_sdist_makes_the_same_wheel(checkout, wheel, tmp_path):
    with tarfile.open(built(checkout / 'client/python', tmp_path / 'sdist', '--sdist')) as archive:
        archive.extractall(tmp_path)
    source = tmp_path / f'spaid-{spaid.__version__}'
    assert (source / 'examples/convergence.py').exists() and (source / 'src/spaid/LICENSE').exists()
    # No protoc, and no proto/ beside it: the sdist brought what they make.
    assert filecmp.cmp(wheel, built(source, tmp_path / 'wheel'), shallow=False)
    (source / 'src/spaid/spaid.binpb').unlink()
    with pytest.raises(AssertionError, match='build from a checkout, or from an sdist'):
        built(source, tmp_path / 'none')


def test_a_build_without_protoc_says_so(checkout, tmp_path):
    path = tmp_path / 'bin'
    path.mkdir()
    (path / 'python3').symlink_to(SYSTEM_PYTHON)
    with pytest.raises(AssertionError, match='no protoc'):
        built(checkout / 'client/python', tmp_path / 'out', PATH=str(path))


def test_a_package_without_descriptors_says_so(checkout):
    with pytest.raises(AssertionError, match='install the wheel'):
        run(SYSTEM_PYTHON, '-c', 'import spaid', PYTHONPATH=str(checkout / 'client/python/src'), PYTHONDONTWRITEBYTECODE='1')


def test_the_installed_one_is_of_these_sources(wheel):
    with zipfile.ZipFile(wheel) as files:
        for name in files.namelist():
            if name.startswith('spaid/'):
                assert (pathlib.Path(spaid.__file__).parents[1] / name).read_bytes() == files.read(name), name


def test_it_is_installed_as_a_component(tmp_path):
    build = os.environ.get('SPAID_BUILD')
    if not build:
        pytest.skip('SPAID_BUILD names no build folder')
    run('cmake', '--install', build, '--prefix', tmp_path, '--component', 'python')
    assert [str(p.relative_to(tmp_path)) for p in tmp_path.rglob('*') if p.is_file()] == [
        f'share/spaid/python/spaid-{spaid.__version__}-py3-none-any.whl']


def test_versions_agree():
    version = re.search(r'project\(spaid VERSION ([\d.]+)', (SOURCE / 'CMakeLists.txt').read_text())[1]
    project = (SOURCE / 'client/python/pyproject.toml').read_text()
    assert spaid.__version__ == version == re.search(r'^version = "([\d.]+)"', project, re.MULTILINE)[1]


def test_every_message_is_there():
    for service, request in (('MatrixService', 'UploadMatrixRequest'), ('SolverService', 'SolveRequest')):
        assert _wire._POOL.FindServiceByName(f'spaid.v1.{service}').methods[0].input_type.name == request
    assert _wire.message('google.rpc.ErrorInfo')(reason='x').reason == 'x'


@pytest.mark.parametrize('version', ['3.10', '3.11'])
def test_types(version, tmp_path):
    folder = SOURCE / 'client/python'
    out = run('/usr/bin/mypy', '--strict', '--config-file', folder / 'pyproject.toml', '--python-version', version,
              '--cache-dir', tmp_path, folder / 'src', folder / 'examples')
    assert 'no issues found' in out


def test_types_reach_users(tmp_path):
    """py.typed: a program that misuses the package is told."""
    program = tmp_path / 'program.py'
    program.write_text('import spaid\nx: int = spaid.Client("a:1").server_info().version\n')
    result = subprocess.run(['/usr/bin/mypy', '--python-executable', sys.executable, '--ignore-missing-imports', '--cache-dir',
                             str(tmp_path / 'cache'), str(program)], text=True, stdout=subprocess.PIPE, check=False)
    assert 'expression has type "str", variable has type "int"' in result.stdout, result.stdout
