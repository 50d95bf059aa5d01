"""Floods of frames that cost a client nothing: the connection is cut, and others are answered."""

import contextlib
import itertools
import struct
import time

import access_test
import attack
import http2
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

    def attacked(self, make, connections=1, cut=True, answered=0.1):
        """`answered`: seconds that others wait at most, every other time, on a machine that is idle."""
        daemon = self.start()
        with attack.Bystander(daemon) as client:
            quiet = daemon.memory()
            cuts = self.flood(daemon, make, connections)
            self.assert_memory(daemon, quiet + 200, peak=True)
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
