"""What tests of a daemon over ranks share: the daemon as a job of MPI's, and spaidctl.

    class Idle(job.TestCase):
        def test_answers(self):
            daemon = self.start(2)                    # mpiexec -n 2 spaid --devices=mpi ...
            info = self.ctl(daemon, 'info')           # spaidctl --json info
            ...

    if __name__ == '__main__':
        job.main()

A file, or a class of one, is a ctest (CMakeLists.txt); by hand:

    SPAID_DAEMON=build/release/bin/spaid SPAIDCTL=build/release/bin/spaidctl MPIEXEC=mpiexec \\
        OMPI_ALLOW_RUN_AS_ROOT=1 ... python3 tests/e2e/mpi/X_test.py [CLASS]
"""

import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import uuid

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / 'attacks'))
import daemon as daemon_module  # noqa: E402

import matrices  # noqa: E402

DAEMON, SPAIDCTL = os.environ['SPAID_DAEMON'], os.environ['SPAIDCTL']
MPIEXEC = os.environ['MPIEXEC']
# Something hangs: ten times what the slowest takes alone.
LIMIT = 60
MARK = 'SPAID_TEST_JOB'  # in the environment of all processes of one job
RANK = ('OMPI_COMM_WORLD_RANK', 'PMI_RANK')
DEFAULTS = ['--address=127.0.0.1:0', '--ops-address=127.0.0.1:0', '--drain-grace=0s']


def environment_of(pid):
    """{} of a process that has ended, or that is somebody else's."""
    try:
        data = pathlib.Path(f'/proc/{pid}/environ').read_bytes().decode(errors='replace')
    except OSError:
        return {}
    return dict(word.split('=', 1) for word in data.split('\0') if '=' in word)


def program_of(pid):
    try:
        return os.path.basename(os.readlink(f'/proc/{pid}/exe'))
    except OSError:
        return ''


class Job(daemon_module.Daemon):
    """`mpiexec` with `ranks` processes of the daemon, serving. `close` ends all of them whatever happens.

    `process` is mpiexec, or the daemon itself where `ranks` is 0: started by nobody but this test.
    """

    def __init__(self, ranks, *flags, command=None, env=None, serves=True):
        """`command`: in place of `mpiexec -n ranks`. `serves`: waits until it does."""
        self.folder = tempfile.TemporaryDirectory(prefix='spaid-mpi-')
        self.port_file = pathlib.Path(self.folder.name, 'port')
        self.log = pathlib.Path(self.folder.name, 'log')
        self.mark = uuid.uuid4().hex
        self.ranks = ranks
        given = {flag.split('=')[0] for flag in flags}
        words = [DAEMON, *flags, *(flag for flag in [f'--port-file={self.port_file}', '--devices=mpi', *DEFAULTS]
                                   if flag.split('=')[0] not in given)]
        if command is None:
            command = [MPIEXEC, '-n', str(ranks)] if ranks > 0 else []
        with open(self.log, 'w') as out:
            self.process = subprocess.Popen(
                [*command, *words], stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                cwd=self.folder.name, env={**os.environ, **(env or {}), MARK: self.mark})
        if serves:
            self.await_serving()

    def await_serving(self):
        self.wait(lambda: self.port_file.exists() and self.port_file.read_text().strip(), 'serves', LIMIT)
        self.address = self.port_file.read_text().strip()
        self.ops = re.search(r'ops_address=(\S+)', self.text()).group(1)

    def processes(self):
        """All that belong to it and live, mpiexec's helpers among them: {pid: name of the program}."""
        own = {int(pid): environment_of(pid) for pid in os.listdir('/proc') if pid.isdigit()}
        return {pid: program_of(pid) for pid, env in own.items() if env.get(MARK) == self.mark}

    def pids(self):
        """{rank: pid}."""
        found = {}
        for pid, program in self.processes().items():
            env = environment_of(pid)
            rank = next((env[name] for name in RANK if name in env), '0' if self.ranks == 0 else None)
            if program == os.path.basename(DAEMON) and rank is not None:
                found[int(rank)] = pid
        return found

    def stop(self):
        """SIGTERM to rank 0; the exit status of the job."""
        if self.alive():
            os.kill(self.pids()[0], signal.SIGTERM)
        return self.process.wait(timeout=LIMIT)

    def left(self, seconds=10):
        """What still lives of a job that has ended, `seconds` later; mostly nothing, at once."""
        end = time.monotonic() + seconds
        while (there := self.processes()) and time.monotonic() < end:
            time.sleep(0.02)
        return there

    def sentences(self):
        """The last words of its processes."""
        return re.findall(r'^spaid: .*$', self.log.read_text(errors='replace'), re.M)

    def close(self):
        for pid in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait(timeout=LIMIT)
        self.folder.cleanup()


class TestCase(unittest.TestCase):
    """Jobs that must end with status 0 at SIGTERM when the test is over, with nobody left behind."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix='spaid-mpi-')
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def start(self, ranks, *flags, **more):
        started = Job(ranks, *flags, **more)
        self.addCleanup(started.close)
        self.addCleanup(self._stopped, started)
        return started

    def start_to_fail(self, ranks, *flags, **more):
        """One that does not end well, or ends before it serves."""
        started = Job(ranks, *flags, **more)
        self.addCleanup(started.close)
        return started

    def start_plain(self, *flags):
        """A daemon without MPI."""
        started = daemon_module.Daemon('--devices=cpu', *flags)
        self.addCleanup(started.close)
        return started

    def _stopped(self, started):
        self.assertEqual(started.stop(), 0, started.text())
        self.assertEqual(started.left(), {})
        self.assertEqual(started.sentences(), [], started.text())

    def assert_ends_badly(self, started, seconds=30):
        """By itself, in time, with a status that is not 0 and nobody left behind."""
        self.assertNotEqual(started.process.wait(timeout=seconds), 0, started.text())
        self.assertEqual(started.left(), {}, started.text())

    def file(self, name, matrix):
        """The path of a matrix of matrices.py."""
        path = self.folder / f'{name}.mtx'
        return path if path.exists() else matrices.write(path, *matrix)

    # --- a client of the bare protocol

    def bare_protocol(self):
        """grpc, numpy, and the modules of the wire contract that an upload takes; skips where there are none.

        SPAID_PROTOS, SPAID_PROTOC, SPAID_GRPC_PLUGIN: what they are made of.
        """
        if 'SPAID_GRPC_PLUGIN' not in os.environ:
            self.skipTest('no grpc_python_plugin (Debian: protobuf-compiler-grpc)')
        try:
            import grpc
            import numpy
        except ImportError as missing:
            self.skipTest(f'{missing} (Debian: python3-grpcio python3-numpy)')
        sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
        import stubs
        folder = self.folder / 'stubs'
        if not folder.exists():
            folder.mkdir()
            stubs.generate(os.environ['SPAID_PROTOS'], os.environ['SPAID_PROTOC'], os.environ['SPAID_GRPC_PLUGIN'],
                           str(folder))
            sys.path.insert(0, str(folder))
        from spaid.v1 import arrays_pb2, matrix_pb2, matrix_pb2_grpc
        return grpc, numpy, arrays_pb2, matrix_pb2, matrix_pb2_grpc

    def half_an_upload(self, daemon, n, width):
        """Sends half of the indices of a matrix of n rows with `width` entries each, and keeps the call open.

        (the call, the type of its errors).
        """
        grpc, numpy, arrays_pb2, matrix_pb2, matrix_pb2_grpc = self.bare_protocol()
        pointers = numpy.arange(n + 1, dtype=numpy.int64) * width
        indices = (numpy.arange(n)[:, None] + numpy.arange(width) * (n // width)) % n
        indices = numpy.sort(indices, axis=1).astype(numpy.int32).ravel()
        over = threading.Event()
        self.addCleanup(over.set)
        sent = threading.Event()

        def messages():
            yield matrix_pb2.UploadMatrixRequest(header=matrix_pb2.MatrixHeader(
                n=n, nnz=len(indices), layout=arrays_pb2.LAYOUT_CSR, value_type=arrays_pb2.VALUE_TYPE_FLOAT64))
            for kind, array in ((arrays_pb2.ARRAY_KIND_POINTERS, pointers),
                                (arrays_pb2.ARRAY_KIND_INDICES, indices[:len(indices) // 2])):
                piece = (1 << 20) // array.itemsize
                for first in range(0, len(array), piece):
                    yield matrix_pb2.UploadMatrixRequest(chunk=arrays_pb2.ArrayChunk(
                        array=kind, offset=first, data=array[first:first + piece].tobytes()))
            sent.set()
            over.wait(LIMIT)

        channel = grpc.insecure_channel(daemon.address)
        self.addCleanup(channel.close)
        call = matrix_pb2_grpc.MatrixServiceStub(channel).UploadMatrix(messages())
        self.assertTrue(sent.wait(LIMIT))
        return call, grpc

    def half_a_download(self, daemon, preconditioner):
        """Begins to download M, and leaves it at the first chunk."""
        grpc = self.bare_protocol()[0]
        from spaid.v1 import preconditioner_pb2, preconditioner_pb2_grpc
        channel = grpc.insecure_channel(daemon.address)
        self.addCleanup(channel.close)
        call = preconditioner_pb2_grpc.PreconditionerServiceStub(channel).DownloadPreconditioner(
            preconditioner_pb2.DownloadPreconditionerRequest(name=preconditioner))
        self.assertTrue(next(call).HasField('header'))
        self.assertTrue(next(call).HasField('chunk'))
        return call, grpc

    # --- spaidctl

    def begin(self, daemon, *words, **more):
        """One that runs: a Popen whose standard output is JSON."""
        started = subprocess.Popen(
            [SPAIDCTL, '--json', '-q', f'--address={daemon.address}', *map(str, words)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.folder, **more)

        def end():
            if started.poll() is None:
                started.kill()
            started.communicate()
        self.addCleanup(end)
        return started

    def finish(self, started, status=0, seconds=LIMIT):
        """What it printed."""
        out, err = started.communicate(timeout=seconds)
        self.assertEqual(started.returncode, status, f'{started.args}\n{out}{err}')
        return json.loads(out)

    def ctl(self, daemon, *words, status=0):
        return self.finish(self.begin(daemon, *words), status)

    def there(self, daemon, device):
        """Bytes of what lies on a device."""
        info = self.ctl(daemon, 'info')
        return next(d for d in info['devices'] if d['name'] == device)['memory_used_bytes']

    def running(self, daemon, stage, name=None):
        """Waits until a job (`name`, or any) is at work in `stage`; its name."""
        found = []

        def there():
            if name:
                jobs = [self.ctl(daemon, 'jobs', name)]
                self.assertIn(jobs[0]['state'], ('queued', 'running'), jobs[0])
            else:
                jobs = self.ctl(daemon, 'jobs', '--state=running')['jobs']
            # A solve counts right-hand sides.
            found.extend(one['job'] for one in jobs
                         if one['stage'] == stage and (stage == 'solve' or one['done'] > 0))
            return found
        daemon.wait(there, f'has a job in {stage}', LIMIT)
        return found[0]

    def end_of(self, daemon, name):
        """Waits for the end of a job: what spaidctl tells of it."""
        watching = self.begin(daemon, 'watch', name)
        out, _ = watching.communicate(timeout=LIMIT)
        return json.loads(out)


def host():
    return socket.gethostname()


def main():
    unittest.main(verbosity=2)
