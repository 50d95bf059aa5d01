"""Programs of PETSc's and of other projects through libspaidpetsc.so, none of them changed.

    clients_test.py CLASS

Each solves once more in its own way (Jacobi, LU), which has to give the same, and the daemon's counters
tell who worked. Run by hand: see CMakeLists.txt for the variables.
"""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest

import programs

MAGNET = pathlib.Path('/usr/share/doc/getdp/examples')


class Ex2(programs.TestCase):
    """ksp/ex2: a 2-D Laplacian with a known solution."""

    def check(self, options, ranks=1):
        size = '-m 60 -n 50 -ksp_rtol 1e-10'
        own, text = self.solution('ksp_ex2', f'{size} -ksp_type cg -pc_type jacobi', ranks)
        count = programs.number(r'iterations (\d+)', text)
        x, text = self.solution('ksp_ex2', f'{size} -ksp_converged_reason {options}', ranks)
        self.assertIn('CONVERGED_RTOL', text)
        self.assert_near(x, own, 1e-7)
        self.assertLess(programs.number(r'Norm of error (\S+)', text), 1e-5)
        return programs.number(r'iterations (\d+)', text) / count

    def test_m_is_applied_here(self):
        for ranks in (1, 2):
            self.assertLess(self.check('-ksp_type cg -pc_type spaid -pc_spaid_engine afsai', ranks), 0.5)
        self.worked(builds=1, solves=0)

    def test_the_daemon_solves(self):
        for ranks in (1, 2):
            self.check('-ksp_type spaid -pc_type spaid', ranks)
        self.worked(builds=0, solves=2)

    def test_help_lists_the_options(self):
        text = self.run_program('ksp_ex2', '-m 5 -n 5 -ksp_type spaid -pc_type spaid -help')
        for words in ('-pc_spaid_engine <now auto : formerly auto> Preconditioner (choose one of) auto none '
                      'jacobi', '-pc_spaid_k_max', '-pc_spaid_reuse_factor', '-ksp_spaid_method',
                      'gather error'):
            self.assertIn(words, text)

    def test_the_log_has_stages_of_its_own(self):
        text = self.run_program('ksp_ex2', '-ksp_type cg -pc_type spaid -pc_spaid_engine fsai -log_view')
        for stage in ('SpaidUpload', 'SpaidBuild', 'SpaidApply'):
            self.assertRegex(text, rf'(?m)^{stage} +[1-9]')
        text = self.run_program('ksp_ex2', '-ksp_type spaid -pc_type spaid -log_view')
        self.assertRegex(text, r'(?m)^SpaidSolve +1 ')

    def test_nothing_leaks(self):
        text = self.run_program('ksp_ex2', '-m 30 -ksp_type cg -pc_type spaid -pc_spaid_engine fsai '
                                '-objects_dump -malloc_dump -malloc_debug')
        self.assertNotRegex(text, r'\[\s*0\s*\]\s*\d+ bytes')
        self.assertNotIn('objects', text.lower())


class Ex45(programs.TestCase):
    """ksp/ex45: a 3-D Laplacian on a DMDA."""

    def test_on_one_and_two_ranks(self):
        for ranks in (1, 2):
            size = '-da_grid_x 15 -da_grid_y 13 -da_grid_z 11 -ksp_rtol 1e-10'
            own, _ = self.solution('ksp_ex45', f'{size} -pc_type jacobi', ranks)
            for options in ('-ksp_type spaid -pc_type spaid',
                            '-pc_type spaid -pc_spaid_engine static-spai'):
                x, _ = self.solution('ksp_ex45', f'{size} {options}', ranks)
                self.assert_near(x, own, 1e-8)
        self.worked(builds=1, solves=2)

    def test_inside_other_preconditioners(self):
        size = '-da_grid_x 17 -da_grid_y 17 -da_grid_z 17 -ksp_rtol 1e-10'
        own, _ = self.solution('ksp_ex45', f'{size} -pc_type jacobi', 2)
        builds = 0
        for options in (
                '-pc_type asm -sub_ksp_type preonly -sub_pc_type spaid -sub_pc_spaid_engine dynamic-spai',
                '-pc_type bjacobi -sub_pc_type spaid -sub_pc_spaid_engine static-spai',
                '-pc_type telescope -telescope_pc_type spaid -telescope_pc_spaid_engine jacobi',
                '-pc_type mg -pc_mg_levels 2 -mg_levels_pc_type spaid '
                '-mg_levels_pc_spaid_engine static-spai'):
            x, _ = self.solution('ksp_ex45', f'{size} {options}', 2)
            self.assert_near(x, own, 1e-8)
            now = self.metric('spaid_jobs_ended_total', kind='build', state='succeeded')
            self.assertGreater(now, builds, options)
            builds = now


class Ex50(programs.TestCase):
    """ksp/ex50: Neumann conditions; the matrix has constants as its null space."""

    def test_with_a_null_space(self):
        size = '-da_grid_x 40 -da_grid_y 30 -ksp_rtol 1e-10'
        own, _ = self.solution('ksp_ex50', f'{size} -ksp_type cg -pc_type jacobi')
        for options in ('-ksp_type spaid -pc_type spaid',
                        '-ksp_type cg -pc_type spaid -pc_spaid_engine afsai'):
            for ranks in (1, 2):
                x, _ = self.solution('ksp_ex50', f'{size} {options}', ranks)
                if ranks == 1:
                    mean = sum(own) / len(own)
                    shift = sum(x) / len(x)
                    self.assert_near([v - shift for v in x], [v - mean for v in own], 1e-7)
        self.worked(builds=1, solves=2)


class Ex19(programs.TestCase):
    """snes/ex19: a driven cavity. Newton steps have one pattern, and values each."""

    SIZE = '-da_grid_x 32 -da_grid_y 32 -lidvelocity 100 -grashof 1e3 -snes_rtol 1e-9 -ksp_rtol 1e-6'

    def test_the_pattern_goes_once(self):
        own, _ = self.solution('snes_ex19', f'{self.SIZE} -pc_type lu', of='snes')
        for options, kind in (('-pc_type spaid -ksp_type bcgs -pc_spaid_engine dynamic-spai', 'build'),
                              ('-pc_type spaid -ksp_type spaid', 'solve')):
            before = self.metric('spaid_array_bytes_received_total')
            jobs = self.metric('spaid_jobs_ended_total', kind=kind, state='succeeded')
            x, text = self.solution('snes_ex19', f'{self.SIZE} -snes_converged_reason {options}',
                                    of='snes')
            self.assert_near(x, own, 1e-5)
            steps = programs.number(r'Number of SNES iterations = (\d+)', text)
            self.assertGreater(steps, 2)
            jobs = self.metric('spaid_jobs_ended_total', kind=kind, state='succeeded') - jobs
            self.assertEqual(jobs, steps)
            n = 4 * 32 * 32
            # Five blocks of 4 x 4 a grid point, but for the boundary.
            entries = (5 * 32 * 32 - 4 * 32) * 16
            received = self.metric('spaid_array_bytes_received_total') - before
            vectors = 8 * n * steps if kind == 'solve' else 0
            # The second program finds the values of the first step there, which begins alike.
            values = 8 * entries * (steps if kind == 'build' else steps - 1)
            # Beside them goes one pattern, 4 bytes an entry and the pointers: that is there, too.
            pattern = 4 * entries + 8 * (n + 1) if kind == 'build' else 0
            self.assertEqual(received, values + vectors + pattern)

    def test_on_two_ranks(self):
        own, _ = self.solution('snes_ex19', f'{self.SIZE} -pc_type lu', of='snes')
        x, _ = self.solution('snes_ex19', f'{self.SIZE} -pc_type spaid -ksp_type spaid', 2, of='snes')
        self.assertEqual(len(x), len(own))
        self.assert_near(sorted(x), sorted(own), 1e-5)
        self.worked(solves=3)


class TimeSteps(programs.TestCase):
    """ts/ex13, ex17 and ex26: implicit steps of a heat equation, a DAE and a transient cavity."""

    def test_steps_give_the_same(self):
        for program, options, pc in (
                ('ts_ex13', '-da_grid_x 20 -da_grid_y 20 -ts_max_steps 4',
                 '-ksp_type bcgs -pc_spaid_engine static-spai'),
                ('ts_ex17', '-ts_max_steps 4', '-ksp_type bcgs -pc_spaid_engine static-spai'),
                ('ts_ex26', '-ts_max_steps 3 -da_grid_x 12 -da_grid_y 12',
                 '-ksp_type gmres -pc_spaid_engine dynamic-spai')):
            options += ' -ksp_rtol 1e-10 -snes_rtol 1e-10'
            own, _ = self.solution(program, f'{options} -pc_type lu', of='ts')
            x, _ = self.solution(program, f'{options} -pc_type spaid {pc}', of='ts')
            self.assert_near(x, own, 1e-6)
            x, _ = self.solution(program, f'{options} -pc_type spaid -ksp_type spaid', of='ts')
            self.assert_near(x, own, 1e-6)
        self.worked(builds=3, solves=3)

    def test_m_is_kept(self):
        options = '-ksp_type gmres -pc_type spaid -pc_spaid_engine static-spai -pc_spaid_reuse_factor 1.5'
        self.run_program('ts_ex13', f'-da_grid_x 40 -da_grid_y 40 -ts_max_steps 6 {options}')
        self.assertEqual(self.metric('spaid_jobs_ended_total', kind='build'), 1)


class Dolfinx(programs.TestCase):
    """dolfinx-scaling-test, Debian's binary of FEniCSx' performance test."""

    PROGRAM = '/usr/bin/dolfinx-scaling-test'

    def check(self, kind, size, options, ranks):
        words = f'--problem_type {kind} --scaling_type strong --ndofs {size} -ksp_rtol 1e-8'
        own = self.run_program(self.PROGRAM, f'{words} -ksp_type cg -pc_type jacobi', ranks)
        text = self.run_program(self.PROGRAM, f'{words} {options}', ranks)
        norm = r'Solution norm: *(\S+)'
        self.assertAlmostEqual(programs.number(norm, text) / programs.number(norm, own), 1, delta=1e-4)
        count = r'Number of Krylov iterations: (\d+)'
        return programs.number(count, text) / programs.number(count, own)

    def test_poisson(self):
        for ranks in (1, 2):
            ratio = self.check('poisson', 8000, '-ksp_type cg -pc_type spaid -pc_spaid_engine fsai', ranks)
            self.assertLess(ratio, 0.8)
            self.check('poisson', 8000, '-ksp_type spaid -pc_type spaid', ranks)
        self.worked(builds=2, solves=2)

    def test_elasticity(self):
        for ranks in (1, 2):
            ratio = self.check('elasticity', 6000, '-ksp_type cg -pc_type spaid -pc_spaid_engine afsai', ranks)
            self.assertLess(ratio, 0.6)
            self.check('elasticity', 6000, '-ksp_type spaid -pc_type spaid', ranks)
        self.worked(builds=2, solves=2)


class GetDp(programs.TestCase):
    """getdp with its own demo of a magnet, by its own interface to PETSc."""

    def values(self, options):
        for file in (MAGNET / 'demos').iterdir():
            shutil.copy(file, self.folder)
        os.environ['GETDP_TEMPLATES'] = str(MAGNET / 'templates')
        text = self.run_program('/usr/bin/getdp', f'magnet.pro -msh magnet.msh -solve #1 {options}')
        solution = (self.folder / 'magnet.res').read_text().split('$Solution')[1].splitlines()
        return [float(line.split()[0]) for line in solution[2:] if line and line[0] != '$'], text

    def test_the_magnet(self):
        own, _ = self.values('-ksp_type preonly -pc_type lu')
        for options in ('-ksp_type bcgs -pc_type spaid -pc_spaid_engine dynamic-spai',
                        '-ksp_type spaid -pc_type spaid'):
            x, text = self.values(f'{options} -ksp_rtol 1e-10 -ksp_converged_reason')
            self.assertIn('CONVERGED_RTOL', text)
            self.assert_near(x, own, 1e-5)
        self.worked(builds=1, solves=1)


class Petsc4py(programs.TestCase):
    """petsc4py, which opens PETSc where its symbols are nobody else's."""

    def test_a_script(self):
        script = pathlib.Path(__file__).with_name('poisson.py')
        for options in ('-ksp_type spaid -pc_type spaid', '-ksp_type cg -pc_type spaid -pc_spaid_engine afsai'):
            for ranks in (1, 2):
                text = self.run_program(sys.executable, f'{script} {options} -ksp_rtol 1e-8', ranks)
                self.assertIn('converged', text)
                self.assertLess(programs.number(r'residual (\S+)', text), 1e-7)
        self.worked(builds=1, solves=2)


class Slepc(programs.TestCase):
    """Eigenvalues with SLEPc: shift and invert, and LOBPCG, with M under the prefix st_."""

    def eigenvalues(self, options):
        text = self.run_program('slepc_laplacian', options)
        return [float(v) for v in re.findall(r'eigenvalue (\S+)', text)]

    def test_the_smallest_of_a_laplacian(self):
        own = self.eigenvalues('-eps_target 0 -st_type sinvert -eps_nev 2')
        invert = '-eps_target 0 -st_type sinvert -eps_nev 2 -st_ksp_rtol 1e-10'
        for options in (f'{invert} -st_ksp_type cg -st_pc_type spaid -st_pc_spaid_engine afsai',
                        f'{invert} -st_ksp_type spaid -st_pc_type spaid',
                        '-eps_type lobpcg -eps_smallest_real -eps_nev 2 -eps_tol 1e-9 '
                        '-st_pc_type spaid -st_pc_spaid_engine afsai'):
            values = self.eigenvalues(options)
            self.assertGreaterEqual(len(values), 2)
            for value, expected in zip(values, own):
                self.assertAlmostEqual(value, expected, delta=1e-6)
        self.worked(builds=1, solves=1)


class Twice(programs.TestCase):
    """PETSc begun and ended twice in one process: the library is closed with a daemon's threads alive."""

    def test_begins_again(self):
        text = self.run_program('twice', '')
        self.assertEqual(text.count('converged'), 2, text)
        self.worked(builds=1, solves=1)

    def test_lives_beside_the_c_interface(self):
        os.environ['LD_PRELOAD'] = os.environ['SPAID_C_LIBRARY']
        self.addCleanup(os.environ.pop, 'LD_PRELOAD')
        text = self.run_program('twice', '')
        self.assertEqual(text.count('converged'), 2, text)
        self.worked(builds=1, solves=1)


class Killed(programs.TestCase):
    """The daemon is killed in the middle: every rank ends, not with 0, in time, with one sentence."""

    def check(self, ranks, options):
        size = '-da_grid_x 40 -da_grid_y 40 -lidvelocity 100 -grashof 1e4 -snes_monitor'
        program = subprocess.Popen(
            ['stdbuf', '-oL', *self.command('snes_ex19', f'{size} {options}', ranks)], cwd=self.folder,
            text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=self.environment())
        text = ''
        try:
            for line in program.stdout:
                text += line
                if '2 SNES Function norm' in line:
                    self.daemon.process.send_signal(signal.SIGKILL)
                    self.daemon.process.wait()
                    killed = time.monotonic()
            self.assertNotEqual(program.wait(programs.LIMIT), 0, text)
        finally:
            program.kill()
            program.wait()
        self.assertIn('2 SNES Function norm', text)
        self.assertLess(time.monotonic() - killed, 60)
        sentences = re.findall(r'(?m)^.*PETSC ERROR: spaid: .*$', text)
        self.assertEqual(len(sentences), 1, programs.only_sentences(text))
        self.assertIn(self.daemon.address, sentences[0])
        self.assertNotIn('Number of SNES iterations', text)

    def test_while_m_is_applied_here(self):
        self.check(1, '-pc_type spaid -ksp_type bcgs')

    def test_on_two_ranks(self):
        self.check(2, '-pc_type spaid -ksp_type bcgs')

    def test_whole_solves_on_two_ranks(self):
        self.check(2, '-pc_type spaid -ksp_type spaid')


class Installed(programs.TestCase):
    """The component petsc, moved to another folder."""

    def test_a_program_loads_it(self):
        subprocess.run([os.environ['CMAKE'], '--install', os.environ['SPAID_BUILD'], '--component', 'petsc',
                        '--strip', '--prefix', self.folder / 'first'], check=True, stdout=subprocess.DEVNULL)
        shutil.move(self.folder / 'first', self.folder / 'moved')
        libraries = sorted(path for path in (self.folder / 'moved').rglob('*.so') if path.is_file())
        self.assertEqual(len(libraries), 2, libraries)
        self.assertRegex(str(libraries[0]), r'/moved/lib/libspaid_messages-[\d.]+\.so$')
        libraries.reverse()
        self.assertEqual(libraries[0].name, 'libspaidpetsc.so')
        self.assertRegex(str(libraries[0]), r'/lib/petsc\d+\.\d+-real/')
        dynamic = subprocess.run(['readelf', '-d', libraries[0]], check=True, text=True,
                                 stdout=subprocess.PIPE).stdout
        self.assertRegex(dynamic, r'RUNPATH.*\[\$ORIGIN/\.\.\]')
        self.assertIn('NODELETE', dynamic)
        self.assertIn('libpetsc', dynamic)
        symbols = subprocess.run(['nm', '-D', '--defined-only', libraries[0]], check=True, text=True,
                                 stdout=subprocess.PIPE).stdout
        self.assertEqual([line.split()[-1] for line in symbols.splitlines()],
                         ['PetscDLLibraryRegister_spaidpetsc'])
        programs.LIBRARY = libraries[0]
        self.run_program('twice', '')
        self.worked(builds=1, solves=1)


class Documented(programs.TestCase):
    """The commands of docs/petsc.md, as they stand there."""

    NAMES = {'./ex2': 'ksp_ex2', './ex45': 'ksp_ex45', './ex19': 'snes_ex19'}

    def test_every_command_runs(self):
        page = pathlib.Path(__file__).parents[3] / 'docs/petsc.md'
        lines = re.findall(r'^(?:mpirun -n (\d) )?(\./ex\d+) (.*)$', page.read_text(), re.M)
        self.assertGreater(len(lines), 4)
        for ranks, program, options in lines:
            with self.subTest(program=program, options=options):
                self.run_program(self.NAMES[program], options, int(ranks or 1))


if __name__ == '__main__':
    unittest.main(verbosity=2)
