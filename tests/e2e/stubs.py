"""Python modules of the protos, for clients with nothing of spaid's code in them.

    stubs.py --protos proto --protoc protoc --plugin grpc_python_plugin --out FOLDER
"""

import argparse
import pathlib
import shutil
import subprocess


def generate(protos, protoc, plugin, out):
    """Writes the modules `spaid.v1.*` and `google_rpc.*` into the folder `out`, which it empties."""
    out, protos = pathlib.Path(out), pathlib.Path(protos)
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    # google.rpc must not hide inside the installed package google (which has an __init__), so it is
    # generated beside it under a name of its own.
    renamed = out / 'protos'
    for proto in protos.rglob('*.proto'):
        target = renamed / str(proto.relative_to(protos)).replace('google/rpc/', 'google_rpc/')
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(proto.read_text().replace('import "google/rpc/', 'import "google_rpc/'))
    sources = [path.relative_to(renamed) for path in sorted(renamed.rglob('*.proto'))]
    subprocess.run([protoc, f'-I{renamed}', f'--python_out={out}', *map(str, sources)], check=True)
    services = [str(source) for source in sources if '\nservice ' in (renamed / source).read_text()]
    subprocess.run([protoc, f'-I{renamed}', f'--grpc_out={out}',
                    f'--plugin=protoc-gen-grpc={plugin}', *services], check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n', maxsplit=1)[0])
    for name in ['protos', 'protoc', 'plugin', 'out']:
        parser.add_argument(f'--{name}', required=True)
    generate(**vars(parser.parse_args()))


if __name__ == '__main__':
    main()
