"""deploy/haproxy/haproxy.cfg before a real daemon: calls and streams pass, attacks stay outside.

The attacker comes from 127.0.0.2: HAProxy counts connections by address.
"""

import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

if shutil.which('haproxy') is None:
    print('skipped: haproxy is not installed (Debian: haproxy)')
    sys.exit(77)

import attack
import grpc
import http2
from spaid.v1 import arrays_pb2, matrix_pb2, matrix_pb2_grpc

CONFIG = pathlib.Path(__file__).parents[3] / 'deploy/haproxy/haproxy.cfg'
ATTACKER = '127.0.0.2'


def free_port():
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        return probe.getsockname()[1]


class Proxied:
    """HAProxy before `daemon`, with the delivered configuration but for its ends. It is what tests
    call in the daemon's place: `address`, `port`."""

    def __init__(self, daemon, certificate=None, request_timeout=None):
        self.daemon = daemon
        self.port = free_port()
        self.address = f'127.0.0.1:{self.port}'
        folder = pathlib.Path(daemon.folder.name)
        ends = [
            (r'^    bind .*$', f'    bind 127.0.0.1:{self.port} ' +
             (f'ssl crt {certificate} alpn h2 ssl-min-ver TLSv1.2' if certificate else 'proto h2')),
            (r'^(    server spaid )\S+ (.*) inter 2s (.*)$',
             rf'\g<1>{daemon.address} \2 inter 100ms \3'),
            (r'^(    http-check connect addr 127\.0\.0\.1 port )\d+ (.*)$',
             rf'\g<1>{daemon.ops_port} \2'),
        ]
        if request_timeout:
            ends.append((r'^    timeout http-request .*$', f'    timeout http-request {request_timeout}'))
        text = CONFIG.read_text()
        for old, new in ends:
            text, found = re.subn(old, new, text, flags=re.MULTILINE)
            assert found == 1, f'{old} stands {found} times in {CONFIG}'
        config = folder / 'haproxy.cfg'
        config.write_text(text)
        self.log = folder / 'haproxy.log'
        with open(self.log, 'w') as out:
            self.process = subprocess.Popen(['haproxy', '-f', config], stdout=out,
                                            stderr=subprocess.STDOUT)
        daemon.wait(self._listens, 'HAProxy listens')

    def _listens(self):
        if self.process.poll() is not None:
            raise AssertionError(f'HAProxy ended with {self.process.returncode}\n{self.log.read_text()}')
        try:
            socket.create_connection(('127.0.0.1', self.port), timeout=5).close()
        except ConnectionRefusedError:
            return False
        return True

    def close(self):
        self.process.terminate()
        self.process.wait(timeout=30)


class HaproxyTest(attack.TestCase):

    def front(self, *flags, **proxied):
        """A daemon, and HAProxy before it."""
        daemon = self.start(*flags)
        proxy = Proxied(daemon, **proxied)
        self.addCleanup(proxy.close)
        return daemon, proxy

    def test_the_configuration_is_without_warnings(self):
        # All but the certificate, which is the operator's.
        daemon, proxy = self.front()
        checked = subprocess.run(['haproxy', '-c', '-f', pathlib.Path(daemon.folder.name, 'haproxy.cfg')],
                                 capture_output=True, text=True, check=False)
        self.assertEqual(checked.returncode, 0, checked.stderr)
        self.assertNotIn('WARNING', checked.stdout + checked.stderr)
        attack.ask(proxy)

    def test_calls_errors_and_streams_pass(self):
        _, proxy = self.front()
        with attack.channel(proxy) as channel:
            stub = matrix_pb2_grpc.MatrixServiceStub(channel)
            # An error with its details is in the trailers.
            self.assert_refused(
                lambda: stub.GetMatrix(matrix_pb2.GetMatrixRequest(name='matrices/none'), timeout=10),
                grpc.StatusCode.NOT_FOUND, 'HANDLE_UNKNOWN')

            # A stream in both directions: what the server has to say comes while the client sends.
            header = matrix_pb2.MatrixHeader(n=1 << 20, nnz=1 << 20, layout=arrays_pb2.LAYOUT_CSC,
                                             value_type=arrays_pb2.VALUE_TYPE_FLOAT64)

            def requests():
                yield matrix_pb2.UploadMatrixRequest(header=header)
                time.sleep(60)  # the call ends before

            call = stub.UploadMatrix(requests(), timeout=10)
            self.assertEqual(next(call).WhichOneof('event'), 'need')
            call.cancel()

    def test_a_proxy_takes_no_tenant_from_callers(self):
        _, proxy = self.front('--trust-tenant-header')
        with attack.channel(proxy) as channel:
            info = attack.server_pb2_grpc.ServerServiceStub(channel).GetServerInfo(
                attack.server_pb2.GetServerInfoRequest(), timeout=10,
                metadata=[('x-spaid-tenant', 'somebody-else')])
            self.assertNotEqual(info.tenant, 'somebody-else')

    def test_what_is_no_grpc_stays_outside(self):
        _, proxy = self.front()
        with http2.Connection(proxy.port) as raw:
            raw.send(http2.frame(http2.HEADERS, http2.END_HEADERS | http2.END_STREAM, 1, b''.join(
                http2.header(*field) for field in [(':method', 'GET'), (':scheme', 'http'),
                                                   (':path', '/metrics'), (':authority', 'x')])))
            raw.read(10, until=lambda: any(e[0] == http2.HEADERS for e in raw.events))
            block = next(e[2] for e in raw.events if e[0] == http2.HEADERS)
            self.assertIn(b'415', block)

    def test_a_draining_daemon_gets_no_calls(self):
        daemon, proxy = self.front('--drain-grace=1m')
        attack.ask(proxy)
        daemon.wait(lambda: 'Layer7 check passed, code: 200' in proxy.log.read_text(), 'is checked')
        daemon.process.send_signal(signal.SIGTERM)
        daemon.wait(lambda: 'Server spaid/spaid is DOWN' in proxy.log.read_text(), 'is seen to drain')
        attack.ask(daemon)  # itself it serves until the grace time is over
        with self.assertRaises(grpc.RpcError) as caught:
            attack.ask(proxy)
        self.assertEqual(caught.exception.code(), grpc.StatusCode.UNAVAILABLE)

    # a02: idle sockets.
    def test_idle_sockets_leave_room_for_others(self):
        daemon, proxy = self.front()
        before = daemon.descriptors()
        sockets = []
        try:
            for _ in range(400):
                idle = socket.socket()
                sockets.append(idle)
                idle.bind((ATTACKER, 0))
                idle.settimeout(5)
                try:
                    idle.connect(('127.0.0.1', proxy.port))
                except ConnectionError:
                    pass  # refused already
            attack.ask(proxy)  # comes from another address
            self.assertLess(daemon.descriptors(), before + 20, 'none of them reaches the daemon')
            # Over its share the attacker's own are closed.
            closed = 0
            for idle in sockets[-200:]:
                idle.settimeout(5)
                try:
                    closed += idle.recv(1) == b''
                except OSError:
                    closed += 1
            self.assertEqual(closed, 200)
        finally:
            for idle in sockets:
                idle.close()
        attack.ask(proxy)

    # a18: rapid reset.
    def test_rapid_resets_are_cut(self):
        daemon, proxy = self.front()
        attack.ask(proxy)
        before, resets, end = daemon.memory(), 0, time.monotonic() + 20
        block = http2.call_headers('/spaid.v1.MatrixService/UploadMatrix')
        with attack.Bystander(proxy) as other, http2.Connection(proxy.port) as raw:
            try:
                while not raw.closed and time.monotonic() < end:
                    burst = b''
                    for _ in range(200):
                        burst += http2.frame(http2.HEADERS, http2.END_HEADERS, raw.next_stream, block)
                        burst += http2.frame(http2.RST_STREAM, 0, raw.next_stream, http2.CANCEL)
                        raw.next_stream += 2
                        resets += 1
                    raw.send(burst)
                    raw.read(0.001)
                    raw.events.clear()
            except ConnectionError:
                pass
            self.assertTrue(raw.closed, f'{resets} resets, and it is open')
        # The same address, but another connection.
        self.assertEqual(other.errors, [])
        self.assertLess(other.worst, 2)
        self.assert_memory(daemon, before + 200, peak=True)
        attack.ask(proxy)

    # Headers that come byte by byte, and never end.
    def test_slow_headers_are_cut(self):
        _, proxy = self.front(request_timeout='1s')
        for first in (http2.PREFACE[:8],
                      http2.PREFACE + http2.frame(http2.SETTINGS, 0, 0),
                      http2.PREFACE + http2.frame(http2.SETTINGS, 0, 0) +
                      http2.frame(http2.HEADERS, 0, 1, http2.call_headers('/a/b')[:20])):
            with socket.create_connection(('127.0.0.1', proxy.port), timeout=10) as raw:
                raw.sendall(first)
                start = time.monotonic()
                raw.settimeout(0.1)
                open_headers = first.count(b'/a') > 0
                while True:
                    try:
                        if raw.recv(1 << 16) == b'':
                            break
                    except TimeoutError:
                        pass
                    except ConnectionError:
                        break
                    try:
                        if open_headers:
                            raw.sendall(http2.frame(http2.CONTINUATION, 0, 1, b''))
                    except ConnectionError:
                        break
                    self.assertLess(time.monotonic() - start, 10)
        attack.ask(proxy)

    def test_tls_in_front(self):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        subprocess.run(['openssl', 'req', '-x509', '-newkey', 'ec', '-pkeyopt',
                        'ec_paramgen_curve:P-256', '-nodes', '-days', '2', '-subj', '/CN=localhost',
                        '-addext', 'subjectAltName=DNS:localhost', '-keyout', folder / 'key',
                        '-out', folder / 'chain'], check=True, capture_output=True)
        pem = folder / 'spaid.pem'
        pem.write_text((folder / 'chain').read_text() + (folder / 'key').read_text())
        _, proxy = self.front(certificate=pem)
        credentials = grpc.ssl_channel_credentials((folder / 'chain').read_bytes())
        with grpc.secure_channel(f'localhost:{proxy.port}', credentials) as channel:
            attack.server_pb2_grpc.ServerServiceStub(channel).GetServerInfo(
                attack.server_pb2.GetServerInfoRequest(), timeout=10)


if __name__ == '__main__':
    attack.main()
