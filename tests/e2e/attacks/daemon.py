"""A daemon to attack: the real program on free ports of loopback, and how it fares."""

import os
import pathlib
import re
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request


class Daemon:
    """Starts the program SPAID_DAEMON names; `close` ends it whatever happens."""

    def __init__(self, *flags, nofile=None, within=()):
        """`nofile`: its limit of descriptors, soft and hard. `within`: words of a program that becomes it."""
        self.folder = tempfile.TemporaryDirectory(prefix='spaid-attack-')
        port_file = pathlib.Path(self.folder.name, 'port')
        self.log = pathlib.Path(self.folder.name, 'log')

        defaults = ['--address=127.0.0.1:0', '--ops-address=127.0.0.1:0', '--drain-grace=0s']
        given = {flag.split('=')[0] for flag in flags}

        # By a program of its own: gRPC may keep a process that uses it from forking.
        limit = [] if nofile is None else ['prlimit', f'--nofile={nofile}:{nofile}']
        with open(self.log, 'w') as out:
            self.process = subprocess.Popen(
                [*within, *limit, os.environ['SPAID_DAEMON'], f'--port-file={port_file}', *flags,
                 *(flag for flag in defaults if flag.split('=')[0] not in given)],
                stdout=out, stderr=subprocess.STDOUT)
        self.wait(port_file.exists, 'serves', 30)
        self.address = port_file.read_text().strip()
        self.port = int(self.address.rsplit(':', 1)[1])
        self.ops = re.search(r'ops_address(?:=|":")([^\s"]+)', self.text()).group(1)
        self.ops_port = int(self.ops.rsplit(':', 1)[1])
        # The peak so far is that of the copies by which it measured its devices.
        pathlib.Path(f'/proc/{self.process.pid}/clear_refs').write_text('5')

    def wait(self, true, what, seconds=10):
        """Until `true()`; AssertionError with the log where that takes longer, or the daemon dies."""
        end = time.monotonic() + seconds
        while not true():
            if self.process.poll() is not None:
                raise AssertionError(f'waiting till it {what}: the daemon ended with '
                                     f'{self.process.returncode}\n{self.text()}')
            if time.monotonic() > end:
                raise AssertionError(f'not within {seconds} s: it {what}\n{self.text()}')
            time.sleep(0.02)

    def alive(self):
        return self.process.poll() is None

    def text(self):
        """The end of its log."""
        return self.log.read_text(errors='replace')[-20000:]

    def log_bytes(self):
        return self.log.stat().st_size

    def memory(self, peak=False):
        """MiB that are resident, now or at most so far."""
        name = 'VmHWM' if peak else 'VmRSS'
        status = pathlib.Path(f'/proc/{self.process.pid}/status').read_text()
        return int(re.search(rf'^{name}:\s+(\d+)', status, re.M).group(1)) / 1024

    def descriptors(self):
        return len(os.listdir(f'/proc/{self.process.pid}/fd'))

    def get(self, path, seconds=5):
        """The body of a page of the ops port."""
        with urllib.request.urlopen(f'http://{self.ops}{path}', timeout=seconds) as answer:
            return answer.read().decode()

    def metric(self, name, **labels):
        """The sum of the samples of `name` that have these labels; None where there is none."""
        found = []
        for labelled, value in re.findall(rf'^{name}(?:{{(.*)}})? (\S+)$', self.get('/metrics'), re.M):
            have = dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labelled))
            if labels.items() <= have.items():
                found.append(float(value))
        return sum(found) if found else None

    def connect(self, port=None, seconds=5):
        """A bare TCP connection: to gRPC's port, or to another one of the daemon's."""
        return socket.create_connection(('127.0.0.1', port or self.port), timeout=seconds)

    def stop(self):
        """SIGTERM; its exit status."""
        if self.alive():
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60)

    def close(self):
        if self.alive():
            self.process.kill()
            self.process.wait()
        self.folder.cleanup()
