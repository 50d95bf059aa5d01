"""Connections that ask for nothing: the port serves others meanwhile, or as soon as they are gone."""

import contextlib
import pathlib
import resource
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest
import urllib.error

import attack
import http2

NOFILE = 128


def hung_up(connection, seconds):
    """Whether the server closes it within the time."""
    connection.settimeout(seconds)
    try:
        while connection.recv(4096):
            pass
        return True
    except socket.timeout:
        return False
    except OSError:
        return True


class IdleSockets(attack.TestCase):
    def fill(self, daemon, port, count):
        """Opens idle connections until there are so many, or the server takes no more."""
        sockets = contextlib.ExitStack()
        for _ in range(count):
            try:
                sockets.enter_context(daemon.connect(port, seconds=1))
            except OSError:
                break
        return sockets

    def served_after(self, port_of):
        daemon = self.start(nofile=NOFILE)
        attack.ask(daemon)
        with self.fill(daemon, port_of(daemon), 2 * NOFILE):
            pass
        gone = time.monotonic()
        daemon.wait(lambda: self.answers(daemon), 'serves everybody again', 10)
        if not attack.SANITIZED:
            self.assertLess(time.monotonic() - gone, 2)
        self.assertEqual(daemon.get('/healthz'), 'ok\n')
        self.assertLess(daemon.descriptors(), NOFILE / 2)

    @staticmethod
    def answers(daemon):
        try:
            attack.ask(daemon, seconds=1)
            return True
        except attack.grpc.RpcError:
            return False

    def test_on_the_port_leave_it_serving(self):
        self.served_after(lambda daemon: daemon.port)

    def test_on_the_ops_port_leave_it_serving(self):
        self.served_after(lambda daemon: daemon.ops_port)

    def test_the_limit_follows_from_the_descriptors(self):
        daemon = self.start(nofile=NOFILE)
        self.assertIn('few_descriptors', daemon.text())
        self.assertEqual(daemon.metric('spaid_connections_limit'), (NOFILE - 40 - NOFILE // 8) // 2)

    def test_give_way_to_a_newcomer(self):
        daemon = self.start('--max-connections=8')
        with self.fill(daemon, daemon.port, 8):
            daemon.wait(lambda: daemon.metric('spaid_connections_open') == 8, 'has all of them')
            daemon.wait(lambda: self.answers(daemon), 'serves a newcomer')
        self.assertGreater(daemon.metric('spaid_connections_cut_total', why='room'), 0)

    def test_do_not_push_out_those_who_ask(self):
        daemon = self.start('--max-connections=4')
        with attack.Bystander(daemon) as client:
            with self.fill(daemon, daemon.port, 40):
                daemon.wait(lambda: daemon.metric('spaid_connections_refused_total', limit='total'),
                            'refuses some')
        self.assertEqual(client.errors, [])

    def check_closed_in_time(self, daemon, greeting):
        silent, begun = daemon.connect(), daemon.connect()
        with silent, begun:
            begun.sendall(greeting)
            start = time.monotonic()
            self.assertTrue(hung_up(silent, 20))
            self.assertTrue(hung_up(begun, 20))
            if not attack.SANITIZED:
                self.assertLess(time.monotonic() - start, 8)

    def test_are_closed_in_time(self):
        daemon = self.start()
        self.check_closed_in_time(daemon, http2.PREFACE)

    def test_are_closed_when_they_were_of_use_once(self):
        daemon = self.start('--idle-connection-timeout=1s')
        with http2.Connection(daemon.port) as connection:
            connection.read(20, until=lambda: False)
            self.assertTrue(connection.closed)

    def test_are_closed_though_their_headers_go_on(self):
        daemon = self.start('--idle-connection-timeout=1s')
        with http2.Connection(daemon.port) as connection:
            connection.send(http2.frame(http2.HEADERS, 0, 1, http2.call_headers('/a/b')))
            end = time.monotonic() + 30
            while not connection.closed and time.monotonic() < end:
                try:
                    connection.send(http2.frame(http2.CONTINUATION, 0, 1, http2.header('a', b'b')))
                except ConnectionError:
                    break
                connection.read(0.2)
            self.assertTrue(connection.closed)

    @unittest.skipUnless(shutil.which('openssl'), 'no openssl program to make a certificate with')
    def test_are_closed_in_the_middle_of_a_tls_handshake(self):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        subprocess.run(['openssl', 'req', '-x509', '-newkey', 'ec', '-pkeyopt',
                        'ec_paramgen_curve:P-256', '-nodes', '-days', '2', '-subj', '/CN=localhost',
                        '-keyout', folder / 'key', '-out', folder / 'chain'],
                       check=True, capture_output=True)
        daemon = self.start(f'--tls-cert={folder}/chain', f'--tls-key={folder}/key')
        # A record of a ClientHello, and no more.
        self.check_closed_in_time(daemon, b'\x16\x03\x01\x02\x00\x01')

    def test_a_daemon_that_can_take_nobody_ends(self):
        daemon = self.start('--self-probe-interval=1s', '--drain-grace=60s', status=1)
        before = resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE, (8, before[1]))
        daemon.wait(lambda: ' deaf ' in daemon.text(), 'finds out', 60)
        resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE, before)
        # Probes of a cluster are told so until it has ended.
        with self.assertRaises(urllib.error.HTTPError) as caught:
            daemon.get('/healthz')
        self.assertEqual((caught.exception.code, caught.exception.read()), (503, b'deaf\n'))
        with attack.channel(daemon) as ch:
            check = ch.unary_unary('/grpc.health.v1.Health/Check')
            self.assertEqual(check(b'\x0a\x08liveness', timeout=10, wait_for_ready=True), b'\x08\x02')
        daemon.process.send_signal(signal.SIGTERM)  # ends the grace time
        daemon.process.wait(timeout=60)
        self.assertIn('[DEAF]', daemon.text())


if __name__ == '__main__':
    attack.main()
