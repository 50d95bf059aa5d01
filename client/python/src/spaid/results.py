"""Results of calls: frozen dataclasses whose fields have the names of the wire's messages.

Enums are strings, as spaidctl prints them: 'static-spai', 'max-iterations'. Times of a job are in milliseconds by
the server's clock; moments are datetimes in UTC.
"""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from spaid import _wire

Floats = npt.NDArray[np.float64]
_T = TypeVar('_T')
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


@dataclasses.dataclass(frozen=True)
class Occurrence:
    """How often something is there, and the first index (0-based; -1: nowhere)."""

    count: int
    first: int


@dataclasses.dataclass(frozen=True)
class Timings:
    """Phases of a job in milliseconds, and bytes of arrays (Timings in proto/spaid/v1/timings.proto)."""

    upload_ms: float
    queue_ms: float
    plan_ms: float
    build_ms: float
    solve_ms: float
    download_ms: float
    total_ms: float
    bytes_up: int
    bytes_down: int
    rebuild: bool
    reused: bool
    host_to_device_ms: float
    device_to_host_ms: float
    assemble_ms: float


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """The server's description of a matrix (Diagnosis in proto/spaid/v1/matrix.proto)."""

    explicit_zeros: int
    structurally_symmetric: bool
    numerically_symmetric: bool
    asymmetry_row: int
    asymmetry_column: int
    max_asymmetry: float
    missing_diagonal: Occurrence
    zero_diagonal: Occurrence
    negative_diagonal: Occurrence
    empty_rows: Occurrence
    empty_columns: Occurrence
    structural_rank: int
    not_dominant_rows: Occurrence
    zero_sum_rows: Occurrence
    constants_in_null_space: bool
    dense_rows: Occurrence
    dense_columns: Occurrence
    max_row_entries: int
    max_column_entries: int
    min_abs_value: float
    max_abs_value: float
    findings: tuple[str, ...]
    zero_sum_columns: Occurrence
    constants_in_left_null_space: bool


@dataclasses.dataclass(frozen=True)
class Digest:
    """Digests of a matrix (MatrixDigest in proto/spaid/v1/arrays.proto)."""

    pattern: bytes
    values: bytes
    pattern_sha256: bytes
    values_sha256: bytes


@dataclasses.dataclass(frozen=True)
class MatrixInfo:
    """A stored matrix; `name` is its handle."""

    name: str
    label: str
    n: int
    nnz: int
    pattern_only: bool
    host_bytes: int
    digest: Digest
    create_time: datetime.datetime | None
    diagnosis: Diagnosis


@dataclasses.dataclass(frozen=True)
class EngineChoice:
    """The engine, why AUTO chose it, and why the build ran where it did."""

    engine: str
    reason: str
    placement: str


@dataclasses.dataclass(frozen=True)
class FsaiQuality:
    """Figures of FSAI (FsaiQuality in proto/spaid/v1/preconditioner_spec.proto)."""

    kaporin: float
    kaporin_by_step: Floats
    converged_rows: int
    not_spd_rows: Occurrence
    nnz_row_max: int
    slow_rows: int
    not_converged_rows: Occurrence
    steps: int
    out_of_time: bool
    pattern_reused: bool
    copied_rows: int


@dataclasses.dataclass(frozen=True)
class DynamicSpaiQuality:
    """Figures of growth (DynamicSpaiQuality in proto/spaid/v1/preconditioner_spec.proto)."""

    converged_columns: int
    residual_by_step: Floats
    nnz_column_max: int
    copied_columns: int
    slow_columns: int
    dependent_columns: Occurrence
    gram_nnz: int
    pattern_reused: bool


@dataclasses.dataclass(frozen=True)
class AmgLevel:
    """A level of multigrid (AmgLevel in proto/spaid/v1/preconditioner_spec.proto)."""

    rows: int
    nnz: int
    aggregates: int
    isolated: int
    guarded: bool
    rho: float
    nnz_p: int
    nnz_smoother: int
    boxes: bool


@dataclasses.dataclass(frozen=True)
class AmgQuality:
    """Figures of multigrid, level by level (AmgQuality in proto/spaid/v1/preconditioner_spec.proto)."""

    levels: tuple[AmgLevel, ...]
    smoother: str
    precision: str
    node_size: int
    operator_complexity: float
    grid_complexity: float
    near_null_rayleigh: float
    beta: float
    singular_coarse_pivots: int
    inverted: bool
    pattern_reused: bool


@dataclasses.dataclass(frozen=True)
class PetscQuality:
    """Figures of GAMG; zeros of parasails and boomeramg (PetscQuality in proto/spaid/v1/preconditioner_spec.proto)."""

    levels: int
    operator_complexity: float
    grid_complexity: float


@dataclasses.dataclass(frozen=True)
class Quality:
    """Figures of M (BuildQuality in proto/spaid/v1/preconditioner_spec.proto); density: nnz(M) / nnz(A)."""

    residual_frobenius: float
    residual_quantiles: Floats
    worst_column: int
    density: float
    gram_columns: int
    qr_columns: int
    rescued_columns: Occurrence
    rank_deficient_columns: Occurrence
    zero_columns: Occurrence
    non_finite_columns: Occurrence
    min_scaled_pivot: float
    warnings: tuple[str, ...]
    iterative_columns: Occurrence
    not_converged_columns: Occurrence
    thread_strategy: str
    fsai: FsaiQuality | None
    dynamic_spai: DynamicSpaiQuality | None
    scaling: str
    scaling_reused: bool
    amg: AmgQuality | None
    petsc: PetscQuality | None


@dataclasses.dataclass(frozen=True)
class Part:
    """A matrix that M of multigrid consists of (Part in preconditioner.proto); kind: 'a', 'p', 'r', 'smoother', …"""

    level: int
    kind: str
    rows: int
    columns: int
    nnz: int
    smoother: str = ''
    rho: float = 0.0
    omega: float = 0.0
    coefficients: Floats = dataclasses.field(default_factory=lambda: np.empty(0))


@dataclasses.dataclass(frozen=True)
class PreconditionerInfo:
    """A stored preconditioner; `name` is its handle, spec its options by their names. parts: of amg, whose M is no
    matrix."""

    name: str
    matrix: str
    spec: dict[str, Any]
    choice: EngineChoice
    n: int
    nnz: int
    host_bytes: int
    quality: Quality
    build_timings: Timings
    create_time: datetime.datetime | None
    device: str
    device_bytes: int
    is_factor: bool
    parts: tuple[Part, ...]


@dataclasses.dataclass(frozen=True)
class BuildEstimate:
    """The cost of a build, counted from the pattern (EstimateBuildResponse in preconditioner.proto)."""

    host_bytes: int
    device_bytes: int
    nnz: int
    download_bytes: int
    predicted_ms: float
    flops: float
    n1_max: int
    n2_max: int
    choice: EngineChoice
    device_bytes_min: int


@dataclasses.dataclass(frozen=True)
class Residual:
    """|b - A x| / |b| of one right-hand side after an iteration, as the recursion has it."""

    rhs: int
    iteration: int
    relative_residual: float


@dataclasses.dataclass(frozen=True)
class Rung:
    """A preconditioner and method that engine auto tried (Rung in proto/spaid/v1/solve_types.proto)."""

    engine: str
    method: str
    what: str
    left: str
    iterations: int
    relative_residual: float
    setup_ms: float
    solve_ms: float


@dataclasses.dataclass(frozen=True)
class Reuse:
    """The fate of the M of an earlier A: 'kept', 'rebuilt' or 'regrown', and why."""

    decision: str
    reason: str
    first_iterations: int


@dataclasses.dataclass(frozen=True)
class SolveFigures:
    """Times and rates of a solve (SolveFigures in proto/spaid/v1/solver.proto)."""

    place_ms: float
    trial_ms: float
    host_to_device_ms: float
    iterate_ms: float
    check_ms: float
    device_to_host_ms: float
    iterations: int
    iterations_per_second: float
    bytes_per_second: float
    copy_bytes_per_second: float
    copy_share: float


@dataclasses.dataclass(frozen=True)
class RhsOutcome:
    """How the solve of one right-hand side ended; residuals are recomputed ones."""

    outcome: str  # 'converged', 'max-iterations', 'stagnated', …
    iterations: int
    true_residual: float
    true_relative_residual: float
    detail: str
    unreachable: float


@dataclasses.dataclass(frozen=True)
class JobFailure:
    """Why a job failed; code: the canonical gRPC code."""

    code: int
    reason: str
    message: str


@dataclasses.dataclass(frozen=True)
class JobInfo:
    """A job as it is (Job in proto/spaid/v1/job.proto); stage: '' unless it runs."""

    name: str
    kind: str
    state: str
    detached: bool
    create_time: datetime.datetime | None
    start_time: datetime.datetime | None
    end_time: datetime.datetime | None
    matrix: str
    preconditioner: str
    device: str
    stage: str
    done: int
    total: int
    error: JobFailure | None
    outcomes: tuple[RhsOutcome, ...]
    event_count: int
    outcome_count: int
    priority: str
    devices: tuple[str, ...]
    tenant: str
    trace_id: str


@dataclasses.dataclass(frozen=True)
class DeviceInfo:
    """A device of the server (Device in proto/spaid/v1/server.proto)."""

    name: str
    kind: str
    model: str
    uuid: str
    memory_bytes: int
    compute_capability: str
    threads: int
    in_use: bool
    healthy: bool
    unhealthy_reason: str
    memory_used_bytes: int
    memory_limit_bytes: int


@dataclasses.dataclass(frozen=True)
class Limits:
    """The server's limits (Limits in proto/spaid/v1/server.proto); 0 and None: none of its own."""

    max_message_bytes: int
    max_matrix_bytes: int
    matrix_store_bytes: int
    preconditioner_store_bytes: int
    max_queued_jobs: int
    max_rhs_count: int
    heartbeat_interval: datetime.timedelta | None
    stalled_reader_timeout: datetime.timedelta | None
    max_queued_jobs_per_tenant: int
    max_queue: datetime.timedelta | None
    max_run: datetime.timedelta | None
    max_detached_jobs_per_tenant: int


@dataclasses.dataclass(frozen=True)
class QueueClass:
    """The jobs of one priority."""

    priority: str
    queued: int
    predicted_ms: float
    share: float


@dataclasses.dataclass(frozen=True)
class EstimateRatio:
    """Measured to predicted time of one kind of job on one device; for administrators."""

    device: str
    work: str
    ratio: float
    jobs: int


@dataclasses.dataclass(frozen=True)
class QueueInfo:
    """The caller's own jobs; those of all tenants for administrators."""

    queued: int
    running: int
    eta_ms: float
    classes: tuple[QueueClass, ...]
    estimate_ratios: tuple[EstimateRatio, ...]


@dataclasses.dataclass(frozen=True)
class ServerInfo:
    """The server, its devices and limits, and who it takes the caller for."""

    version: str
    start_time: datetime.datetime | None
    devices: tuple[DeviceInfo, ...]
    cuda_status: str
    engines: tuple[str, ...]
    methods: tuple[str, ...]
    limits: Limits
    queue: QueueInfo
    draining: bool
    tenant: str
    administrator: bool


@dataclasses.dataclass(frozen=True)
class LocalStatus:
    """Whether arrays are shared with the daemon, and if not, why; bytes that went, or came, each way."""

    available: bool
    why: str
    reason: str
    tenant: str
    shared_bytes: int
    fallback_bytes: int


@dataclasses.dataclass(frozen=True)
class Progress:
    """A report of a running call. kind: 'upload', 'download' (done of total bytes); 'queued', 'started', 'stage'
    (done of total units of `stage`), 'residuals', 'quality', 'rung', 'heartbeat', 'finished'."""

    kind: str
    job: str = ''
    event_number: int = 0
    stage: str = ''
    done: int = 0
    total: int = 0
    position: int = 0
    eta_ms: float = 0.0
    device: str = ''
    residuals: tuple[Residual, ...] = ()
    quality: Quality | None = None
    rung: Rung | None = None
    job_info: JobInfo | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class SolveResult:
    """The end of a solve.

    x: the best iterate, of the shape of b; None where it was not asked for. histories: for each right-hand
    side its relative residuals, histories_iterations their iterations (all, unless there are very many).
    preconditioner: the handle of the M that the solve ended with, '' where there is none.
    """

    x: Floats | None
    outcomes: tuple[RhsOutcome, ...]
    histories: tuple[Floats, ...]
    histories_iterations: tuple[npt.NDArray[np.int64], ...]
    method: str
    choice: EngineChoice
    matrix: str
    preconditioner: str
    nnz_ratio: float
    quality: Quality | None
    timings: Timings
    device: str
    job: str
    preconditioner_storage: str
    storage_reason: str
    placement: str
    figures: SolveFigures
    rungs: tuple[Rung, ...]
    null_space: str
    reuse: Reuse | None

    @property
    def converged(self) -> bool:
        """All right-hand sides have."""
        return all(o.outcome == 'converged' for o in self.outcomes)

    @property
    def iterations(self) -> int:
        """The most that a right-hand side took."""
        return max(o.iterations for o in self.outcomes)

    @property
    def residual_norms(self) -> Floats:
        """|b - A x| of each right-hand side, recomputed."""
        return np.array([o.true_residual for o in self.outcomes])

    @property
    def history(self) -> Floats:
        """Relative residuals of the first right-hand side."""
        return self.histories[0]

    @property
    def reason(self) -> str:
        """Why this engine, and how each right-hand side that has not converged ended."""
        ends = [f'{o.outcome}: {o.detail}' for o in self.outcomes if o.outcome != 'converged']
        return '; '.join(filter(None, [self.choice.reason, *ends]))


@dataclasses.dataclass(frozen=True, eq=False)
class JobEnd:
    """The end of a job. x: (n,) or (n, k), where a solve ended with an outcome; why_no_x: a sentence where not."""

    info: JobInfo
    x: Floats | None
    why_no_x: str


# The dataclass of each message that results have.
_CLASSES: dict[str, type[Any]] = {
    'Occurrence': Occurrence, 'BuildQuality.Counted': Occurrence, 'Timings': Timings, 'Diagnosis': Diagnosis,
    'MatrixDigest': Digest, 'Matrix': MatrixInfo, 'EngineChoice': EngineChoice, 'FsaiQuality': FsaiQuality,
    'DynamicSpaiQuality': DynamicSpaiQuality, 'AmgQuality.AmgLevel': AmgLevel, 'AmgQuality': AmgQuality,
    'PetscQuality': PetscQuality,
    'Part': Part, 'BuildQuality': Quality, 'Preconditioner': PreconditionerInfo,
    'EstimateBuildResponse': BuildEstimate, 'Residual': Residual, 'Rung': Rung, 'Reuse': Reuse,
    'SolveFigures': SolveFigures, 'RhsOutcome': RhsOutcome, 'JobError': JobFailure, 'Job': JobInfo,
    'Device': DeviceInfo, 'Limits': Limits, 'QueueClass': QueueClass, 'EstimateRatio': EstimateRatio,
    'QueueInfo': QueueInfo, 'GetServerInfoResponse': ServerInfo}
# Fields that are None where the message does not have them; other messages are read as empty ones.
_OPTIONAL = {'fsai', 'dynamic_spai', 'amg', 'petsc', 'error', 'reuse'}


def _moment(value: Any) -> datetime.datetime | None:
    if value.seconds == 0 and value.nanos == 0:
        return None
    seconds = min(max(int(value.seconds), 0), 7 << 30)
    return _EPOCH + datetime.timedelta(seconds=seconds, microseconds=min(max(value.nanos, 0), 999_999_999) // 1000)


def _single(field: Any, value: Any) -> Any:
    if field.enum_type is not None:
        return _wire.enum_name(field.enum_type, value)
    if field.message_type is None:
        return value
    name = field.message_type.full_name
    if name == 'google.protobuf.Timestamp':
        return _moment(value)
    if name == 'google.protobuf.Duration':
        seconds = min(max(int(value.seconds), 0), 366 * 86400)
        return datetime.timedelta(seconds=seconds, microseconds=value.nanos // 1000)
    if name == 'spaid.v1.PreconditionerSpec':
        return _options_of(value)
    return read(_CLASSES[name.removeprefix('spaid.v1.')], value)


def _options_of(spec: Any) -> dict[str, Any]:
    """The options that are set, those of the engine's own message among them."""
    found: dict[str, Any] = {}
    for field, value in spec.ListFields():
        if field.message_type is not None and field.message_type.full_name.startswith('spaid.v1.'):
            found.update(_options_of(value))
        else:
            found[field.name] = _single(field, value)
    return found


def member(message: Any, name: str) -> Any:
    """A message's field as results have it."""
    field = message.DESCRIPTOR.fields_by_name[name]
    value = getattr(message, name)
    if _wire.is_repeated(field):
        if field.cpp_type == field.CPPTYPE_DOUBLE:
            return np.array(value, np.float64)
        return tuple(_single(field, one) for one in value)
    if field.message_type is not None and not message.HasField(name) and (
            name in _OPTIONAL or field.message_type.full_name == 'google.protobuf.Duration'):
        return None
    return _single(field, value)


def read(kind: type[_T], message: Any) -> _T:
    """A dataclass of these, from the message whose fields have its names."""
    return kind(**{field.name: member(message, field.name) for field in dataclasses.fields(kind)})
