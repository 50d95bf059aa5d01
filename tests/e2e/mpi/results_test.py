"""What ranks compute is what one process computes: M bit for bit, iterations nearly.

SPAID_RANKS: how many.
"""

import os

import job
import matrices

RANKS = int(os.environ['SPAID_RANKS'])
DEVICE = f'mpi:{RANKS}'
MATRICES = {
    'irregular': matrices.irregular(),
    'reducible': matrices.reducible(),
    'dense-row': matrices.dense_row(),
    'permuted': matrices.permuted(),
}
OPTIONS = [[], ['--pattern-power=2'], ['--keep-tau=0.6'], ['--ensure-row'],
           ['--pattern-power=2', '--local-solver=qr', '--post-filter=0.01'], ['--local-solver=gram']]
GROWN = {'fsai': ['converged_rows', 'not_spd_rows', 'nnz_row_max', 'steps'],
         'dynamic_spai': ['converged_columns', 'dependent_columns', 'nnz_column_max', 'gram_nnz']}
COUNTS = ['density', 'worst_column', 'gram_columns', 'qr_columns', 'iterative_columns', 'rescued_columns',
          'rank_deficient_columns', 'zero_columns', 'non_finite_columns', 'warnings']


class Results(job.TestCase):

    def setUp(self):
        super().setUp()
        self.daemon, self.plain = self.start(RANKS), self.start_plain()

    def build(self, daemon, matrix, *options):
        """(what is told of the build, M as its file has it)."""
        path = self.folder / 'M.mtx'
        engine = [] if any(option.startswith('--engine=') for option in options) else ['--engine=static-spai']
        told = self.ctl(daemon, 'build', matrix, *engine, f'--precond-out={path}', *options)
        text = '\n'.join(line for line in path.read_text().splitlines() if not line.startswith('% '))
        path.unlink()
        return told, text

    def both(self, matrix, *options):
        """M is the same on both; (what is told of the ranks', what of the plain one's)."""
        here, m_here = self.build(self.plain, matrix, *options)
        there, m_there = self.build(self.daemon, matrix, *options)
        self.assertEqual((here['device'], there['device']), ('cpu', DEVICE))
        self.assertTrue(there['placement'].startswith(f'{DEVICE}: '), there['placement'])
        self.assertEqual(m_there, m_here)
        for figure in COUNTS:
            self.assertEqual(there['quality'][figure], here['quality'][figure], figure)
        for engine, figures in GROWN.items():
            mine, theirs = (told['quality'].get(engine) or {} for told in (there, here))
            for figure in figures:
                self.assertEqual(mine.get(figure), theirs.get(figure), figure)
        if there['engine'] in ('fsai', 'afsai'):
            return there, here
        residuals = [told['quality']['residual_frobenius'] for told in (there, here)]
        self.assertAlmostEqual(residuals[0], residuals[1], delta=1e-10 * residuals[1])
        return there, here

    def solve(self, daemon, matrix, *options, status=0):
        """(what is told, columns of x)."""
        path = self.folder / 'x.mtx'
        told = self.ctl(daemon, 'solve', matrix, f'--out={path}', *options, status=status)
        return told, matrices.read_vectors(path)

    def assert_near(self, columns, others):
        self.assertEqual(len(columns), len(others))
        for x, y in zip(columns, others):
            scale = max(map(abs, y))
            self.assertLess(max(abs(u - v) for u, v in zip(x, y)), 1e-5 * scale)

    def solve_on_both(self, matrix, there, here, *options):
        """Both converge, by nearly as many iterations; what is told of the ranks'."""
        with_m = ['--engine=none'], ['--engine=none']
        if there:
            with_m = [f'--preconditioner={m["preconditioner"]}' for m in (there, here)]
            with_m = [with_m[0]], [with_m[1]]
        one, x = self.solve(self.daemon, matrix, *with_m[0], *options)
        other, y = self.solve(self.plain, matrix, *with_m[1], *options)
        self.assertEqual((one['device'], other['device']), (DEVICE, 'cpu'))
        self.assertEqual(one['method'], other['method'])
        self.assertEqual(len(one['rhs']), len(other['rhs']))
        for mine, theirs in zip(one['rhs'], other['rhs']):
            self.assertEqual((mine['outcome'], theirs['outcome']), ('CONVERGED', 'CONVERGED'))
            self.assertLessEqual(abs(mine['iterations'] - theirs['iterations']), 2, (matrix, options))
            self.assertLessEqual(mine['true_relative_residual'], 1e-8)
        self.assert_near(x, y)
        return one

    def test_m_has_the_same_bits(self):
        for name, matrix in MATRICES.items():
            for options in OPTIONS:
                with self.subTest(matrix=name, options=options):
                    self.both(self.file(name, matrix), *options)

    def test_a_pattern_of_ones_own(self):
        pattern = self.file('pattern', matrices.irregular(seed=9))
        self.both(self.file('irregular', MATRICES['irregular']), f'--pattern={pattern}')

    def test_fewer_rows_than_ranks(self):
        for n in (1, 3):
            with self.subTest(n=n):
                matrix = self.file(f'chain-{n}', matrices.chain(n))
                there, here = self.both(matrix)
                self.solve_on_both(matrix, there, here, '--method=bicgstab')

    def test_solves_converge_as_in_one_process(self):
        for name, matrix in MATRICES.items():
            path = self.file(name, matrix)
            there, here = self.both(path)
            for method in ('bicgstab', 'gmres'):
                with self.subTest(matrix=name, method=method):
                    self.solve_on_both(path, there, here, f'--method={method}')
        path = self.file('permuted', MATRICES['permuted'])
        self.solve_on_both(path, None, None, '--method=cg')
        jacobi = [self.ctl(daemon, 'build', path, '--engine=jacobi') for daemon in (self.daemon, self.plain)]
        self.assertEqual(jacobi[0]['device'], 'cpu')
        self.solve_on_both(path, *jacobi, '--method=cg')

    def test_static_fsai(self):
        path = self.file('permuted', MATRICES['permuted'])
        for options in ([], ['--pattern-power=2']):
            there, here = self.both(path, '--engine=fsai', *options)
            self.solve_on_both(path, there, here, '--method=cg')

    def test_adaptive_fsai(self):
        path = self.file('permuted', MATRICES['permuted'])
        for options in ([], ['--k-max=3', '--step-size=3'], ['--post-filter=0.05']):
            with self.subTest(options=options):
                there, here = self.both(path, '--engine=afsai', *options)
                self.assertGreater(there['quality']['fsai']['nnz_row_max'], 3)
                self.solve_on_both(path, there, here, '--method=cg')

    def test_dynamic_spai(self):
        for name, matrix in MATRICES.items():
            for options in ([], ['--step-size=1', '--max-steps=12', '--column-tol=0.1']):
                with self.subTest(matrix=name, options=options):
                    path = self.file(name, matrix)
                    there, here = self.both(path, '--engine=dynamic-spai', *options)
                    self.assertGreater(there['quality']['dynamic_spai']['nnz_column_max'], 1)
            self.solve_on_both(path, there, here, '--method=gmres')

    def test_new_values_on_a_pattern_that_has_grown(self):
        first = MATRICES['permuted']
        scaled = first[0], {place: 1.5 * value if place[0] == place[1] else value
                            for place, value in first[1].items()}
        for engine in ('dynamic-spai', 'afsai'):
            with self.subTest(engine=engine):
                there, here = self.both(self.file('permuted', first), f'--engine={engine}')
                self.assertFalse(there['rebuild'])
                again, plain = self.both(self.file('scaled', scaled), f'--engine={engine}')
                self.assertEqual(again['rebuild'], plain['rebuild'])

    def test_several_right_hand_sides(self):
        path = self.file('irregular', MATRICES['irregular'])
        there, here = self.both(path)
        told = self.solve_on_both(path, there, here, '--method=gmres', '--rhs=random', '--rhs-count=3')
        self.assertEqual(len(told['rhs']), 3)

    def test_a_singular_matrix(self):
        """Constants are projected out, of b, too, where that has a part that no x reaches."""
        for rhs in ('random', 'ones'):
            told = {}
            for daemon in (self.daemon, self.plain):
                told[daemon] = self.ctl(daemon, 'solve', 'gallery:neumann:10', '--engine=none', '--method=cg',
                                        f'--rhs={rhs}', status=0 if rhs == 'random' else 3)
            one, other = told[self.daemon], told[self.plain]
            self.assertEqual((one['device'], other['device']), (DEVICE, 'cpu'))
            for key in ('outcome', 'null_space'):
                self.assertEqual(one[key], other[key])
            self.assertAlmostEqual(one['rhs'][0]['unreachable'], other['rhs'][0]['unreachable'], delta=1e-12)
            # Coefficients jump by decades: the order of sums moves a long run of CG by a tenth.
            self.assertLessEqual(abs(one['iterations'] - other['iterations']), 2 + other['iterations'] / 5,
                                 (one['iterations'], other['iterations']))

    def test_an_initial_guess(self):
        path = self.file('permuted', MATRICES['permuted'])
        there, here = self.both(path)
        n = MATRICES['permuted'][0]
        cold = self.solve_on_both(path, there, here, '--method=bicgstab')
        near = matrices.write_vectors(self.folder / 'near.mtx', [[1 + 1e-5 * (i % 7) for i in range(n)]])
        warm = self.solve_on_both(path, there, here, '--method=bicgstab', f'--initial-guess={near}')
        self.assertLess(warm['iterations'], cold['iterations'])

    def test_a_history_of_residuals(self):
        path = self.file('permuted', MATRICES['permuted'])
        told = self.solve_on_both(path, None, None, '--method=cg', '--history')
        history = told['rhs'][0]['history']
        self.assertGreaterEqual(len(history), told['iterations'])
        self.assertLessEqual(history[-1][1], 1e-8)

    def test_new_values_on_the_same_plan(self):
        first = MATRICES['irregular']
        there, here = self.both(self.file('irregular', first))
        self.assertFalse(there['rebuild'])
        again, plain = self.both(self.file('other-values', matrices.other_values(*first)))
        self.assertTrue(again['rebuild'])
        self.assertTrue(plain['rebuild'])

    def test_one_solve_builds_and_solves(self):
        path = self.file('irregular', MATRICES['irregular'])
        told, _ = self.solve(self.daemon, path, '--engine=static-spai', '--method=gmres')
        self.assertEqual((told['outcome'], told['device']), ('CONVERGED', DEVICE))
        self.assertIn(DEVICE, told['placement'])
        self.assertTrue(told['m_placement'].startswith(f'{DEVICE}: '), told['m_placement'])

    def test_auto(self):
        for name in ('irregular', 'permuted'):
            told, _ = self.solve(self.daemon, self.file(name, MATRICES[name]))
            self.assertEqual(told['outcome'], 'CONVERGED', told)

    def test_an_outcome_without_convergence(self):
        told, _ = self.solve(self.daemon, self.file('permuted', MATRICES['permuted']), '--engine=none',
                             '--method=cg', '--max-iterations=3', status=3)
        self.assertEqual((told['outcome'], told['iterations'], told['device']), ('MAX_ITERATIONS', 3, DEVICE))


if __name__ == '__main__':
    job.main()
