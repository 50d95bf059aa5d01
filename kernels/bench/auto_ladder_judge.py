"""Judges what auto_ladder.py measured: its `--judge` prints the goals and what misses them."""
import csv
import math
import os
import statistics

RTOL = 1e-8
SOLVED = 1.01 * RTOL  # two ways to sum a residual differ in their last digits
# The residual in rows as they were before they were scrambled is 1e-4 at most, or 1e-2 to 1e10: then x is none.
ROWS_SOLVED = 1e-3
BY_HAND = {'none': ['--engine=none'], 'jacobi': ['--engine=jacobi'], 'static-spai': ['--engine=static-spai'],
           'dynamic-spai': ['--engine=dynamic-spai'],
           'dynamic-spai 20': ['--engine=dynamic-spai', '--column-tol=0.1', '--max-steps=20', '--method=gmres',
                               '--restart=200'],
           'fsai': ['--engine=fsai'], 'afsai': ['--engine=afsai'], 'amg': ['--engine=amg']}
SETS = ['real', 'scrambled', 'gallery', 'mesh']
WITHIN, GOALS = 1.3, {'solved': 95, 'within': 80, 'worst': 3}


def number(row, key):
    value = row.get(key)
    return math.nan if value in (None, '') else float(value)


def solved(row):
    return number(row, 'residual') <= SOLVED and not number(row, 'row_residual') > ROWS_SOLVED


def total(row):
    return number(row, 'setup_ms') + number(row, 'solve_ms')


def rows_of(path):
    if not os.path.exists(path):
        return []
    with open(path, newline='', encoding='utf-8') as file:
        return list(csv.DictReader(file))


def table_of(path):
    """{case: {column: its quickest solved run or else its first}}"""
    cases = {}
    for row in rows_of(path):
        columns = cases.setdefault(row['case'], {})
        best = columns.get(row['column'])
        if best is None or solved(row) and (not solved(best) or total(row) < total(best)):
            columns[row['column']] = row
    return {name: columns for name, columns in cases.items() if 'auto' in columns}


def best_by_hand(columns, measure_of=total):
    """(ms, column) of the quickest engine by hand; None: none solves it."""
    return min(((measure_of(columns[c]), c) for c in BY_HAND if c in columns and solved(columns[c])), default=None)


def ratio(columns, measure_of=total):
    """AUTO's time over the best; infinite where AUTO alone fails, None where no engine by hand solves it."""
    best = best_by_hand(columns, measure_of)
    if best is None:
        return None
    return measure_of(columns['auto']) / best[0] if solved(columns['auto']) else math.inf


def share(part, whole):
    part, whole = list(part), list(whole)
    return f'{len(part)} of {len(whole)}' + (f' ({100 * len(part) / len(whole):.0f} %)' if whole else '')


def within(ratios):
    ratios = [r for r in ratios if r is not None]
    return share([r for r in ratios if r <= WITHIN], ratios)


def judge(path, without):
    cases = table_of(path)
    by_auto = lambda chosen: [c for c in chosen if solved(c['auto'])]
    by_lu = lambda chosen: [c for c in chosen if 'scipy-splu' in c and solved(c['scipy-splu'])]
    print(f'| cases | LU solves, and AUTO of these (goal {GOALS["solved"]} %) | AUTO of all | within {WITHIN:g} of the '
          f'best engine by hand (goal {GOALS["within"]} %) | worst (goal {GOALS["worst"]}) |\n|' + ' --- |' * 5)
    for part in [*SETS, 'all']:
        chosen = [c for name, c in cases.items() if part in ('all', name.split('/')[0])]
        if chosen:
            ratios = [r for r in map(ratio, chosen) if r is not None]
            print(f'| {part} | {share(by_auto(by_lu(chosen)), by_lu(chosen))} | {share(by_auto(chosen), chosen)} | '
                  f'{within(ratios)} | {max(ratios, default=0):.3g} |')
    slow = [c for c in cases.values() if (best_by_hand(c) or (0,))[0] >= 5]
    print(f'\nWithin {WITHIN:g} where the best takes 5 ms or more: {within(map(ratio, slow))}; of whole requests, with '
          f'the choice: {within(ratio(c, lambda row: number(row, "wall_ms")) for c in cases.values())}.\n')
    print('| column | solves | of those that AUTO solves | its time over AUTO\'s, median |\n|' + ' --- |' * 4)
    for column in dict.fromkeys(column for columns in cases.values() for column in columns):
        tried = [c for c in cases.values() if column in c]
        times = [total(c[column]) / total(c['auto']) for c in by_auto(tried) if solved(c[column])]
        print(f'| {column} | {share([c for c in tried if solved(c[column])], tried)} | '
              f'{share(times, by_auto(tried))} | {statistics.median(times) if times else math.nan:.3g} |')
    for name, columns in cases.items():
        for column, row in columns.items():
            if row['outcome'] == 'CONVERGED' and not number(row, 'residual') <= SOLVED:
                print(f'\nNot what it says: {name}, {column}: CONVERGED, residual {row["residual"]}.')
    print('\nAUTO does not solve:')
    for name, columns in cases.items():
        auto = columns['auto']
        if not solved(auto):
            print(f'- {name} (n {auto["n"]}): {auto["outcome"]} {auto["residual"]} {auto["rungs"] or auto["detail"]}; '
                  f'solved by {", ".join(c for c, row in columns.items() if solved(row)) or "none"}')
    print(f'\nOver {WITHIN:g} of the best engine by hand:')
    for name, columns in sorted(cases.items(), key=lambda c: -(ratio(c[1]) or 0)):
        r, auto = ratio(columns), columns['auto']
        if r is not None and WITHIN < r < math.inf:
            ms, best = best_by_hand(columns)
            print(f'- {name} (n {auto["n"]}): {r:.3g}, {total(auto):.3g} ms for {ms:.3g} ({best}): '
                  f'{auto["rungs"] or auto["engine"] + ", " + auto["method"]}')
    if without:
        other = table_of(without)
        both = {name: columns for name, columns in cases.items() if name in other}
        lost = [name for name in both if solved(both[name]['auto']) and not solved(other[name]['auto'])]
        print(f'\nWithout the inverse AUTO solves {share(by_auto(map(other.get, both)), both)}, with it '
              f'{len(by_auto(both.values()))}; the inverse alone: {", ".join(lost) or "none"}.')
