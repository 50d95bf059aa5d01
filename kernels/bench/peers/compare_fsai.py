#!/usr/bin/python3
"""FSAI of this library beside hypre's, on the same matrices, in one run, and on real matrices beside Jacobi.

  kernels/bench/peers/compare_fsai.py --program=build/release/bin/spaid_fsai_file [--runs=5] [--out=result.json]

Needs libhypre-dev, libopenmpi-dev, openmpi-bin and python3-scipy. hypre runs as two MPI ranks (and, adaptive,
as one: two drop what couples them), ours on two threads. Runs alternate; the table shows medians. b = A·1,
relative residual 1e-7, at most 10000 iterations. Times are those of a clock and, summed over threads or ranks,
of the processor, which others on the machine disturb less. With SPAID_MATRICES=FOLDER also its symmetric
positive definite matrices, ours alone.
"""
import argparse
import glob
import json
import os
import statistics
import subprocess
import tempfile

import compare_cpu

GALLERY = [("poisson", 60), ("varying", 60), ("elasticity", 20), ("aniso", 400)]
REAL = ["Dubcova1", "bcsstk18"]
ADAPTIVE = [(30, 1), (3, 5)]
FEWER = [5, 6]  # in two steps: no more entries than hypre's 3 x 5


def ours(program, path, *options):
    done = subprocess.run([program, path, "runs=1", *options], capture_output=True, text=True, timeout=600)
    return json.loads(done.stdout) if done.returncode == 0 else None


def hypre(binary, path, ranks, *peer):
    try:
        done = subprocess.run(["mpirun", "--oversubscribe", "-n", str(ranks), binary, path, peer[0], "1", *peer[1:]],
                              env=compare_cpu.ENV, capture_output=True, text=True, timeout=300)
    except subprocess.TimeoutExpired:
        return None
    return json.loads(done.stdout.strip().splitlines()[-1]) if done.returncode == 0 else None


def medians(rows):
    rows = [r for r in rows if r]
    if not rows:
        return None
    out = dict(rows[-1])
    for key in ("setup_ms", "setup_cpu_ms", "solve_ms"):
        out[key] = statistics.median(r[key] for r in rows)
    return out


def show(matrix, name, r):
    text = ("failed or over 300 s" if r is None else
            f"{r['setup_ms']:9.1f} {r['setup_cpu_ms']:9.1f} {r['solve_ms']:9.1f} {r['iterations']:6d}"
            f" {r.get('density', 0):7.3f} {r.get('kaporin', 0):9.5f}")
    print(f"{matrix:14s} {name:28s} {text}", flush=True)


def beside_hypre(args, folder, binary):
    path = os.path.join(folder, "a.bin")
    for name, size in [*GALLERY, *[(m, 0) for m in REAL]]:
        if size:
            subprocess.run([args.program, f"--write={path}", name, str(size)], check=True)
            name = f"{name} {size}"
        elif os.environ.get("SPAID_MATRICES"):
            compare_cpu.write_binary(os.path.join(os.environ["SPAID_MATRICES"], f"{name}.mtx.gz"), path)
        else:
            continue
        runs = {}
        for _ in range(args.runs):
            for k, s in ADAPTIVE:
                peer = ("fsai", str(k), str(s), "1e-3")
                runs.setdefault(f"hypre {k} x {s}", []).append(hypre(binary, path, 2, *peer))
                runs.setdefault(f"hypre {k} x {s}, one rank", []).append(hypre(binary, path, 1, *peer))
                runs.setdefault(f"spaid {k} x {s}", []).append(ours(args.program, path, f"k_max={k}", f"s={s}"))
                for more in ([], ["copy=0"]):
                    runs.setdefault(f"spaid {k} x {s}, min_gain 1e-3{', every row grown' if more else ''}", []).append(
                        ours(args.program, path, f"k_max={k}", f"s={s}", "min_gain=1e-3", *more))
                runs.setdefault(f"spaid {k} x {s}, fp32", []).append(
                    ours(args.program, path, f"k_max={k}", f"s={s}", "fp32=1", "solve=1"))
            for s in FEWER:
                runs.setdefault(f"spaid 2 x {s}", []).append(ours(args.program, path, "k_max=2", f"s={s}"))
            runs.setdefault("hypre parasails-fsai", []).append(hypre(binary, path, 2, "parasails-fsai"))
            runs.setdefault("spaid static", []).append(ours(args.program, path, "adaptive=0"))
        rows = {k: medians(v) for k, v in runs.items()}
        for key, row in rows.items():
            show(name, key, row)
        yield {"matrix": name, "rows": rows}


def real(args, folder):
    path = os.path.join(folder, "a.bin")
    for file in sorted(glob.glob(os.path.join(os.environ.get("SPAID_MATRICES", "/nowhere"), "*.mtx.gz"))):
        name = os.path.basename(file)[:-len(".mtx.gz")]
        try:
            _, _, spd = compare_cpu.write_binary(file, path)
        except (ValueError, AttributeError, MemoryError):
            continue  # not a square real matrix
        rows = {key: ours(args.program, path, *options.split()) for key, options in
                (("jacobi", "k_max=0"), ("30 x 1", "k_max=30"), ("3 x 5", "k_max=3 s=5"), ("static", "adaptive=0"))
                } if spd else {}
        if not rows or not all(rows.values()):
            continue
        for key, row in rows.items():
            show(name, key, row)
        yield {"matrix": name, "rows": rows}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default="build/release/bin/spaid_fsai_file")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--out")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        results = {"real": list(real(args, folder)),
                   "beside_hypre": list(beside_hypre(args, folder, compare_cpu.compile_peer(folder)))}
    if args.out:
        with open(args.out, "w") as out:
            json.dump(results, out, indent=1)


if __name__ == "__main__":
    main()
