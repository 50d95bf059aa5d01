"""Holds the arrows of CONTRIBUTING.md: which room may include which, and which library a room may
link. Reads the #include lines of the sources and the target names in the CMakeLists.txt files.

    check_includes.py [ROOT]     exit 0: every arrow is allowed; 1: each breach, one a line
"""

import pathlib
import re
import sys

SOURCES = {'.h', '.c', '.cc', '.cu', '.cuh'}
TOP = ('proto', 'server', 'client', 'kernels', 'tests')

# Rooms of ours that a room may include and link besides itself. A name ending in '/' stands for all
# rooms below it.
ALLOWED = {
    'kernels/gallery': (),
    'kernels/base': (),
    'kernels/sparse': ('kernels/base',),
    'kernels/dense': ('kernels/base',),
    'kernels/static_spai': ('kernels/sparse', 'kernels/dense', 'kernels/base'),
    'kernels/fsai': ('kernels/sparse', 'kernels/dense', 'kernels/base'),
    'kernels/dynamic_spai': ('kernels/fsai', 'kernels/static_spai', 'kernels/sparse',
                             'kernels/base'),
    'kernels/krylov': ('kernels/sparse', 'kernels/dense', 'kernels/base'),
    'kernels/amg': ('kernels/static_spai', 'kernels/fsai', 'kernels/krylov', 'kernels/sparse',
                    'kernels/base'),
    'kernels/engine': ('kernels/amg', 'kernels/dynamic_spai', 'kernels/static_spai', 'kernels/fsai',
                       'kernels/krylov', 'kernels/mpi', 'kernels/sparse', 'kernels/dense',
                       'kernels/base'),
    'kernels/mpi': ('kernels/dynamic_spai', 'kernels/static_spai', 'kernels/fsai', 'kernels/krylov',
                    'kernels/sparse', 'kernels/base'),
    'kernels/bench': ('kernels/',),
    'proto/messages': (),
    'proto/services': ('proto/messages',),
    'server/base': ('proto/messages',),
    'server/store': ('server/base', 'proto/messages'),
    'server/sched': ('server/base', 'proto/messages'),
    'server/engine': ('server/base', 'server/store', 'server/sched', 'proto/messages',
                      'kernels/engine', 'kernels/static_spai', 'kernels/amg', 'kernels/krylov',
                      'kernels/mpi', 'kernels/sparse', 'kernels/base'),
    'server/rpc': ('server/engine', 'server/store', 'server/sched', 'server/base', 'proto/messages',
                   'proto/services'),
    'server/ops': ('server/engine', 'server/store', 'server/sched', 'server/base',
                   'proto/messages'),
    'server/main': ('server/rpc', 'server/ops', 'server/engine', 'server/store', 'server/sched',
                    'server/base'),
    'client/cpp': ('proto/messages', 'proto/services'),
    'client/cli': ('client/cpp', 'kernels/gallery'),
    'client/load': ('client/cpp', 'client/cli', 'kernels/gallery'),
    'client/examples': ('client/c', 'client/cpp'),
    'client/c': ('client/cpp',),
    'client/petsc': ('client/cpp',),
}

# What a room may link where that is narrower than what it may include: the kernels are reached
# through their one face, and a library that is loaded is linked by nobody.
LINK_ONLY = {
    'kernels/engine': ('kernels/amg', 'kernels/dynamic_spai', 'kernels/static_spai', 'kernels/fsai',
                       'kernels/krylov', 'kernels/sparse', 'kernels/dense', 'kernels/base'),
    'server/engine': ('server/base', 'server/store', 'server/sched', 'proto/messages',
                      'kernels/engine'),
}

# All that other rooms may include of a room whose library they load.
LOADED_ROOMS = {'kernels/mpi': ('kernels/mpi/petsc_options.h', 'kernels/mpi/ranks_device.h')}

# Third parties that only some rooms may include: prefix of the include -> rooms.
THIRD_PARTIES = {
    'grpc/': ('server/rpc', 'server/ops', 'server/main', 'client/cpp'),
    'grpcpp/': ('server/rpc', 'server/ops', 'server/main', 'client/cpp'),
    'google/protobuf/': ('server/', 'client/cpp', 'proto/messages'),
    'absl/': ('server/', 'client/'),
    'spdlog/': ('server/',),
    'fmt/': ('server/',),
    'prometheus/': ('server/',),
    'httplib.h': (),
    'Eigen/': ('client/cpp', 'client/cli', 'client/examples'),
    'petsc': ('client/petsc', 'kernels/mpi'),
    'HYPRE_': ('kernels/mpi',),
    'mpi.h': ('client/petsc', 'kernels/mpi'),
    'nlohmann/': ('server/base', 'server/ops', 'client/'),
    'opentelemetry/': ('server/ops',),
    'benchmark/': ('kernels/bench', 'server/sched'),
    'gtest/': (),
    'gmock/': (),
}

# Numerics use the standard library (headers without a dot), POSIX, malloc and CUDA;
# nothing else but, in one room, MPI, PETSc and what POSIX has for sockets. Benchmarks use Google Benchmark, and those of peers the peers.
KERNEL_SYSTEM = re.compile(
    r'^(?:[a-z_]+|dlfcn\.h|link\.h|pthread\.h|sched\.h|unistd\.h|malloc\.h|immintrin\.h|sys/\w+\.h'
    r'|cuda\w*\.h|cu(?:blas|sparse|solver)\w*\.h|(?:cub|thrust|cuda|cooperative_groups)(?:/.*|\.h))$')

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
TARGET = re.compile(r'\bspaid_(?:kernels|server)_(?!library\b)[a-z_]+\b|\bspaid_proto_grpc\b|\bspaid_proto\b'
                    r'|\bspaid_client\b|\bspaid::client\b|\bspaid_c\b|\bspaid_petsc\b|\bspaid_mpi\b|\bspaid_test_[a-z_]+\b|\bspaid_oracle\b')


def room_of_file(path):
    """The room of a file of ours given by its path from the root, or None outside all rooms."""
    parts = path.parts
    if parts[0] == 'server' and len(parts) == 2:
        return 'server/main'
    if parts[0] == 'proto' and path.suffix in SOURCES:
        return 'proto/messages'
    if parts[0] in ('server', 'client', 'kernels') and len(parts) > 2:
        return f'{parts[0]}/{parts[1]}'
    return 'tests' if parts[0] == 'tests' else None


def room_of_include(name):
    """The room that an include of ours names, or None for a third party's header."""
    if name.endswith('.grpc.pb.h'):
        return 'proto/services'
    if name.startswith(('spaid/v1/', 'google/rpc/')) and name.endswith('.pb.h'):
        return 'proto/messages'
    if name == 'spaid/spaid.h':
        return 'client/c'
    if name.startswith('spaid/'):
        return 'client/cpp'
    if name.split('/')[0] in TOP and '/' in name:
        return room_of_file(pathlib.PurePosixPath(name))
    return None


def room_of_target(name):
    match = re.match(r'spaid_(kernels|server)_([a-z_]+)$', name)
    if match:
        return f'{match.group(1)}/{match.group(2)}'
    return {'spaid_proto': 'proto/messages', 'spaid_proto_grpc': 'proto/services',
            'spaid_client': 'client/cpp', 'spaid::client': 'client/cpp', 'spaid_c': 'client/c',
            'spaid_petsc': 'client/petsc', 'spaid_mpi': 'kernels/mpi'}.get(name, 'tests')


def covers(allowed, room):
    return any(room == a or (a.endswith('/') and room.startswith(a)) for a in allowed)


def third_party_breach(path, room, name):
    if path.parts[:3] == ('kernels', 'bench', 'peers'):
        return None
    if room.startswith('kernels/') and not KERNEL_SYSTEM.match(name):
        if not (room == 'kernels/bench' and name.startswith('benchmark/') or
                room == 'kernels/mpi' and name.startswith(
                    ('mpi.h', 'petsc', 'HYPRE_', 'arpa/', 'net/', 'netinet/', 'ifaddrs.h'))):
            return 'kernels use the C++ standard library and CUDA only'
    for prefix, rooms in THIRD_PARTIES.items():
        if name.startswith(prefix) and not covers(rooms, room):
            return f'{prefix} belongs to {", ".join(rooms) or "tests"}'
    return None


def breaches_of_source(root, path):
    room = room_of_file(path)
    if room is None or room == 'tests':
        return
    if room not in ALLOWED:
        yield f'{path}: the room {room} has no arrows; add it to check_includes.py and CONTRIBUTING.md'
        return
    for number, line in enumerate((root / path).read_text().splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        name = match.group(2)
        to = room_of_include(name)
        if to is not None:
            if to != room and not covers(ALLOWED[room], to):
                yield f'{path}:{number}: {room} must not include {name} ({to})'
            elif to != room and room != 'kernels/bench' and name not in LOADED_ROOMS.get(to, (name,)):
                yield f'{path}:{number}: {room} may include {" and ".join(LOADED_ROOMS[to])} alone of {to}, not {name}'
        elif match.group(1) == '"' and (root / path).parent.joinpath(name).exists():
            yield f'{path}:{number}: write {name} as a path from the root'
        else:
            why = third_party_breach(path, room, name)
            if why:
                yield f'{path}:{number}: {room} must not include {name}: {why}'


def breaches_of_cmake(root, path):
    """A library of ours that is named in a room's CMakeLists.txt is one that the room links."""
    directory = path.parent
    if len(directory.parts) == 1 and directory.parts[0] == 'server':
        room = 'server/main'
    else:
        room = room_of_file(path)
    if room is None or room == 'tests' or room not in ALLOWED:
        return
    allowed = LINK_ONLY.get(room, ALLOWED[room])
    text = re.sub(r'#.*', '', (root / path).read_text())
    for number, line in enumerate(text.splitlines(), 1):
        for target in TARGET.findall(line):
            to = room_of_target(target)
            if to != room and not covers(allowed, to):
                yield f'{path}:{number}: {room} must not link {target} ({to})'


def breaches(root):
    """All breaches under `root`, as lines for people."""
    root = pathlib.Path(root)
    for top in TOP:
        for full in sorted((root / top).rglob('*')):
            path = full.relative_to(root)
            if full.suffix in SOURCES:
                yield from breaches_of_source(root, path)
            elif full.name == 'CMakeLists.txt':
                yield from breaches_of_cmake(root, path)


def main(argv):
    root = pathlib.Path(argv[1] if len(argv) > 1 else pathlib.Path(__file__).parents[2])
    if not (root / 'kernels').is_dir() or not (root / 'server').is_dir():
        print(f'{root} is not the root of spaid')
        return 1
    found = list(breaches(root))
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv))
