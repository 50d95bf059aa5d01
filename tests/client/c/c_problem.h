// Shorthand of the C interface for tests: objects that free themselves, and one small system.
#pragma once

#include <gtest/gtest.h>
#include <spaid/spaid.h>

#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace spaid::c {

struct Free {
  void operator()(spaid_options* p) const { spaid_options_free(p); }
  void operator()(spaid_client* p) const { spaid_client_free(p); }
  void operator()(spaid_system* p) const { spaid_system_free(p); }
  void operator()(spaid_preconditioner* p) const { spaid_preconditioner_free(p); }
  void operator()(spaid_report* p) const { spaid_report_free(p); }
};
using Options = std::unique_ptr<spaid_options, Free>;
using ClientPtr = std::unique_ptr<spaid_client, Free>;
using SystemPtr = std::unique_ptr<spaid_system, Free>;
using Preconditioner = std::unique_ptr<spaid_preconditioner, Free>;
using Report = std::unique_ptr<spaid_report, Free>;

inline Options Set(std::initializer_list<std::pair<const char*, std::string>> values) {
  spaid_options* options = nullptr;
  EXPECT_EQ(spaid_options_new(&options), 0);
  for (const auto& [name, value] : values) {
    EXPECT_EQ(spaid_options_set(options, name, value.c_str()), 0) << spaid_last_error();
  }
  return Options(options);
}

inline ClientPtr Connect(const Options& options) {
  spaid_client* client = nullptr;
  EXPECT_EQ(spaid_client_new(options.get(), &client), 0) << spaid_last_error();
  return ClientPtr(client);
}
inline ClientPtr Connect(const std::string& address) {
  return Connect(Set({{"address", address}}));
}

inline std::string Reason() {
  const char* const reason = spaid_last_error_detail("reason");
  return reason != nullptr ? reason : "";
}
inline std::string Field() {
  const char* const field = spaid_last_error_detail("field");
  return field != nullptr ? field : "";
}

inline double Number(const Report& report, const char* name) {
  double value = -1;
  EXPECT_EQ(spaid_report_number(report.get(), name, &value), 0) << spaid_last_error();
  return value;
}
inline std::string Text(const Report& report, const char* name) {
  const char* text = nullptr;
  EXPECT_EQ(spaid_report_text(report.get(), name, &text), 0) << spaid_last_error();
  return text != nullptr ? text : "";
}

// [ 4 -1 0 ; -2 4 -1 ; 0 -1 4 ] (1 2 3)ᵀ = (2 3 10)ᵀ; not symmetric, so that rows are no columns.
struct Three {
  std::vector<int> row_ptr = {0, 2, 5, 7}, col_idx = {0, 1, 0, 1, 2, 1, 2};
  std::vector<double> by_rows = {4, -1, -2, 4, -1, -1, 4}, by_columns = {4, -2, -1, 4, -1, -1, 4};
  std::vector<double> b = {2, 3, 10};
};

}  // namespace spaid::c
