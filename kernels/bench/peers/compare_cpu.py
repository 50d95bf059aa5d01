#!/usr/bin/python3
"""Static SPAI of a running daemon beside hypre's approximate inverses, on the same matrices, in one run.

  kernels/bench/peers/compare_cpu.py --address=HOST:PORT --spaidctl=build/release/bin/spaidctl \\
      [--runs=5] [--out=result.json] [MATRIX...]

Needs libhypre-dev, libopenmpi-dev, openmpi-bin and python3-scipy. hypre runs as two MPI ranks, the daemon
with the threads it was started with; start it with --plan-cache-bytes=0, so that every build is whole.
A MATRIX is gallery:NAME:SIZE or a Matrix Market file. Runs of the two alternate; the table shows medians.
b = A·1, relative residual 1e-7, at most 10000 iterations.
"""
import argparse
import gzip
import json
import os
import statistics
import subprocess
import sys
import tempfile

import numpy
import scipy.io

HERE = os.path.dirname(os.path.abspath(__file__))
DEFAULT = ["gallery:poisson:60", "gallery:elasticity:20", "gallery:aniso:400", "gallery:convdiff:50",
           "gallery:circuit:50000"]
REAL = ["Dubcova1", "bcsstk18", "memplus"]
SPAID_KEYS = ["engine", "method", "outcome", "iterations", "true_relative_residual", "setup_ms", "solve_ms",
              "total_ms", "nnz_ratio"]
ENV = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
           OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")


def compile_peer(folder):
    binary = os.path.join(folder, "hypre_bench")
    subprocess.run(["mpicxx", "-O2", "-I/usr/include/hypre", os.path.join(HERE, "hypre_bench.cc"), "-o",
                    binary, "-lHYPRE"], check=True)
    return binary


def write_binary(mtx, path):
    opener = gzip.open if mtx.endswith(".gz") else open
    with opener(mtx, "rb") as file:
        a = scipy.io.mmread(file).tocsr()
    a.sum_duplicates()
    a.sort_indices()
    with open(path, "wb") as out:
        numpy.array([a.shape[0], a.nnz], dtype="<i8").tofile(out)
        a.indptr.astype("<i4").tofile(out)
        a.indices.astype("<i4").tofile(out)
        a.data.astype("<f8").tofile(out)
    symmetric = abs(a - a.T).max() <= 1e-12 * abs(a).max()
    return a.shape[0], a.nnz, bool(symmetric and a.diagonal().min() > 0)


def run_peer(binary, path, peer):
    try:
        done = subprocess.run(["mpirun", "--oversubscribe", "-n", "2", binary, path, peer, "1"], env=ENV,
                              capture_output=True, text=True, timeout=300)
    except subprocess.TimeoutExpired:
        return None
    if done.returncode != 0:
        return None
    return json.loads(done.stdout.strip().splitlines()[-1])


def run_spaid(spaidctl, address, matrix, engine, method):
    # Each run shall build anew: what the daemon keeps is deleted first.
    listed = subprocess.run([spaidctl, f"--address={address}", "preconditioners", "--json"],
                            capture_output=True, text=True, check=True)
    for item in json.loads(listed.stdout)["preconditioners"]:
        subprocess.run([spaidctl, f"--address={address}", "preconditioners", item["name"], "--delete"],
                       capture_output=True, check=True)
    done = subprocess.run([spaidctl, f"--address={address}", "solve", matrix, f"--engine={engine}",
                           f"--method={method}", "--rtol=1e-7", "--max-iterations=10000", "--json"],
                          capture_output=True, text=True)
    if done.returncode not in (0, 3):
        sys.exit(f"spaidctl failed on {matrix}: {done.stderr}")
    answer = json.loads(done.stdout)
    return {key: answer[key] for key in SPAID_KEYS}


def medians(rows):
    rows = [r for r in rows if r]
    if not rows:
        return None
    out = dict(rows[-1])
    for key in ("setup_ms", "solve_ms"):
        out[key] = statistics.median(r[key] for r in rows)
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--address", required=True)
    parser.add_argument("--spaidctl", default="build/release/bin/spaidctl")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--out")
    parser.add_argument("matrices", nargs="*")
    args = parser.parse_args()
    matrices = args.matrices
    if not matrices:
        folder = os.environ.get("SPAID_MATRICES")
        matrices = DEFAULT + ([os.path.join(folder, f"{m}.mtx.gz") for m in REAL] if folder else [])
    results = []
    with tempfile.TemporaryDirectory() as folder:
        binary = compile_peer(folder)
        for matrix in matrices:
            mtx = matrix
            if matrix.startswith("gallery:"):
                _, name, size = matrix.split(":")
                mtx = os.path.join(folder, "a.mtx")
                subprocess.run([args.spaidctl, "gallery", name, f"--size={size}", f"--out={mtx}"],
                               check=True, capture_output=True)
            n, nnz, spd = write_binary(mtx, os.path.join(folder, "a.bin"))
            runs = {}
            for _ in range(args.runs):
                path = os.path.join(folder, "a.bin")
                for peer in ["parasails-spai"] + (["parasails-fsai", "fsai"] if spd else []):
                    runs.setdefault(f"hypre {peer}", []).append(run_peer(binary, path, peer))
                runs.setdefault("spaid static-spai bicgstab", []).append(
                    run_spaid(args.spaidctl, args.address, mtx, "static-spai", "bicgstab"))
                method = "cg" if spd else "bicgstab"
                runs.setdefault(f"spaid jacobi {method}", []).append(
                    run_spaid(args.spaidctl, args.address, mtx, "jacobi", method))
            row = {"matrix": os.path.basename(matrix), "n": n, "nnz": nnz,
                   "rows": {k: medians(v) for k, v in runs.items()}}
            results.append(row)
            for name, r in row["rows"].items():
                text = ("failed or over 300 s" if r is None else
                        f"{r['setup_ms']:10.1f} {r['solve_ms']:10.1f} {r['iterations']:7d} "
                        f"{r['true_relative_residual']:9.1e}  {r.get('outcome', '')}")
                print(f"{row['matrix']:24s} {name:30s} {text}", flush=True)
    if args.out:
        with open(args.out, "w") as out:
            json.dump(results, out, indent=1)


if __name__ == "__main__":
    main()
