// Reports: figures and texts by the names of spaidctl's JSON.
#include <algorithm>
#include <chrono>
#include <iterator>
#include <string>
#include <type_traits>

#include "client/c/last_error.h"
#include "client/c/objects.h"

using spaid::Code;
using spaid::c::Fail;
using spaid::c::Guard;
using spaid::c::RequireAll;

namespace spaid::c {
namespace {

template <class T>
constexpr bool kHasFields = requires(const T& t) {
  T::Fields(t, [](const char*, const auto&) {});
};

// Adds a value of any kind; a struct by its Fields, a list by its indices, nothing where it is
// empty.
template <class T>
void Add(Figures& to, const std::string& name, const T& value) {
  if constexpr (std::is_enum_v<T>) {
    to[name] = std::string(Name(value));
  } else if constexpr (std::is_arithmetic_v<T>) {
    to[name] = static_cast<double>(value);
  } else if constexpr (std::is_same_v<T, std::string>) {
    to[name] = value;
  } else if constexpr (std::is_same_v<T, Occurrence>) {
    Add(to, name + ".count", value.count);
    Add(to, name + ".first", value.first);
  } else if constexpr (kHasFields<T>) {
    T::Fields(value, [&](const char* member, const auto& of) { Add(to, name + "." + member, of); });
  } else if constexpr (requires { value.has_value(); }) {
    if (value) Add(to, name, *value);
  } else {
    for (size_t k = 0; k < value.size(); ++k) Add(to, name + "." + std::to_string(k), value[k]);
  }
}

void Add(Figures& to, const Timings& timings) {
  Add(to, "setup_ms", timings.setup_ms());
  Timings::Fields(timings, [&](const char* name, const auto& of) { Add(to, name, of); });
}

void Add(Figures& to, const std::string& name, const Quality& quality) {
  Add<Quality>(to, name, quality);
  if (!quality.measured()) to.erase(name + ".residual_frobenius");
}

// As in JSON: MAX_ITERATIONS.
std::string UpperSnake(std::string_view name) {
  std::string text(name);
  for (char& c : text) c = c == '-' ? '_' : static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c);
  return text;
}

void Add(Figures& to, const std::string& name, const JobInfo::RhsOutcome& rhs) {
  Add(to, name + ".outcome", UpperSnake(Name(rhs.outcome)));
  Add(to, name + ".iterations", rhs.iterations);
  Add(to, name + ".true_residual", rhs.true_residual);
  Add(to, name + ".true_relative_residual", rhs.true_relative_residual);
  Add(to, name + ".detail", rhs.detail);
  Add(to, name + ".unreachable", rhs.unreachable);
}

void Add(Figures& to, const std::string& name, const Rung& rung) {
  Add(to, name + ".engine", rung.engine);
  Add(to, name + ".method", rung.method);
  Add(to, name + ".what", rung.what);
  Add(to, name + ".left", rung.left);
  Add(to, name + ".iterations", rung.iterations);
  Add(to, name + ".relative_residual", rung.relative_residual);
  Add(to, name + ".setup_ms", rung.setup_ms);
  Add(to, name + ".solve_ms", rung.solve_ms);
}

}  // namespace

Figures FiguresOf(const SolveResult& solved) {
  Figures to;
  Add(to, "matrix_handle", solved.matrix);
  Add(to, "preconditioner", solved.preconditioner);
  Add(to, "engine", solved.engine);
  Add(to, "method", solved.method);
  Add(to, "choice_reason", solved.choice_reason);
  Add(to, "placement", solved.placement);
  Add(to, "m_placement", solved.m_placement);
  Add(to, "m_precision", solved.m_precision);
  Add(to, "precision_reason", solved.precision_reason);
  Add(to, "null_space", solved.null_space);
  Add(to, "device", solved.device);
  Add(to, "job", solved.job);
  Add(to, "nnz_ratio", solved.nnz_ratio);
  Add(to, "figures", solved.figures);
  Add(to, "reuse", solved.reuse);
  if (solved.quality) Add(to, "quality", *solved.quality);
  Add(to, solved.timings);
  for (size_t k = 0; k < solved.rhs.size(); ++k) {
    const JobInfo::RhsOutcome& rhs = solved.rhs[k];
    Add(to, "rhs." + std::to_string(k), rhs);
  }
  for (size_t k = 0; k < solved.rungs.size(); ++k) {
    Add(to, "rungs." + std::to_string(k), solved.rungs[k]);
  }
  return to;
}

Figures FiguresOf(const BuildResult& built) {
  const PreconditionerInfo& m = built.preconditioner;
  Figures to;
  Add(to, "name", m.name);
  Add(to, "matrix", m.matrix);
  Add(to, "engine", m.spec.engine);
  Add(to, "choice_reason", m.choice_reason);
  Add(to, "placement", m.placement);
  Add(to, "device", m.device);
  Add(to, "n", m.n);
  Add(to, "nnz", m.nnz);
  Add(to, "is_factor", m.is_factor);
  Add(to, "nnz_ratio", m.quality.density);
  Add(to, "host_bytes", m.host_bytes);
  Add(to, "device_bytes", m.device_bytes);
  Add(to, "quality", m.quality);
  Add(to, "parts", m.parts);
  Add(to, built.timings);
  return to;
}

Figures FiguresOf(const ServerInfo& info, const LocalStatus& local) {
  Figures to;
  Add(to, "local.available", local.available);
  Add(to, "local.why", local.why);
  Add(to, "local.shared_bytes", local.shared_bytes);
  Add(to, "local.fallback_bytes", local.fallback_bytes);
  Add(to, "version", info.version);
  Add(to, "cuda_status", info.cuda_status);
  Add(to, "tenant", info.tenant);
  Add(to, "devices", info.devices);
  Add(to, "engines", info.engines);
  Add(to, "methods", info.methods);
  Add(to, "max_message_bytes", info.max_message_bytes);
  Add(to, "max_matrix_bytes", info.max_matrix_bytes);
  Add(to, "matrix_store_bytes", info.matrix_store_bytes);
  Add(to, "preconditioner_store_bytes", info.preconditioner_store_bytes);
  Add(to, "max_queued_jobs", info.max_queued_jobs);
  Add(to, "max_rhs_count", info.max_rhs_count);
  Add(to, "queued", info.queued);
  Add(to, "running", info.running);
  Add(to, "eta_ms", info.eta_ms);
  Add(to, "draining", info.draining);
  return to;
}

namespace {

// Null: an error, whose status is *status.
const SolveResult::Rhs* FindRhs(const spaid_report* report, int rhs, int* status) {
  *status = Guard([&] {
    if (const int missing = RequireAll({{"report", report}})) return missing;
    if (rhs >= 0 && static_cast<size_t>(rhs) < report->rhs.size()) return 0;
    return Fail(Code::kInvalidArgument, "UNKNOWN_NAME",
                "there is no right-hand side " + std::to_string(rhs) + "; the report is of " +
                    std::to_string(report->rhs.size()) + ", counted from 0",
                "rhs");
  });
  return *status == 0 ? &report->rhs[static_cast<size_t>(rhs)] : nullptr;
}

template <class T, class Give>
int Find(const spaid_report* report, const char* name, const char* kind, const char* other,
         Give give) {
  if (const int status = RequireAll({{"report", report}, {"name", name}})) return status;
  const auto found = report->figures.find(std::string_view(name));
  if (found == report->figures.end()) {
    return Fail(
        Code::kInvalidArgument, "UNKNOWN_NAME",
        "this report has no '" + std::string(name) + "'; spaid_report_name lists what it has",
        name);
  }
  const T* const value = std::get_if<T>(&found->second);
  if (value == nullptr) {
    return Fail(Code::kInvalidArgument, "UNKNOWN_NAME",
                "'" + std::string(name) + "' is no " + kind + "; " + other + " gives it", name);
  }
  give(*value);
  return 0;
}

}  // namespace
}  // namespace spaid::c

int spaid_report_outcome(const spaid_report* report, int rhs) {
  int status = 0;
  const auto* of = spaid::c::FindRhs(report, rhs, &status);
  return of != nullptr ? static_cast<int>(of->outcome) : status;
}

spaid_long spaid_report_iterations(const spaid_report* report, int rhs) {
  int status = 0;
  const auto* of = spaid::c::FindRhs(report, rhs, &status);
  return of != nullptr ? of->iterations : status;
}

double spaid_report_residual(const spaid_report* report, int rhs) {
  int status = 0;
  const auto* of = spaid::c::FindRhs(report, rhs, &status);
  return of != nullptr ? of->true_relative_residual : status;
}

spaid_long spaid_report_history(const spaid_report* report, int rhs, spaid_long capacity,
                                spaid_long* iterations, double* residuals) {
  int status = 0;
  const auto* of = spaid::c::FindRhs(report, rhs, &status);
  if (of == nullptr) return status;
  const auto count = static_cast<spaid_long>(of->history.size());
  for (spaid_long k = 0; k < std::min(capacity, count); ++k) {
    const spaid::Residual& residual = of->history[static_cast<size_t>(k)];
    if (iterations != nullptr) iterations[k] = residual.iteration;
    if (residuals != nullptr) residuals[k] = residual.relative_residual;
  }
  return count;
}

int spaid_report_number(const spaid_report* report, const char* name, double* value) {
  return Guard([&] {
    if (const int status = RequireAll({{"value", value}})) return status;
    return spaid::c::Find<double>(report, name, "number", "spaid_report_text",
                                  [&](double found) { *value = found; });
  });
}

int spaid_report_text(const spaid_report* report, const char* name, const char** text) {
  return Guard([&] {
    if (text != nullptr) *text = nullptr;
    if (const int status = RequireAll({{"text", text}})) return status;
    return spaid::c::Find<std::string>(report, name, "text", "spaid_report_number",
                                       [&](const std::string& found) { *text = found.c_str(); });
  });
}

const char* spaid_report_name(const spaid_report* report, spaid_long k) {
  if (report == nullptr || k < 0 || static_cast<size_t>(k) >= report->figures.size()) {
    return nullptr;
  }
  return std::next(report->figures.begin(), k)->first.c_str();
}

void spaid_report_free(spaid_report* report) { delete report; }
