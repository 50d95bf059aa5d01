"""A daemon for the time of a `with` block, on a free port of loopback."""

import contextlib
import pathlib
import signal
import subprocess
import tempfile
import time


@contextlib.contextmanager
def running(program, arguments, env=None, log=None):
    """Yields HOST:PORT once `program` serves; on leaving, SIGTERM must end it with status 0.

    `arguments` name the address; `log` is the file that its log goes to. Raises AssertionError with the log
    where it does not serve.
    """
    with tempfile.TemporaryDirectory() as folder:
        port = pathlib.Path(folder, 'port')
        with open(log or pathlib.Path(folder, 'log'), 'w+', encoding='utf-8') as log:
            daemon = subprocess.Popen([str(program), *arguments, f'--port-file={port}'], stdout=log,
                                      stderr=subprocess.STDOUT, env=env)

            def fail(what):
                log.seek(0)
                raise AssertionError(f'{program} {" ".join(arguments)}: {what}\n{log.read()}')

            try:
                give_up = time.monotonic() + 30
                while not (port.exists() and port.read_text().strip()):
                    if daemon.poll() is not None:
                        fail(f'ended with {daemon.returncode} before it served')
                    if time.monotonic() > give_up:
                        fail('does not serve')
                    time.sleep(0.02)
                yield port.read_text().strip()
                daemon.send_signal(signal.SIGTERM)
                if daemon.wait(60) != 0:
                    fail(f'ended with {daemon.returncode} at SIGTERM')
            finally:
                if daemon.poll() is None:
                    daemon.kill()
                    daemon.wait()
