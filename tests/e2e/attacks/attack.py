"""What tests of attacks share: a daemon each, an honest client beside the attacker, reasons of errors.

    class GzipBomb(attack.TestCase):
        def test_is_not_inflated(self):
            daemon = self.start('--max-streams=64')
            ...

    if __name__ == '__main__':
        attack.main()

Each file is a ctest of its own (spaid_attack_test in CMakeLists.txt) and runs by hand:

    SPAID_DAEMON=build/release/bin/spaid PYTHONPATH=build/release/tests/e2e/attacks/stubs \
        /usr/bin/python3 tests/e2e/attacks/X_test.py
"""

import os
import sys
import threading
import time
import unittest

try:
    import grpc
except ImportError as missing:
    print(f'skipped: {missing} (Debian: python3-grpcio)')
    sys.exit(77)

from google_rpc import error_details_pb2, status_pb2
from spaid.v1 import server_pb2, server_pb2_grpc

import daemon as daemon_module

# Sanitizers have a memory and a pace of their own: bounds of either hold without them.
SANITIZED = bool(os.environ.get('SPAID_SANITIZE'))


def busy():
    """How often as long as alone everything may take beside what else the machine runs; 1: nothing."""
    return max(1, 2 * os.getloadavg()[0] / os.cpu_count())


def channel(daemon, *options, **more):
    """A channel with a connection of its own."""
    return grpc.insecure_channel(
        daemon.address, options=[('grpc.use_local_subchannel_pool', 1), ('grpc.enable_retries', 0),
                                 *options], **more)


def reason(error):
    """The reason in the trailer of a failed call; '' where it has none."""
    details = dict(error.trailing_metadata() or ()).get('grpc-status-details-bin')
    for detail in status_pb2.Status.FromString(details or b'').details:
        if detail.type_url.endswith('google.rpc.ErrorInfo'):
            return error_details_pb2.ErrorInfo.FromString(detail.value).reason
    return ''


def ask(daemon, seconds=5):
    """Asks over a new connection who serves: raises grpc.RpcError where nobody answers in time."""
    with channel(daemon) as ch:
        return server_pb2_grpc.ServerServiceStub(ch).GetServerInfo(
            server_pb2.GetServerInfoRequest(), timeout=seconds)


class Bystander:
    """An honest client that asks again and again over one connection, for a `with` block.

    `worst`, `median`: seconds that it waited for its answers.
    """

    def __init__(self, daemon, pause=0.05):
        self._daemon, self._pause = daemon, pause
        self._waits, self._stop, self.errors = [], threading.Event(), []
        self._thread = threading.Thread(target=self._run)
        self._first = threading.Event()

    def __enter__(self):
        self._thread.start()
        self._first.wait(30)  # its connection stands, and is none of what is measured
        self._waits.clear()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()

    @property
    def worst(self):
        return max(self._waits)

    @property
    def median(self):
        return sorted(self._waits)[len(self._waits) // 2]

    def _run(self):
        with channel(self._daemon) as ch:
            stub = server_pb2_grpc.ServerServiceStub(ch)
            last = False
            while not last:  # once more behind the attack, which may have been cut at once
                last = self._stop.is_set()
                start = time.monotonic()
                try:
                    stub.GetServerInfo(server_pb2.GetServerInfoRequest(), timeout=30)
                except grpc.RpcError as error:
                    self.errors.append(error)
                self._waits.append(time.monotonic() - start)
                self._first.set()
                self._stop.wait(self._pause)


class TestCase(unittest.TestCase):
    """A test whose daemons must end with status 0 at SIGTERM when it is over."""

    def start(self, *flags, status=0, **more):
        """A daemon; `status`: how it must end."""
        started = daemon_module.Daemon(*flags, **more)
        self.addCleanup(started.close)
        self.addCleanup(self._stopped, started, status)
        return started

    def _stopped(self, started, status):
        self.assertEqual(started.stop(), status, started.text())

    def assert_refused(self, call, code, why):
        """`call()` fails with this code and reason."""
        with self.assertRaises(grpc.RpcError) as caught:
            call()
        self.assertEqual((caught.exception.code(), reason(caught.exception)), (code, why),
                         caught.exception.details())

    def assert_memory(self, daemon, most, peak=False):
        """Not over `most` MiB."""
        if not SANITIZED:
            self.assertLessEqual(daemon.memory(peak), most)

    def assert_given_back(self, daemon, before):
        """Waits until little more than `before` MiB is resident: the rest went back to the system."""
        daemon.wait(lambda: SANITIZED or daemon.memory() < before + 32, 'gives the memory back', 60)


def main():
    unittest.main(verbosity=2)
