"""Small matrices with one difficulty each, as Matrix Market files: the same ones in every run."""

import random


def write(path, n, entries):
    """`entries`: {(row, column): value}, from 0."""
    with open(path, 'w') as out:
        out.write(f'%%MatrixMarket matrix coordinate real general\n{n} {n} {len(entries)}\n')
        for (i, j), value in sorted(entries.items(), key=lambda entry: entry[0][::-1]):
            out.write(f'{i + 1} {j + 1} {value!r}\n')
    return path


def write_vectors(path, columns):
    with open(path, 'w') as out:
        out.write(f'%%MatrixMarket matrix array real general\n{len(columns[0])} {len(columns)}\n')
        for column in columns:
            out.writelines(f'{value!r}\n' for value in column)
    return path


def read_vectors(path):
    """Its columns."""
    lines = [line for line in path.read_text().splitlines() if not line.startswith('%')]
    n, count = map(int, lines[0].split())
    values = [float(line) for line in lines[1:]]
    return [values[k * n:(k + 1) * n] for k in range(count)]


def dominate(n, entries, numbers):
    """Gives each row a diagonal entry somewhat larger than the sum of the others."""
    sums = [0.0] * n
    for (i, j), value in entries.items():
        sums[i] += abs(value) if i != j else 0
    for i in range(n):
        entries[i, i] = (sums[i] + 0.1) * numbers.uniform(1.0, 1.5)
    return entries


def irregular(seed=1, n=400):
    """Rows of 1 to 12 entries anywhere."""
    numbers = random.Random(seed)
    entries = {}
    for i in range(n):
        for j in numbers.sample(range(n), numbers.randint(0, 11)):
            if i != j:
                entries[i, j] = numbers.uniform(-1, 1)
    return n, dominate(n, entries, numbers)


def reducible(seed=2, n=360):
    """Three blocks along the diagonal that know of the next one at most, and unknowns alone."""
    numbers = random.Random(seed)
    entries = {}
    third = n // 3
    for i in range(n - 20):
        block = min(i // third, 2)
        for _ in range(4):
            j = numbers.randrange(block * third, min((block + 1) * third, n - 20))
            if i != j:
                entries[i, j] = numbers.uniform(-1, 1)
        if block < 2 and numbers.random() < 0.2:
            entries[i, numbers.randrange((block + 1) * third, min((block + 2) * third, n - 20))] = 0.3
    return n, dominate(n, entries, numbers)


def dense_row(seed=3, n=250):
    """Tridiagonal, but for one row that has every unknown."""
    numbers = random.Random(seed)
    entries = {}
    for i in range(n):
        for j in (i - 1, i + 1):
            if 0 <= j < n:
                entries[i, j] = numbers.uniform(-1, -0.5)
    for j in range(n):
        entries[n // 3, j] = numbers.uniform(-0.1, 0.1)
    return n, dominate(n, entries, numbers)


def laplacian(side=20, order=None):
    """Five points on a square; `order`: of the unknowns, theirs in rows where it is None."""
    n = side * side
    at = order or list(range(n))
    entries = {}
    for y in range(side):
        for x in range(side):
            i = at[y * side + x]
            entries[i, i] = 4.0
            for there in ((x - 1, y), (x + 1, y), (x, y - 1), (x, y + 1)):
                if all(0 <= c < side for c in there):
                    entries[i, at[there[1] * side + there[0]]] = -1.0
    return n, entries


def permuted(seed=4, side=20):
    """The same with its unknowns in no order, so that every rank has neighbours everywhere."""
    order = list(range(side * side))
    random.Random(seed).shuffle(order)
    return laplacian(side, order)


def other_values(n, entries, seed=5):
    """The pattern of `entries`, and values that are others."""
    numbers = random.Random(seed)
    changed = {place: value * numbers.uniform(0.8, 1.2) for place, value in entries.items()}
    return n, dominate(n, changed, numbers)


def weak(n, seed=5):
    """Irregular, with a diagonal that is about as large as the rest of a row: Jacobi does not do."""
    numbers = random.Random(seed)
    entries = {}
    for i in range(n):
        for _ in range(5):
            entries[i, numbers.randrange(n)] = numbers.uniform(-1, 1)
    entries.update({(i, i): 1.2 for i in range(n)})
    return n, entries


def biharmonic(n):
    """Fourth differences of a line: positive definite, with a condition of n⁴."""
    entries = {}
    for i in range(n):
        for k, value in ((0, 6.0), (1, -4.0), (2, 1.0)):
            if i + k < n:
                entries[i, i + k] = entries[i + k, i] = value
    return n, entries


def chain(n):
    """The Laplacian of a line, on which CG without M takes about n iterations."""
    entries = {}
    for i in range(n):
        entries[i, i] = 2.0
        if i > 0:
            entries[i, i - 1] = entries[i - 1, i] = -1.0
    return n, entries


def slow_to_build(seed=6, n=2500, length=40):
    """Rows of `length` entries anywhere: columns of M that share nothing, so that each takes its time."""
    numbers = random.Random(seed)
    entries = {(i, j): numbers.uniform(-1, 1) for i in range(n) for j in numbers.sample(range(n), length)}
    return n, dominate(n, entries, numbers)
