#!/usr/bin/env python3
"""Figures of the daemon under load: starts it, sends it jobs by spaid-load, writes JSON.

  kernels/bench/daemon_figures.py [--bin=build/release/bin] [--devices=auto] [--rounds=5]
      [--out=FILE] [--note=TEXT] SCENARIO...

Scenarios, each on daemons of its own, which are ended before it is over:

  path       empty jobs through all of gRPC: the daemon over the fake engine (server_fake_daemon)
  neighbour  latency of one tenant alone, and beside another one that floods the queue: with jobs of
             the same size, with jobs of ten times the work, and with ones too long for small lanes
  cancel     from CancelJob to the end of the call, by the state that the job was in
  small      many small solves, closed loop
  scrape     the same with /metrics scraped once a second and not, in turn

What is compared alternates within one run; the report has every round, medians, and the load of the
machine before and after.
"""
import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request


@contextlib.contextmanager
def daemon(args, *flags, program='spaid', env=None):
    """Starts the daemon on a free port; yields (address, address of its metrics, pid)."""
    with tempfile.TemporaryDirectory() as folder:
        port = os.path.join(folder, 'port')
        log = os.path.join(folder, 'log')
        with open(log, 'w', encoding='utf-8') as out:
            child = subprocess.Popen(
                [os.path.join(args.bin, program), '--address=127.0.0.1:0',
                 '--ops-address=127.0.0.1:0', f'--port-file={port}', '--drain-grace=0s', *flags],
                stdout=out, stderr=out, env=dict(os.environ, **(env or {})))
        try:
            for _ in range(600):
                if os.path.exists(port) or child.poll() is not None:
                    break
                time.sleep(0.1)
            with open(log, encoding='utf-8') as text:
                lines = text.read()
            if not os.path.exists(port):
                sys.exit(f'{program} did not start:\n{lines}')
            with open(port, encoding='utf-8') as text:
                address = text.read().strip()
            ops = lines.split('ops_address=')[1].split()[0]
            yield address, ops, child.pid
        finally:
            child.send_signal(signal.SIGTERM)
            try:
                child.wait(20)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


def load_command(args, address, *options):
    return [os.path.join(args.bin, 'spaid-load'), f'--address={address}', '--json=-', *options]


def load(args, address, *options):
    done = subprocess.run(load_command(args, address, *options), capture_output=True, text=True,
                          check=False)
    if not done.stdout:
        sys.exit(f'spaid-load {options}: {done.stderr}')
    return json.loads(done.stdout)


def brief(report):
    job = report['latency']['job']
    return {'jobs_per_s': report['jobs_per_s'], 'jobs': report['jobs'], 'failed': report['failed'],
            'errors': report['errors'], 'outcomes': report['outcomes'],
            'p50_ms': job['p50_ms'], 'p99_ms': job['p99_ms'], 'max_ms': job['max_ms'],
            'upload_p50_ms': report['latency']['upload']['p50_ms'],
            'upload_p99_ms': report['latency']['upload']['p99_ms'],
            'solve_p50_ms': report['latency']['solve']['p50_ms'],
            'queue_p50_ms': report['latency']['server_queue']['p50_ms'],
            'queue_p99_ms': report['latency']['server_queue']['p99_ms'],
            'run_p50_ms': report['latency']['server_run']['p50_ms'],
            'run_p99_ms': report['latency']['server_run']['p99_ms']}


def cpu_s(pid):
    """What the process took of the cores so far."""
    with open(f'/proc/{pid}/stat', encoding='utf-8') as stat:
        fields = stat.read().rsplit(')', 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')


def with_cpu(args, address, pid, *options):
    """As brief, with the daemon's cpu_us of a job."""
    begin = cpu_s(pid)
    report = load(args, address, *options)
    jobs = report['jobs'] + report['jobs_of_warmup']
    return dict(brief(report), cpu_us=1e6 * (cpu_s(pid) - begin) / jobs)


def medians(rounds):
    keys = [key for key, value in rounds[0].items() if isinstance(value, (int, float))]
    return {key: statistics.median(r[key] for r in rounds) for key in keys}


def summary(rounds):
    return {'median': medians(rounds), 'rounds': rounds}


def path(args, figures):
    """Of whole calls, with nothing to compute."""
    with daemon(args, program='server_fake_daemon') as (address, _, pid):
        for concurrency in (1, 8, 32):
            rounds = [with_cpu(args, address, pid, f'--concurrency={concurrency}',
                               f'--duration={args.seconds}', '--warmup=0.5', '--mix=poisson:2',
                               '--engines=none', '--variants=1')
                      for _ in range(args.rounds)]
            figures[f'concurrency {concurrency}'] = summary(rounds)


@contextlib.contextmanager
def flood(args, address, *options):
    """Another tenant's jobs for as long as this lasts."""
    child = subprocess.Popen(
        load_command(args, address, '--tenant=flood', '--duration=3600', '--seed=7',
                     f'--concurrency={args.flood}', *options),
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    report = {}
    try:
        time.sleep(args.settle)
        yield report
    finally:
        child.send_signal(signal.SIGINT)
        report.update(brief(json.loads(child.communicate(timeout=60)[0])))


def neighbour(args, figures):
    own = [f'--mix={args.own}', '--engines=jacobi', '--method=cg', '--tenant=quiet',
           '--concurrency=1', f'--duration={args.seconds}', '--warmup=0.5', '--variants=4']
    figures.update({'own jobs': args.own, 'flood': args.flood})
    floods = {'equal': args.own, 'ten times': args.tenfold, 'long': args.long}
    for name, mix in floods.items():
        if not mix:
            continue
        with daemon(args, '--trust-tenant-header',
                    f'--devices={args.devices}', *args.flag) as (address, _, _):
            solo, beside, other = [], [], []
            load(args, address, *own)
            for _ in range(args.rounds):
                solo.append(brief(load(args, address, *own)))
                with flood(args, address, f'--mix={mix}', '--engines=jacobi', '--method=cg',
                           '--variants=4') as report:
                    beside.append(brief(load(args, address, *own)))
                other.append(report)
        ratios = {q: [b[q] / s[q] for b, s in zip(beside, solo)] for q in ('p50_ms', 'p99_ms')}
        figures[name] = {'flood of': mix, 'solo': summary(solo), 'beside': summary(beside),
                         'flood': summary(other), 'p50 ratio': statistics.median(ratios['p50_ms']),
                         'p99 ratio': statistics.median(ratios['p99_ms']),
                         'p99 ratios': ratios['p99_ms']}
        print(name, 'p50 ratio', round(figures[name]['p50 ratio'], 2), 'p99 ratio',
              [round(r, 2) for r in ratios['p99_ms']], 'solo p99',
              [round(s['p99_ms'], 1) for s in solo], file=sys.stderr)


def stop_metric(ops):
    """Of job_stop_seconds: by stage, how many took at most so long."""
    with urllib.request.urlopen(f'http://{ops}/metrics', timeout=10) as response:
        text = response.read().decode()
    stages = {}
    for line in text.splitlines():
        if not line.startswith('spaid_job_stop_seconds_') or 'cause="cancelled"' not in line:
            continue
        stage = line.split('stage="')[1].split('"')[0]
        value = float(line.rsplit(' ', 1)[1])
        name = line.split('{')[0].rsplit('_', 1)[1]
        if name == 'bucket':
            stages.setdefault(stage, {}).setdefault('at_most_s', {})[
                line.split('le="')[1].split('"')[0]] = int(value)
        else:
            stages.setdefault(stage, {})['jobs' if name == 'count' else 'sum_s'] = value
    for of in stages.values():
        of['mean_ms'] = 1e3 * of['sum_s'] / of['jobs'] if of['jobs'] else 0
    return stages


def cancel(args, figures):
    for case in args.cancel:
        engine, mix, states, after, *more = case.split(';')
        with daemon(args, f'--devices={args.devices}',
                    *args.flag) as (address, ops, _):
            report = load(args, address, f'--jobs={args.cancel_jobs}', '--concurrency=3',
                          f'--mix={mix}', f'--engines={engine}', '--variants=0',
                          f'--cancel={states}', f'--cancel-after={after}', *more)
            figures[case] = {'cancelled': report.get('cancelled', {}), 'others': report['jobs'],
                             'errors': report['errors'], 'metric': stop_metric(ops)}
        for state, times in figures[case]['cancelled'].items():
            print(engine, mix, state, times['count'], 'p50', round(times['p50_ms'], 2), 'p99',
                  round(times['p99_ms'], 2), 'max', round(times['max_ms'], 2), file=sys.stderr)


def small(args, figures):
    for flags in args.small:
        with daemon(args, *flags.split()) as (address, _, _):
            for mix in args.small_mix:
                common = ['--concurrency=32', f'--mix={mix}', '--engines=static-spai',
                          '--method=bicgstab', '--variants=64']
                load(args, address, '--jobs=200', *common)
                rounds = [brief(load(args, address, f'--jobs={args.small_jobs}', *common))
                          for _ in range(args.small_rounds)]
                figures[f'{flags} {mix}'] = summary(rounds)
                print(flags, mix, {k: round(v, 2) for k, v in medians(rounds).items()},
                      rounds[0]['errors'], rounds[0]['outcomes'], file=sys.stderr)


def scrape(args, figures):
    common = ['--concurrency=8', '--mix=poisson:10', '--engines=jacobi', '--method=cg',
              '--variants=8', f'--duration={args.seconds}', '--warmup=0.3']
    with daemon(args, f'--devices={args.devices}') as (address, ops, pid):
        load(args, address, *common)
        without, scraped, took = [], [], []
        for _ in range(args.rounds):
            without.append(with_cpu(args, address, pid, *common))
            stop = threading.Event()

            def look():
                while not stop.is_set():
                    begin = time.monotonic()
                    with urllib.request.urlopen(f'http://{ops}/metrics', timeout=10) as response:
                        response.read()
                    took.append(1e3 * (time.monotonic() - begin))
                    stop.wait(1)

            thread = threading.Thread(target=look)
            thread.start()
            scraped.append(with_cpu(args, address, pid, *common))
            stop.set()
            thread.join()
    ratios = [s['cpu_us'] / w['cpu_us'] for s, w in zip(scraped, without)]
    figures.update({'without': summary(without), 'scraped': summary(scraped),
                    'cpu_us ratio': statistics.median(ratios), 'cpu_us ratios': ratios,
                    'scrape_ms': statistics.median(took)})


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    scenarios = {f.__name__: f for f in (path, neighbour, cancel, small, scrape)}
    parser.add_argument('scenario', nargs='+', choices=scenarios)
    parser.add_argument('--bin', default='build/release/bin')
    parser.add_argument('--devices', default='auto')
    parser.add_argument('--flag', action='append', default=[], help='of the daemon')
    parser.add_argument('--rounds', type=int, default=5)
    parser.add_argument('--seconds', type=float, default=3, help='of each round')
    parser.add_argument('--settle', type=float, default=1, help='of a flood before it counts')
    parser.add_argument('--flood', type=int, default=32, help='jobs of the flood at a time')
    parser.add_argument('--own', default='poisson:24', help='matrix of the quiet tenant')
    parser.add_argument('--tenfold', default='poisson:44', help='ten times its work')
    parser.add_argument('--long', default='poisson:80', help='not small')
    parser.add_argument('--cancel', action='append', default=[],
                        help='ENGINE;MIX;STATES;AFTER[;FLAG...]')
    parser.add_argument('--cancel-jobs', type=int, default=60)
    parser.add_argument('--small', action='append', default=[], help='flags of a daemon')
    parser.add_argument('--small-mix', action='append', default=[])
    parser.add_argument('--small-jobs', type=int, default=10000)
    parser.add_argument('--small-rounds', type=int, default=1)
    parser.add_argument('--note', default='')
    parser.add_argument('--out')
    args = parser.parse_args()
    result = {'note': args.note, 'load_before': os.getloadavg()[0], 'cores': os.cpu_count()}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit('ended early'))  # daemons are ended then, too
    try:
        for name in args.scenario:
            scenarios[name](args, result.setdefault(name, {}))
    finally:
        result['load_after'] = os.getloadavg()[0]
        text = json.dumps(result, indent=1)
        if args.out:
            with open(args.out, 'w', encoding='utf-8') as file:
                file.write(text + '\n')
        else:
            print(text)


if __name__ == '__main__':
    main()
