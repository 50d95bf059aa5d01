"""Floods of frames that cost a client nothing: the connection is cut, and others are answered."""

import contextlib
import itertools
import struct
import threading
import time

import access_test
import attack
import http2
import promised_arrays_test
from spaid.v1 import matrix_pb2

UPLOAD = '/spaid.v1.MatrixService/UploadMatrix'
SECONDS = 3


class Flood(attack.TestCase):
    def flood(self, daemon, make, connections=1):
        """Sends what make(connection) makes at line rate on so many connections by turns, opened anew
        where they are cut; how often they were."""
        opened, cut = [http2.Connection(daemon.port) for _ in range(connections)], 0
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            for at, connection in enumerate(opened):
                try:
                    connection.send(make(connection))
                    connection.read(0.001)
                    connection.events.clear()
                except ConnectionError:
                    pass
                if connection.closed:
                    cut += 1
                    connection.close()
                    opened[at] = http2.Connection(daemon.port)
        for connection in opened:
            connection.close()
        return cut

    def flood_by_threads(self, daemon, begin, bits, threads):
        """Sends what begin(connection) makes, then bits() again and again, on so many connections at
        once, each as fast as the daemon takes it and opened anew where it is cut; how often they
        were."""
        cuts = [0] * threads
        end = time.monotonic() + SECONDS

        def attack_one(at):
            while time.monotonic() < end:
                try:
                    connection = http2.Connection(daemon.port)
                except OSError:
                    continue
                try:
                    connection.send(begin(connection))
                    while time.monotonic() < end:
                        connection.send(bits(connection))
                        connection.read(0)
                        connection.events.clear()
                except OSError:  # ConnectionError, too
                    pass
                cuts[at] += connection.closed
                connection.close()
        attackers = [threading.Thread(target=attack_one, args=(at,)) for at in range(threads)]
        for attacker in attackers:
            attacker.start()
        for attacker in attackers:
            attacker.join()
        return sum(cuts)

    def attacked_by_threads(self, begin, bits, threads=4, memory=256):
        daemon = self.start()
        with attack.Bystander(daemon) as client:
            quiet = daemon.memory()
            cuts = self.flood_by_threads(daemon, begin, bits, threads)
            self.assert_memory(daemon, quiet + memory, peak=True)
        self.assertGreater(cuts, 0)
        self.assertEqual(client.errors, [])
        if not attack.SANITIZED:
            self.assertLess(client.median, 0.1 * attack.busy())
            self.assertLess(client.worst, 2 * attack.busy())
        daemon.wait(lambda: daemon.metric('spaid_calls_open') == 0, 'is rid of the calls', 30)
        self.assertEqual(daemon.metric('spaid_self_probe_failures_total'), 0)

    @staticmethod
    def known(connection):
        """Asks for something and waits for the answer: whom the daemon knows may do more."""
        stream = connection.open('/spaid.v1.ServerService/GetServerInfo')
        connection.send(http2.frame(http2.DATA, http2.END_STREAM, stream, http2.message(b'')))
        connection.read(10, until=lambda: any(on == stream for _, on, _ in connection.events))
        return b''

    @staticmethod
    def feeds(connection):
        """Begins an upload, of which arrays are still to come."""
        stream = connection.open(UPLOAD)
        connection.data(stream, promised_arrays_test.upload())
        connection.read(10, until=lambda: any(on == stream for _, on, _ in connection.events))
        return b''

    @staticmethod
    def bits_of_a_header(begin):
        begun = http2.call_headers(UPLOAD) + b'\0\1a' + http2.hpack_int(1 << 30, 7)

        def first(connection):
            begin(connection)
            stream, connection.next_stream = connection.next_stream, connection.next_stream + 2
            connection.bits_of = stream
            return http2.frame(http2.HEADERS, 0, stream, begun)
        return first, lambda c: http2.frame(http2.CONTINUATION, 0, c.bits_of, b'a' * 10) * 500

    def test_of_resets_by_many(self):
        self.attacked_by_threads(lambda _: b'', self.resets(100), threads=8)

    def test_of_resets_by_known_ones(self):
        self.attacked_by_threads(self.known, self.resets(100))

    def test_of_resets_beside_uploads(self):
        self.attacked_by_threads(self.feeds, self.resets(100), memory=400)

    def test_of_calls_that_are_reset_when_they_have_asked(self):
        block = http2.call_headers('/spaid.v1.ServerService/GetServerInfo')

        def calls(connection):
            out = b''
            for _ in range(100):
                stream, connection.next_stream = connection.next_stream, connection.next_stream + 2
                out += (http2.frame(http2.HEADERS, http2.END_HEADERS, stream, block) +
                        http2.frame(http2.DATA, http2.END_STREAM, stream, http2.message(b'')) +
                        http2.frame(http2.RST_STREAM, 0, stream, http2.CANCEL))
            return out
        self.attacked_by_threads(self.known, calls)

    def test_of_bits_of_a_header_by_strangers(self):
        self.attacked_by_threads(*self.bits_of_a_header(lambda _: None), threads=8)

    def test_of_bits_of_a_header_by_known_ones(self):
        self.attacked_by_threads(*self.bits_of_a_header(self.known))

    def test_of_bits_of_a_header_beside_uploads(self):
        self.attacked_by_threads(*self.bits_of_a_header(self.feeds))

    def test_of_frames_that_say_nothing(self):
        for name, frame in (('PING', http2.frame(http2.PING, 0, 0, bytes(8))),
                            ('SETTINGS', http2.frame(http2.SETTINGS, 0, 0, struct.pack('>HI', 4, 65535))),
                            ('WINDOW_UPDATE', http2.frame(http2.WINDOW_UPDATE, 0, 0, struct.pack('>I', 1))),
                            ('PRIORITY', http2.frame(2, 0, 1, struct.pack('>IB', 0, 1))),
                            ('RST_STREAM', http2.frame(http2.RST_STREAM, 0, 1, http2.CANCEL)),
                            ('DATA', http2.frame(http2.DATA, 0, 1, b''))):
            with self.subTest(name):
                self.attacked_by_threads(self.known, lambda _, f=frame: f * 1000)

    def attacked(self, make, connections=1, cut=True, answered=0.1):
        """`answered`: seconds that others wait at most, every other time, on a machine that is idle."""
        daemon = self.start()
        with attack.Bystander(daemon) as client:
            quiet = daemon.memory()
            cuts = self.flood(daemon, make, connections)
            self.assert_memory(daemon, quiet + 256, peak=True)
        if cut:
            self.assertGreater(cuts, 0)
        self.assertEqual(client.errors, [])
        if not attack.SANITIZED:
            self.assertLess(client.median, answered * attack.busy())
        self.assertLess(daemon.log_bytes(), 32 << 10)
        daemon.wait(lambda: daemon.metric('spaid_calls_open') == 0, 'is rid of the calls', 30)
        daemon.wait(lambda: attack.SANITIZED or daemon.memory() < quiet + 48, 'gives the memory back', 10)

    @staticmethod
    def resets(count, *more):
        block = http2.call_headers(UPLOAD)

        def make(connection):
            out = b''
            for _ in range(count):
                stream, connection.next_stream = connection.next_stream, connection.next_stream + 2
                out += http2.frame(http2.HEADERS, http2.END_HEADERS, stream, block)
                out += b''.join(http2.frame(http2.DATA, 0, stream, data) for data in more)
                out += http2.frame(http2.RST_STREAM, 0, stream, http2.CANCEL)
            return out
        return make

    def test_of_resets(self):
        self.attacked(self.resets(200))

    def test_of_resets_behind_messages(self):
        self.attacked(self.resets(200, http2.message(b'\x0a\x02\x08\x03')))

    def test_of_resets_on_many_connections(self):
        self.attacked(self.resets(20), connections=64, cut=False)

    def test_of_settings(self):
        frames = http2.frame(http2.SETTINGS, 0, 0, struct.pack('>HI', 4, 65535)) * 2000
        self.attacked(lambda _: frames, cut=False)

    def test_of_pings(self):
        self.attacked(lambda _: http2.frame(http2.PING, 0, 0, bytes(8)) * 1000)

    def test_of_header_fields(self):
        fields = http2.header('x-more', b'y' * 4000) * 4

        def make(connection):
            if connection.next_stream == 1:
                connection.next_stream = 3
                return http2.frame(http2.HEADERS, 0, 1, http2.call_headers(UPLOAD))
            return http2.frame(http2.CONTINUATION, 0, 1, fields) * 8
        self.attacked(make, cut=False)

    def test_of_bits_of_a_header(self):
        """gRPC 1.51 looks at all of a field that has not come whole again with each frame."""
        begun = http2.call_headers(UPLOAD) + b'\0\1a' + http2.hpack_int(1 << 30, 7)

        def make(connection):
            if connection.next_stream == 1:
                connection.next_stream = 3
                return http2.frame(http2.HEADERS, 0, 1, begun)
            return http2.frame(http2.CONTINUATION, 0, 1, b'a' * 10) * 500
        self.attacked(make, connections=6, answered=0.3)

    def test_of_unfinished_messages_beside_calls_that_end(self):
        """What calls took that have ended is not what the others hold."""
        daemon = self.start('--transport-memory=64MiB')
        check = http2.call_headers('/grpc.health.v1.Health/Check')
        with attack.Bystander(daemon) as client, http2.Connection(daemon.port) as connection:
            quiet = daemon.memory()
            streams = [connection.open('/spaid.v1.MatrixService/GetMatrix') for _ in range(150)]
            for stream in streams:
                connection.data(stream, b'\0' + struct.pack('>I', (4 << 20) - 10))
            try:
                end = time.monotonic() + 60
                for turn in itertools.count():
                    if time.monotonic() > end:
                        break
                    for stream in (streams[(4 * turn + k) % len(streams)] for k in range(4)):
                        connection.data(stream, bytes(16384))
                    for _ in range(16):
                        asked, connection.next_stream = connection.next_stream, connection.next_stream + 2
                        connection.send(http2.frame(http2.HEADERS, http2.END_HEADERS, asked, check) +
                                        http2.frame(http2.DATA, http2.END_STREAM, asked, http2.message(b'')))
                    connection.events.clear()
                    connection.read(10, until=lambda: sum(
                        kind == http2.DATA for kind, *_ in connection.events) == 16)
            except ConnectionError:
                pass
            self.assertTrue(connection.closed)
            self.assert_memory(daemon, quiet + 100, peak=True)
        self.assertEqual(client.errors, [])
        self.assertEqual(daemon.metric('spaid_connections_cut_total', why='bytes'), 1)

    def test_of_answers_that_nobody_reads(self):
        daemon = self.start('--transport-memory=32MiB')
        with attack.channel(daemon) as channel:
            for first in range(300):
                access_test.upload(channel, first=1.0 + first, label='x' * 200)
        request = http2.message(matrix_pb2.ListMatricesRequest(page_size=1000).SerializeToString())
        with attack.Bystander(daemon) as client, contextlib.ExitStack() as opened:
            quiet = daemon.memory()
            cut = 0
            for _ in range(4):
                connection = opened.enter_context(http2.Connection(daemon.port, window=0, stream_window=0))
                try:
                    for _ in range(250):
                        stream = connection.open('/spaid.v1.MatrixService/ListMatrices')
                        connection.send(http2.frame(http2.DATA, http2.END_STREAM, stream, request))
                    connection.read(1)
                except ConnectionError:
                    pass
                cut += connection.closed
            self.assertGreater(cut, 0)
            self.assert_memory(daemon, quiet + 150, peak=True)
        self.assertEqual(client.errors, [])


if __name__ == '__main__':
    attack.main()
