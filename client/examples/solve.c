/* Heat in a bar whose ends are held at two temperatures, in C89: one system by rows, two right-hand
 * sides, a preconditioner that is used here, and what to do with errors and outcomes.
 *
 *   spaid_example_solve 127.0.0.1:7433 [POINTS]
 */
#include <math.h>
#include <spaid/spaid.h>
#include <stdio.h>
#include <stdlib.h>

/* -u'' = 0 on n points between two walls: rows -1 2 -1. */
typedef struct {
  int n;
  int *row_ptr, *col_idx;
  double* values;
} bar;

static int make_bar(int n, bar* a) {
  int row, nnz = 0;
  a->n = n;
  a->row_ptr = malloc((n + 1) * sizeof *a->row_ptr);
  a->col_idx = malloc(3 * n * sizeof *a->col_idx);
  a->values = malloc(3 * n * sizeof *a->values);
  if (!a->row_ptr || !a->col_idx || !a->values) return 0;
  for (row = 0; row < n; row++) {
    int column;
    a->row_ptr[row] = nnz;
    for (column = row - 1; column <= row + 1; column++) {
      if (column < 0 || column >= n) continue;
      a->col_idx[nnz] = column;
      a->values[nnz++] = column == row ? 2 : -1;
    }
  }
  a->row_ptr[n] = nnz;
  return 1;
}

static void free_bar(bar* a) {
  free(a->row_ptr);
  free(a->col_idx);
  free(a->values);
}

static int show(void* data, const spaid_progress* news) {
  (void)data;
  if (news->rhs == 0 && news->iteration % 100 == 0) {
    printf("  iteration %ld: %.1e\n", news->iteration, news->relative_residual);
  }
  return 0; /* anything else stops the solve */
}

/* The walls have the temperatures 0 and 1, then 1 and 3: u is the line between them. */
static double line(int k, int i, int n) {
  const double at = (i + 1.0) / (n + 1.0);
  return k == 0 ? at : 1 + 2 * at;
}

static int solve(spaid_system* system, const spaid_options* options, int n) {
  double *const b = calloc(2 * n, sizeof *b), *const x = malloc(2 * n * sizeof *x);
  spaid_report* report = NULL;
  const char* method = "";
  double worst = 0;
  int status, k, i;
  if (!b || !x) return SPAID_RESOURCE_EXHAUSTED;
  b[n - 1] = 1;
  b[n] = 1;
  b[2 * n - 1] = 3;
  status = spaid_solve(system, options, 2, b, NULL, x, &report);
  if (status >= 0) {
    spaid_report_text(report, "method", &method);
    for (k = 0; k < 2; k++) {
      for (i = 0; i < n; i++) {
        const double error = fabs(x[k * n + i] - line(k, i, n));
        if (error > worst) worst = error;
      }
      printf("right-hand side %d: %s after %ld iterations of %s, residual %.1e\n", k,
             spaid_status_name(spaid_report_outcome(report, k)), spaid_report_iterations(report, k),
             method, spaid_report_residual(report, k));
    }
    printf("largest error %.1e\n", worst);
    if (status == 0 && worst > 1e-6) status = SPAID_UNKNOWN;
  }
  spaid_report_free(report);
  free(b);
  free(x);
  return status;
}

/* Builds M and says how near M A is to the identity: for one unit vector. */
static int look_at_m(spaid_system* system, const spaid_options* options, const bar* a) {
  spaid_preconditioner* m = NULL;
  const spaid_long* ptr = NULL;
  double *const column = calloc(a->n, sizeof *column), *const y = malloc(a->n * sizeof *y);
  int status = spaid_build(system, options, &m, NULL), is_factor = 0, p;
  const int middle = a->n / 2;
  if (status == 0) status = spaid_preconditioner_csc(m, NULL, &ptr, NULL, NULL, &is_factor);
  if (status == 0 && column && y) {
    /* A is symmetric: its row is its column. */
    for (p = a->row_ptr[middle]; p < a->row_ptr[middle + 1]; p++) {
      column[a->col_idx[p]] = a->values[p];
    }
    status = spaid_apply(m, SPAID_M, 1, column, y);
    if (status == 0) {
      printf("%s has %ld entries; (M A e)[%d] = %.3f\n", is_factor ? "G" : "M", ptr[a->n], middle,
             y[middle]);
    }
  }
  free(column);
  free(y);
  spaid_preconditioner_free(m);
  return status;
}

int main(int argc, char** argv) {
  const int n = argc > 2 ? atoi(argv[2]) : 1000;
  spaid_options* options = NULL;
  spaid_client* client = NULL;
  spaid_system* system = NULL;
  bar a = {0, NULL, NULL, NULL};
  int status;
  if (argc < 2 || n < 1 || !make_bar(n, &a)) {
    fprintf(stderr, "usage: %s ADDRESS [POINTS]\n", argv[0]);
    return 2;
  }
  status = spaid_options_new(&options);
  if (status == 0) status = spaid_options_set(options, "address", argv[1]);
  if (status == 0) status = spaid_options_set(options, "engine", "fsai");
  if (status == 0) status = spaid_options_set(options, "rtol", "1e-10");
  if (status == 0) status = spaid_client_new(options, &client);
  if (status == 0) {
    status = spaid_system_csr(client, n, a.row_ptr, 32, a.col_idx, 32, a.values, 0, &system);
  }
  if (status == 0) status = look_at_m(system, options, &a);
  if (status == 0) status = spaid_system_set_progress(system, show, NULL);
  if (status == 0) status = solve(system, options, n);
  if (status < 0) {
    const char* const reason = spaid_last_error_detail("reason");
    fprintf(stderr, "%s (%s): %s\n", spaid_status_name(status), reason ? reason : "no reason",
            spaid_last_error());
  }
  spaid_system_free(system);
  spaid_client_free(client);
  spaid_options_free(options);
  free_bar(&a);
  return status == 0 ? 0 : 1;
}
