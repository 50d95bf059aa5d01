"""Makes a virtual environment with the wheel, beside the system's packages; without a network.

    make_environment.py WHEEL FOLDER
"""

import pathlib
import subprocess
import sys
import venv


def main(wheel, folder):
    venv.create(folder, system_site_packages=True, with_pip=False, clear=True)
    python = pathlib.Path(folder, 'bin/python')
    # Debian's pip, on behalf of that environment: nothing is fetched, nothing else installed.
    subprocess.run([python, '-m', 'pip', 'install', '--quiet', '--no-index', '--no-deps', '--no-compile',
                    '--ignore-installed', wheel], check=True)
    where = subprocess.run([python, '-c', 'import spaid; print(spaid.__file__)'], check=True, text=True,
                           stdout=subprocess.PIPE).stdout.strip()
    if not where.startswith(str(pathlib.Path(folder).resolve())):
        sys.exit(f'spaid is imported from {where}, not from {folder}')


if __name__ == '__main__':
    main(*sys.argv[1:])
