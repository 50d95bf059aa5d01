"""TLS, client certificates, tokens and tenants."""

import subprocess

import numpy as np
import pytest

import spaid
import spaid.aio
from conftest import running
from problems import poisson


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp('tls')

    def openssl(*words):
        subprocess.run(['openssl', *words], cwd=made, check=True, capture_output=True)
    key = ('-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes')
    openssl('req', '-x509', *key, '-days', '2', '-subj', '/CN=localhost', '-addext',
            'subjectAltName=DNS:localhost,IP:127.0.0.1', '-keyout', 'tls.key', '-out', 'tls.crt')
    openssl('req', '-x509', *key, '-days', '2', '-subj', '/CN=carol', '-keyout', 'carol.key', '-out', 'carol.crt')
    (made / 'tokens').write_text('token-of-alice-0123456789 alice\ntoken-of-bob-0123456789 bob\n')
    for name in ('tls.key', 'carol.key', 'tokens'):
        (made / name).chmod(0o400)
    return made


def test_tls(folder):
    with running(f'--tls-cert={folder}/tls.crt', f'--tls-key={folder}/tls.key') as address:
        with spaid.Client(address, ca_file=str(folder / 'tls.crt')) as client:
            assert client.solve(poisson(8), np.ones(64)).converged
        for ca_file in ('', str(folder / 'carol.crt')):
            with spaid.Client(address, ca_file=ca_file, max_attempts=1) as client, \
                    pytest.raises(spaid.SpaidError) as caught:
                client.server_info()
            assert caught.value.code == spaid.Code.UNAVAILABLE


def test_a_certificate_names_the_tenant(folder):
    with running(f'--tls-cert={folder}/tls.crt', f'--tls-key={folder}/tls.key',
                 f'--tls-client-ca={folder}/carol.crt') as address:
        with spaid.Client(address, ca_file=str(folder / 'tls.crt'), certificate_file=str(folder / 'carol.crt'),
                          key_file=str(folder / 'carol.key')) as client:
            assert client.server_info().tenant == 'CN=carol'
        with spaid.Client(address, ca_file=str(folder / 'tls.crt')) as client, \
                pytest.raises(spaid.SpaidError, match='NO_CREDENTIALS'):
            client.server_info()


@pytest.mark.asyncio
async def test_tokens_name_the_tenant(folder, monkeypatch):
    with running(f'--tokens={folder}/tokens') as address:
        with spaid.Client(address, token='token-of-alice-0123456789') as alice:
            assert alice.server_info().tenant == 'alice'
            handle = alice.upload(poisson(5)).name
        monkeypatch.setenv('SPAID_TOKEN', 'token-of-bob-0123456789')
        with spaid.Client(address) as bob:
            assert bob.server_info().tenant == 'bob'
            with pytest.raises(spaid.SpaidError, match='HANDLE_UNKNOWN'):
                bob.matrix(handle)
        async with spaid.aio.Client(address) as client:
            assert (await client.server_info()).tenant == 'bob'
        for token, reason in (('', 'NO_CREDENTIALS'), ('token-of-nobody', 'BAD_TOKEN')):
            with spaid.Client(address, token=token) as client, pytest.raises(spaid.SpaidError) as caught:
                client.server_info()
            assert (caught.value.code, caught.value.reason) == (spaid.Code.UNAUTHENTICATED, reason)


@pytest.mark.asyncio
async def test_administrators_see_the_jobs_of_all(folder):
    (folder / 'admins').write_text('token-of-root-0123456789 root\n')
    (folder / 'admins').chmod(0o400)
    with running(f'--tokens={folder}/tokens', f'--admin-tokens={folder}/admins') as address:
        with spaid.Client(address, token='token-of-alice-0123456789') as alice:
            alice.solve(poisson(5), np.ones(25))
            mine = alice.jobs()
            assert len(mine) == 1 and mine[0].tenant == ''
            with pytest.raises(spaid.SpaidError) as caught:
                alice.jobs(all_tenants=True)
            assert (caught.value.code, caught.value.reason) == (spaid.Code.PERMISSION_DENIED, 'NOT_ADMINISTRATOR')
        with spaid.Client(address, token='token-of-root-0123456789') as root:
            assert root.server_info().administrator
            assert root.jobs() == []
            assert [(job.name, job.tenant) for job in root.jobs('succeeded', all_tenants=True)] == [
                (mine[0].name, 'alice')]
        async with spaid.aio.Client(address, token='token-of-root-0123456789') as client:
            assert len(await client.jobs(all_tenants=True)) == 1


def test_a_tenant_by_name():
    with running('--trust-tenant-header') as address, spaid.Client(address, tenant='dave') as client:
        assert client.server_info().tenant == 'dave'


def test_files_that_cannot_be_read(folder):
    with pytest.raises(spaid.InputError) as caught:
        spaid.Client('a:1', ca_file=str(folder / 'none.pem'))
    assert (caught.value.reason, caught.value.field) == ('UNREADABLE_FILE', 'ca_file')
