"""Preconditioners of hypre and PETSc by their names: built over the ranks, solved with there, and refused
where there are none.

SPAID_RANKS: how many.
"""

import os

import job
import matrices

RANKS = int(os.environ['SPAID_RANKS'])
DEVICE = f'mpi:{RANKS}'
ENGINES = ['parasails', 'boomeramg', 'gamg']
ALONE = f'{DEVICE}: none else builds it'


class PetscEngines(job.TestCase):

    def setUp(self):
        super().setUp()
        self.daemon = self.start(RANKS, '--devices=cpu,mpi', '--max-matrix-bytes=200000')
        self.spd = self.file('permuted', matrices.permuted(side=40))
        self.general = self.file('irregular', matrices.irregular())

    def refused(self, *words, daemon=None):
        told = self.ctl(daemon or self.daemon, *words, status=1)['error']
        return told['reason'], told.get('field', ''), told['message']

    def assert_solved(self, told):
        self.assertEqual((told['outcome'], told['device']), ('CONVERGED', DEVICE), told)
        self.assertLessEqual(told['true_relative_residual'], 1e-8)
        return told

    def test_they_solve_by_every_method_in_fewer_iterations(self):
        for method in ('cg', 'bicgstab', 'gmres'):
            bare = self.ctl(self.daemon, 'solve', self.spd, '--engine=none', f'--method={method}')
            for engine in ENGINES:
                with self.subTest(engine=engine, method=method):
                    told = self.assert_solved(self.ctl(self.daemon, 'solve', self.spd, f'--engine={engine}',
                                                       f'--method={method}'))
                    self.assertEqual((told['engine'], told['method']), (engine, method))
                    self.assertLess(told['iterations'], bare['iterations'])
        for engine in ENGINES:
            told = self.assert_solved(self.ctl(self.daemon, 'solve', self.general, f'--engine={engine}'))
            self.assertEqual(told['method'], 'bicgstab')

    def test_m_is_kept_and_solves_by_its_handle(self):
        for engine in ENGINES:
            with self.subTest(engine=engine):
                built = self.ctl(self.daemon, 'build', self.spd, f'--engine={engine}')
                self.assertEqual((built['device'], built['placement']), (DEVICE, ALONE))
                figures = built['quality']['petsc']
                if engine == 'gamg':
                    self.assertGreaterEqual(figures['levels'], 2)
                    self.assertGreater(figures['operator_complexity'], 1)
                    self.assertGreater(built['nnz'], 7840)
                else:
                    self.assertEqual((figures['levels'], built['nnz']), (0, 0))
                again = self.ctl(self.daemon, 'build', self.spd, f'--engine={engine}')
                self.assertEqual((again['preconditioner'], again['reused']), (built['preconditioner'], True))
                told = self.assert_solved(self.ctl(
                    self.daemon, 'solve', self.spd, f'--preconditioner={built["preconditioner"]}', '--method=cg',
                    '--rhs=random', '--rhs-count=2'))
                self.assertIn('lies there alone', told['placement'])
                self.ctl(self.daemon, 'preconditioners', built['preconditioner'], '--delete')

    def test_options_are_passed_on(self):
        def iterations(*options):
            return self.assert_solved(self.ctl(self.daemon, 'solve', self.spd, '--method=cg', *options))['iterations']
        sails = iterations('--engine=parasails')
        self.assertGreater(iterations('--engine=parasails', '--parasails-levels=0'), sails)
        self.assertLess(iterations('--engine=parasails', '--parasails-filter=0', '--parasails-threshold=0'), sails)
        self.assertGreater(iterations('--engine=boomeramg', '--interpolation-entries=1', '--interpolation=direct'),
                           iterations('--engine=boomeramg'))
        self.assertGreater(iterations('--engine=gamg', '--smooths=0'), iterations('--engine=gamg'))
        general = self.ctl(self.daemon, 'build', self.spd, '--engine=parasails', '--parasails-symmetry=general')
        self.assertEqual(general['spec']['symmetry'], 'general')
        self.assertEqual(self.refused('solve', self.spd, f'--preconditioner={general["preconditioner"]}',
                                      '--method=cg')[0], 'PRECONDITIONER_NOT_SPD')

    def test_near_null_vectors(self):
        ones = matrices.write_vectors(self.folder / 'ones.mtx', [[1.0] * 1600])
        self.assert_solved(self.ctl(self.daemon, 'solve', self.spd, '--engine=gamg', f'--near-null-space={ones}'))
        short = matrices.write_vectors(self.folder / 'short.mtx', [[1.0] * 160])
        reason, field, _ = self.refused('build', self.spd, '--engine=gamg', f'--near-null-space={short}')
        self.assertEqual((reason, field), ('BAD_NEAR_NULL_SPACE', 'header.spec.petsc.near_null_space'))

    def test_a_matrix_that_lies_there_alone(self):
        large = self.file('large', matrices.permuted(side=80))
        for engine in ENGINES:
            told = self.assert_solved(self.ctl(self.daemon, 'solve', large, f'--engine={engine}'))
            self.assertEqual((told['engine'], told['method']), (engine, 'cg'))

    def test_what_is_refused(self):
        m = self.ctl(self.daemon, 'build', self.spd, '--engine=boomeramg')['preconditioner']
        zero = self.file('zero', (4, {(0, 1): 1.0, (1, 0): 1.0, (2, 2): 1.0, (3, 3): 1.0}))
        singular = self.file('singular', (4, {(0, 0): 1.0, (1, 1): 1.0, (2, 2): 1.0, (3, 3): 0.0}))
        for words, reason, field in [
                (['preconditioners', m, f'--download={self.folder / "M.mtx"}'], 'MATRIX_OVER_RANKS', ''),
                (['build', self.spd, '--engine=gamg', f'--precond-out={self.folder / "M.mtx"}'],
                 'MATRIX_OVER_RANKS', 'engine'),
                (['solve', self.spd, f'--preconditioner={m}', '--method=idr'], 'MATRIX_OVER_RANKS', ''),
                (['build', self.spd, '--engine=gamg', '--scaling=equilibrate'], 'BAD_SCALING',
                 'header.spec.scaling'),
                (['build', zero, '--engine=boomeramg'], 'ZERO_DIAGONAL', 'values'),
                (['build', zero, '--engine=gamg'], 'ZERO_DIAGONAL', 'values'),
                (['build', singular, '--engine=parasails', '--parasails-symmetry=spd'], 'SET_UP_FAILED', 'values')]:
            with self.subTest(words=words[:3]):
                told = self.refused(*words)
                self.assertEqual(told[:2], (reason, field), told)
        self.assert_solved(self.ctl(self.daemon, 'solve', self.spd, f'--preconditioner={m}'))  # it serves on

    def test_a_daemon_without_ranks_says_what_it_lacks(self):
        plain = self.start_plain()
        self.assertEqual(set(ENGINES) & set(self.ctl(plain, 'info')['engines']), set())
        self.assertLessEqual(set(ENGINES), set(self.ctl(self.daemon, 'info')['engines']))
        for engine in ENGINES:
            for command in ('build', 'solve', 'estimate'):
                reason, field, text = self.refused(command, self.spd, f'--engine={engine}', daemon=plain)
                self.assertEqual(reason, 'RANKS_NEEDED')
                self.assertTrue(field.endswith('engine'), field)
                self.assertIn('mpiexec -n P spaid --devices=mpi', text)


if __name__ == '__main__':
    job.main()
