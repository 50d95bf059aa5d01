"""The scripts around the build: the package list, the steps, the report of a test run.

    scripts_test.py ROOT
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import unittest

ROOT = pathlib.Path()


def bash(script, **variables):
    return subprocess.run(['bash', '-c', script], cwd=ROOT, text=True, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          env=dict(os.environ, **variables))


class InstallDepsTest(unittest.TestCase):
    """With a dpkg-query and an apt-get of our own in front: nothing is installed here."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.calls = self.folder / 'calls'
        self.calls.touch()
        # The script must not ask for a password where the tests run as somebody else.
        self.command('id', 'echo 0')

    def command(self, name, body):
        path = self.folder / name
        path.write_text(f'#!/bin/bash\n{body}\n')
        path.chmod(0o755)

    def install_deps(self, *arguments):
        path = f'{self.folder}:{os.environ["PATH"]}'
        return bash(f'deploy/install-deps {" ".join(arguments)}', PATH=path)

    def test_all_there_is_quiet_and_installs_nothing(self):
        self.command('dpkg-query', 'echo -n installed')
        self.command('apt-get', f'echo "$@" >>{self.calls}')
        result = self.install_deps()
        self.assertEqual((result.returncode, result.stdout), (0, ''))
        self.assertEqual(self.calls.read_text(), '')

    def test_only_what_is_missing_is_installed(self):
        self.command('dpkg-query', '[ "${@: -1}" = cmake ] || echo -n installed')
        self.command('apt-get', f'echo "$@" >>{self.calls}')
        result = self.install_deps('build')
        self.assertEqual(result.returncode, 0, result.stdout)
        update, install = self.calls.read_text().splitlines()
        self.assertTrue(update.startswith('update'), update)
        self.assertTrue(install.endswith(' cmake'), install)

    def test_a_failed_installation_shows_why(self):
        self.command('dpkg-query', 'true')
        self.command('apt-get', 'echo "E: no such mirror"; exit 100')
        result = self.install_deps('runtime')
        self.assertEqual(result.returncode, 1)
        self.assertIn('E: no such mirror', result.stdout)
        self.assertIn('failed: apt-get update', result.stdout)

    def test_an_unknown_group_is_a_usage_error(self):
        result = self.install_deps('bulid')
        self.assertEqual(result.returncode, 2)
        self.assertIn("unknown argument 'bulid'", result.stdout)

    def test_groups_are_listed(self):
        everything = self.install_deps('--list').stdout.split()
        self.assertIn('libgrpc++-dev', everything)
        self.assertIn('python3-scipy', everything)
        self.assertNotIn('python3-scipy', self.install_deps('--list', 'build').stdout.split())


class StepsTest(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.log = pathlib.Path(folder.name, 'deep', 'log')

    def step(self, command):
        return bash(f'set -euo pipefail; source deploy/steps.sh; step name {self.log} {command};'
                    ' echo the next step')

    def test_what_goes_well_is_one_line(self):
        result = self.step('echo chatter')
        self.assertEqual(result.returncode, 0)
        self.assertRegex(result.stdout, r'^name +\d+\.\d s\nthe next step\n$')
        self.assertEqual(self.log.read_text(), 'chatter\n')

    def test_what_fails_says_what_and_stops(self):
        result = self.step("bash -c 'echo the cause; exit 7'")
        self.assertEqual(result.returncode, 7)
        self.assertIn('FAILED', result.stdout)
        self.assertIn('the cause', result.stdout)
        self.assertIn(str(self.log), result.stdout)
        self.assertNotIn('the next step', result.stdout)


class ReportTest(unittest.TestCase):

    def report(self, cases):
        with tempfile.NamedTemporaryFile('w', suffix='.xml') as file:
            file.write(f'<testsuite>{textwrap.dedent(cases)}</testsuite>')
            file.flush()
            return subprocess.run([sys.executable, ROOT / 'tests/report.py', file.name], text=True,
                                  check=True, stdout=subprocess.PIPE).stdout

    def test_passed_tests_are_not_mentioned(self):
        self.assertEqual(self.report(
            '<testcase name="A" status="run"><system-out>fine</system-out></testcase>'), '')

    def test_failed_tests_show_their_output(self):
        out = self.report('''
            <testcase name="B" status="fail" time="2.5"><failure message=""/>
            <system-out>x.cc:3: Failure</system-out></testcase>''')
        self.assertIn('FAILED: B after 2.5 s', out)
        self.assertIn('x.cc:3: Failure', out)

    def test_a_program_that_is_not_there_is_a_failure(self):
        out = self.report('''
            <testcase name="E" status="notrun"><skipped message="Unable to find executable"/>
            <system-out>Unable to find executable: e</system-out></testcase>''')
        self.assertIn('FAILED: E', out)
        self.assertNotIn('skipped', out)

    def test_skipped_tests_are_grouped_by_their_reason(self):
        out = self.report('''
            <testcase name="C" status="notrun"><skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/>
            <system-out>[ RUN ] C
            /a/x.cc:7: Skipped
            no GPU here

            [  SKIPPED ] C</system-out></testcase>
            <testcase name="D" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/>
            <system-out>skipped: kubectl is not installed</system-out></testcase>''')
        self.assertIn('skipped (1): no GPU here\n    C', out)
        self.assertIn('skipped (1): kubectl is not installed\n    D', out)


class SyntaxTest(unittest.TestCase):

    def test_scripts_parse_stop_at_errors_and_run(self):
        for name in ('deploy/install-deps', 'deploy/demo', 'tests/run', '.ci/run'):
            self.assertTrue(os.access(ROOT / name, os.X_OK), name)
            self.assertIn('\nset -euo pipefail\n', (ROOT / name).read_text(), name)
            result = bash(f'bash -n {name}')
            self.assertEqual(result.returncode, 0, result.stdout)

    def test_ci_calls_what_the_readme_names(self):
        readme = (ROOT / 'README.md').read_text()
        called = [line for line in (ROOT / '.ci/run').read_text().splitlines()
                  if line.startswith(('tests/', 'deploy/'))]
        self.assertIn('tests/run', called)
        for line in called:
            self.assertIn(line, readme)


if __name__ == '__main__':
    ROOT = pathlib.Path(sys.argv[1])
    unittest.main(argv=sys.argv[:1], verbosity=2)
