"""spaid.aio: the same calls as coroutines, many at once, cancelled with their tasks."""

import asyncio
import inspect

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg as sla

import spaid
import spaid.aio
from problems import poisson, residual, right_hand_side

pytestmark = pytest.mark.asyncio
LONG = dict(engine='none', method='cg', rtol=1e-13)


async def test_many_solves_at_once(address):
    a = poisson(20)
    async with spaid.aio.Client(address) as client:
        assert (await client.server_info()).version == spaid.__version__
        many = [right_hand_side(a, seed=k) for k in range(20)]
        results = await asyncio.gather(*(client.solve(a, b, engine='fsai') for b in many))
        assert max(residual(a, r.x, b) for r, b in zip(results, many)) < 2e-8
        assert len({r.matrix for r in results}) == 1


async def test_a_system(address):
    a = poisson(60)
    b = right_hand_side(a)
    async with spaid.aio.Client(address) as client:
        system = client.system(a, label='by asyncio')
        first = await system.solve(b, engine='fsai')
        await system.update(a.data * 2)
        second = await system.solve(b, engine='fsai')
        assert second.timings.bytes_up == 8 * a.nnz + 8 * a.shape[0] and second.reuse.decision == 'kept'
        assert np.allclose(second.x, first.x / 2, rtol=1e-5, atol=1e-8) and system.n == a.shape[0]
        m = await system.preconditioner('fsai')
        x, info = sla.cg(2 * a, b, M=m, tol=1e-8, atol=0)
        assert info == 0 and residual(2 * a, x, b) < 2e-8
        assert (await client.preconditioner(m.handle)).handle == m.handle
        assert (await system.estimate('fsai')).nnz >= m.info.nnz
        assert m.handle in [p.name for p in await client.preconditioners()]
        await client.delete_preconditioner(m.handle)


async def test_handles_and_refusals(address):
    a = poisson(8)
    async with spaid.aio.Client(address) as client:
        info = await client.upload(a)
        assert (await client.matrix(info.name)).nnz == a.nnz
        assert info.name in [m.name for m in await client.matrices()]
        await client.delete_matrix(info.name)
        with pytest.raises(spaid.SpaidError, match='HANDLE_UNKNOWN'):
            await client.solve(info.name, np.ones(64))
        with pytest.raises(spaid.InputError, match='did you mean'):
            await client.solve(a, np.ones(64), k_mx=2)
        assert not (await client.local_status()).available and client.allocate(3).tolist() == [0, 0, 0]
    with pytest.raises(spaid.SpaidError, match='CLOSED'):
        await client.server_info()
    async with spaid.aio.Client('127.0.0.1:1', max_attempts=1) as nobody:
        for call in (nobody.server_info(), nobody.solve(a, np.ones(64))):
            with pytest.raises(spaid.SpaidError, match='UNREACHABLE'):
                await call


async def test_callbacks_of_both_kinds(address):
    a = poisson(20)
    async with spaid.aio.Client(address) as client:
        plain, awaited = [], []

        async def note(report):
            await asyncio.sleep(0)
            awaited.append(report.kind)
        await client.solve(a, np.ones(400), callback=lambda report: plain.append(report.kind))
        await client.solve(a, np.ones(400), callback=note)
        assert plain[-1] == awaited[-1] == 'download' and {'queued', 'finished'} <= set(plain) & set(awaited)

        class Enough(Exception):
            pass

        def fail(report):
            raise Enough
        with pytest.raises(Enough):
            await client.solve(a, np.ones(400), callback=fail)


async def test_jobs(address):
    a = poisson(20)
    b = right_hand_side(a)
    async with spaid.aio.Client(address) as client:
        system = client.system(a)
        job = await system.start_solve(b, engine='afsai')
        end = await client.job(job.name).wait()
        assert end.info.state == 'succeeded' and residual(a, end.x, b) < 2e-8
        assert (await job.watch()).state == (await job.info()).state == (await job.cancel()).state == 'succeeded'
        assert job.name in [one.name for one in await client.jobs('succeeded')] and job.name in repr(job)
        built = await system.start_build('static-spai')
        assert (await built.wait()).info.kind == 'build'
        there = await system.start_build('static-spai')
        assert there.name == '' and (await there.wait()).info.preconditioner == (await there.cancel()).preconditioner
        assert (await there.info()).state == 'succeeded'


async def test_a_task_that_is_cancelled_cancels_its_job(address):
    a = sp.csr_matrix(poisson(700))
    async with spaid.aio.Client(address) as client:
        running, names = asyncio.Event(), []

        def tell(report):
            if report.kind == 'residuals':
                names.append(report.job)
                running.set()
        task = asyncio.create_task(client.solve(a, np.ones(a.shape[0]), callback=tell, **LONG))
        await running.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await client.job(names[0]).watch(timeout=60)).state == 'cancelled'


@pytest.mark.parametrize('name', ['Client', 'System', 'Job'])
async def test_both_faces_have_the_same_calls(name):
    blocking, other = getattr(spaid, name), getattr(spaid.aio, name)

    def calls(kind):
        return {k: list(inspect.signature(v).parameters) for k, v in vars(kind).items()
                if callable(v) and not k.startswith('_')}
    of_blocking, of_other = calls(blocking), calls(other)
    of_blocking.pop('events', None)  # an iterator: of asyncio, the callback
    assert of_blocking == of_other
