#!/usr/bin/python3
"""Makes the tables of the documentation from the CSV files of docs/figures.

  kernels/bench/tables.py [--check] [ROOT]

A table of a Markdown file stands under the line "<!-- table: NAME -->" and is made from docs/figures/NAME.csv: the
first line of the file is the heading, each further line a row. Neighbouring
columns with headings "GROUP: A" and "GROUP: B" become one, "GROUP: A / B", with cells like "1.2 / 3.4". Integers from
10,000 on get commas; everything else is printed as it stands in the file.

--check changes nothing. It fails where a table differs from its file, a table has no file, or a file has no table.
"""
import argparse
import csv
import pathlib
import re
import sys

FOLDERS = ('client', 'deploy', 'docs', 'kernels', 'proto', 'server')
TABLE = re.compile(r'<!-- table: (\S+) -->\n(?:\|.*\n)*')


def cell(text):
    if re.fullmatch(r'\d{5,}', text):
        return f'{int(text):,}'
    return text.replace('|', r'\|')


def groups(heading):
    """The columns that are shown, each as the list of its columns in the file."""
    shown, last = [], None
    for k, name in enumerate(heading):
        group = name.split(': ')[0] if ': ' in name else None
        if group is not None and group == last:
            shown[-1].append(k)
        else:
            shown.append([k])
        last = group
    return shown


def rendered(path):
    """The Markdown table of a CSV file; ValueError where its rows are not of one length."""
    with open(path, newline='', encoding='utf-8') as file:
        heading, *rows = csv.reader(file)
    for row in rows:
        if len(row) != len(heading):
            raise ValueError(f'{path}: {len(row)} cells in a row for {len(heading)} in the heading')
    shown = groups(heading)
    titles = [' / '.join([heading[c[0]], *(heading[k].split(': ', 1)[1] for k in c[1:])]) for c in shown]
    lines = ['| ' + ' | '.join(titles) + ' |', '|' + ' --- |' * len(shown)]
    for row in rows:
        cells = (' / '.join(cell(row[k]) for k in c).rstrip(' /') for c in shown)
        lines.append('| ' + ' | '.join(cells) + ' |')
    return '\n'.join(lines)


def markdown_files(root):
    yield from sorted(root.glob('*.md'))
    for folder in FOLDERS:
        yield from sorted((root / folder).rglob('*.md'))


def made(root, text, used):
    """`text` with its tables made anew; adds their names to `used`. FileNotFoundError names a missing file."""
    def table(match):
        used.add(match[1])
        content = rendered(root / 'docs/figures' / f'{match[1]}.csv')
        return f'<!-- table: {match[1]} -->\n{content}\n'
    return TABLE.sub(table, text)


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--check', action='store_true', help='changes nothing, and fails where a text would change')
    parser.add_argument('root', nargs='?', type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[2])
    args = parser.parse_args(argv)
    used, wrong = set(), []
    for path in markdown_files(args.root):
        text = path.read_text(encoding='utf-8')
        try:
            fresh = made(args.root, text, used)
        except (FileNotFoundError, ValueError) as error:
            wrong.append(f'{path}: {error}')
            continue
        if fresh == text:
            continue
        if args.check:
            wrong.append(f'{path}: a table differs from docs/figures; run kernels/bench/tables.py')
        else:
            path.write_text(fresh, encoding='utf-8')
            print(path)
    unused = {path.stem for path in (args.root / 'docs/figures').glob('*.csv')} - used
    wrong += [f'docs/figures/{name}.csv: no text has this table' for name in sorted(unused)]
    for line in wrong:
        print(line)
    return 1 if wrong else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
