"""Calls that are never whole, or swell: counted from their headers on, bounded, ended in time."""

import struct
import zlib

import attack
import http2
from spaid.v1 import server_pb2

GET_JOB = '/spaid.v1.JobService/GetJob'
UPLOAD = '/spaid.v1.MatrixService/UploadMatrix'
WATCH = '/grpc.health.v1.Health/Watch'
REFLECTION = '/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo'
MIB = 1 << 20


def trailers(connection, stream):
    """The header blocks that came on a stream, as they are; the server indexes no values of ours."""
    return b''.join(payload for kind, on, payload in connection.events
                    if kind == http2.HEADERS and on == stream)


def status(code):
    """How a status stands in a header block."""
    return b'grpc-status' + http2.hpack_int(len(str(code)), 7) + str(code).encode()


def announced(size, sent):
    """The beginning of a message of `size` bytes."""
    return b'\0' + struct.pack('>I', size) + b'\x0a' * sent


class Compression(attack.TestCase):
    def test_a_bomb_is_refused_before_it_goes_off(self):
        daemon = self.start()
        before = daemon.memory()
        deflater = zlib.compressobj(6, zlib.DEFLATED, 31)
        bomb = b''.join(deflater.compress(bytes(MIB)) for _ in range(256)) + deflater.flush()
        self.assertLess(len(bomb), MIB)
        with http2.Connection(daemon.port) as connection:
            stream = connection.open('/spaid.v1.ServerService/GetServerInfo', ('grpc-encoding', 'gzip'))
            connection.data(stream, b'\1' + struct.pack('>I', len(bomb)) + bomb, end=True)
            connection.read(20, until=lambda: trailers(connection, stream))
            self.assertIn(status(attack.grpc.StatusCode.UNIMPLEMENTED.value[0]),
                          trailers(connection, stream))
        self.assert_memory(daemon, before + 64, peak=True)


class Unfinished(attack.TestCase):
    def test_calls_without_a_message_are_counted_and_ended(self):
        daemon = self.start('--first-message-timeout=4s')
        logged, before = daemon.log_bytes(), daemon.memory()
        with http2.Connection(daemon.port) as connection:
            streams = [connection.open(path) for path in (GET_JOB, UPLOAD, WATCH, '/no/such')
                       for _ in range(40)]
            daemon.wait(lambda: daemon.metric('spaid_calls_open') >= 120, 'counts them')
            self.assertEqual(daemon.metric('spaid_streams_open'), 0)
            connection.read(20, until=lambda: all(trailers(connection, s) for s in streams[:120]))
            for stream in streams[:120]:
                self.assertIn(status(4), trailers(connection, stream))
        daemon.wait(lambda: daemon.metric('spaid_calls_open') == 0, 'is rid of them')
        self.assertEqual(daemon.metric('spaid_calls_without_request_total', reason='STALLED_SENDER'), 120)
        self.assertLess(daemon.log_bytes() - logged, 16384)  # the unknown method is refused, and said
        self.assert_given_back(daemon, before)

    def send_all(self, connection, parts):
        """Sends the parts of each stream as its window lets it, until all are out or it is cut."""
        try:
            while parts and not connection.closed:
                moved = 0
                for stream in list(parts):
                    sent = connection.data(stream, parts[stream])
                    parts[stream] = parts[stream][sent:]
                    moved += sent
                    if not parts[stream]:
                        del parts[stream]
                connection.read(0.01 if moved else 0.2)
            connection.read(20, until=lambda: False)
        except ConnectionError:
            pass
        self.assertTrue(connection.closed)

    def test_messages_without_their_last_byte_are_cut(self):
        daemon = self.start('--transport-memory=64MiB')
        before = daemon.memory()
        with attack.Bystander(daemon) as client, http2.Connection(daemon.port) as connection:
            part = announced(4 * MIB - 16, 4 * MIB - 17)
            self.send_all(connection, {connection.open(GET_JOB): memoryview(part) for _ in range(64)})
        self.assertEqual(client.errors, [])
        self.assertEqual(daemon.metric('spaid_connections_cut_total', why='bytes'), 1)
        self.assert_memory(daemon, before + 192, peak=True)
        self.assert_given_back(daemon, before)

    def test_a_message_without_end_is_cut(self):
        daemon = self.start('--transport-memory=64MiB')
        before = daemon.memory()
        with http2.Connection(daemon.port) as connection:
            stream = connection.open(UPLOAD)
            connection.data(stream, announced(2048 * MIB - 1, 0))
            self.send_all(connection, {stream: memoryview(bytes(1024 * MIB))})
        self.assert_memory(daemon, before + 192, peak=True)
        self.assert_given_back(daemon, before)

    def test_more_streams_than_allowed_close_the_connection(self):
        daemon = self.start('--max-streams-per-connection=16')
        with http2.Connection(daemon.port) as connection:
            self.assertIn((http2.SETTINGS, http2.MAX_CONCURRENT_STREAMS, 16), connection.events)
            try:
                for _ in range(64):
                    connection.open(GET_JOB)
                connection.read(20, until=lambda: False)
            except ConnectionError:
                pass
            self.assertTrue(connection.closed)
        daemon.wait(lambda: daemon.metric('spaid_calls_open') == 0, 'is rid of them')


class Watches(attack.TestCase):
    def test_of_health_are_bounded(self):
        daemon = self.start()
        before = daemon.memory()
        connections = [http2.Connection(daemon.port) for _ in range(2)]
        streams = [(c, c.open(WATCH)) for c in connections for _ in range(200)]
        for connection, stream in streams:
            connection.data(stream, http2.message(b''))
        refused = status(attack.grpc.StatusCode.RESOURCE_EXHAUSTED.value[0])

        def count():
            for connection in connections:
                connection.read(0.05)
            return sum(refused in trailers(c, s) for c, s in streams)
        daemon.wait(lambda: count() == 144, 'refuses the rest')
        attack.ask(daemon)
        for connection in connections:
            connection.close()
        daemon.wait(lambda: daemon.metric('spaid_calls_open') == 0, 'is rid of them')
        self.assert_given_back(daemon, before)


class Reflection(attack.TestCase):
    def services(self, daemon):
        with attack.channel(daemon) as ch:
            call = ch.stream_stream(REFLECTION)(iter([b'\x3a\x00']), timeout=10)
            return b''.join(call)

    def test_is_off_by_default(self):
        daemon = self.start()
        with self.assertRaises(attack.grpc.RpcError) as caught:
            self.services(daemon)
        self.assertEqual(caught.exception.code(), attack.grpc.StatusCode.UNIMPLEMENTED)

    def test_lists_services_where_asked_for(self):
        self.assertIn(server_pb2.DESCRIPTOR.services_by_name['ServerService'].full_name.encode(),
                      self.services(self.start('--reflection')))

    def ask(self, connection, count):
        """So many calls that have asked once, and may ask again."""
        streams = [connection.open(REFLECTION) for _ in range(count)]
        for stream in streams:
            connection.data(stream, http2.message(b'\x3a\x00'))
        return streams

    def ended(self, connection, streams, code):
        connection.read(0.05)
        return sum(status(code.value[0]) in trailers(connection, s) for s in streams)

    def test_of_callers_who_ask_no_more_ends(self):
        daemon = self.start('--reflection', '--stalled-sender-timeout=2s')
        before = daemon.memory()
        with http2.Connection(daemon.port) as connection:
            streams = self.ask(connection, 40)
            daemon.wait(lambda: daemon.metric('spaid_streams_open') == 40, 'counts them')
            late = attack.grpc.StatusCode.DEADLINE_EXCEEDED
            daemon.wait(lambda: self.ended(connection, streams, late) == 40, 'ends them')
            daemon.wait(lambda: daemon.metric('spaid_streams_open') == 0, 'is rid of them')
        self.assert_given_back(daemon, before)

    def test_has_its_share_of_streams_alone(self):
        daemon = self.start('--reflection', '--max-streams=16')
        full = attack.grpc.StatusCode.RESOURCE_EXHAUSTED
        with http2.Connection(daemon.port) as connection:
            streams = self.ask(connection, 40)
            daemon.wait(lambda: self.ended(connection, streams, full) >= 24, 'refuses the rest')
            attack.ask(daemon)


if __name__ == '__main__':
    attack.main()
