"""The man pages: a page for each program and subcommand, groff has nothing to say of them, and every flag
and example of --help is in its page as it is to be typed.

    man_pages_test.py ROOT PROGRAM...
"""

import functools
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(sys.argv[1])
PROGRAMS = sys.argv[2:]


def output_of(*words):
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def make(folder, *programs):
    subprocess.run([sys.executable, ROOT / 'deploy/man_pages.py', folder, *programs], check=True)


@functools.cache
def shown(page, width=80):
    """(text, warnings) of a page as a reader sees it."""
    env = {**os.environ, 'LC_ALL': 'C.UTF-8', 'MANWIDTH': str(width), 'MANPAGER': 'cat'}
    result = subprocess.run(['man', '--warnings', '-E', 'UTF-8', '-l', page], env=env,
                            capture_output=True, text=True, check=True)
    return result.stdout, result.stderr


class ManPagesTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        (cls.folder / 'man1').mkdir()
        (cls.folder / 'man1/gone.1').write_text('a page of a subcommand that is no more')
        make(cls.folder / 'man1', *PROGRAMS)
        cls.helps = {}  # name -> text of --help
        for program in PROGRAMS:
            name, text = pathlib.Path(program).name, output_of(program, '--help')
            cls.helps[name] = text
            listed = re.search(r'^Subcommands:\n(.*?)\n\n', text, re.MULTILINE | re.DOTALL)
            for command in re.findall(r'^  (\w+)', listed[1], re.MULTILINE) if listed else ():
                cls.helps[f'{name}-{command}'] = output_of(program, command, '--help')

    def page(self, name):
        return self.folder / f'man1/{name}.1'

    def test_there_is_a_page_for_each_command_and_no_other(self):
        self.assertEqual({p.stem for p in (self.folder / 'man1').iterdir()}, set(self.helps))
        self.assertIn('spaidctl-solve', self.helps)
        self.assertGreater(len(self.helps), 10)

    def test_groff_has_nothing_to_say(self):
        for name in self.helps:
            for width in (80, 120):
                with self.subTest(page=name, width=width):
                    self.assertEqual(shown(self.page(name), width)[1], '')

    def test_every_flag_of_help_is_in_the_page(self):
        count = 0
        for name, text in self.helps.items():
            page, _ = shown(self.page(name))
            flags = set(re.findall(r'(?<![\w-])--?[a-z][\w-]*', text))
            count += len(flags)
            with self.subTest(page=name):
                self.assertEqual({f for f in flags if f not in page}, set())
        self.assertGreater(count, 150)

    def test_every_word_of_help_is_in_the_page(self):
        for name, text in self.helps.items():
            page = shown(self.page(name), 1000)[0].lower()
            text = re.sub(r' BYTES=\d+MiB', ' BYTES', text)
            for title in ('Usage', 'Positionals', 'Options', 'Subcommands', 'Start here', 'Examples',
                          'Exit codes'):
                text = text.replace(f'{title}:', '')
            text = re.sub(r'(?<=\s-[a-z]),', ', ', text.lower())
            words = {w.rstrip('.:') for w in text.split()}
            with self.subTest(page=name):
                self.assertEqual({w for w in words if w not in page}, set())

    def test_examples_can_be_copied(self):
        page, _ = shown(self.page('spaidctl-completion'), 120)
        self.assertIn('spaidctl completion zsh > "${fpath[1]}/_spaidctl"', page)
        self.assertIn('spaidctl completion fish > ~/.config/fish/completions/spaidctl.fish', page)
        page, _ = shown(self.page('spaidctl-solve'), 120)
        self.assertIn('spaidctl solve A.mtx.gz --rhs=b.mtx --out=x.mtx\n', page)

    def test_sections_have_their_order(self):
        page, _ = shown(self.page('spaidctl-solve'))
        self.assertEqual(re.findall(r'^[A-Z].*$', page, re.MULTILINE)[1:],
                         ['NAME', 'SYNOPSIS', 'DESCRIPTION', 'ARGUMENTS', 'OPTIONS', 'EXAMPLES',
                          'EXIT STATUS', 'NOTES', 'SEE ALSO'])

    def test_the_same_programs_make_the_same_pages(self):
        again = self.folder / 'again'
        make(again, *PROGRAMS)
        for name in self.helps:
            self.assertEqual((again / f'{name}.1').read_bytes(), self.page(name).read_bytes(), name)

    def test_a_default_of_this_machine_is_left_out(self):
        program = self.folder / 'program'
        program.write_text('#!/bin/sh\n[ $1 = --version ] && echo "program 1" && exit\ncat <<"END"\n'
                           'program: does it.\nUsage: program [OPTIONS]\n\nOptions:\n'
                           '  -h,--help                   Help\n'
                           '  --share BYTES=6026MiB       A share of memory\n'
                           '  --fixed BYTES=256MiB        .hidden \\n, and \'quoted\'\nEND\n')
        program.chmod(0o755)
        make(self.folder / 'other', program)
        text, warnings = shown(self.folder / 'other/program.1')
        self.assertEqual(warnings, '')
        self.assertNotIn('6026', text)
        self.assertIn('--fixed BYTES=256MiB', text)
        self.assertIn(".hidden \\n, and 'quoted'", text)
        self.assertIn('program - does it\n', text)

    def test_a_program_that_fails_makes_no_page(self):
        result = subprocess.run([sys.executable, ROOT / 'deploy/man_pages.py', self.folder / 'none',
                                 '/bin/false'], capture_output=True, text=True, check=False)
        self.assertNotEqual(result.returncode, 0)
        self.assertFalse((self.folder / 'none').exists())


if __name__ == '__main__':
    if not shutil.which('man') or not shutil.which('groff'):
        print('skipped: man or groff is not installed (Debian: man-db groff-base)')
        sys.exit(77)
    unittest.main(argv=sys.argv[:1], verbosity=2)
