"""The examples in the docstrings run, and so do those of docs/python.md."""

import asyncio
import doctest
import importlib
import pkgutil
import re

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg

import spaid
import spaid.aio
import spaid.scipy
from conftest import SOURCE
from problems import poisson

MODULES = ['spaid', *(f'spaid.{m.name}' for m in pkgutil.iter_modules(spaid.__path__))]
WITH_EXAMPLES = {'spaid.client', 'spaid.errors', 'spaid.aio', 'spaid.scipy'}


def names():
    a = poisson(40)
    return {'A': a, 'b': a @ np.ones(a.shape[0]), 'np': np, 'sp': sp, 'scipy': scipy, 'spaid': spaid, 'asyncio': asyncio}


@pytest.mark.parametrize('name', MODULES)
def test_docstrings(name, address, monkeypatch):
    monkeypatch.setenv('SPAID_ADDRESS', address)
    result = doctest.testmod(importlib.import_module(name), extraglobs=names())
    assert result.failed == 0
    assert (result.attempted > 0) == (name in WITH_EXAMPLES)


def page_blocks():
    text = (SOURCE / 'docs/python.md').read_text()
    return re.findall(r'^```python\n(.*?)^```$', text, re.MULTILINE | re.DOTALL)


def test_there_are_examples():
    assert len(page_blocks()) >= 4


@pytest.mark.parametrize('k', range(len(page_blocks())))
def test_examples_of_the_page(k, address, monkeypatch, tmp_path):
    monkeypatch.setenv('SPAID_ADDRESS', address)
    monkeypatch.chdir(tmp_path)
    given = names()
    given.update(steps=[given['A'].data * (1 + 0.01 * k) for k in range(3)], many=[given['b'], 2 * given['b']],
                 client=spaid.Client())
    code = page_blocks()[k].replace("'gpu-node:7433'", '')
    exec(compile(code, f'docs/python.md[{k}]', 'exec'), given)
    given['client'].close()
