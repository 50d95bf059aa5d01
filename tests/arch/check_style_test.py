"""The style checker finds what it must: each case is a tiny tree."""

import pathlib
import shutil
import tempfile
import unittest

import check_style


class CheckStyleTest(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / 'server').mkdir()
        style = pathlib.Path(__file__).parents[2] / '.clang-format'
        (self.root / '.clang-format').write_text(style.read_text())

    def write(self, text):
        (self.root / 'server' / 'a.cc').write_text(text)

    def test_a_long_file_is_found(self):
        self.write('//\n' * 801)
        self.assertEqual(len(list(check_style.long_files(self.root))), 1)
        self.write('//\n' * 800)
        self.assertEqual(list(check_style.long_files(self.root)), [])

    def test_a_mark_is_found(self):
        self.write('int a;  // TO' 'DO: later\n')
        found = list(check_style.marked_lines(self.root))
        self.assertEqual(len(found), 1)
        self.assertIn('server/a.cc:1', found[0])
        self.write('int todo_list;\n')
        self.assertEqual(list(check_style.marked_lines(self.root)), [])

    @unittest.skipUnless(shutil.which('clang-format'), 'clang-format is not installed')
    def test_an_unformatted_file_is_found(self):
        self.write('int   a ;\n')
        self.assertEqual(len(list(check_style.unformatted(self.root))), 1)
        self.write('int a;\n')
        self.assertEqual(list(check_style.unformatted(self.root)), [])


if __name__ == '__main__':
    unittest.main()
