/* The C interface of spaid: sparse systems solved, and approximate inverses built, by a daemon.
 * C89; for C++, Fortran (client/fortran/spaid.f90) and whatever else calls C.
 *
 *   spaid_client *client;
 *   spaid_system *a;
 *   int status = spaid_client_new(NULL, &client);
 *   if (status == 0)
 *     status = spaid_system_csr(client, n, row_ptr, 32, col_idx, 32, values, 0, &a);
 *   if (status == 0) status = spaid_solve(a, NULL, 1, b, NULL, x, NULL);
 *   if (status < 0) fprintf(stderr, "%s\n", spaid_last_error());
 *
 * A function that returns an int returns 0, or < 0: an error, minus gRPC's code
 * (SPAID_INVALID_ARGUMENT), which spaid_last_error tells in words; or, if it solves, > 0: an
 * outcome other than converged (SPAID_STAGNATED). Pointers to results are set to NULL where there
 * is none. A NULL where none may be is an error, and freeing NULL is none. Objects may be freed in
 * any order.
 *
 * Thread-safe: a client, options that nobody sets, reports and preconditioners serve many threads
 * at once, a system one (SYSTEM_BUSY else), but for spaid_cancel. Not fork-safe: make clients after
 * a fork. The ABI is kept (client/c/abi); new options and new figures do not change it.
 */
#ifndef SPAID_SPAID_H
#define SPAID_SPAID_H

#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif
#ifdef __cplusplus
extern "C" {
#endif

/* 64 bits, which C89 has by no other name: LP64 alone, as is checked here. An int64_t * is one. */
typedef long spaid_long;
typedef char spaid_long_has_64_bits[sizeof(long) == 8 && sizeof(int) == 4 ? 1 : -1];

typedef struct spaid_client spaid_client;
typedef struct spaid_options spaid_options;
typedef struct spaid_system spaid_system;
typedef struct spaid_preconditioner spaid_preconditioner;
typedef struct spaid_report spaid_report;

enum spaid_status {
  SPAID_UNAUTHENTICATED = -16,
  SPAID_DATA_LOSS = -15,
  SPAID_UNAVAILABLE = -14,
  SPAID_INTERNAL = -13,
  SPAID_UNIMPLEMENTED = -12,
  SPAID_OUT_OF_RANGE = -11,
  SPAID_ABORTED = -10,
  SPAID_FAILED_PRECONDITION = -9,
  SPAID_RESOURCE_EXHAUSTED = -8,
  SPAID_PERMISSION_DENIED = -7,
  SPAID_ALREADY_EXISTS = -6,
  SPAID_NOT_FOUND = -5,
  SPAID_DEADLINE_EXCEEDED = -4,
  SPAID_INVALID_ARGUMENT = -3,
  SPAID_UNKNOWN = -2,
  SPAID_STOPPED = -1, /* gRPC's CANCELLED: by spaid_cancel or by the progress function */
  SPAID_CONVERGED = 0,
  SPAID_MAX_ITERATIONS = 1,
  SPAID_STAGNATED = 2,
  SPAID_BREAKDOWN = 3,
  SPAID_INDEFINITE = 4,
  SPAID_NON_FINITE = 5,
  SPAID_TIME_LIMIT = 6,
  SPAID_CANCELLED = 7 /* the job, by others than this call: spaidctl cancel, the daemon's end */
};

/* Flags of spaid_system_csr and spaid_system_csc, to be added. */
enum spaid_flags {
  SPAID_ONE_BASED = 1,   /* pointers and indices begin at 1 */
  SPAID_COPY = 2,        /* copy the arrays, in place of borrowing them */
  SPAID_SORT_AND_SUM = 4 /* indices may be unsorted, and entries given twice are summed */
};

enum spaid_operation {
  SPAID_M = 0,
  SPAID_M_TRANSPOSED = 1,
  SPAID_G = 2, /* of a factored preconditioner, M = G'G */
  SPAID_G_TRANSPOSED = 3
};

/* News of a running call. Fields may be added at its end. */
typedef struct spaid_progress {
  const char* stage;      /* "queue", "upload", "plan", "build", "assemble", "solve", "download" */
  spaid_long done, total; /* of the stage; bytes of "upload" and "download" */
  int rhs;                /* whose residual this is; -1: no residual */
  spaid_long iteration;
  double relative_residual; /* |b - A x| / |b| by the method's recursion */
} spaid_progress;

/* Is called in the thread of the call. Returns 0, or else the call ends with SPAID_STOPPED. */
typedef int (*spaid_progress_function)(void* data, const spaid_progress* progress);

/* Returns the library's version, "0.1.0". */
const char* spaid_version(void);
/* Names a status: "converged", "max-iterations", "INVALID_ARGUMENT"; "unknown" of other numbers. */
const char* spaid_status_name(int status);

/* Tells the error of the last call in this thread that returned < 0: what, where, and the cure; ""
 * if there was none. Both texts last until this thread's next error. */
const char* spaid_last_error(void);
/* Tells a detail of it, or NULL: "reason" ("INDEX_OUT_OF_RANGE": stable, for programs), "field"
 * (the argument or option at fault), "retry-after-ms", and what else came along: "index", "limit",
 * "handle". */
const char* spaid_last_error_detail(const char* name);

/* Makes options with their defaults. The address is $SPAID_ADDRESS, else 127.0.0.1:7433; the token
 * $SPAID_TOKEN. */
int spaid_options_new(spaid_options** options);
/* Sets an option by its name in spaidctl, without the dashes: "engine", "k-max", "rtol", "method",
 * "reuse", "timeout". Values are texts as there; of flags "true" or "false". Errors: UNKNOWN_OPTION
 * (lists all names), BAD_OPTION (says what it must be), and nothing is changed. */
int spaid_options_set(spaid_options* options, const char* name, const char* value);
void spaid_options_free(spaid_options* options);

/* Makes a client by "address", "tls-ca", "tls-cert", "tls-key", "token", "tenant" and
 * "local-socket"; NULL: the defaults. Connects with the first call that needs it. */
int spaid_client_new(const spaid_options* options, spaid_client** client);
void spaid_client_free(spaid_client* client);
/* Asks the daemon who it is: a report with the names of `spaidctl info --json`, and whether memory
 * is shared with it: "local.available", "local.why" not, "local.shared_bytes",
 * "local.fallback_bytes" so far. */
int spaid_client_info(spaid_client* client, spaid_report** report);
/* Allocates memory, zero at first, which a daemon on this host reads and writes where it lies, if
 * "local-socket" is set; without such a daemon it is sent like any other. Worth while from some
 * hundred KiB on. Freed by spaid_release or with the client and its systems. */
int spaid_allocate(spaid_client* client, spaid_long bytes, void** memory);
int spaid_release(spaid_client* client, void* memory);

/* Makes a system of a square matrix of n rows by its n + 1 pointers and its indices, both of 32 or
 * 64 bits, and its values, by rows (CSR) or by columns (CSC). Nothing is sent yet. The arrays are
 * borrowed until the system is freed, unless flags have SPAID_COPY: the pattern must not change, of
 * other values spaid_system_set_values is told. Indices of 64 bits, and 1-based arrays, are copied
 * to 32 bits, 0-based. Errors: INDEX_OUT_OF_RANGE, BAD_POINTERS, SIZE_MISMATCH. */
int spaid_system_csr(spaid_client* client, spaid_long n, const void* row_ptr, int ptr_bits,
                     const void* col_idx, int idx_bits, const double* values, int flags,
                     spaid_system** system);
int spaid_system_csc(spaid_client* client, spaid_long n, const void* col_ptr, int ptr_bits,
                     const void* row_idx, int idx_bits, const double* values, int flags,
                     spaid_system** system);
/* Takes other values on the same pattern, entry for entry; they alone are sent. Borrowed or copied
 * as the first ones. */
int spaid_system_set_values(spaid_system* system, const double* values);
/* Takes count vectors z with A z = 0, n * count numbers by columns, which solves project out; 0: as
 * the option "null-space" says. Copied. */
int spaid_system_set_null_vectors(spaid_system* system, int count, const double* vectors);
/* Takes vectors for engine "amg", which alone reads them: `count` that A nearly maps to zero, n *
 * count numbers by columns; or the coordinates of the nodes, 2 or 3 (`count`), n numbers in all,
 * those of the first direction before those of the next. The later of the two calls counts; 0:
 * what the options name. Copied, and sent with the first call that needs them. */
int spaid_system_set_near_null_space(spaid_system* system, int count, const double* vectors);
int spaid_system_set_coordinates(spaid_system* system, int count, const double* coordinates);
/* Calls `function` with `data` while calls on this system run; NULL: no more. */
int spaid_system_set_progress(spaid_system* system, spaid_progress_function function, void* data);
void spaid_system_free(spaid_system* system);

/* Solves A X = B for rhs_count right-hand sides, n * rhs_count numbers by columns, beginning with
 * `guess`, as many, or NULL: 0. `guess` may be x. x has the best iterate of each, unless an error
 * is returned: then it is undefined. Returns 0 if all converged, else the outcome of the first that
 * did not. What the daemon knows already is not sent; with a named "engine" M of the solves before
 * serves on, as "reuse" says (its default here is "auto"). `options` may be NULL: the defaults;
 * those of the connection are not looked at. `report`: NULL, or is set to a new one. */
int spaid_solve(spaid_system* system, const spaid_options* options, int rhs_count, const double* b,
                const double* guess, double* x, spaid_report** report);
/* Builds M for the present values, which the next solve with these options begins with, and brings
 * it here, unless `preconditioner` is NULL; of engine "amg", whose M is a cycle and no array, it
 * must be (PART_NEEDED). `report`: as of spaid_solve. */
int spaid_build(spaid_system* system, const spaid_options* options,
                spaid_preconditioner** preconditioner, spaid_report** report);
/* Ends the call that another thread has running on this system: it returns SPAID_STOPPED. Nothing
 * happens where none is running. Not for signal handlers. */
int spaid_cancel(spaid_system* system);

/* Gives M, or G if *is_factor (M = G'G, G lower triangular), by columns: n + 1 pointers, (*ptr)[n]
 * sorted indices, values; 0-based. Any of the last five may be NULL. The arrays are the
 * preconditioner's. */
int spaid_preconditioner_csc(const spaid_preconditioner* preconditioner, spaid_long* n,
                             const spaid_long** ptr, const int** idx, const double** values,
                             int* is_factor);
/* Multiplies count vectors, n * count numbers by columns: y = M x, or as `operation` says, in this
 * thread alone. x and y do not overlap. Errors: NOT_A_FACTOR. */
int spaid_apply(const spaid_preconditioner* preconditioner, int operation, int count,
                const double* x, double* y);
void spaid_preconditioner_free(spaid_preconditioner* preconditioner);

/* Returns how the solve of right-hand side rhs (from 0) ended, < 0: there is none. */
int spaid_report_outcome(const spaid_report* report, int rhs);
/* Returns its iterations, < 0: there is none. */
spaid_long spaid_report_iterations(const spaid_report* report, int rhs);
/* Returns its |b - A x| / |b|, formed anew at the end, < 0: there is none. */
double spaid_report_residual(const spaid_report* report, int rhs);
/* Returns how many residuals were reported of it, < 0: there is none. The first `capacity` of them
 * go to the arrays, either of which may be NULL. */
spaid_long spaid_report_history(const spaid_report* report, int rhs, spaid_long capacity,
                                spaid_long* iterations, double* residuals);
/* Gives a figure or a text by its name, which is its path in spaidctl's JSON ("total_ms",
 * "figures.iterate_ms", "rhs.0.true_residual", "quality.density"; "engine", "reuse.reason"). True
 * and false are 1 and 0. Texts last as long as the report. Errors: UNKNOWN_NAME. */
int spaid_report_number(const spaid_report* report, const char* name, double* value);
int spaid_report_text(const spaid_report* report, const char* name, const char** text);
/* Returns the k-th name (from 0), or NULL: there are no more. */
const char* spaid_report_name(const spaid_report* report, spaid_long k);
void spaid_report_free(spaid_report* report);

#ifdef __cplusplus
}
#endif
#ifdef __GNUC__
#pragma GCC visibility pop
#endif

#endif
