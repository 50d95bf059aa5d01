"""Writes man pages of programs from what their --help and --version say, a page for each subcommand.

    man_pages.py FOLDER PROGRAM...     FOLDER/NAME.1 and FOLDER/NAME-SUBCOMMAND.1, and no other page

Reads the form of CLI11: entries are indented by two, and their texts begin in the column of --help's own.
Defaults that are shares of this machine's memory are left out. The same programs make the same pages.
"""

import pathlib
import re
import subprocess
import sys

# Sections of a --help text that have names of their own in a man page.
TITLES = {'Positionals': 'ARGUMENTS', 'Options': 'OPTIONS', 'Subcommands': 'COMMANDS',
          'Start here': 'EXAMPLES', 'Examples': 'EXAMPLES', 'Exit codes': 'EXIT STATUS'}
ESCAPES = {'\\': r'\e', '-': r'\-', "'": r'\(aq', '`': r'\(ga', '^': r'\(ha', '~': r'\(ti', '"': r'\(dq'}


def output_of(*words):
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def escaped(text):
    """Text of a line of groff; no line of it is taken for a request."""
    line = ''.join(ESCAPES.get(c, c) for c in text)
    return r'\&' + line if line.startswith('.') else line


def bold(text):
    return rf'\fB{escaped(text)}\fR'


def italic(text):
    """The value of a flag, in italics; long choices may break behind a comma."""
    return rf'\fI{escaped(text)}\fR'.replace(',', r',\:') if text else ''


def without_share(entry):
    """An entry without a default that is a share of this machine's memory: what is given in the program
    is a power of two, or 0."""
    match = re.search(r' BYTES=(\d+)MiB', entry)
    if match and int(match[1]) & (int(match[1]) - 1):
        return entry.replace(match[0], ' BYTES')
    return entry


class Help:
    """A --help text, in parts."""

    def __init__(self, text):
        lines = text.splitlines()
        usage = next(i for i, line in enumerate(lines) if line.startswith('Usage: '))
        self.about = ' '.join(lines[:usage]).strip()
        self.usage = lines[usage].removeprefix('Usage: ')
        own = next(line for line in lines if line.startswith('  -h,--help '))
        self.column = re.match(r'  -h,--help +', own).end()
        self.sections = []  # (title, lines), without those that are empty
        title, own = '', []
        for line in [*lines[usage + 1:], ':']:
            starts = self.title_of(line, title)
            if starts is None:
                own.append(line)
                continue
            while own and not own[-1]:
                own.pop()
            if any(own):
                self.sections.append((title, own))
            title, rest = starts
            own = [rest] if rest else []

    @staticmethod
    def title_of(line, before):
        """(title, rest of the line) where a section begins."""
        if line.startswith('Exit codes: '):
            return 'Exit codes', line.removeprefix('Exit codes: ')
        if line.endswith(':') and not line.startswith(' '):
            return line[:-1], ''
        of_all = before == 'Exit codes' and line.startswith('The options of ')
        if of_all or (line and before not in ('', 'Exit codes') and not line.startswith(' ')):
            return '', line
        return None

    def entries(self, lines):
        """(entry, text) of each."""
        found = []
        for line in lines:
            head, text = line[:self.column], line[self.column:]
            if not head.strip():
                if text:
                    found[-1][1].append(text.strip())
            elif head.endswith(' ') or not text:
                found.append((head.strip(), [text] if text else []))
            else:
                found.append((line.strip(), []))
        return [(entry, ' '.join(text)) for entry, text in found]


def of_entry(entry, text):
    """A paragraph of a flag or an argument: what is typed in bold, what it takes in italics."""
    words = entry.split(' ', 1)
    typed = ', '.join(bold(flag) for flag in words[0].split(','))
    takes = italic(words[1]) if len(words) > 1 else ''
    yield '.TP'
    yield f'{typed} {takes}'.strip()
    yield escaped(text) or r'\&'


def of_examples(lines):
    """Commands, and behind two spaces what they do."""
    for line in filter(None, lines):
        command, *text = re.split(r'\s{2,}', line.strip(), maxsplit=1)
        yield '.PP'
        yield bold(command)
        if text:
            yield '.br'
            yield rf'\ \ \ \ {escaped(text[0])}'


def of_text(lines):
    for line in lines:
        yield escaped(line) if line else '.PP'


def page(program, subcommand, version, names):
    words = [program, subcommand] if subcommand else [program]
    text = Help(output_of(*words, '--help'))
    name = '-'.join([pathlib.Path(program).name, *words[1:]])
    about = re.sub(rf'^{re.escape(name)}:? ', '', text.about)
    short = about.split('. ')[0].rstrip('.')
    yield f'.TH {escaped(name.upper())} 1 "" "{escaped(version)}" "spaid"'
    yield from ('.ad l', '.nh')
    yield '.SH NAME'
    yield rf'{escaped(name)} \- {escaped(short[0].lower() + short[1:])}'
    yield '.SH SYNOPSIS'
    typed = text.usage.split(' ')
    yield f'{bold(" ".join(typed[:len(words)]))} {italic(" ".join(typed[len(words):]))}'
    yield '.SH DESCRIPTION'
    yield escaped(re.sub(rf'^{re.escape(name)}: ', f'{name} ', text.about).rstrip('.') + '.')
    variables = []
    for title, lines in text.sections:
        if title in TITLES or not title:
            yield f'.SH {TITLES.get(title, "NOTES")}'
        else:
            yield f'.SS {escaped(title)}'
        if TITLES.get(title) == 'EXAMPLES':
            yield from of_examples(lines)
        elif title and title != 'Exit codes':
            for entry, what in text.entries(lines):
                yield from of_entry(without_share(entry), what)
                variables += [(v, entry.split(' ')[0]) for v in re.findall(r'\(Env:(\w+)\)', entry)]
        else:
            yield from of_text(lines)
    if variables:
        yield '.SH ENVIRONMENT'
        for variable, flag in variables:
            yield from ('.TP', bold(variable), f'In place of {bold(flag)}.')
    yield '.SH SEE ALSO'
    yield ',\n'.join(rf'{bold(other)}(1)' for other in names if other != name)


def main(argv):
    folder, programs = pathlib.Path(argv[1]), argv[2:]
    pages = []  # (program, subcommand or '')
    for program in programs:
        sections = dict(Help(output_of(program, '--help')).sections)
        pages.append((program, ''))
        pages += [(program, line.split()[0]) for line in sections.get('Subcommands', []) if line]
    names = ['-'.join(filter(None, (pathlib.Path(p).name, s))) for p, s in pages]
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob('*.1'):
        old.unlink()
    for (program, subcommand), name in zip(pages, names):
        version = output_of(program, '--version').strip()
        lines = page(program, subcommand, version, names)
        (folder / f'{name}.1').write_text('\n'.join(lines) + '\n', encoding='utf-8')


if __name__ == '__main__':
    main(sys.argv)
