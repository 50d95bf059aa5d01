"""Jobs: started, found, followed, cancelled; Ctrl-C; a daemon that is killed in the middle."""

import os
import pathlib
import signal
import subprocess
import sys

import numpy as np
import pytest

import spaid
from conftest import SOURCE
from problems import poisson, residual, right_hand_side

# A solve that goes on for longer than any test looks at it: 10^5 unknowns and more, and no preconditioner.
LONG = dict(engine='none', method='cg', rtol=1e-13)


def long_system(client):
    a = poisson(700)
    return client.system(a), np.ones(a.shape[0])


def test_a_job_runs_on_and_is_found_from_elsewhere(client, address):
    a = poisson(30)
    b = right_hand_side(a)
    system = client.system(a)
    job = system.start_solve(b, engine='afsai')
    assert job.name.startswith('jobs/')
    with spaid.Client(address) as another:
        found = another.job(job.name)
        end = found.wait()
        assert end.info.state == 'succeeded' and residual(a, end.x, b) < 2e-8 and end.why_no_x == ''
        kinds = [event.kind for event in another.job(job.name).events()]
        assert kinds[0] == 'queued' and kinds[-1] == 'finished' and 'residuals' in kinds
        assert job.name in [one.name for one in another.jobs('succeeded')]
    reports = []
    assert job.watch(reports.append).outcomes[0].outcome == 'converged'
    assert [r.event_number for r in reports] == list(range(reports[0].event_number, reports[-1].event_number + 1))
    assert list(job.events()) == [] and job.watch() == job.watch()  # it has ended, as is known here
    assert job.info().state == 'succeeded' and job.cancel().state == 'succeeded'


def test_several_right_hand_sides_of_a_job(client):
    a = poisson(12)
    b = right_hand_side(a, columns=2)
    end = client.system(a).start_solve(b).wait()
    assert end.x.shape == b.shape and residual(a, end.x, b) < 2e-8


def test_a_build_is_a_job(client):
    system = client.system(poisson(25))
    job = system.start_build('dynamic-spai')
    end = job.wait()
    assert end.info.kind == 'build' and end.x is None and 'is a build' in end.why_no_x
    m = client.preconditioner(end.info.preconditioner)
    assert m.info.choice.engine == 'dynamic-spai'
    again = system.start_build('dynamic-spai')  # it is there: no job is made
    assert again.name == '' and again.info().preconditioner == m.handle and again.cancel() == again.watch()
    assert again.wait().info.state == 'succeeded'


def test_a_job_that_fails_says_why(client):
    from problems import convection
    system = client.system(convection(12))
    end = system.start_solve(np.ones(144), engine='fsai').wait()
    assert end.info.state == 'failed' and end.info.error.reason == 'NOT_SYMMETRIC' and end.x is None
    assert end.why_no_x == end.info.error.message


def test_a_job_is_cancelled_with_its_best_iterate(client):
    system, b = long_system(client)
    job = system.start_solve(b, **LONG)
    for event in job.events():
        if event.kind == 'residuals':
            break
    assert job.info().state == 'running' and client.jobs('running')[0].name == job.name
    job.cancel()
    end = job.wait()
    assert end.info.outcomes[0].outcome == 'cancelled' and end.x.shape == b.shape


def test_jobs_that_there_are_not(client):
    for call in ('watch', 'wait', 'cancel', 'info'):
        with pytest.raises(spaid.SpaidError, match='HANDLE_UNKNOWN'):
            getattr(client.job('jobs/none'), call)()
    with pytest.raises(spaid.InputError, match='state'):
        client.jobs('tired')


def test_a_run_that_is_limited(client):
    system, b = long_system(client)
    result = system.solve(b, max_run=0.3, **LONG)
    assert not result.converged and result.outcomes[0].outcome == 'time-limit'
    with pytest.raises(spaid.SpaidError) as caught:
        system.solve(b, timeout=0.5, **LONG)
    assert caught.value.code == spaid.Code.DEADLINE_EXCEEDED


SOLVE = """
import sys
import numpy as np
import spaid
from problems import poisson

def tell(report):
    if report.kind == 'residuals':
        print(report.job, flush=True)

a = poisson(700)
with spaid.Client(sys.argv[1]) as client:
    try:
        client.solve(a, np.ones(a.shape[0]), engine='none', method='cg', rtol=1e-13, callback=tell)
    except KeyboardInterrupt:
        print('interrupted', flush=True)
        client.server_info()
        raise
"""


def start(address):
    """A process that solves, and the name of its job, once it iterates."""
    process = subprocess.Popen([sys.executable, '-c', SOLVE, address], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True, cwd=SOURCE / 'tests/client/python')
    name = process.stdout.readline().strip()
    assert name.startswith('jobs/'), process.communicate()[1]
    return process, name


def test_ctrl_c_cancels_the_job(client, address):
    process, name = start(address)
    assert client.job(name).info().state == 'running'
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert 'interrupted' in out and err.strip().endswith('KeyboardInterrupt')
    assert process.returncode == -signal.SIGINT
    assert client.job(name).watch(timeout=60).state == 'cancelled'


def test_a_process_that_is_killed_leaves_no_job(client, address):
    process, name = start(address)
    process.kill()
    process.communicate(timeout=60)
    assert client.job(name).watch(timeout=60).state == 'cancelled'


def daemon_of_ones_own(folder):
    port = pathlib.Path(folder, 'port')
    process = subprocess.Popen([os.environ['SPAID_DAEMON'], '--address=127.0.0.1:0', '--ops-address=127.0.0.1:0',
                                '--devices=cpu', f'--port-file={port}'], stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    while not (port.exists() and port.read_text().strip()):
        assert process.poll() is None
        try:
            process.wait(0.02)
        except subprocess.TimeoutExpired:
            pass
    return process, port.read_text().strip()


def test_a_daemon_that_is_killed_is_told_in_a_sentence(tmp_path):
    process, address = daemon_of_ones_own(tmp_path)
    try:
        with spaid.Client(address) as client:
            system, b = long_system(client)

            def kill(report):
                if report.kind == 'residuals' and process.poll() is None:
                    process.kill()
                    process.wait()
            with pytest.raises(spaid.SpaidError) as caught:
                system.solve(b, callback=kill, timeout=120, **LONG)
            assert caught.value.code == spaid.Code.UNAVAILABLE
            assert caught.value.reason in ('UNREACHABLE', 'CONNECTION_LOST') and address in str(caught.value)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
