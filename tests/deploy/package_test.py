"""The installed tree: complete, relocatable, small, and a home for a client program.

    package_test.py ROOT BUILD_DIRECTORY CMAKE
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

import daemon

ROOT = pathlib.Path()
BUILD = pathlib.Path()
CMAKE = ''
MEBIBYTE = 1 << 20
MAX_COMPRESSED_BYTES = {'runtime': 25 * MEBIBYTE, 'cuda': 60 * MEBIBYTE, 'c': 15 * MEBIBYTE}

# What a host brings: the loader, glibc, the C++ runtime and the GPU driver.
OF_THE_HOST = re.compile(
    r'^(linux-vdso\.so|/lib64/ld-linux|ld-linux|lib(c|m|dl|rt|pthread|resolv|util|anl|mvec)\.so'
    r'|lib(stdc\+\+|gcc_s)\.so|libcuda\.so)')

CLIENT = """
#include <spaid/client.h>

#include <cstdio>

int main() {
  spaid::Client client({.address = "127.0.0.1:1", .max_attempts = 1});
  spaid::CallOptions call;
  call.timeout = std::chrono::milliseconds(200);
  auto info = client.GetServerInfo(call);
  if (info.ok()) return 2;
  std::printf("refused with code %d\\n", static_cast<int>(info.error().code));
  return info.error().message.empty() ? 3 : 0;
}
"""

CLIENT_CMAKE = """
cmake_minimum_required(VERSION 3.25)
project(a_client LANGUAGES CXX)
set(CMAKE_CXX_STANDARD 20)
find_package(spaid 0.1 REQUIRED)
add_executable(a_client a_client.cc)
target_link_libraries(a_client PRIVATE spaid::client)
"""


def bare_environment():
    return {'PATH': '/usr/bin:/bin', 'LC_ALL': 'C', 'HOME': '/nonexistent'}


def run(*command, **options):
    result = subprocess.run([str(c) for c in command], text=True, check=False,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)
    if result.returncode != 0:
        raise AssertionError(f'{command} ended with {result.returncode}:\n{result.stdout}')
    return result.stdout


def install(component, prefix):
    run(CMAKE, '--install', BUILD, '--prefix', prefix, '--component', component, '--strip')


class PackageTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        first = cls.folder / 'first'
        install('runtime', first)
        cls.alone = cls.folder / 'alone'  # runtime without the others over it
        shutil.copytree(first, cls.alone, symlinks=True)
        install('tests', first)
        cls.cuda = cls.folder / 'cuda'
        if list((BUILD / 'lib').glob('libspaid_cuda.so')):
            install('cuda', cls.cuda)
            shutil.copytree(cls.cuda, first, symlinks=True, dirs_exist_ok=True)
        # What runs below has moved since it was installed.
        cls.tree = cls.folder / 'moved' / 'spaid'
        cls.tree.parent.mkdir()
        shutil.move(first, cls.tree)
        install('c', cls.folder / 'c')
        cls.c = cls.folder / 'moved' / 'c'
        shutil.move(cls.folder / 'c', cls.c)
        cls.dev = cls.folder / 'dev'
        install('dev', cls.dev)

    def elf_files(self, *trees):
        for tree in trees or (self.tree, self.c):
            for path in sorted(tree.rglob('*')):
                if path.is_file() and not path.is_symlink():
                    with path.open('rb') as f:
                        if f.read(4) == b'\x7fELF':
                            yield path

    def test_components_hold_what_they_say(self):
        for name in ('bin/spaid', 'bin/spaidctl', 'bin/spaid-load', 'share/doc/spaid/LICENSE',
                     'share/doc/spaid/docs/operating.md', 'share/spaid/systemd/spaid.service',
                     'share/man/man1/spaid.1', 'share/man/man1/spaidctl-solve.1'):
            self.assertTrue((self.tree / name).is_file(), name)
        self.assertGreater(len(list((self.tree / 'libexec/spaid/tests').iterdir())), 5)
        self.assertFalse((self.tree / 'include').exists(), 'headers belong to dev')
        self.assertEqual(sorted(p.name for p in (self.alone / 'bin').iterdir()),
                         ['spaid', 'spaid-load', 'spaidctl'])
        self.assertFalse((self.alone / 'libexec').exists(), 'tests are a component of their own')
        self.assertFalse((self.alone / 'lib/libspaid_cuda.so').exists(), 'belongs to cuda')
        if self.cuda.exists():
            self.assertEqual([p.name for p in (self.cuda / 'lib').iterdir()], ['libspaid_cuda.so'])
        for name in ('lib/libspaid.so.1', 'lib/libspaid.so', 'lib/pkgconfig/spaid.pc',
                     'include/spaid/spaid.h', 'include/spaid/spaid.f90'):
            self.assertTrue((self.c / name).is_file(), name)
        self.assertEqual(sorted(p.name for p in self.c.iterdir()), ['include', 'lib'])

    def test_man_finds_the_pages(self):
        if not shutil.which('man'):
            self.skipTest('no man (Debian: man-db)')
        env = dict(bare_environment(), MANPATH=str(self.tree / 'share/man'), MANPAGER='cat')
        self.assertIn('--rtol', run('man', 'spaidctl-solve', env=env))

    def test_every_library_is_inside_the_tree_or_of_the_host(self):
        for tree in (self.tree, self.c):
            checked = 0
            for path in self.elf_files(tree):
                for line in run('ldd', path, env=bare_environment()).splitlines():
                    name, arrow, target = line.strip().partition(' => ')
                    if not arrow:  # the loader and the vdso, or "statically linked"
                        continue
                    self.assertNotIn('not found', target, f'{path}: {line}')
                    if OF_THE_HOST.match(name):
                        continue
                    target = target.split(' (')[0]
                    self.assertTrue(pathlib.Path(target).resolve().is_relative_to(tree.resolve()),
                                    f'{path.relative_to(tree)} takes {name} from {target}')
                    checked += 1
            self.assertGreater(checked, 100)

    def test_rpaths_name_no_folder_of_the_build_machine(self):
        for path in self.elf_files():
            for line in run('readelf', '-d', path).splitlines():
                if 'RPATH' in line or 'RUNPATH' in line:
                    value = re.search(r'\[(.*)\]', line).group(1)
                    for entry in value.split(':'):
                        self.assertTrue(entry.startswith('$ORIGIN'), f'{path}: {line.strip()}')

    def test_nothing_of_cuda_but_our_own_library(self):
        names = [p.name for p in (self.tree / 'lib').iterdir()]
        self.assertEqual([n for n in names if re.match(r'lib(cudart|cublas|cusparse|nv)', n)], [])

    def test_nothing_that_starts_threads_before_main(self):
        names = [p.name for p in (self.tree / 'lib').iterdir()]
        self.assertEqual([n for n in names if re.match(r'lib(open)?blas|liblapack|libcholmod', n)], [])

    def test_needs_no_newer_glibc_than_2_36(self):
        newest = (0, 0)
        for path in self.elf_files():
            for version in re.findall(r'GLIBC_(\d+)\.(\d+)', run('readelf', '-V', path)):
                newest = max(newest, tuple(map(int, version)))
        self.assertGreater(newest, (2, 0))
        self.assertLessEqual(newest, (2, 36))

    def test_is_small(self):
        for component, tree in (('runtime', self.alone), ('cuda', self.cuda), ('c', self.c)):
            if not tree.exists():
                continue
            tarball = self.folder / f'{component}.tar.gz'
            with tarfile.open(tarball, 'w:gz', compresslevel=6) as archive:
                archive.add(tree, 'spaid')
            size = tarball.stat().st_size
            print(f'{component}: {size / MEBIBYTE:.1f} MiB compressed')
            self.assertLess(size, MAX_COMPRESSED_BYTES[component], component)

    def test_programs_run_from_the_moved_tree(self):
        env = bare_environment()
        self.assertIn('0.1.0', run(self.tree / 'bin/spaid', '--version', env=env, cwd='/'))
        self.assertIn('solve', run(self.tree / 'bin/spaidctl', '--help', env=env, cwd='/'))

    def test_a_test_program_runs_from_the_moved_tree(self):
        programs = sorted((self.tree / 'libexec/spaid/tests').iterdir())
        self.assertIn('.', run(programs[0], '--gtest_list_tests', env=bare_environment(), cwd='/'))

    def test_the_client_of_the_readme_solves(self):
        program = re.search(r'```cpp\n(.*?)```', (ROOT / 'README.md').read_text(), re.DOTALL).group(1)
        self.assertIn('"127.0.0.1:7433"', program)
        folder = self.folder / 'with_cmake'
        folder.mkdir()
        (folder / 'CMakeLists.txt').write_text(CLIENT_CMAKE)
        env = bare_environment()
        with daemon.running(self.tree / 'bin/spaid',
                            ['--address=127.0.0.1:0', '--ops-address=127.0.0.1:0', '--drain-grace=0s'],
                            env=env) as address:
            (folder / 'a_client.cc').write_text(program.replace('127.0.0.1:7433', address))
            run(CMAKE, '-S', folder, '-B', folder / 'build', f'-DCMAKE_PREFIX_PATH={self.dev}',
                '-DCMAKE_BUILD_TYPE=Release')
            run(CMAKE, '--build', folder / 'build')
            self.assertEqual(run(folder / 'build/a_client').split(), ['1.000000'] * 3)
            solved = run(self.tree / 'bin/spaidctl', f'--address={address}', 'solve',
                         'gallery:poisson:8', '--json', env=env)
            self.assertIn('"CONVERGED"', solved)

    def test_the_client_with_eigen_of_the_docs_solves(self):
        if not pathlib.Path('/usr/include/eigen3').exists():
            self.skipTest('no Eigen (Debian: libeigen3-dev)')
        blocks = re.findall(r'```cpp\n(.*?)```', (ROOT / 'docs/client.md').read_text(), re.DOTALL)
        program, = (block for block in blocks if '<spaid/eigen.h>' in block)
        folder = self.folder / 'with_eigen'
        folder.mkdir()
        (folder / 'CMakeLists.txt').write_text(
            CLIENT_CMAKE + 'find_package(Eigen3 3.4 REQUIRED NO_MODULE)\n'
            'target_link_libraries(a_client PRIVATE Eigen3::Eigen)\n')
        with daemon.running(self.tree / 'bin/spaid',
                            ['--address=127.0.0.1:0', '--ops-address=127.0.0.1:0', '--drain-grace=0s'],
                            env=bare_environment()) as address:
            (folder / 'a_client.cc').write_text(program.replace('127.0.0.1:7433', address))
            run(CMAKE, '-S', folder, '-B', folder / 'build', f'-DCMAKE_PREFIX_PATH={self.dev}',
                '-DCMAKE_BUILD_TYPE=Release')
            run(CMAKE, '--build', folder / 'build')
            self.assertEqual(run(folder / 'build/a_client').split(), ['1.000000'] * 2)

    def test_a_client_builds_with_pkg_config(self):
        folder = self.folder / 'with_pkg_config'
        folder.mkdir()
        (folder / 'a_client.cc').write_text(CLIENT)
        env = dict(os.environ, PKG_CONFIG_PATH=str(self.dev / 'lib/pkgconfig'))
        flags = run('pkg-config', '--cflags', '--libs', 'spaid-client', env=env).split()
        run('g++', '-std=c++20', folder / 'a_client.cc', '-o', folder / 'a_client', *flags,
            '-pthread')
        self.assertIn('refused with code 14', run(folder / 'a_client'))

    def solves(self, language, compiler, *flags):
        """Compiles the program of docs/c.md in this language against the moved tree, and runs it."""
        program = re.search(rf'```{language}\n(.*?)```', (ROOT / 'docs/c.md').read_text(),
                            re.DOTALL).group(1)
        folder = self.folder / language
        folder.mkdir()
        source = folder / ('a.f90' if language == 'fortran' else 'a.c')
        source.write_text(program)
        env = dict(os.environ, PKG_CONFIG_PATH=str(self.c / 'lib/pkgconfig'))
        module = [run('pkg-config', '--variable=fortran', 'spaid', env=env).strip()]
        run(compiler, *flags, *(module if language == 'fortran' else ()), source, '-o', folder / 'a',
            *run('pkg-config', '--cflags', '--libs', 'spaid', env=env).split(), cwd=folder)
        with daemon.running(self.tree / 'bin/spaid', ['--address=127.0.0.1:0', '--ops-address=127.0.0.1:0',
                                                      '--drain-grace=0s'], bare_environment()) as address:
            solution = run(folder / 'a', env={**bare_environment(), 'SPAID_ADDRESS': address}, cwd='/')
        self.assertEqual([float(word) for word in solution.split()], [1, 2, 3])

    def test_a_program_in_c_builds_with_pkg_config_and_solves(self):
        self.solves('c', 'gcc', '-std=c89', '-pedantic', '-Wall', '-Wextra', '-Werror')

    @unittest.skipIf(shutil.which('gfortran') is None, 'no gfortran')
    def test_a_program_in_fortran_builds_with_pkg_config_and_solves(self):
        self.solves('fortran', 'gfortran', '-std=f2018', '-Wall', '-Werror')

    def test_the_dev_tree_names_no_folder_of_the_build_machine(self):
        for pattern in ('*.cmake', '*.pc', '*.h'):
            for path in (*self.dev.rglob(pattern), *self.c.rglob(pattern)):
                text = path.read_text()
                self.assertNotIn(str(BUILD), text, path)
                self.assertNotIn('/usr/lib/', text, path)


if __name__ == '__main__':
    ROOT, BUILD, CMAKE = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
    unittest.main(argv=sys.argv[:1], verbosity=2)
