#!/usr/bin/python3
"""Tests kernels/bench/tables.py on small trees."""
import contextlib
import io
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / 'kernels/bench'))
import tables  # noqa: E402

TEXT = 'Before.\n<!-- table: t -->\n| old |\n| --- |\n\nAfter.\n'
MADE = ('Before.\n<!-- table: t -->\n| case | n | CG: its / ms |\n| --- | --- | --- |\n'
        '| P7, small | 12,345 | 10 / 1.50 |\n| \\|J\\| | 9999 |  |\n\nAfter.\n')
DATA = 'case,n,CG: its,CG: ms\n"P7, small",12345,10,1.50\n|J|,9999,,\n'


class Tables(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / 'docs/figures').mkdir(parents=True)
        self.text = self.root / 'docs/a.md'
        self.text.write_text(TEXT)
        (self.root / 'docs/figures/t.csv').write_text(DATA)

    def run_it(self, *options):
        with contextlib.redirect_stdout(io.StringIO()):
            return tables.main([*options, str(self.root)])

    def test_makes_a_table_and_is_content_with_it(self):
        self.assertEqual(self.run_it('--check'), 1)
        self.assertEqual(self.text.read_text(), TEXT, 'a check changes nothing')
        self.assertEqual(self.run_it(), 0)
        self.assertEqual(self.text.read_text(), MADE)
        self.assertEqual(self.run_it('--check'), 0)

    def test_refuses_a_table_without_a_file_and_a_file_without_a_table(self):
        self.run_it()
        (self.root / 'docs/figures/other.csv').write_text('a\n1\n')
        self.assertEqual(self.run_it('--check'), 1)
        (self.root / 'docs/figures/other.csv').rename(self.root / 'docs/figures/t.csv')
        (self.root / 'docs/figures/t.csv').unlink()
        self.assertEqual(self.run_it('--check'), 1)

    def test_refuses_rows_of_another_length(self):
        (self.root / 'docs/figures/t.csv').write_text('a,b\n1\n')
        self.assertEqual(self.run_it(), 1)


if __name__ == '__main__':
    unittest.main()
