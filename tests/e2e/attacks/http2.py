"""HTTP/2 by hand: frames that no gRPC client would send."""

import select
import socket
import ssl
import struct
import time

DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, END_HEADERS, ACK = 1, 4, 1
HEADER_TABLE_SIZE, MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE = 1, 3, 4
CANCEL = struct.pack('>I', 8)
PREFACE = b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'


def frame(kind, flags, stream, payload=b''):
    """RFC 9113, 4.1."""
    return struct.pack('>I', len(payload))[1:] + bytes([kind, flags]) + struct.pack('>I', stream) + payload


def hpack_int(value, bits, first=0):
    """RFC 7541, 5.1: an integer whose first byte has `bits` bits left of `first`."""
    limit = (1 << bits) - 1
    if value < limit:
        return bytes([first | value])
    out = [first | limit]
    value -= limit
    while value >= 128:
        out.append(value % 128 + 128)
        value //= 128
    return bytes(out + [value])


def header(name, value):
    """A literal header field that is not indexed (RFC 7541, 6.2.2)."""
    name, value = name.encode(), value if isinstance(value, bytes) else value.encode()
    return b'\0' + hpack_int(len(name), 7) + name + hpack_int(len(value), 7) + value


def call_headers(path, *more, scheme='http'):
    """The header block of a gRPC call; `more`: pairs."""
    fields = [(':method', 'POST'), (':scheme', scheme), (':path', path), (':authority', 'localhost'),
              ('te', 'trailers'), ('content-type', 'application/grpc'), *more]
    return b''.join(header(name, value) for name, value in fields)


def message(payload):
    """A gRPC message that is not compressed."""
    return b'\0' + struct.pack('>I', len(payload)) + payload


class Connection:
    """One connection. Keeps the windows of flow control, answers pings and settings.

    `events` collects what else came: (kind, stream, payload), of settings (SETTINGS, number, value).
    `closed`: by the other side.
    """

    def __init__(self, port, *, window=1 << 30, stream_window=None, tls=None, seconds=10):
        """`window`: how much may come on the connection; `stream_window`: on a stream, if not the
        default. `tls`: an ssl.SSLContext."""
        self.socket = socket.create_connection(('127.0.0.1', port), timeout=seconds)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname='localhost')
        self.closed = False
        self.buffer, self.next_stream, self.events = b'', 1, []
        self.window = self.initial = 65535
        self.windows = {}
        settings = struct.pack('>HI', HEADER_TABLE_SIZE, 0)  # so that headers come as they are
        if stream_window is not None:
            settings += struct.pack('>HI', INITIAL_WINDOW_SIZE, stream_window)
        grow = frame(WINDOW_UPDATE, 0, 0, struct.pack('>I', window)) if window else b''
        self.send(PREFACE + frame(SETTINGS, 0, 0, settings) + grow)
        self.read(seconds, until=lambda: any(kind == SETTINGS for kind, *_ in self.events))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()

    def send(self, data):
        """ConnectionError where the other side has closed, or takes nothing for 20 s."""
        try:
            self.socket.settimeout(20)
            self.socket.sendall(data)
        except OSError as error:
            self.closed = True
            raise ConnectionError(str(error)) from error

    def open(self, path, *more, end=False):
        """Sends the headers of a call; its stream."""
        stream = self.next_stream
        self.next_stream += 2
        self.windows[stream] = self.initial
        self.send(frame(HEADERS, END_HEADERS | (END_STREAM if end else 0), stream,
                        call_headers(path, *more)))
        return stream

    def data(self, stream, payload, end=False):
        """Sends as much as the windows allow; how many bytes that was."""
        room = min(self.window, self.windows[stream], len(payload))
        for at in range(0, max(room, 1), 16384):
            piece = payload[at:min(room, at + 16384)]
            last = end and at + len(piece) == len(payload)
            if piece or last:
                self.send(frame(DATA, END_STREAM if last else 0, stream, piece))
        self.window -= room
        self.windows[stream] -= room
        return room

    def reset(self, stream):
        self.send(frame(RST_STREAM, 0, stream, CANCEL))

    def read(self, seconds, until=lambda: False):
        """Takes what comes for so long, or until `until()`, or the other side closes."""
        end = time.monotonic() + seconds
        while not self.closed and not until():
            left = end - time.monotonic()
            if left <= 0:
                return
            pending = isinstance(self.socket, ssl.SSLSocket) and self.socket.pending()
            if not pending and not select.select([self.socket], [], [], left)[0]:
                return
            try:
                got = self.socket.recv(1 << 16)
            except OSError:
                got = b''
            self.closed = not got
            self.buffer += got
            self._frames()

    def _frames(self):
        while len(self.buffer) >= 9:
            size = struct.unpack('>I', b'\0' + self.buffer[:3])[0]
            if len(self.buffer) < 9 + size:
                return
            kind, flags = self.buffer[3], self.buffer[4]
            stream = struct.unpack('>I', self.buffer[5:9])[0] & 0x7fffffff
            payload, self.buffer = self.buffer[9:9 + size], self.buffer[9 + size:]
            self._frame(kind, flags, stream, payload)

    def _frame(self, kind, flags, stream, payload):
        if kind == SETTINGS:
            if flags & ACK:
                return
            for number, value in struct.iter_unpack('>HI', payload):
                if number == INITIAL_WINDOW_SIZE:
                    for open_stream in self.windows:
                        self.windows[open_stream] += value - self.initial
                    self.initial = value
                self.events.append((SETTINGS, number, value))
            self._answer(frame(SETTINGS, ACK, 0))
        elif kind == PING and not flags & ACK:
            self._answer(frame(PING, ACK, 0, payload))
        elif kind == WINDOW_UPDATE:
            more = struct.unpack('>I', payload)[0]
            if stream == 0:
                self.window += more
            elif stream in self.windows:
                self.windows[stream] += more
        else:
            self.events.append((kind, stream, payload))

    def _answer(self, data):
        try:
            self.send(data)
        except ConnectionError:
            pass  # `closed` says so
