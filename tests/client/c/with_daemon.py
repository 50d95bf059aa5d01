"""Runs a program with the address of a daemon, and looks at what it prints and how it ends.

    with_daemon.py SPAID STATUS EXPECTED-REGEX... -- PROGRAM ARGUMENT...

@ADDRESS@ stands for the address, STATUS is what the program must end with.
"""

import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[3] / 'tests/deploy'))
import daemon  # noqa: E402


def main(argv):
    spaid, end = argv[1], argv.index('--')
    status, expected, command = int(argv[2]), argv[3:end], argv[end + 1:]
    with daemon.running(spaid, ['--address=127.0.0.1:0', '--ops-address=127.0.0.1:0',
                                '--drain-grace=0s']) as address:
        result = subprocess.run([word.replace('@ADDRESS@', address) for word in command], text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
                                timeout=240)
    print(result.stdout)
    missing = [pattern for pattern in expected if not re.search(pattern, result.stdout, re.MULTILINE)]
    if missing:
        print(f'not found: {missing}')
    if result.returncode != status:
        print(f'ended with {result.returncode}, not with {status}')
    return 1 if missing or result.returncode != status else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv))
