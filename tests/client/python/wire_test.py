"""The wire without generated code: hand-checked bytes, protobuf as the oracle, broken input; errors in trailers."""

import dataclasses
import pickle
import zlib

import numpy as np
import pytest

from spaid import _wire, errors, results


def test_bytes_of_a_chunk_by_hand():
    data = np.array([1.0]).data.cast('B')
    assert data.tobytes() == b'\0\0\0\0\0\0\xf0\x3f'
    # request { chunk (2): { array (1): VALUES = 3, data (3): 8 bytes, crc32 (4): fixed32 } }
    expected = b'\x12\x11' + b'\x08\x03' + b'\x1a\x08' + data.tobytes() + b'\x25' + b'\xe9\x13\xf8\xc7'
    assert zlib.crc32(data) == 0xc7f813e9
    assert _wire.serialized_chunk(3, 0, data, True) == expected
    # Without a checksum, at element 300 = 0xac 0x02.
    assert _wire.serialized_chunk(3, 300, data, False) == (
        b'\x12\x0f' + b'\x08\x03' + b'\x10\xac\x02' + b'\x1a\x08' + data.tobytes())


@pytest.mark.parametrize('kind,offset,size', [(1, 0, 1), (2, 127, 128), (3, 128, 5), (4, 2**40, 1 << 20), (7, 1, 3)])
def test_chunks_are_what_protobuf_reads(kind, offset, size):
    data = np.random.default_rng(size).integers(0, 256, size, np.uint8)
    request = _wire.v1('SolveRequest').FromString(_wire.serialized_chunk(kind, offset, data.data, True))
    assert request.WhichOneof('message') == 'chunk'
    assert (request.chunk.array, request.chunk.offset) == (kind, offset)
    assert request.chunk.data == data.tobytes() and request.chunk.crc32 == zlib.crc32(data)


@pytest.mark.parametrize('offset', [0, 5, 2**40, -1])
@pytest.mark.parametrize('checksum', [None, 0, 7])
def test_chunks_of_protobuf_are_read(offset, checksum):
    chunk = _wire.v1('ArrayChunk')(array=6, offset=offset, data=b'12345678')
    if checksum is not None:
        chunk.crc32 = checksum
    raw = _wire.v1('SolveResponse')(chunk=chunk).SerializeToString()
    number, view = _wire.piece(raw)
    assert number == 3
    assert _wire.chunk_of(view)[:2] == (6, offset)
    assert _wire.chunk_of(view).data == b'12345678' and _wire.chunk_of(view).crc32 == checksum


def test_a_chunk_with_fields_of_a_later_version():
    chunk = _wire.chunk_of(memoryview(b'\x08\x03\x1a\x01x' + b'\x32\x01y' + b'\x38\x05'))
    assert chunk.kind == 3 and chunk.data == b'x'


@pytest.mark.parametrize('raw', [b'\x80', b'\x1a\x05ab', b'\x1a', b'\x0b', b'\xff' * 11, b'\x25\x01', b'\x21\0\0'])
def test_broken_bytes_are_an_error(raw):
    with pytest.raises(_wire.DecodeError):
        list(_wire.fields(memoryview(raw)))


def test_random_bytes_never_surprise():
    rng = np.random.default_rng(1)
    read = 0
    for size in rng.integers(0, 40, 5000):
        raw = rng.integers(0, 256, size, np.uint8).tobytes()
        try:
            read += sum(1 for _ in _wire.fields(memoryview(raw)))
        except _wire.DecodeError:
            pass
    assert read > 100


def test_names_of_enums():
    engines = _wire.v1('PreconditionerSpec').DESCRIPTOR.fields_by_name['engine'].enum_type
    assert [_wire.enum_name(engines, k) for k in (0, 1, 4, 99)] == ['', 'auto', 'static-spai', 'unknown']
    for spelling in ('static-spai', 'STATIC_SPAI', 'static_spai'):
        assert _wire.enum_number('spaid.v1.EngineKind', spelling) == 4
    assert _wire.enum_number('spaid.v1.EngineKind', 'ilu') is None
    assert _wire.enum_number('spaid.v1.EngineKind', '') is None


def test_results_have_every_field_of_their_messages():
    for name, kind in results._CLASSES.items():
        assert {f.name for f in dataclasses.fields(kind)} == set(_wire.v1(name).DESCRIPTOR.fields_by_name), name


def test_results_are_read_by_name():
    quality = _wire.v1('BuildQuality')(residual_quantiles=[0, 0.5, 1], worst_column=3, warnings=['weak'])
    quality.rescued_columns.count = 2
    quality.fsai.kaporin = 0.5
    read = results.read(results.Quality, quality)
    assert read.residual_quantiles.tolist() == [0, 0.5, 1] and read.residual_quantiles.dtype == float
    assert (read.worst_column, read.warnings, read.rescued_columns.count) == (3, ('weak',), 2)
    assert read.fsai.kaporin == 0.5 and read.dynamic_spai is None
    with pytest.raises(dataclasses.FrozenInstanceError):
        read.worst_column = 1


def test_lists_of_messages_and_options_are_read_by_name():
    made = _wire.v1('Preconditioner')(name='preconditioners/p')
    made.spec.engine = 8
    made.spec.regrow = True
    made.spec.amg.cycle = 2
    made.spec.amg.pre_sweeps = 0
    made.quality.amg.levels.add(rows=90, guarded=True)
    made.quality.amg.levels.add(rows=9)
    made.quality.amg.smoother = 4
    made.parts.add(level=1, kind=5, rows=9, columns=9, nnz=9, smoother=4, rho=1.5, coefficients=[1, 2])
    read = results.read(results.PreconditionerInfo, made)
    assert read.spec == {'engine': 'amg', 'regrow': True, 'cycle': 'w', 'pre_sweeps': 0}
    assert [level.rows for level in read.quality.amg.levels] == [90, 9] and read.quality.amg.levels[0].guarded
    assert read.quality.amg.smoother == 'chebyshev' and read.quality.fsai is None
    part = read.parts[0]
    assert (part.level, part.kind, part.smoother, part.rho) == (1, 'smoother', 'chebyshev', 1.5)
    assert part.coefficients.tolist() == [1, 2]


def details(*messages, code=3):
    status = _wire.message('google.rpc.Status')(code=code)
    for one in messages:
        status.details.add(type_url='type.googleapis.com/' + one.DESCRIPTOR.full_name, value=one.SerializeToString())
    return (('other', 'text'), ('grpc-status-details-bin', status.SerializeToString()))


def test_errors_have_what_the_details_say():
    info = _wire.message('google.rpc.ErrorInfo')(reason='BAD_FSAI_OPTION', domain='spaid',
                                                metadata={'limit': '512', 'actual': '600'})
    request = _wire.message('google.rpc.BadRequest')(field_violations=[{'field': 'spec.fsai.k_max'}])
    retry = _wire.message('google.rpc.RetryInfo')(retry_delay={'seconds': 2, 'nanos': 500_000_000})
    other = _wire.message('google.rpc.Status')()  # of a kind that says nothing to us
    error = errors.from_status(3, 'k_max = 600', details(other, info, request, retry), 'here:1')
    assert (error.code, error.reason, error.field) == (spaid_code('INVALID_ARGUMENT'), 'BAD_FSAI_OPTION',
                                                       'spec.fsai.k_max')
    assert error.metadata == {'actual': '600', 'limit': '512'} and error.retry_after == 2.5
    assert str(error) == 'k_max = 600 [INVALID_ARGUMENT/BAD_FSAI_OPTION]'
    again = pickle.loads(pickle.dumps(error))
    assert (again.code, again.reason, again.metadata, str(again)) == (error.code, error.reason, error.metadata, str(error))


def spaid_code(name):
    return errors.Code[name]


@pytest.mark.parametrize('number,text,reason,cure', [
    (14, 'failed to connect to all addresses', 'UNREACHABLE', 'is it running there'),
    (14, 'Socket closed', 'CONNECTION_LOST', 'try again'),
    (2, 'Stream removed', 'CONNECTION_LOST', 'a proxy has lost its daemon'),
    (1, 'Received RST_STREAM with error code 8', 'CONNECTION_LOST', 'went away'),
    (4, 'Deadline Exceeded', 'TIMEOUT', 'give it more time'),
    (12, 'Method not found!', '', 'is it a spaid daemon'),
    (13, '', '', 'no reason'), (99, 'odd', '', 'odd')])
def test_errors_without_details(number, text, reason, cure):
    for trailer in ((), (('grpc-status-details-bin', b'\xff\xff'),), (('grpc-status-details-bin', b''),)):
        error = errors.from_status(number, text, trailer, 'here:1')
        assert error.reason == reason and cure in str(error)
        expected = {1: errors.Code.UNAVAILABLE, 2: errors.Code.UNAVAILABLE, 99: errors.Code.UNKNOWN}
        assert error.code == expected.get(number, number)
