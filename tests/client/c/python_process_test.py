"""libspaid.so lives in one Python process with grpcio, loaded before or after it, and both solve; what it
tells is what spaidctl tells, by the same names.

    python_process_test.py LIBRARY SECOND SPAID SPAIDCTL PROTOS PROTOC PLUGIN WORK
SECOND is another library with a client inside, which lives in that process, too.
exit 77: grpcio is missing (ctest: skipped)
"""

import ctypes
import json
import pathlib
import re
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).parents[3]
sys.path[:0] = [str(ROOT / 'tests/deploy'), str(ROOT / 'tests/e2e')]
import daemon  # noqa: E402
import stubs  # noqa: E402

LIBRARY, SECOND, SPAID, SPAIDCTL, PROTOS, PROTOC, PLUGIN, WORK = sys.argv[1:9]
QUICK = ['--address=127.0.0.1:0', '--ops-address=127.0.0.1:0', '--drain-grace=0s']

# Runs in a process of its own: LIBRARY, SECOND, ADDRESS, the folder of the stubs, and the order of calls.
TOGETHER = '''
import ctypes, sys
library, second, address, stubs, order = sys.argv[1:]
sys.path.insert(0, stubs)

def by_grpcio():
    import grpc
    from spaid.v1 import server_pb2, server_pb2_grpc
    channel = grpc.insecure_channel(address)
    info = server_pb2_grpc.ServerServiceStub(channel).GetServerInfo(server_pb2.GetServerInfoRequest())
    return info.version

def by_library():
    c = ctypes.CDLL(library)
    c.spaid_last_error.restype = ctypes.c_char_p
    def check(status):
        assert status == 0, c.spaid_last_error()
    options, client, system = (ctypes.c_void_p() for _ in range(3))
    check(c.spaid_options_new(ctypes.byref(options)))
    check(c.spaid_options_set(options, b'address', address.encode()))
    check(c.spaid_client_new(options, ctypes.byref(client)))
    ptr, idx = (ctypes.c_int * 4)(0, 2, 5, 7), (ctypes.c_int * 7)(0, 1, 0, 1, 2, 1, 2)
    values, b = (ctypes.c_double * 7)(4, -1, -2, 4, -1, -1, 4), (ctypes.c_double * 3)(2, 3, 10)
    x = (ctypes.c_double * 3)()
    check(c.spaid_system_csr(client, ctypes.c_long(3), ptr, 32, idx, 32, values, 0,
                             ctypes.byref(system)))
    check(c.spaid_solve(system, options, 1, b, None, x, None))
    for free, of in ((c.spaid_system_free, system), (c.spaid_client_free, client),
                     (c.spaid_options_free, options)):
        free(of)
    return [round(v, 6) for v in x]

def by_second():
    c = ctypes.CDLL(second)
    c.second_client_solves.restype = ctypes.c_double
    return c.second_client_solves(address.encode())

for name in order.split() * 2:
    print(name, globals()[name]())
'''


class OneProcess(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(WORK)
        stubs.generate(PROTOS, PROTOC, PLUGIN, cls.folder / 'stubs')

    def test_all_solve_whichever_comes_first(self):
        with daemon.running(SPAID, QUICK) as address:
            for order in ('by_grpcio by_library by_second', 'by_library by_grpcio by_second',
                          'by_second by_library by_grpcio'):
                with self.subTest(order=order):
                    result = subprocess.run(
                        [sys.executable, '-c', TOGETHER, LIBRARY, SECOND, address,
                         str(self.folder / 'stubs'), order],
                        text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
                        timeout=120)
                    self.assertEqual(result.returncode, 0, result.stdout)
                    self.assertEqual(result.stdout.count('by_library [1.0, 2.0, 3.0]'), 2, result.stdout)
                    self.assertEqual(result.stdout.count('by_second 3.0'), 2, result.stdout)
                    self.assertEqual(len(re.findall(r'by_grpcio \d+\.\d+', result.stdout)), 2,
                                     result.stdout)


def leaves(value, path=()):
    """(path, leaf) of a JSON value, paths joined by dots."""
    if isinstance(value, dict):
        for key, of in value.items():
            yield from leaves(of, (*path, key))
    elif isinstance(value, list):
        for k, of in enumerate(value):
            yield from leaves(of, (*path, str(k)))
    else:
        yield '.'.join(path), value


class NamesAreThoseOfSpaidctl(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.c = ctypes.CDLL(LIBRARY)
        for function in ('spaid_last_error', 'spaid_last_error_detail', 'spaid_report_name'):
            getattr(cls.c, function).restype = ctypes.c_char_p

    def check(self, status):
        self.assertGreaterEqual(status, 0, self.c.spaid_last_error())

    def told(self, report):
        """{name: value} of a report."""
        found = {}
        while name := self.c.spaid_report_name(report, ctypes.c_long(len(found))):
            number, text = ctypes.c_double(), ctypes.c_char_p()
            if self.c.spaid_report_number(report, name, ctypes.byref(number)) == 0:
                found[name.decode()] = number.value
            else:
                self.check(self.c.spaid_report_text(report, name, ctypes.byref(text)))
                found[name.decode()] = text.value.decode()
        self.c.spaid_report_free(report)
        return found

    def spaidctl(self, *words):
        return dict(leaves(json.loads(subprocess.run(
            [SPAIDCTL, f'--address={self.address}', *words, '--json'], check=True, text=True,
            stdout=subprocess.PIPE).stdout)))

    def assert_names(self, report, expected, own=()):
        """All names of the report are in spaidctl's, of the same kind."""
        self.assertGreater(len(report), 10)
        for name, value in report.items():
            if name.startswith(tuple(own)) and own:
                continue
            self.assertIn(name, expected)
            kind = str if isinstance(value, str) else (int, float)
            self.assertIsInstance(expected[name], kind, name)

    def test_reports(self):
        c = self.c
        options, client, system, report, m = (ctypes.c_void_p() for _ in range(5))
        n = 27
        rows = [[j for j in (i - 1, i, i + 1) if 0 <= j < n] for i in range(n)]
        ptr, idx = [0], []
        for row in rows:
            idx += row
            ptr.append(len(idx))
        values = [2.0 if j == i else -1.0 for i, row in enumerate(rows) for j in row]
        arrays = ((ctypes.c_int * len(ptr))(*ptr), 32, (ctypes.c_int * len(idx))(*idx), 32,
                  (ctypes.c_double * len(idx))(*values), 0)
        b, x = (ctypes.c_double * n)(*[1.0] * n), (ctypes.c_double * n)()
        with daemon.running(SPAID, QUICK) as address:
            self.__class__.address = address
            self.check(c.spaid_options_new(ctypes.byref(options)))
            for name, value in ((b'address', address.encode()), (b'engine', b'afsai')):
                self.check(c.spaid_options_set(options, name, value))
            self.check(c.spaid_client_new(options, ctypes.byref(client)))
            self.check(c.spaid_client_info(client, ctypes.byref(report)))
            self.assert_names(self.told(report), self.spaidctl('info'), own=('local.',))
            self.check(c.spaid_system_csr(client, ctypes.c_long(n), *arrays, ctypes.byref(system)))
            self.check(c.spaid_build(system, options, ctypes.byref(m), ctypes.byref(report)))
            self.assert_names(self.told(report),
                              self.spaidctl('build', 'gallery:poisson:3', '--engine=afsai'))
            self.check(c.spaid_solve(system, options, 1, b, None, x, ctypes.byref(report)))
            self.assert_names(
                self.told(report),
                self.spaidctl('solve', 'gallery:poisson:3', '--engine=afsai'), own=('reuse.',))
        for free, of in ((c.spaid_preconditioner_free, m), (c.spaid_system_free, system),
                         (c.spaid_client_free, client), (c.spaid_options_free, options)):
            free(of)

    def test_options(self):
        """Flags of spaidctl and `spaidctl solve`, but for those of files, of the output and of jobs."""
        flags = set()
        for words in ([], ['solve']):
            said = subprocess.run([SPAIDCTL, *words, '--help'], check=True, text=True,
                                  stdout=subprocess.PIPE).stdout
            flags |= set(re.findall(r'^ +(?:-\w,)?--([a-z][\w-]*)', said, re.MULTILINE))
        others = {'help', 'version', 'json', 'quiet', 'color', 'rhs', 'rhs-count', 'seed', 'initial-guess',
                  'out', 'plot', 'history', 'explain', 'detach', 'sum-duplicates', 'preconditioner',
                  'admin-token'}
        self.assertLessEqual(others, flags)
        options = ctypes.c_void_p()
        self.check(self.c.spaid_options_new(ctypes.byref(options)))
        self.assertLess(self.c.spaid_options_set(options, b'no', b'x'), 0)
        listed = self.c.spaid_last_error().decode().split('dashes: ')[1].split(', ')
        self.assertEqual(set(listed), flags - others | {'local-socket'})
        self.c.spaid_options_free(options)


if __name__ == '__main__':
    try:
        import grpc  # noqa: F401
    except ImportError as missing:
        print(f'skipped: {missing} (Debian: python3-grpcio)')
        sys.exit(77)
    unittest.main(argv=sys.argv[:1], verbosity=2)
