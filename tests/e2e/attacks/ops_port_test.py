"""The operator's port: who trickles, asks for much or takes nothing keeps nobody from his probe."""

import contextlib
import threading
import time

import attack

FLAGS = ('--ops-connections=16', '--ops-timeout=2s')


class OpsPort(attack.TestCase):
    def probe(self, daemon, most=1.0):
        """Seconds that /healthz took."""
        start = time.monotonic()
        self.assertEqual(daemon.get('/healthz', 10), 'ok\n')
        self.assertEqual(daemon.get('/readyz', 10), 'ok\n')
        took = time.monotonic() - start
        if not attack.SANITIZED:
            self.assertLess(took, most * attack.busy())
        return took

    @contextlib.contextmanager
    def connections(self, daemon, count, said=b''):
        with contextlib.ExitStack() as stack:
            sockets = []
            for _ in range(count):
                sock = stack.enter_context(daemon.connect(daemon.ops_port, 20))
                if said:
                    sock.sendall(said)
                sockets.append(sock)
            yield sockets

    def read_all(self, sock):
        data = b''
        with contextlib.suppress(ConnectionResetError):
            while piece := sock.recv(1 << 18):
                data += piece
        return data

    def ask(self, daemon, headers=b'', path='/status.json'):
        with daemon.connect(daemon.ops_port, 20) as sock:
            sock.sendall(f'GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n'.encode() + headers + b'\r\n')
            return self.read_all(sock)

    def test_trickling_heads_hold_no_probe_and_end(self):
        daemon = self.start(*FLAGS)
        with self.connections(daemon, 16, b'GET /healthz HTTP/1.1\r\nX: ') as sockets:
            over = threading.Event()

            def trickle():
                while not over.wait(0.05):
                    for sock in sockets:
                        with contextlib.suppress(OSError):
                            sock.sendall(b'y')

            thread = threading.Thread(target=trickle)
            thread.start()
            try:
                for _ in range(10):
                    self.probe(daemon)
                # None of them outlives its time by a byte every now and then.
                daemon.wait(lambda: daemon.metric('spaid_ops_connections') <= 1, 'cut them', 20)
            finally:
                over.set()
                thread.join()
        self.assertGreater(daemon.metric('spaid_ops_connections_cut_total', why='timed_out')
                           + daemon.metric('spaid_ops_connections_cut_total', why='crowded_out'), 12)

    def test_silent_sockets_take_no_more_descriptors_than_allowed(self):
        daemon = self.start(*FLAGS)
        before = daemon.descriptors()
        with self.connections(daemon, 400):
            for _ in range(5):
                self.probe(daemon)
            self.assertLessEqual(daemon.descriptors(), before + 16 + 4)
            attack.ask(daemon)

    def test_readers_that_take_nothing_hold_no_probe(self):
        daemon = self.start(*FLAGS)
        with self.connections(daemon, 64, b'GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n'):
            self.probe(daemon)

    def test_pages_wanted_by_many_hold_no_probe(self):
        daemon = self.start()
        over = threading.Event()

        def ask_on():
            while not over.is_set():
                with contextlib.suppress(OSError):
                    self.ask(daemon, path='/metrics')

        threads = [threading.Thread(target=ask_on) for _ in range(8)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(20):
                self.probe(daemon, 2.0)
        finally:
            over.set()
            for thread in threads:
                thread.join()

    def test_ranges_multiply_nothing(self):
        daemon = self.start()
        plain = self.ask(daemon, path='/')
        ranges = self.ask(daemon, b'Range: bytes=' + b','.join([b'0-'] * 2600) + b'\r\n', '/')
        self.assertTrue(ranges.startswith(b'HTTP/1.1 200 '), ranges[:60])
        self.assertLess(len(ranges), 2 * len(plain))

    def test_heads_and_bodies_have_an_end(self):
        daemon = self.start()
        before = daemon.memory()
        for begin in (b'GET /healthz HTTP/1.1\r\n', b'GET /healthz HTTP/1.1\r\nX: ', b'',
                      b'POST / HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n',
                      b'POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n'):
            block = b''.join(b'h%d: %s\r\n' % (k, b'v' * 4000) for k in range(64))
            with daemon.connect(daemon.ops_port, 20) as sock:
                with contextlib.suppress(OSError):
                    sock.sendall(begin)
                    for _ in range(160):  # 40 MiB
                        sock.sendall(block)
                    self.fail('40 MiB were taken')
        self.assert_memory(daemon, before + 8)
        self.assertIn(b' 431 ', self.ask(daemon, path='/' + 'a' * 20000)[:20])
        self.assertIn(b' 404 ', self.ask(daemon, path='/' + 'a' * 8000)[:20])
        self.probe(daemon)

    def test_what_is_no_http_is_refused(self):
        daemon = self.start()
        for said in (b'\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n', b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n',
                     b'GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n', b'\r\n\r\n', b'\0' * 20000):
            with daemon.connect(daemon.ops_port, 20) as sock:
                sock.sendall(said)
                self.assertRegex(self.read_all(sock)[:13], rb'^HTTP/1.1 (400|431|505)')
        self.probe(daemon)


if __name__ == '__main__':
    attack.main()
