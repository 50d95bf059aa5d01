"""The ABI of libspaid.so.1 is the golden one, and nothing but spaid_* is seen of it.

    abi_test.py LIBRARY HEADERS GOLDEN     exit 77: abigail-tools are missing (ctest: skipped)

To change it on purpose (added functions too; never a changed one without another SONAME):
abidw --exported-interfaces-only --headers-dir HEADERS --drop-private-types --no-corpus-path \
  --no-comp-dir-path --no-show-locs --no-elf-needed LIBRARY > GOLDEN
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

LIBRARY, HEADERS, GOLDEN = (pathlib.Path(path) for path in sys.argv[1:4])


def compare(golden):
    """abidiff's exit status (0: the same) and what it says."""
    result = subprocess.run(['abidiff', golden, LIBRARY], text=True, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, check=False)
    return result.returncode, result.stdout


class AbiTest(unittest.TestCase):

    def test_is_the_golden_one(self):
        status, said = compare(GOLDEN)
        self.assertEqual(status, 0, said)

    def test_a_change_would_be_seen(self):
        text = GOLDEN.read_text()
        changes = {
            'a function less': (r"<elf-symbol name='spaid_cancel'[^\n]*\n", ''),
            'a field of another type': (r"(<var-decl name='rhs' type-id=')[^']*'",
                                        r"\1" + re.search(r"type-decl name='double'[^\n]* id='([^']*)'",
                                                          text)[1] + "'"),
        }
        for what, (pattern, by) in changes.items():
            with self.subTest(what=what), tempfile.NamedTemporaryFile('w', suffix='.abi') as other:
                changed, count = re.subn(pattern, by, text)
                self.assertEqual(count, 1)
                other.write(changed)
                other.flush()
                self.assertNotEqual(compare(other.name)[0], 0)

    def test_only_the_interface_is_exported(self):
        listed = subprocess.run(['nm', '-D', '--defined-only', LIBRARY], text=True, check=True,
                                stdout=subprocess.PIPE).stdout
        names = [line.split()[-1] for line in listed.splitlines()]
        names.remove('SPAID_1')
        header = pathlib.Path(HEADERS, 'spaid.h').read_text()
        declared = {f'{name}@@SPAID_1' for name in re.findall(r'\b(spaid_\w+)\(', header)}
        self.assertGreater(len(declared), 25)
        self.assertEqual(set(names), declared)

    def test_grpc_is_shared_and_the_name_is_versioned(self):
        dynamic = subprocess.run(['readelf', '-d', LIBRARY], text=True, check=True,
                                 stdout=subprocess.PIPE).stdout
        self.assertIn('Shared library: [libgrpc++.so', dynamic)
        self.assertIn('Library soname: [libspaid.so.1]', dynamic)


if __name__ == '__main__':
    if shutil.which('abidiff') is None:
        print('skipped: abidiff is not installed (Debian: abigail-tools)')
        sys.exit(77)
    unittest.main(argv=sys.argv[:1], verbosity=2)
