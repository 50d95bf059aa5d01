"""CPU time a job of the daemon, without spans and with a collector that is absent, slow or there; by turns.

    PYTHONPATH=build/release/tests/e2e/attacks/stubs:tests/e2e/attacks:tests/e2e/traces \
        /usr/bin/python3 tests/e2e/bench/span_cost.py build/release/bin [--runs=10] [--jobs=3000]

Each run is a daemon of its own under spaid-load with small jobs, for which spans weigh most. Prints the medians of the
daemon's CPU time a job, and the median of the ratios to the run without spans of the same round.
"""

import argparse
import os
import pathlib
import socket
import statistics
import subprocess

import daemon as daemon_module
import collector


def absent():
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        return f'http://127.0.0.1:{probe.getsockname()[1]}'


def microseconds_a_job(programs, jobs, endpoint):
    """CPU time of the daemon from the first job to the last."""
    flags = ['--threads=1'] + ([f'--otlp-endpoint={endpoint}'] if endpoint else [])
    daemon = daemon_module.Daemon(*flags)
    try:
        def load(count):
            subprocess.run([programs / 'spaid-load', f'--address={daemon.address}', f'--jobs={count}', '--concurrency=2',
                            '--mix=poisson:8', '--engines=jacobi', '--variants=4', '--json=/dev/null'],
                           check=True, capture_output=True)

        def used():
            # All threads together, in nanoseconds; those that end meanwhile are none of a steady daemon's.
            return sum(int((task / 'schedstat').read_text().split()[0])
                       for task in pathlib.Path(f'/proc/{daemon.process.pid}/task').iterdir())

        load(200)
        before = used()
        load(jobs)
        return (used() - before) / jobs / 1000
    finally:
        daemon.stop()
        daemon.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n', maxsplit=1)[0])
    parser.add_argument('programs', type=pathlib.Path)
    parser.add_argument('--runs', type=int, default=10)
    parser.add_argument('--jobs', type=int, default=3000)
    options = parser.parse_args()
    os.environ['SPAID_DAEMON'] = os.fspath(options.programs / 'spaid')
    with collector.Collector() as there, collector.Collector(hold=True) as slow:
        endpoints = {'none': '', 'absent': absent(), 'slow': slow.endpoint, 'there': there.endpoint}
        rounds = []
        for run in range(options.runs):
            names = list(endpoints)
            names = names[run % len(names):] + names[:run % len(names)]
            rounds.append({name: microseconds_a_job(options.programs, options.jobs, endpoints[name]) for name in names})
            print('  '.join(f'{name} {rounds[-1][name]:.1f} us' for name in endpoints), flush=True)
        print('collector  CPU time a job  against none')
        for name in endpoints:
            times = statistics.median(one[name] for one in rounds)
            ratio = statistics.median(one[name] / one['none'] for one in rounds)
            print(f'{name:9}  {times:11.1f} us  {100 * (ratio - 1):+9.2f} %')


if __name__ == '__main__':
    main()
