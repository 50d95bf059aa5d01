#!/usr/bin/python3
"""Makes the files of matrices (kernels/bench/matrix_file.h) that spaid_bench and spaid_engine_times read.

  kernels/bench/matrix_files.py --out=FOLDER [--unstructured=FILE] [--points=1000000] [--elasticity-points=N]
      [--kinds=diffusion,jumps,convection,elasticity] [MATRIX.mtx[.gz]...]

--unstructured names the program that makes unstructured meshes; it is imported, and its problem(KIND, POINTS) gives A
with its nodes in random order. Each kind becomes KIND_random.bin and, by SciPy's reverse Cuthill-McKee, KIND_rcm.bin;
kinds are made side by side, a process each, in some 20 GB of memory for a million points. Elasticity has a quarter of
the points unless it is said otherwise. Matrix Market files become NAME.bin. A file appears when it is whole. Needs
python3-scipy.
"""
import argparse
import importlib.util
import multiprocessing
import os
import time

import numpy
import scipy.io
import scipy.sparse
from scipy.sparse.csgraph import reverse_cuthill_mckee


def write(a, folder, name):
    a = scipy.sparse.csc_matrix(a)
    a.sort_indices()
    part = os.path.join(folder, name + '.part')
    with open(part, 'wb') as file:
        for data, kind in (([a.shape[1], a.nnz], 'i8'), (a.indptr, 'i4'), (a.indices, 'i4'), (a.data, 'f8')):
            numpy.asarray(data, kind).tofile(file)
    os.replace(part, os.path.join(folder, name + '.bin'))
    print(f'{name}: n = {a.shape[0]}, nnz = {a.nnz}, {time.process_time():.0f} s', flush=True)


def mesh(program, kind, points, folder):
    spec = importlib.util.spec_from_file_location('unstructured', program)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    a = module.problem(kind, points).tocsr()
    write(a, folder, kind + '_random')
    node = 3 if kind == 'elasticity' else 1
    order = reverse_cuthill_mckee(a[::node][:, ::node].tocsr(), symmetric_mode=True).astype(numpy.int64)
    order = (node * order[:, None] + numpy.arange(node)).ravel()
    write(a[order][:, order], folder, kind + '_rcm')


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--out', required=True)
    parser.add_argument('--unstructured')
    parser.add_argument('--points', type=int, default=1000000)
    parser.add_argument('--elasticity-points', type=int)
    parser.add_argument('--kinds', default='diffusion,jumps,convection,elasticity')
    parser.add_argument('matrices', nargs='*')
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    making = []
    for kind in args.kinds.split(',') if args.unstructured else []:
        points = (args.elasticity_points or args.points // 4) if kind == 'elasticity' else args.points
        making.append(multiprocessing.Process(target=mesh, args=(args.unstructured, kind, points, args.out)))
        making[-1].start()
    for path in args.matrices:
        write(scipy.io.mmread(path), args.out, os.path.basename(path).split('.mtx')[0])
    for one in making:
        one.join()
    if any(one.exitcode for one in making):
        parser.exit(1, 'a mesh could not be made\n')


if __name__ == '__main__':
    main()
