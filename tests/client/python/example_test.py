"""The example that plots: its numbers are those of the solves, and the picture shows them."""

import importlib.util
import os
import subprocess
import sys

import numpy as np
import pytest
from matplotlib import image
from matplotlib.backends.backend_agg import FigureCanvasAgg

import spaid
from conftest import SOURCE
from problems import residual

PROGRAM = SOURCE / 'client/python/examples/convergence.py'


@pytest.fixture(scope='module')
def example():
    spec = importlib.util.spec_from_file_location('convergence', PROGRAM)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope='module')
def results(example, address):
    with spaid.Client(address) as client:
        return example.solve_by_each(client, 40)


def test_the_problem_is_what_it_says(example):
    a = example.plate(20)
    assert abs(a - a.T).max() == 0 and np.linalg.eigvalsh(a.toarray()).min() > 0
    assert np.allclose(a.sum(axis=1), 1e-3) and abs(a).max() > 100


def test_it_solves(example, results):
    b = np.zeros(1600)
    b[0] = 1
    for name, result in results.items():
        assert result.converged and residual(example.plate(40), result.x, b) <= 1.001e-8, name
    counts = [result.iterations for result in results.values()]
    assert counts == sorted(counts, reverse=True) and counts[0] > 2 * counts[-1]


def test_the_axes_have_the_histories(example, results):
    figure = example.draw(results)
    axes, = figure.axes
    *curves, tolerance = axes.lines
    assert axes.get_yscale() == 'log' and axes.get_xlabel() and axes.get_ylabel()
    assert len(curves) == len(results) == len(axes.get_legend().get_texts())
    for curve, text, (name, result) in zip(curves, axes.get_legend().get_texts(), results.items()):
        assert np.array_equal(curve.get_ydata(), result.history)
        assert np.array_equal(curve.get_xdata(), result.histories_iterations[0])
        assert text.get_text() == f'{name}: {result.iterations} iterations'
        assert curve.get_ydata()[-1] <= 1e-8 < curve.get_ydata()[0]
    assert set(tolerance.get_ydata()) == {1e-8}


def pixels_of(picture, colour):
    """Places where the picture has a colour, (row, column), but for what is mixed at edges."""
    return np.argwhere(np.abs(picture[:, :, :3] - np.array(colour)).max(axis=2) < 0.02)


def test_the_picture_shows_the_curves(example, results, tmp_path):
    from matplotlib import colors
    figure = example.draw(results)
    FigureCanvasAgg(figure)
    figure.savefig(tmp_path / 'picture.png')
    picture = image.imread(tmp_path / 'picture.png')
    assert picture.shape == (540, 840, 4)
    axes, = figure.axes
    left, right = axes.get_window_extent().x0, axes.get_window_extent().x1
    assert right - left > 0.75 * 840  # nothing squeezes it
    legend = axes.get_legend().get_window_extent()
    reach = []
    for curve, result in zip(axes.lines, results.values()):
        found = pixels_of(picture, colors.to_rgb(curve.get_color()))
        inside = found[(found[:, 1] < legend.x0) | (found[:, 0] > 540 - legend.y0)]
        assert len(inside) > 60  # a line, not a speck
        assert inside[:, 1].min() >= left - 1 and inside[:, 1].max() <= right + 1
        # Its last point is where its last iteration is.
        expected = axes.transData.transform((result.histories_iterations[0][-1], result.history[-1]))
        distance = np.hypot(inside[:, 1] - expected[0], 540 - inside[:, 0] - expected[1])
        assert distance.min() < 3 and inside[:, 1].max() < expected[0] + 4
        reach.append(inside[:, 1].max())
    assert reach == sorted(reach, reverse=True)  # better ones end further left


def test_it_runs_as_a_program(address, tmp_path):
    picture = tmp_path / 'a.png'
    subprocess.run([sys.executable, PROGRAM, picture], check=True, cwd=tmp_path, env={**os.environ, 'SPAID_ADDRESS': address})
    assert picture.read_bytes()[:8] == b'\x89PNG\r\n\x1a\n'
    assert len(np.unique(image.imread(picture).reshape(-1, 4), axis=0)) > 10
