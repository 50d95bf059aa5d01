"""Floods of frames that cost a client nothing: the connection is cut, and others are answered."""

import struct
import time

import attack
import http2

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

    def attacked(self, make, connections=1, cut=True):
        daemon = self.start()
        with attack.Bystander(daemon) as client:
            quiet = daemon.memory()
            cuts = self.flood(daemon, make, connections)
            self.assert_memory(daemon, quiet + 200, peak=True)
        if cut:
            self.assertGreater(cuts, 0)
        self.assertEqual(client.errors, [])
        if not attack.SANITIZED:
            self.assertLess(client.median, 0.1 * attack.busy())
        self.assertLess(daemon.log_bytes(), 1 << 20)
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


if __name__ == '__main__':
    attack.main()
