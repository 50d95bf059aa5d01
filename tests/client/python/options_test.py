"""Options as keywords, by the names and ranges of the contract."""

import datetime

import pytest

import spaid
from spaid import _options, _wire


def test_an_option_goes_to_the_messages_that_its_engine_reads():
    spec = _options.spec_of('afsai', {'k_max': 20, 'step_size': 2, 'epsilon': 1e-2, 'post_filter': 0.1})
    assert (spec.engine, spec.fsai.k_max, spec.fsai.step_size, spec.fsai.epsilon) == (6, 20, 2, 1e-2)
    assert spec.fsai.post_filter == 0.1 and not spec.HasField('static_spai') and not spec.HasField('dynamic_spai')
    spec = _options.spec_of('static-spai', {'pattern_power': 2})
    assert spec.static_spai.pattern_power == 2 and spec.static_spai.local_solver == 1 and not spec.HasField('fsai')
    spec = _options.spec_of('fsai', {'pattern_power': 3})
    assert spec.fsai.pattern_power == 3
    spec = _options.spec_of('dynamic-spai', {'tol': 0.2, 'local_solver': 'qr', 'scaling': 'matching'})
    assert (spec.dynamic_spai.tol, spec.dynamic_spai.local_solver, spec.scaling) == (0.2, 2, 4)
    assert _options.spec_of('auto', {'learned': 'off'}).automatic.learned == 2
    spec = _options.spec_of('afsai', {'regrow': True})
    assert spec.regrow and not spec.fsai.regrow
    assert _options.spec_of('jacobi', {'block_size': 3}).jacobi.block_size == 3


def test_durations():
    for value in (1.5, datetime.timedelta(seconds=1.5)):
        budget = _options.spec_of('afsai', {'time_budget': value}).fsai.time_budget
        assert (budget.seconds, budget.nanos) == (1, 500_000_000)
    for value in (0, -1, True, float('inf'), '1'):
        with pytest.raises(spaid.InputError, match='time_budget'):
            _options.spec_of('afsai', {'time_budget': value})


@pytest.mark.parametrize('engine,options,field,text', [
    ('ilu', {}, 'engine', 'give one of auto, none, jacobi'),
    ('auto', {'k_mx': 1}, 'k_mx', 'did you mean k_max?'),
    ('auto', {'zzz': 1}, 'zzz', 'there are'),
    ('static-spai', {'k_max': 1}, 'k_max', 'not read by engine static-spai, but by afsai'),
    ('afsai', {'k_max': 513}, 'k_max', 'at least 0, at most 512'),
    ('afsai', {'k_max': 1.5}, 'k_max', 'a whole number'),
    ('afsai', {'k_max': True}, 'k_max', 'a whole number'),
    ('afsai', {'step_size': 0}, 'step_size', 'at least 1'),
    ('afsai', {'epsilon': 1.0}, 'epsilon', 'below 1'),
    ('afsai', {'epsilon': float('nan')}, 'epsilon', 'must be'),
    ('afsai', {'epsilon': 'x'}, 'epsilon', 'a number'),
    ('static-spai', {'local_solver': 'lu'}, 'local_solver', 'auto, qr, gram'),
    ('static-spai', {'local_solver': 2}, 'local_solver', 'auto, qr, gram'),
    ('static-spai', {'ensure_row': 1}, 'ensure_row', 'True or False'),
    ('static-spai', {'pattern_matrix': 3}, 'pattern_matrix', 'handle'),
])
def test_what_is_refused(engine, options, field, text):
    with pytest.raises(spaid.InputError, match=text) as caught:
        _options.spec_of(engine, options)
    assert (caught.value.reason, caught.value.field) == ('BAD_OPTION', field)


def example(option):
    """A value in range."""
    field = option.field
    if field.enum_type is not None:
        return _wire.enum_names(field.enum_type.full_name)[-1]
    if field.message_type is not None:
        return 1.0
    if field.cpp_type == field.CPPTYPE_BOOL:
        return True
    if field.cpp_type == field.CPPTYPE_STRING:
        return 'matrices/1'
    low = int(option.min) if option.min > -1e300 else 0
    return low + 1 if field.cpp_type != field.CPPTYPE_DOUBLE else low + 0.5


def test_every_option_of_the_contract_is_a_keyword():
    engines = _wire.enum_names('spaid.v1.EngineKind')
    for name, places in _options.spec_options().items():
        for engine in engines:
            readers = [p for p in places if not p.engines or engine in p.engines]
            if readers:
                assert _options.spec_of(engine, {name: example(readers[0].option)}).ByteSize() > 2, (engine, name)
    for name, option in _options.solve_options().items():
        header = _wire.v1('SolveHeader')()
        _options.fill_header(header, {name: example(option)})
        assert getattr(header, name)
    assert {'k_max', 'pattern_power', 'tol', 'block_size', 'scaling', 'time_budget'} <= set(_options.spec_options())
    assert {'method', 'rtol', 'atol', 'max_iterations', 'restart', 'shadow_vectors', 'basis_bytes',
            'preconditioner_storage'} == set(_options.solve_options())


def test_no_name_means_two_things():
    assert not set(_options.solve_options()) & set(_options.spec_options())
    own, rest = _options.split({'rtol': 1e-3, 'k_max': 2})
    assert (own, rest) == ({'rtol': 1e-3}, {'k_max': 2})


def test_defaults_of_an_iteration():
    header = _wire.v1('SolveHeader')()
    _options.fill_header(header, {})
    assert (header.method, header.rtol, header.max_iterations) == (1, 1e-8, 0)
    for none in ({'rtol': 0}, {'rtol': 0, 'atol': 0}):
        with pytest.raises(spaid.InputError, match='rtol'):
            _options.fill_header(header, none)
    absolute = _wire.v1('SolveHeader')()
    _options.fill_header(absolute, {'rtol': 0, 'atol': 1e-3})
    assert (absolute.rtol, absolute.atol) == (0, 1e-3)
