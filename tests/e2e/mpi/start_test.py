"""How jobs start and do not, and how they end in order."""

import os
import pathlib
import shutil
import signal
import subprocess

import job
import matrices


class Starts(job.TestCase):

    def test_options_that_differ(self):
        common = ['--port-file=port', '--devices=mpi', *job.DEFAULTS]
        for ranks in (1, 2):  # the one that differs: the last one
            with self.subTest(ranks=ranks):
                command = [job.MPIEXEC, '-n', str(ranks), job.DAEMON, *common, ':', '-n', '1']
                started = self.start_to_fail(ranks + 1, *common, '--threads=2', command=command,
                                             serves=False)
                self.assert_ends_badly(started, job.LIMIT)
                words = started.sentences()
                self.assertEqual(len(words), 1, started.text())
                self.assertRegex(words[0], rf'^spaid: \[OPTIONS_DIFFER\] .*rank {ranks} on {job.host()} is '
                                 r'".*threads="?2.*", rank 0 on .* is ".*"; start all with the same program '
                                 r'and options$')

    def test_files_of_options_that_differ(self):
        files = [self.folder / name for name in ('one', 'another')]
        for threads, file in enumerate(files, 1):
            file.write_text(f'threads={threads}\n')
        common = ['--port-file=port', '--devices=mpi', *job.DEFAULTS]
        command = [job.MPIEXEC, '-n', '1', job.DAEMON, *common, f'--flagfile={files[0]}', ':', '-n', '1']
        started = self.start_to_fail(2, *common, f'--flagfile={files[1]}', command=command, serves=False)
        self.assert_ends_badly(started, job.LIMIT)
        words = started.sentences()
        self.assertEqual(len(words), 1, started.text())
        self.assertRegex(words[0], r'OPTIONS_DIFFER.*rank 1 on .* is ".*threads="?2.*", rank 0 on .* is ".*threads="?1')

    def test_without_mpiexec(self):
        daemon = self.start(0)
        general = self.file('irregular', matrices.irregular())
        told = self.ctl(daemon, 'build', general, '--engine=static-spai')
        self.assertEqual(told['device'], 'mpi:1')
        told = self.ctl(daemon, 'solve', general, f'--preconditioner={told["preconditioner"]}', '--method=gmres')
        self.assertEqual((told['outcome'], told['device']), ('CONVERGED', 'mpi:1'))

    def test_wrong_usage(self):
        for flag, why in (('--devices=mpi,mpi', 'mpi is named twice'),
                          ('--devices=cpu,mpi,mpi', 'mpi is named twice'),
                          ('--devices=mpix', "'mpix' is no device's name"),
                          ('--devices=mpi:2', "'mpi:2' is no device's name"),
                          ('--devices=auto,mpi', 'auto stands alone')):
            with self.subTest(flag=flag):
                ended = subprocess.run([job.DAEMON, flag, *job.DEFAULTS], capture_output=True, text=True,
                                       timeout=job.LIMIT, check=False)
                self.assertEqual(ended.returncode, 2, ended.stderr)
                self.assertIn(why, ended.stderr)

    def test_wrong_usage_of_all_ranks(self):
        started = self.start_to_fail(2, '--devices=mpi,mpi', serves=False)
        self.assert_ends_badly(started, job.LIMIT)
        self.assertIn('mpi is named twice', started.text())

    def test_without_the_library(self):
        folder = self.folder / 'empty'
        folder.mkdir()
        program = shutil.copy(job.DAEMON, folder / 'spaid')
        ended = subprocess.run([program, '--devices=mpi', *job.DEFAULTS], capture_output=True, text=True,
                               cwd=folder, timeout=job.LIMIT, check=False)
        self.assertEqual(ended.returncode, 1, ended.stderr)
        words = [line for line in ended.stderr.splitlines() if line.startswith('spaid: ')]
        self.assertEqual(len(words), 1, ended.stderr)
        self.assertRegex(words[0], r'^spaid: \[RANKS_UNAVAILABLE\] --devices=mpi: libspaid_mpi\.so not found '
                         r'\(looked in .*\); build spaid where PETSc and MPI are, or leave mpi out of --devices$')

    def test_a_library_of_another_build(self):
        folder = self.folder / 'mixed'
        folder.mkdir()
        program = shutil.copy(job.DAEMON, folder / 'spaid')
        library = pathlib.Path(folder, 'libspaid_mpi.so')
        library.write_text('no library')
        ended = subprocess.run([program, '--devices=mpi', *job.DEFAULTS], capture_output=True, text=True,
                               cwd=folder, timeout=job.LIMIT, check=False)
        self.assertEqual(ended.returncode, 1, ended.stderr)
        self.assertRegex(ended.stderr, r'spaid: \[RANKS_UNAVAILABLE\] --devices=mpi: cannot load .*libspaid_mpi\.so')


class Ends(job.TestCase):

    def test_sigterm_to_rank_0_ends_all(self):
        for ranks in (1, 3):
            with self.subTest(ranks=ranks):
                daemon = self.start(ranks)
                self.ctl(daemon, 'solve', self.file('spd', matrices.laplacian()), '--engine=none', '--method=cg')
                os.kill(daemon.pids()[0], signal.SIGTERM)
                self.assertEqual(daemon.process.wait(timeout=job.LIMIT), 0, daemon.text())
                self.assertEqual(daemon.left(), {})

    def test_a_drain_finishes_what_runs(self):
        daemon = self.start(2)
        matrix = self.file('chain', matrices.chain(20_000))
        solve = self.begin(daemon, 'solve', matrix, '--engine=none', '--method=cg', '--rtol=1e-300',
                           '--max-iterations=3000')
        self.running(daemon, 'solve')
        os.kill(daemon.pids()[0], signal.SIGTERM)
        told = self.finish(solve, status=3)
        self.assertEqual((told['outcome'], told['device']), ('MAX_ITERATIONS', 'mpi:2'))
        self.assertEqual(daemon.process.wait(timeout=job.LIMIT), 0, daemon.text())
        self.assertEqual(daemon.left(), {})

    def test_a_drain_cuts_what_would_not_end(self):
        daemon = self.start(2, '--drain-deadline=1s')
        matrix = self.file('chain', matrices.chain(100_000))
        solve = self.begin(daemon, 'solve', matrix, '--engine=none', '--method=cg', '--rtol=1e-300',
                           '--max-iterations=2000000000')
        self.running(daemon, 'solve')
        os.kill(daemon.pids()[0], signal.SIGTERM)
        self.assertEqual(daemon.process.wait(timeout=job.LIMIT), 0, daemon.text())
        self.assertEqual(daemon.left(), {})
        solve.communicate(timeout=job.LIMIT)
        self.assertNotEqual(solve.returncode, 0)

    def test_sigterm_to_another_rank_is_not_the_end(self):
        daemon = self.start(3)
        spd = self.file('spd', matrices.laplacian())
        for signal_ in (signal.SIGTERM, signal.SIGINT):
            for rank in (1, 2):
                os.kill(daemon.pids()[rank], signal_)
                told = self.ctl(daemon, 'solve', spd, '--engine=none', '--method=cg')
                self.assertEqual((told['outcome'], told['device']), ('CONVERGED', 'mpi:3'))
        self.assertEqual(sorted(daemon.pids()), [0, 1, 2])


if __name__ == '__main__':
    job.main()
