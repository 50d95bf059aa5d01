"""Transfers of the Python client beside the C++ client's, by turns against one daemon; prints medians and ratios as JSON.

    figures.py SPAID SPAID_CLIENT_BENCH [--megabytes=96] [--rounds=5]
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import types

import numpy as np

import spaid

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / 'deploy'))
import daemon  # noqa: E402


def band(size, width=27):
    """The matrix of spaid_client_bench, as (data, indices, indptr)."""
    n = max(2 * width, size // (8 + 12 * width))
    first = np.clip(np.arange(n) - width // 2, 0, n - width)
    indices = (first[:, None] + np.arange(width)).astype(np.int32)
    data = np.where(indices == np.arange(n)[:, None], 2.0 * width, -1.0).ravel()
    return data, indices.ravel(), np.arange(n + 1) * np.int64(width)


def columns(data, indices, indptr):
    """A matrix by columns, as the C++ client sends it, on these very arrays."""
    n = indptr.size - 1
    return types.SimpleNamespace(format='csc', shape=(n, n), data=data, indices=indices, indptr=indptr)


def seconds(call):
    begin = time.perf_counter()
    result = call()
    return time.perf_counter() - begin, result


def bench(program, address, *words):
    return json.loads(subprocess.run([program, f'--address={address}', *words], check=True, text=True,
                                     stdout=subprocess.PIPE).stdout)


class Python:
    """Uploads and solves by a client, each once a round."""

    def __init__(self, address, path, megabytes):
        self.clients = {'wire': spaid.Client(address, local_socket=''), 'staged': spaid.Client(address, local_socket=path)}
        self.a = band(megabytes << 20)
        n = (megabytes << 20) // 16
        self.diagonal = (np.tile([1.0, 2.0], n // 2), np.arange(n, dtype=np.int32), np.arange(n + 1))
        self.b = np.ones(n)
        self.times = {f'{what} {way}': [] for what in ('upload', 'solve') for way in ('wire', 'staged', 'in place')}
        in_place = self.clients['staged']
        self.shared = tuple(in_place.allocate(x.size, x.dtype) for x in self.a)
        for mine, given in zip(self.shared, self.a):
            mine[:] = given
        self.shared_b, self.shared_x = in_place.allocate(n), in_place.allocate(n)
        self.shared_b[:] = 1

    def upload(self, way, number):
        client = self.clients.get(way, self.clients['staged'])
        data, indices, indptr = self.shared if way == 'in place' else self.a
        data[0] = number
        taken, info = seconds(lambda: client.upload(columns(data, indices, indptr)))
        client.delete_matrix(info.name)
        return taken

    def solve(self, way):
        client = self.clients.get(way, self.clients['staged'])
        b, out = (self.shared_b, self.shared_x) if way == 'in place' else (self.b, None)
        taken, result = seconds(lambda: client.solve(self.handle, b, engine='none', method='cg', rtol=1e-6, out=out))
        assert result.converged
        return taken

    def round(self, number):
        # The matrix of the C++ client's solves, which deletes it; solved once before, as there.
        self.handle = self.clients['wire'].upload(columns(*self.diagonal)).name
        self.solve('wire')
        for k, way in enumerate(('wire', 'staged', 'in place')):
            self.times[f'upload {way}'].append(self.upload(way, 1000.0 + 3 * number + k))
            self.times[f'solve {way}'].append(self.solve(way))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('spaid')
    parser.add_argument('bench')
    parser.add_argument('--megabytes', type=int, default=96)
    parser.add_argument('--rounds', type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = f'{folder}/local'
        flags = ['--address=127.0.0.1:0', '--ops-address=127.0.0.1:0', '--drain-grace=0s', '--devices=cpu',
                 f'--local-socket={path}']
        with daemon.running(options.spaid, flags) as address:
            print(json.dumps(measure(options, address, path), indent=2))


def measure(options, address, path):
    python = Python(address, path, options.megabytes)
    python.round(0)  # warms up
    for taken in python.times.values():
        taken.clear()
    cpp = {'upload wire': [], 'upload in place': [], 'solve wire': [], 'solve in place': []}
    for number in range(1, options.rounds + 1):
        python.round(number)
        size = options.megabytes
        found = bench(options.bench, address, 'upload', f'--megabytes={size}', '--rounds=1', f'--local-socket={path}')
        cpp['upload wire'] += found['upload_seconds']
        cpp['upload in place'] += found['shared_seconds']
        found = bench(options.bench, address, 'solve', f'--megabytes={size // 2}', '--rounds=1', f'--local-socket={path}')
        cpp['solve wire'] += found['wire_seconds']
        cpp['solve in place'] += found['shared_seconds']
    medians = {f'{who} {what}': statistics.median(taken) for who, table in (('python', python.times), ('cpp', cpp))
               for what, taken in table.items()}
    ratios = {what: {'over the C++ client by wire': medians[f'python {what}'] / medians[f'cpp {what.split()[0]} wire'],
                     'over the C++ client in place': medians[f'python {what}'] / medians[
                         f'cpp {what.split()[0]} in place']} for what in python.times}
    for client in python.clients.values():
        client.close()
    return {'megabytes': options.megabytes, 'rounds': options.rounds, 'median_seconds': medians, 'ratios': ratios}


if __name__ == '__main__':
    main()
