"""Several daemons, and the proxies before them: deploy/fleet's configurations but for their ends.

    with three daemons of attack.TestCase.start:
        proxy = fleet.HaProxy(daemons)        # proxy.address; close() ends it
"""

import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import tempfile
import uuid

import attack
import grpc
from spaid.v1 import arrays_pb2, matrix_pb2, matrix_pb2_grpc

DEPLOY = pathlib.Path(__file__).parents[3] / 'deploy/fleet'


def free_port():
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        return probe.getsockname()[1]


class Proxy:
    """A proxy before `daemons`, of whom the k-th has the place of the k-th name; it lists more than there are
    in the delivered file where more are given."""

    def __init__(self, daemons):
        self.daemons = daemons
        self.port = free_port()
        self.address = f'127.0.0.1:{self.port}'
        self.folder = tempfile.TemporaryDirectory(prefix='spaid-fleet-')
        self.config = pathlib.Path(self.folder.name, 'config')
        self.log = pathlib.Path(self.folder.name, 'log')
        self.config.write_text(self.text())
        with open(self.log, 'w') as out:
            self.process = subprocess.Popen(self.command(), stdout=out, stderr=subprocess.STDOUT)
        daemons[0].wait(self._listens, 'has a proxy that listens')

    def text(self):
        raise NotImplementedError

    def command(self):
        raise NotImplementedError

    def _listens(self):
        if self.process.poll() is not None:
            raise AssertionError(f'the proxy ended with {self.process.returncode}\n{self.log.read_text()}')
        try:
            socket.create_connection(('127.0.0.1', self.port), timeout=5).close()
        except ConnectionRefusedError:
            return False
        return True

    def close(self):
        self.process.terminate()
        self.process.wait(timeout=30)
        self.folder.cleanup()


def replaced(text, changes):
    """`text` with each (old, new) put in once."""
    for old, new in changes:
        text, found = re.subn(old, new, text, flags=re.MULTILINE)
        assert found == 1, f'{old} stands {found} times'
    return text


class HaProxy(Proxy):
    """`state()` tells what it thinks of the daemons."""

    def text(self):
        text = (DEPLOY / 'haproxy.cfg').read_text()
        options, = set(re.findall(r'^    server spaid-\d spaid-\d\.spaid:7433 id \d (.*)$', text, re.MULTILINE))
        servers = ''.join(f'    server spaid-{k} {one.address} id {k + 1} {options} check port {one.ops_port}\n'
                          for k, one in enumerate(self.daemons))
        text, found = re.subn(r'(?:^    server spaid-\d spaid-.*\n)+', servers, text, flags=re.MULTILINE)
        assert found == 1
        stats = pathlib.Path(self.folder.name, 'stats')
        return replaced(text, [(r'^    bind .*$', f'    bind {self.address} proto h2'),
                               (r'^    http-check connect port 7434 ', '    http-check connect '),
                               (r' inter 500ms ', ' inter 200ms '),
                               (r'^global$', f'global\n    stats socket {stats}')])

    def command(self):
        return ['haproxy', '-f', self.config]

    def state(self, k):
        """'UP', 'DOWN'."""
        with socket.socket(socket.AF_UNIX) as stats:
            stats.connect(os.fspath(pathlib.Path(self.folder.name, 'stats')))
            stats.sendall(b'show stat\n')
            said = b''.join(iter(lambda: stats.recv(65536), b'')).decode()
        row = next(line for line in said.splitlines() if line.startswith(f'replicas,spaid-{k},'))
        return row.split(',')[17].split()[0]


class Nginx(Proxy):
    down = frozenset()

    def text(self):
        # The names stay, by which the ring is made; the ends are found by a resolver's file of our own.
        servers = ''.join(f'        server {one.address} max_fails=1 fail_timeout=10s'
                          f'{" down" if k in self.down else ""};\n' for k, one in enumerate(self.daemons))
        text = (DEPLOY / 'nginx.conf').read_text()
        text, found = re.subn(r'(?:^        server spaid-\d\.spaid:7433 .*\n)+', servers, text, flags=re.MULTILINE)
        assert found == 1
        folder = self.folder.name
        temporary = ''.join(f'    {kind}_temp_path {folder}/{kind};\n'
                            for kind in ('client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'))
        text = replaced(text, [(r'^        listen 8433 ssl http2;$', f'        listen {self.address} http2;'),
                               (r'^        ssl_certificate .*\n', ''), (r'^        ssl_certificate_key .*\n', ''),
                               (r'^        ssl_protocols .*\n', ''), (r'^worker_processes auto;$', 'worker_processes 1;'),
                               (r'^http \{$', 'http {\n' + temporary)])
        return f'daemon off;\nmaster_process on;\npid {folder}/pid;\nerror_log stderr;\n{text}'

    def command(self):
        return ['nginx', '-c', self.config, '-p', self.folder.name, '-e', 'stderr']

    def drain(self, k):
        """As its file says: `down`, and a reload, which lets streams end."""
        self.down = frozenset({k})
        self.config.write_text(self.text())
        self.process.send_signal(1)  # SIGHUP


def run(*words):
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=30)


class Host:
    """A network namespace with an address, a cable to this one, and what it takes to run there. Takes root."""

    def __init__(self):
        own = uuid.uuid4()
        self.space = f'spaid-{own.hex[:6]}'
        net = f'10.{100 + own.bytes[0] % 100}.{own.bytes[1]}'  # not that of a test beside this one
        self.address, near = f'{net}.2', f'{net}.1'
        self.within = ('ip', 'netns', 'exec', self.space)
        self._must('ip', 'netns', 'add', self.space)
        try:
            self._must('ip', 'link', 'add', self.space, 'type', 'veth', 'peer', 'name', 'link0', 'netns', self.space)
            self._must('ip', 'addr', 'add', f'{near}/24', 'dev', self.space)
            self._must('ip', '-n', self.space, 'addr', 'add', f'{self.address}/24', 'dev', 'link0')
            self._must('ip', '-n', self.space, 'link', 'set', 'lo', 'up')
            self._must('ip', 'link', 'set', self.space, 'up')
            self.mend()
        except AssertionError:
            self.close()
            raise

    @staticmethod
    def _must(*words):
        done = run(*words)
        assert done.returncode == 0, f'{" ".join(words)}: {done.stderr.strip()}'

    def cut(self):
        """What is sent is lost, and nobody is told."""
        self._must('ip', '-n', self.space, 'link', 'set', 'link0', 'down')

    def mend(self):
        self._must('ip', '-n', self.space, 'link', 'set', 'link0', 'up')

    def close(self):
        run('ip', 'netns', 'del', self.space)

    @classmethod
    def missing(cls):
        """Why there cannot be one; '' where there can."""
        if os.geteuid() != 0:
            return 'not root'
        if shutil.which('ip') is None:
            return 'no ip (Debian: iproute2)'
        try:
            cls().close()
        except AssertionError as error:
            return f'no network namespaces, or no pairs of virtual interfaces: {error}'
        return ''


def upload(stub, affinity):
    """Stores a small pattern under an affinity; its handle."""
    header = matrix_pb2.MatrixHeader(n=1, nnz=1, layout=arrays_pb2.LAYOUT_CSC, pattern_only=True)
    chunks = [matrix_pb2.UploadMatrixRequest(chunk=arrays_pb2.ArrayChunk(array=kind, data=data))
              for kind, data in ((arrays_pb2.ARRAY_KIND_POINTERS, bytes(8) + b'\1' + bytes(7)),
                                 (arrays_pb2.ARRAY_KIND_INDICES, bytes(4)))]
    answers = list(stub.UploadMatrix(iter([matrix_pb2.UploadMatrixRequest(header=header), *chunks]),
                                     metadata=(('x-spaid-affinity', affinity),), timeout=60))
    return answers[-1].done.matrix.name


def places(proxy, daemons, affinities, without=None):
    """Uploads under each affinity by the proxy; which daemon each came to, by its number. `without`: one that cannot
    be reached."""
    with attack.channel(proxy) as channel:
        stub = matrix_pb2_grpc.MatrixServiceStub(channel)
        handles = {affinity: upload(stub, affinity) for affinity in affinities}
    for affinity, handle in handles.items():
        assert handle.endswith(f'-{affinity}'), handle
    where = {}
    for k, daemon in enumerate(daemons):
        if daemon.alive() and daemon is not without:
            with attack.channel(daemon) as channel:
                stub = matrix_pb2_grpc.MatrixServiceStub(channel)
                token = ''
                while True:
                    page = stub.ListMatrices(matrix_pb2.ListMatricesRequest(page_size=1000, page_token=token),
                                             timeout=60)
                    where.update((matrix.name, k) for matrix in page.matrices)
                    token = page.next_page_token
                    if not token:
                        break
    return {affinity: where[handle] for affinity, handle in handles.items()}


class Load:
    """spaid-load in the background: `report()` waits for its end. Its 27 patterns come to each of three daemons,
    wherever these have their places, but for one run in 20,000."""

    def __init__(self, address, *flags):
        self.process = subprocess.Popen(
            [os.environ['SPAID_LOAD'], f'--address={address}', '--json=-', '--engines=static-spai', '--mix=' + ','.join(
                f'{family}:{size}' for family in ('poisson', 'convdiff', 'p27', 'varcoef', 'aniso')
                for size in range(5, 14)),
             *flags],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def report(self):
        out, err = self.process.communicate(timeout=120)
        if not out:
            raise AssertionError(err)
        return self.process.returncode, json.loads(out)

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()
