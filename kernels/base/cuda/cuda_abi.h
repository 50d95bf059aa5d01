// The C interface between the programs and libspaid_cuda.so. Plain C types only: the two sides may
// be built by different compilers. Any change beyond comments raises kSpaidCudaAbiVersion.
//
// Objects are made by the library and given back to it. Those of one context may be used by one
// thread at a time; list_devices is thread-safe. Every function that returns a SpaidCudaResult
// writes a text for people into `message` where that is not kSpaidCudaOk.
#pragma once

#include <stddef.h>
#include <stdint.h>

extern "C" {

enum { kSpaidCudaAbiVersion = 17 };

struct SpaidCudaDevice {
  int32_t ordinal;
  int32_t compute_capability_major;
  int32_t compute_capability_minor;
  int64_t memory_bytes;  // total
  char name[256];        // NUL-terminated
  char uuid[48];         // "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx", NUL-terminated
};

enum SpaidCudaResult {
  kSpaidCudaOk = 0,
  kSpaidCudaNoDriver = 1,  // no driver, or one that is older than the runtime needs
  kSpaidCudaNoDevice = 2,
  kSpaidCudaError = 3,         // `message` has CUDA's own words
  kSpaidCudaOutOfMemory = 4,   // of the context's limit, or of the device
  kSpaidCudaDeviceLost = 5,    // an error after which the device answers nothing more
  kSpaidCudaStopped = 6,       // the progress callback asked for it
  kSpaidCudaPlanMismatch = 7,  // the matrix has not the plan's pattern
  kSpaidCudaPatternTooLarge = 8,
};

typedef struct SpaidCudaContext SpaidCudaContext;  // a device, with its stream and memory
typedef struct SpaidCudaMatrix SpaidCudaMatrix;
typedef struct SpaidCudaPlan SpaidCudaPlan;
typedef struct SpaidCudaM SpaidCudaM;                // a built preconditioner
typedef struct SpaidCudaG SpaidCudaG;                // a factor of FSAI
typedef struct SpaidCudaPattern SpaidCudaPattern;    // of one
typedef struct SpaidCudaOperator SpaidCudaOperator;  // what a vector is multiplied by
typedef struct SpaidCudaSolve SpaidCudaSolve;        // right-hand sides on their way

// Calls work(caller, i) once for each i < count, on as many threads of the host as it likes: each i
// is begun after all lower ones have been. Returns when all have. `work` does not throw, and may
// wait for the work of lower i.
typedef void (*SpaidCudaOnThreads)(int64_t count, void (*work)(void* caller, int64_t i),
                                   void* caller);

// Up to which sizes one variant of a kernel takes what the next one could take, too. What is over
// the first one's memory is the next one's, whatever these say. And which layouts are left out.
struct SpaidCudaVariants {
  // Find J: a column of a power by a warp, by the elements of its lists; else by a block, and
  // then by a bitmap of n bits in shared memory where that has at most so many words for each
  // entry.
  int32_t union_warp_elements, union_bitmap_words;
  // Find I: the table of a local problem in the registers of a warp, in its shared memory, by the
  // entries of Â; else by a block.
  int32_t table_register_entries, table_warp_entries;
  // Gram matrix, factor, solve: a thread a local problem, by |J|; else a warp.
  int32_t lane_columns;
  // Operators whose entries take at most so many bytes by rows are laid out so, those of few
  // diagonals or of nodes, too; and solves with such operators alone run several iterations in one
  // persistent kernel: within shared memory (kernels/krylov/cuda/persistent_smem_block.h), or else
  // (fused_steps.h) where all of its blocks fit on the device at once.
  int64_t rows_bytes;
};

// A canonical square CSC matrix on the host.
struct SpaidCudaCsc {
  int64_t n;
  int64_t nnz;
  const int64_t* col_ptr;  // n + 1
  const int32_t* row_idx;  // nnz
  const double* values;    // nnz; null: a pattern
};

// The part of a whole M or G that one of several devices makes: columns, or rows, [begin, end), at
// least one. They get the bits that one device gives them, but where static_spai_cuda.h says
// otherwise. A null pointer: all of them.
struct SpaidCudaRange {
  int64_t begin, end;
};

// PatternOptions (kernels/sparse/pattern.h), made ready for the device.
struct SpaidCudaPatternOptions {
  double keep_tau;       // < 0: none. Not read with a pattern of the user
  int32_t power;         // >= 1
  int32_t ensure_row;    // not 0: yes
  const int32_t* match;  // n: the column matched to each row, a permutation; null: none
  int64_t max_nnz;       // over it: kSpaidCudaPatternTooLarge, `nnz_m` entries at least; 0: none
  // Called between waves of columns; may be null. Not 0: stop.
  int32_t (*stopped)(void* caller);
  void* caller;
};

struct SpaidCudaPlanInfo {
  int64_t nnz_m;         // of the whole M
  int64_t first_entry;   // where the entries of the plan's columns begin in that
  int64_t entries;       // of the plan's columns
  int64_t groups;        // of columns with equal J
  int64_t structures;    // kinds of local problems
  int64_t host_groups;   // too large for the Gram kernels: left to the host
  int64_t device_bytes;  // that the plan holds
  int64_t peak_bytes;    // of the context while it was made
  double ms;             // by the device's clock
  double pattern_ms;     // of those, for the pattern of M
  int64_t table_bytes;   // of the gather tables of all structures
  int32_t in_waves;      // not 0: those have no room, and each build makes them in waves of groups
  int32_t of_a;          // not 0: M has the pattern of A, which the host has
};

struct SpaidCudaBuildOptions {
  double pivot_limit;       // scaled pivot at or under which a group is left to the host
  double post_filter;       // small entries of M become zeros, and are left out where `compacted`
  int32_t local_solver;     // LocalSolver (static_spai.h): 0 AUTO, 1 QR, 2 GRAM
  int32_t thread_strategy;  // ThreadStrategy (thread_groups.h), of the QR kernels
  // Called between waves of groups; may be null. Not 0: stop.
  int32_t (*progress)(void* caller, int64_t done, int64_t total);
  void* caller;
};

struct SpaidCudaBuildInfo {
  double ms;  // by the device's clock
  int64_t peak_bytes;
  int64_t nnz_m;  // entries of M on the device
  // Not 0: M has a pattern of its own (download_m_pattern), after the post-filter; 0: the plan's.
  // So where the post-filter is not 0, the plan is for all columns, none is left to the host, and
  // memory suffices.
  int32_t compacted;
  // Where QR was asked for: what the thread groups of problems with at most 128 columns took and
  // were predicted to take, and the ThreadStrategy that was chosen.
  double qr_ms, predicted_qr_ms;
  int32_t thread_strategy;
  int64_t rescued_groups;  // that the Gram path gave up and QR solved, or left to the host
};

// FSAI (kernels/fsai/fsai.h), whose options these are.
struct SpaidCudaFsaiOptions {
  int32_t grow;  // not 0: adaptive; 0: on the given pattern
  int32_t k_max, per_step;
  double epsilon, min_gain, post_filter, symmetry_tolerance;
  int32_t fp32;  // not 0: set-up in fp32
  int32_t repeat_hash_bits;
  double*
      log_ratios;  // k_max + 1: means of ln(ψ_i / a_ii) after 0 .. k_max steps; null: not wanted
  // Called between launches of rows; may be null. Not 0: stop.
  int32_t (*progress)(void* caller, int64_t done, int64_t total);
  void* caller;
};

enum SpaidCudaFsaiFault {
  kSpaidCudaFsaiNoFault = 0,
  kSpaidCudaFsaiNotPositive = 1,  // a diagonal entry is missing, or not positive
  // A column has an entry without a mirror, or with another one than it in the tolerance.
  kSpaidCudaFsaiNotSymmetric = 2,
};

struct SpaidCudaFsaiInfo {
  int32_t fault;        // SpaidCudaFsaiFault: of A; there is no G
  int64_t fault_index;  // the first row, or column
  double ms;            // by the device's clock
  int64_t peak_bytes;
  int64_t nnz;      // of the rows made
  int32_t longest;  // row of G
  int32_t steps;
  int32_t waves;  // of rows, as memory allows
  // Mean of ln(ψ_i / a_ii) in the end. For a range, as log_ratios: the sum over its rows by the
  // number of all.
  double log_ratio;
  int64_t not_spd_rows, first_not_spd, converged_rows;
  int64_t copied_rows;
  int64_t slow_rows;  // not copied, too large for shared memory; without entries: the host's
  double flops;       // of the products with L
};

// The growth of dynamic SPAI's pattern (kernels/dynamic_spai/dynamic_spai.h), whose options these
// are.
struct SpaidCudaDynamicOptions {
  double tol;
  int32_t max_steps, per_step, max_column_nnz;
  int32_t fp32;  // not 0: growth in fp32
  int32_t repeat_hash_bits;
  double* log_ratios;  // max_steps + 1: means of ln ‖r‖² after 0 .. max_steps steps; null: unwanted
  // Called between launches of columns; may be null. Not 0: stop.
  int32_t (*progress)(void* caller, int64_t done, int64_t total);
  void* caller;
};

struct SpaidCudaDynamicInfo {
  double ms;       // by the device's clock
  double gram_ms;  // of those, for AᵀA
  int64_t peak_bytes;
  int64_t gram_nnz;  // of AᵀA
  int64_t nnz;       // of the columns grown
  int32_t longest;   // of them
  int32_t waves;     // of columns, as memory allows
  int64_t converged_columns, copied_columns, slow_columns;
  int64_t dependent_columns, first_dependent;
  int64_t host_columns;  // whose only row is −1: the host's
  double flops;
};

// How a segment of a solve ended (SpaidCudaSolveInfo). Residuals are the recursion's.
enum SpaidCudaSolveStatus {
  kSpaidCudaSolveRunning = 0,      // on the device only
  kSpaidCudaSolvePaused = 1,       // after all iterations that were asked for
  kSpaidCudaSolveUnderTarget = 2,  // the residual is
  kSpaidCudaSolveNonFinite = 3,    // the residual is not
  // CG; `value`: that product.
  kSpaidCudaSolveIndefiniteM = 4,  // rᵀMr <= 0
  kSpaidCudaSolveIndefiniteA = 5,  // pᵀAp <= 0
  kSpaidCudaSolveNonFiniteM = 6,
  kSpaidCudaSolveNonFiniteA = 7,
  // BiCGSTAB. After a half step x has its part along p alone, and the residual is s.
  kSpaidCudaSolveHalfStep = 8,       // s is under the target
  kSpaidCudaSolveOmegaVanished = 9,  // after a half step
  kSpaidCudaSolveRhoVanished = 10,
  kSpaidCudaSolveAlphaVanished = 11,  // its denominator
  kSpaidCudaSolvePOverflowed = 12,
  kSpaidCudaSolveDiverged = 13,  // the residual grew by 1/eps over the best
  kSpaidCudaSolveNonFiniteAMr = 14,
  kSpaidCudaSolveNonFiniteS = 15,
  kSpaidCudaSolveNonFiniteAMs = 16,
  kSpaidCudaSolveNonFiniteBeta = 17,
  // GMRES. A cycle ends where its columns are as many as `restart`, and where a segment is neither
  // paused nor running; x has its update then, or when the true residual is asked for.
  kSpaidCudaSolveExhausted = 18,  // the Krylov space is
  kSpaidCudaSolveNonFiniteAMv = 19,
};

// The start of a recursion from a residual.
struct SpaidCudaSolveStart {
  double target;        // on the norm of the residual
  double norm;          // of the residual that it starts from
  double best_norm;     // of the iterate that is kept as the best; infinite: none
  double initial_norm;  // of the initial guess
  // BiCGSTAB: not 0: the shadow residual gets a noise of that number, of the residual's size.
  int32_t round;
};

struct SpaidCudaSolveInfo {
  int32_t status;      // SpaidCudaSolveStatus
  int32_t iterations;  // of this segment
  double value;
  double best_norm;  // of the iterate that is kept
  double last_norm;  // of the recursion
  // That its products and vector passes moved at the least; of what columns share, the one with the
  // most iterations has all.
  double bytes;
};

struct SpaidCudaSolveOptions {
  // Called between batches of iterations with the residual norms of a column's new ones; may be
  // null. Not 0: stop after those that are under way.
  int32_t (*progress)(void* caller, int32_t column, const double* norms, int32_t count);
  void* caller;
};

enum { kSpaidCudaMostColumns = 4 };

struct SpaidCudaInterface {
  uint32_t abi_version;  // kSpaidCudaAbiVersion of the library's build
  uint32_t struct_size;  // sizeof(SpaidCudaInterface) of the library's build
  // Writes at most `capacity` devices, their true number into `count`, and CUDA versions as 1000
  // major + 10 minor (driver_version 0: no driver).
  int32_t (*list_devices)(struct SpaidCudaDevice* devices, int32_t capacity, int32_t* count,
                          int32_t* driver_version, int32_t* runtime_version, char* message,
                          size_t message_size);

  // `memory_limit`: bytes that all objects of the context may take together; 0: the whole device.
  // `on_threads`: large arrays of the host on their way to or from the device are copied so; null:
  // by the driver's one thread.
  // `variants`: null: as measured.
  int32_t (*open_context)(int32_t ordinal, int64_t memory_limit, SpaidCudaOnThreads on_threads,
                          const struct SpaidCudaVariants* variants, SpaidCudaContext** context,
                          char* message, size_t message_size);
  void (*close_context)(SpaidCudaContext* context);  // its objects must be gone
  int64_t (*used_bytes)(const SpaidCudaContext* context);
  // A small piece of work, waited for: whether the device still answers.
  int32_t (*probe)(SpaidCudaContext* context, char* message, size_t message_size);
  // The median of some copies of `bytes` within the device's memory, by its clock; takes twice as
  // much of it meanwhile.
  int32_t (*time_copy)(SpaidCudaContext* context, int64_t bytes, double* ms_median, char* message,
                       size_t message_size);

  // Where `csc` is a pattern, there is room for values all the same (upload_values).
  int32_t (*upload_matrix)(SpaidCudaContext* context, const struct SpaidCudaCsc* csc,
                           SpaidCudaMatrix** matrix, char* message, size_t message_size);
  // New values (nnz of them) for a matrix whose pattern stays.
  int32_t (*upload_values)(SpaidCudaMatrix* matrix, const double* values, char* message,
                           size_t message_size);
  void (*free_matrix)(SpaidCudaMatrix* matrix);

  // Patterns of columns of M that dynamic SPAI grows (`columns`; null: all), for free_pattern.
  // `initial`: of each column itself, then what else it begins with, as that joins; null: itself.
  // Every column of A must have a value other than 0. Where AᵀA has no room it is
  // kSpaidCudaPatternTooLarge, and info->gram_nnz how many entries AᵀA has at least.
  int32_t (*grow_dynamic_spai)(const SpaidCudaMatrix* a, const struct SpaidCudaCsc* initial,
                               const struct SpaidCudaDynamicOptions* options,
                               const struct SpaidCudaRange* columns, SpaidCudaPattern** grown,
                               struct SpaidCudaDynamicInfo* info, char* message,
                               size_t message_size);
  // One more pointers than columns, from 0 on, and info->nnz rows.
  int32_t (*download_grown)(const SpaidCudaPattern* grown, int64_t* col_ptr, int32_t* row_idx,
                            char* message, size_t message_size);

  // The plan of static SPAI, which `matrix` must outlive: where M has A's pattern, the plan has
  // no copy of it. `base`: of the pattern of M in place of A's; may be null.
  // `base_there`: the same on the device (of all columns); null: it is uploaded. A threshold reads
  // A's values. Every column of A must have an entry. `local_solver` (LocalSolver): of the
  // builds to come; where it is not QR, matrices of few diagonals get no plan for that until a
  // build asks for one. `columns`: that builds compute, with room for all of M all the same.
  int32_t (*plan_static_spai)(SpaidCudaMatrix* matrix, const struct SpaidCudaCsc* base,
                              const SpaidCudaPattern* base_there,
                              const struct SpaidCudaPatternOptions* pattern, int32_t local_solver,
                              const struct SpaidCudaRange* columns, SpaidCudaPlan** plan,
                              struct SpaidCudaPlanInfo* info, char* message, size_t message_size);
  void (*free_plan)(SpaidCudaPlan* plan);
  // The plan's columns in the pattern of M: their pointers, from first_entry on (behind those of
  // the last columns stands nnz_m), and the rows of their entries.
  int32_t (*download_pattern)(const SpaidCudaPlan* plan, int64_t* col_ptr, int32_t* row_idx,
                              char* message, size_t message_size);

  int32_t (*build_static_spai)(SpaidCudaPlan* plan, const SpaidCudaMatrix* matrix,
                               const struct SpaidCudaBuildOptions* options, SpaidCudaM** m,
                               struct SpaidCudaBuildInfo* info, char* message, size_t message_size);
  void (*free_m)(SpaidCudaM* m);
  // n + 1 pointers and nnz_m rows of an M that is compacted.
  int32_t (*download_m_pattern)(const SpaidCudaM* m, int64_t* col_ptr, int32_t* row_idx,
                                char* message, size_t message_size);
  // The values of the plan's columns, or of an M that is compacted, and for each column
  // ‖A m_k − e_k‖₂, the smallest scaled pivot, and flags (ColumnFlag); 0: the column is left to the
  // host, its other figures are worth nothing.
  int32_t (*download_m)(const SpaidCudaM* m, double* values, double* residual_norms, double* pivots,
                        uint8_t* flags, char* message, size_t message_size);
  // Frees all of it but the values, and the pattern where that is its own: download_m then gives
  // the values alone.
  void (*trim_m)(SpaidCudaM* m);

  // Lower triangular by rows, each row's diagonal last: for builds to come.
  int32_t (*upload_pattern)(SpaidCudaContext* context, const struct SpaidCudaCsc* pattern,
                            SpaidCudaPattern** there, char* message, size_t message_size);
  // G's own, which the two share.
  SpaidCudaPattern* (*pattern_of_g)(const SpaidCudaG* g);
  void (*free_pattern)(SpaidCudaPattern* there);
  // `pattern`: as of upload_pattern; G's, or where options->grow is not 0 where growth begins: null
  // is the diagonal then. `there`: the same on the device; null: it is uploaded. There is no `g`
  // where info->fault is set. `rows`: that are made; such a G serves download_g alone.
  int32_t (*build_fsai)(const SpaidCudaMatrix* matrix, const struct SpaidCudaCsc* pattern,
                        const SpaidCudaPattern* there, const struct SpaidCudaFsaiOptions* options,
                        const struct SpaidCudaRange* rows, SpaidCudaG** g,
                        struct SpaidCudaFsaiInfo* info, char* message, size_t message_size);
  void (*free_g)(SpaidCudaG* g);
  // G by rows, the diagonal last: one more pointers than rows, from 0 on, nnz columns and values;
  // ψ_i / a_ii of the rows.
  int32_t (*download_g)(const SpaidCudaG* g, int64_t* row_ptr, int32_t* col_idx, double* values,
                        double* psi_ratio, char* message, size_t message_size);
  // The same G by columns, which the device makes for it, with 20 bytes an entry.
  int32_t (*download_g_columns)(const SpaidCudaG* g, int64_t* col_ptr, int32_t* row_idx,
                                double* values, char* message, size_t message_size);
  // Frees ψ: download_g is over then.
  void (*trim_g)(SpaidCudaG* g);

  // Operators hold copies: what they were made from may be freed. `fp32`: not 0: values are stored
  // in fp32, and those beyond its range as infinities; arithmetic is fp64 all the same.
  // `symmetric`: not 0: A = Aᵀ entry by entry.
  int32_t (*operator_of_matrix)(const SpaidCudaMatrix* matrix, int32_t symmetric, int32_t fp32,
                                SpaidCudaOperator** op, char* message, size_t message_size);
  // Columns that were left to the host are zero. The plan, which is for all columns, must still be
  // there where M is not compacted.
  int32_t (*operator_of_m)(const SpaidCudaM* m, int32_t fp32, SpaidCudaOperator** op, char* message,
                           size_t message_size);
  // G; `transposed` not 0: Gᵀ.
  int32_t (*operator_of_g)(const SpaidCudaG* g, int32_t transposed, int32_t fp32,
                           SpaidCudaOperator** op, char* message, size_t message_size);
  // y_i = d_i x_i, with d on the host.
  int32_t (*operator_of_diagonal)(SpaidCudaContext* context, int64_t n, const double* diagonal,
                                  SpaidCudaOperator** op, char* message, size_t message_size);
  void (*free_operator)(SpaidCudaOperator* op);
  // The values of `matrix`, which has the pattern that the operator was made of, in place of the
  // operator's. Not for diagonals.
  int32_t (*update_operator)(SpaidCudaOperator* op, const SpaidCudaMatrix* matrix, char* message,
                             size_t message_size);
  // y = A x, both on the host.
  int32_t (*apply_operator)(const SpaidCudaOperator* op, const double* x, double* y, char* message,
                            size_t message_size);
  // The median of so many products by the device's clock (1 or more), each alone, and the bytes
  // that one must move at the least.
  int32_t (*time_operator)(const SpaidCudaOperator* op, int32_t products, double* ms_median,
                           int64_t* bytes_per_product, char* message, size_t message_size);

  // Right-hand sides that one solve takes, at most: 1 where it runs within shared memory, and with
  // GMRES. Does not change as long as the operators stay; `m` may be null.
  int32_t (*most_columns)(const SpaidCudaOperator* a, const SpaidCudaOperator* m, int32_t method);
  // Right-hand sides by a Krylov method (Method of krylov.h), each a column, as many as `columns`:
  // 1, 2 or 4, no more than most_columns says; each has its own scalars, and what it gives does not
  // depend on the others, bit for bit. `b`: where each is. x is set to the initial guesses: `x0`,
  // null, or of a column: zero. `a` is no diagonal; `m` may be null. `then` not null: the
  // preconditioner is then · m, of which neither is a diagonal. All must stay as long as the solve.
  // `restart`: of GMRES, at most n.
  int32_t (*open_solve)(const SpaidCudaOperator* a, const SpaidCudaOperator* m,
                        const SpaidCudaOperator* then, int32_t method, int32_t restart,
                        int32_t columns, const double* const* b, const double* const* x0,
                        SpaidCudaSolve** solve, char* message, size_t message_size);
  void (*free_solve)(SpaidCudaSolve* solve);
  // ‖b − A x‖, or, `of_best` not 0, of the best iterate that was kept. `adopt` not 0: the next
  // recursion starts from that residual. Squares that are no longer in the range of fp64 give 0 or
  // an infinity.
  int32_t (*true_residual)(SpaidCudaSolve* solve, int32_t column, int32_t of_best, int32_t adopt,
                           double* norm, char* message, size_t message_size);
  int32_t (*begin_solve)(SpaidCudaSolve* solve, int32_t column,
                         const struct SpaidCudaSolveStart* start, char* message,
                         size_t message_size);
  // At most limits[v] iterations of column v, of 128 at most; x is that of the last one (GMRES: of
  // the last cycle). 0: the column stands still, and its info says nothing. One that is over waits
  // for the others. Without a wait of the device for the host. `ms`: by the device's clock.
  int32_t (*advance_solve)(SpaidCudaSolve* solve, const int32_t* limits,
                           const struct SpaidCudaSolveOptions* options,
                           struct SpaidCudaSolveInfo* infos, double* ms, char* message,
                           size_t message_size);
  // x becomes the best iterate; `of_best` 0: the initial guess.
  int32_t (*restore_solve)(SpaidCudaSolve* solve, int32_t column, int32_t of_best, char* message,
                           size_t message_size);
  // Where each column goes; null: nowhere.
  int32_t (*download_x)(SpaidCudaSolve* solve, double* const* x, char* message,
                        size_t message_size);
};

// The one symbol of the library: SPAID_CUDA_ENTRY_POINT. The result lives as long as the library.
typedef const struct SpaidCudaInterface* (*SpaidCudaEntryPoint)(void);
#define SPAID_CUDA_ENTRY_POINT "spaid_cuda_interface"

}  // extern "C"
