"""Reads ctest's JUnit report: prints the output of each test that failed, then the tests that were
skipped, grouped by the reason they gave. Prints nothing where all tests ran and passed.

    report.py tests.xml
"""

import re
import sys
import xml.etree.ElementTree as ElementTree


def output_of(case):
    return (case.findtext('system-out') or '').strip()


def skip_reason(case):
    """What the test said when it skipped itself; GTEST_SKIP prints 'file:line: Skipped', then why."""
    lines = [line.strip() for line in output_of(case).splitlines()]
    for i, line in enumerate(lines):
        if re.search(r':\d+: Skipped$', line):
            why = []
            for follower in lines[i + 1:]:
                if not follower or follower.startswith('['):
                    break
                why.append(follower)
            if why:
                return ' '.join(why)
        match = re.match(r'skipped: (.+)', line, re.IGNORECASE)
        if match:
            return match.group(1)
    node = case.find('skipped')
    message = node.get('message', '') if node is not None else ''
    return message or 'no reason given'


def main(path):
    failed, skipped = [], {}
    for case in ElementTree.parse(path).getroot().iter('testcase'):
        skip = case.find('skipped')
        if case.get('status') == 'disabled' or (
                skip is not None and skip.get('message', '').startswith('SKIP_')):
            skipped.setdefault(skip_reason(case), []).append(case.get('name'))
        elif case.get('status') != 'run':  # failed, or could not be started at all
            failed.append(case)

    for case in failed:
        print(f'--- FAILED: {case.get("name")} after {float(case.get("time", 0)):.1f} s')
        print(output_of(case))
    for reason, names in sorted(skipped.items()):
        print(f'skipped ({len(names)}): {reason}')
        for name in names[:20]:
            print(f'    {name}')
        if len(names) > 20:
            print(f'    … and {len(names) - 20} more')


if __name__ == '__main__':
    main(sys.argv[1])
