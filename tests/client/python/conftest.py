"""Shared by the tests of the Python client: the real daemon on a free port, and matrices."""

import contextlib
import os
import pathlib
import sys

import pytest

import spaid

SOURCE = pathlib.Path(os.environ['SPAID_SOURCE'])
sys.path[:0] = [str(SOURCE / 'tests/deploy'), str(pathlib.Path(__file__).parent)]
import daemon  # noqa: E402

QUICK = ('--address=127.0.0.1:0', '--ops-address=127.0.0.1:0', '--drain-grace=0s', '--devices=cpu')


@contextlib.contextmanager
def running(*flags):
    """The address of a daemon with these flags."""
    with daemon.running(os.environ['SPAID_DAEMON'], [*QUICK, *flags]) as address:
        yield address


@pytest.fixture(scope='session')
def address():
    with running() as found:
        yield found


@pytest.fixture
def client(address):
    with spaid.Client(address) as made:
        yield made
