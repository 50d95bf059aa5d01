"""A reader of standard error that hangs: calls, probes and the drain go on, and the log says what it lost."""

import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time
import unittest

import attack
import grpc
from spaid.v1 import matrix_pb2, matrix_pb2_grpc, server_pb2, server_pb2_grpc


class Piped:
    """A daemon whose standard error is a pipe of 64 KiB that nobody reads until `rest`."""

    def __init__(self, *flags):
        self.folder = tempfile.TemporaryDirectory(prefix='spaid-attack-')
        port_file = pathlib.Path(self.folder.name, 'port')
        self.reader, writer = os.pipe()
        self.process = subprocess.Popen(
            [os.environ['SPAID_DAEMON'], '--address=127.0.0.1:0', '--ops-address=', '--devices=cpu',
             '--drain-grace=0s', f'--port-file={port_file}', *flags], stderr=writer)
        os.close(writer)
        end = time.monotonic() + 60
        while not port_file.exists():
            assert self.process.poll() is None and time.monotonic() < end, 'the daemon does not serve'
            time.sleep(0.02)
        self.address = port_file.read_text().strip()

    def rest(self):
        """What the log says, to its end."""
        text = b''
        while piece := os.read(self.reader, 1 << 16):
            text += piece
        return text.decode()

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.reader)
        self.folder.cleanup()


def refused(daemon, calls):
    """Has that many calls refused, each of which has a line of the log."""
    with attack.channel(daemon) as ch:
        matrices = matrix_pb2_grpc.MatrixServiceStub(ch)
        for _ in range(calls):
            try:
                matrices.GetMatrix(matrix_pb2.GetMatrixRequest(name='x'), timeout=10)
            except grpc.RpcError as error:
                if error.code() == grpc.StatusCode.DEADLINE_EXCEEDED:
                    raise


class StalledLog(unittest.TestCase):
    def start(self, *flags):
        daemon = Piped(*flags)
        self.addCleanup(daemon.close)
        return daemon

    def test_nobody_waits_and_the_end_comes(self):
        # Every refusal has its line, long beyond the pipe and what may wait.
        daemon = self.start('--log-repeats=0', '--log-lines=64')
        refused(daemon, 2000)
        with attack.channel(daemon) as ch:
            server_pb2_grpc.ServerServiceStub(ch).GetServerInfo(server_pb2.GetServerInfoRequest(), timeout=10)
        daemon.process.send_signal(signal.SIGTERM)
        self.assertEqual(daemon.process.wait(timeout=30), 0)

    def test_nobody_waits_for_what_libraries_say(self):
        daemon = self.start()
        with attack.channel(daemon) as ch:
            get = ch.unary_unary('/spaid.v1.MatrixService/GetMatrix')
            for _ in range(2000):
                with self.assertRaises(grpc.RpcError) as refused_one:
                    get(b'\x0a\x01\xff', timeout=10)  # a name that is no UTF-8
                self.assertEqual(refused_one.exception.code(), grpc.StatusCode.INVALID_ARGUMENT)
        daemon.process.send_signal(signal.SIGTERM)
        self.assertNotIn('libprotobuf', daemon.rest())
        self.assertEqual(daemon.process.wait(timeout=30), 0)

    def test_a_reader_that_comes_back_hears_what_was_lost(self):
        daemon = self.start('--log-repeats=0', '--log-lines=64')
        refused(daemon, 2000)
        daemon.process.send_signal(signal.SIGTERM)
        text = daemon.rest()
        self.assertEqual(daemon.process.wait(timeout=30), 0)
        lost = sum(map(int, re.findall(r' log_lines_dropped lines=(\d+)\n', text)))
        self.assertGreater(lost, 0)
        self.assertEqual(len(re.findall(r' info rpc ', text)) + lost, 2000)
        self.assertRegex(text.splitlines()[-1], 'drain_end')

    def test_repeats_are_summed_up(self):
        daemon = self.start()
        refused(daemon, 2000)
        daemon.process.send_signal(signal.SIGTERM)
        text = daemon.rest()
        self.assertEqual(daemon.process.wait(timeout=30), 0)
        told = sum(map(int, re.findall(r' log_repeats event=rpc code=\S+ reason=\S+ suppressed=(\d+)\n', text)))
        self.assertEqual(len(re.findall(r' info rpc ', text)) + told, 2000)
        self.assertLess(text.count('\n'), 1000)


if __name__ == '__main__':
    attack.main()
