#!/usr/bin/python3
"""Judges engine AUTO anew from what was measured: 80 % of the held-out matrices within 20 % of the best."""
import json
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / 'kernels/bench'))
import auto_engine  # noqa: E402
import auto_fit  # noqa: E402

FITTED = {'1138_bus', 'Chem97ZtZ', 'Hamrle1', 'aft01', 'bcsstk08', 'bcsstk15', 'bcsstk18', 'bcsstm02', 'cage8', 'fs_541_2',
          'gemat11', 'gre_1107', 'impcol_d', 'laser', 'mcfe', 'nos3', 'olm1000', 'orsreg_1', 'pores_1', 'rail_20209',
          'saylr3', 'sherman2', 'sherman5', 'watt_1'}
JUDGED = {'494_bus', 'Dubcova1', 'add32', 'bcsstk01', 'bcsstk14', 'bcsstk16', 'bcsstk24', 'bcsstm03', 'epb0', 'fs_680_1',
          'goodwin', 'hangGlider_2', 'jpwh_991', 'lund_a', 'memplus', 'nos4', 'orsirr_1', 'plat1919', 'pores_2',
          'rail_79841', 'sherman1', 'sherman4', 'steam2', 'west0479'}


def row(chosen, choosing, **totals):
    engines = [{'engine': name, 'total_ms': ms or 0.0, 'outcome': 'converged' if ms else 'breakdown'}
               for name, ms in totals.items()]
    as_one = totals.get(chosen)
    return {'engines': engines + [{'engine': 'auto', 'chosen': chosen, 'resolve_ms': choosing,
                                   'total_ms': choosing + as_one if as_one else 0.0,
                                   'outcome': 'converged' if as_one else 'breakdown'}]}


class Measured(unittest.TestCase):
    """Of each machine."""
    def setUp(self):
        self.parts = {}
        for name in ('auto_engine', 'auto_engine_xeon', 'auto_engine_gpu_h100'):
            with open(ROOT / f'kernels/bench/results/{name}.json') as file:
                self.parts[name] = auto_engine.halves(json.load(file))

    def test_the_halves_are_those_of_the_rule(self):
        for name, (_, fitted, judged) in self.parts.items():
            self.assertEqual({r['matrix'] for r in fitted}, FITTED, name)
            self.assertEqual({r['matrix'] for r in judged}, JUDGED, name)

    def test_four_in_five_of_those_held_out_are_within_a_fifth_of_the_best(self):
        for name, (_, _, judged) in self.parts.items():
            good, counted = auto_engine.judge(judged)
            self.assertGreaterEqual(counted, 20, name)
            self.assertGreaterEqual(good / counted, 0.8, name)

    def test_the_rule_that_was_fitted_is_the_one_that_ran(self):
        for name, backend in (('auto_engine', 'cpu'), ('auto_engine_gpu_h100', 'gpu')):
            for r in sum(self.parts[name], []):
                chosen = auto_fit.choose(auto_fit.BACKENDS[backend], auto_fit.numbers(backend), r)
                self.assertEqual(chosen, auto_engine.chosen_by(r), f'{name}: {r["matrix"]}')

    def test_no_fsai_without_symmetry_and_a_positive_diagonal(self):
        for parts in self.parts.values():
            for r in sum(parts, []):
                chosen = auto_engine.chosen_by(r)
                self.assertIn(chosen, {'jacobi', 'static-spai', 'fsai', 'afsai', 'afsai 3x3'}, r['matrix'])
                if not r['symmetric'] or r['negative_diagonal'] or r['zero_diagonal']:
                    self.assertNotIn('fsai', chosen, r['matrix'])


class Judge(unittest.TestCase):
    def test_counts_what_converges_within_a_fifth(self):
        rows = [row('jacobi', 0.1, jacobi=1.0, fsai=3.0),  # 1.1
                row('jacobi', 0.3, jacobi=1.0, fsai=3.0),  # 1.3: to choose counts
                row('jacobi', 0.1, jacobi=2.0, fsai=1.0),  # 2.1
                row('static-spai', 0.1, **{'jacobi': 5.0, 'static-spai': None}),  # AUTO alone fails
                row('jacobi', 0.1, jacobi=None)]  # nothing converges: does not count
        self.assertEqual(auto_engine.judge(rows), (1, 4))
        self.assertEqual(auto_engine.judge(rows, as_one=True), (1, 4))


if __name__ == '__main__':
    unittest.main()
