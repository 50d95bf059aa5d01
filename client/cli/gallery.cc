#include "client/cli/gallery.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <new>
#include <numbers>
#include <numeric>
#include <string>

#include "client/cli/gallery_families.h"

namespace spaid::cli {
namespace {

using Maker = CscMatrix (*)(int64_t size);

struct Entry {
  GalleryFamily family;
  Maker make;
};

// The largest sizes keep n and the entries below 2^31.
constexpr std::array kEntries = {
    Entry{{"poisson", "Poisson, 7-point stencil on a cube", "nodes an edge; n = size^3", 32, 1, 670,
           "SPD"},
          [](int64_t m) { return ConvectionDiffusion3d(m, 0); }},
    Entry{{"p27", "Poisson, 27-point stencil on a cube", "nodes an edge; n = size^3", 32, 1, 430,
           "SPD"},
          [](int64_t m) { return Laplace27(m); }},
    Entry{{"convdiff", "convection-diffusion on a cube, upwind, speed 400",
           "nodes an edge; n = size^3", 32, 1, 670, "nonsymmetric, M-matrix"},
          [](int64_t m) { return ConvectionDiffusion3d(m, 400); }},
    Entry{{"aniso", "anisotropic diffusion, rotated by 22.5 degrees, 1 : 0.001",
           "nodes an edge; n = size^2", 200, 1, 15000, "SPD, ill-conditioned"},
          [](int64_t m) { return RotatedAnisotropy2d(m, 1e-3, std::numbers::pi / 8); }},
    Entry{{"elasticity", "linear elasticity of a clamped cube, Poisson ratio 0.3",
           "nodes an edge; n = 3 (size - 1) size^2", 12, 2, 205, "SPD"},
          [](int64_t nodes) { return Elasticity3d(nodes, 1, 0.3); }},
    Entry{
        {"circuit", "circuit with hubs and one-way controlled sources", "n", 20000, 2, 100'000'000,
         "nonsymmetric, dense rows and columns"},
        // The measured circuit300k has hubs of up to 700; a small one must leave room for the rest.
        [](int64_t n) { return Circuit(n, 12, static_cast<int>(std::min<int64_t>(700, n / 4))); }},
    Entry{{"helmholtz", "Helmholtz, 10 points a wave, on a square", "nodes an edge; n = size^2",
           100, 1, 20000, "symmetric, indefinite"},
          [](int64_t m) { return Helmholtz2d(m, 10); }},
    Entry{{"stokes", "Stokes flow on a staggered grid (saddle point)",
           "cells an edge; n = 3 size^2 - 2 size - 1", 40, 2, 15000,
           "symmetric, indefinite, no diagonal in a third of the rows"},
          [](int64_t m) { return Stokes2d(m); }},
    Entry{{"random", "random rows of 1 to 60 entries over 6 decades", "n", 20000, 1, 100'000'000,
           "nonsymmetric, irregular"},
          [](int64_t n) { return RandomIrregular(n); }},
    Entry{{"graph", "Laplacian of a power-law graph", "n", 20000, 2, 100'000'000,
           "symmetric, singular (constants)"},
          [](int64_t n) { return GraphLaplacian(n); }},
    Entry{{"badscale", "Poisson on a square, scaled over 12 decades", "nodes an edge; n = size^2",
           100, 1, 20000, "SPD, badly scaled"},
          [](int64_t m) { return BadlyScaled2d(m, 12); }},
};

constexpr auto kFamilies = [] {
  std::array<GalleryFamily, kEntries.size()> families;
  for (size_t k = 0; k < kEntries.size(); ++k) families[k] = kEntries[k].family;
  return families;
}();

Error MakeError(std::string reason, std::string message) {
  Error error;
  error.code = Code::kInvalidArgument;
  error.reason = std::move(reason);
  error.message = std::move(message);
  error.field = "gallery";
  return error;
}

}  // namespace

std::span<const GalleryFamily> GalleryFamilies() { return kFamilies; }

Expected<CscMatrix> Generate(std::string_view family, int64_t size) {
  const auto* entry = std::find_if(kEntries.begin(), kEntries.end(),
                                   [&](const Entry& e) { return e.family.name == family; });
  if (entry == kEntries.end()) {
    std::string names;
    for (const GalleryFamily& f : kFamilies)
      names += (names.empty() ? "" : ", ") + std::string(f.name);
    return MakeError("GALLERY_UNKNOWN",
                     "the gallery has no \"" + std::string(family) + "\"; it has " + names);
  }
  const GalleryFamily& f = entry->family;
  if (size == 0) size = f.default_size;
  if (size < f.min_size || size > f.max_size) {
    return MakeError("GALLERY_SIZE",
                     "gallery:" + std::string(family) + " takes sizes from " +
                         std::to_string(f.min_size) + " to " + std::to_string(f.max_size) + " (" +
                         std::string(f.size_meaning) + "), not " + std::to_string(size));
  }
  try {
    return entry->make(size);
  } catch (const std::bad_alloc&) {  // the standard library's only word for it
    Error error = MakeError("OUT_OF_MEMORY", "gallery:" + std::string(family) + " of size " +
                                                 std::to_string(size) +
                                                 " does not fit into this machine's memory");
    error.code = Code::kResourceExhausted;
    return error;
  }
}

Expected<CscMatrix> GenerateFromText(std::string_view text) {
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos) return Generate(text, 0);
  const std::string_view digits = text.substr(colon + 1);
  int64_t size = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), size);
  if (error != std::errc() || end != digits.data() + digits.size() || size == 0) {
    return MakeError("GALLERY_SIZE", "gallery:" + std::string(text) + ": \"" + std::string(digits) +
                                         "\" is not a size; write gallery:NAME:SIZE");
  }
  return Generate(text.substr(0, colon), size);
}

RowBuilder::RowBuilder(int64_t n, int64_t expected_entries) : n_(n) {
  row_ptr_.reserve(n + 1);
  row_ptr_.push_back(0);
  columns_.reserve(expected_entries);
  values_.reserve(expected_entries);
}

CscMatrix RowBuilder::ToCsc() && {
  CscMatrix a;
  a.n = n_;
  a.col_ptr.assign(n_ + 1, 0);
  for (const int32_t column : columns_) ++a.col_ptr[column + 1];
  std::partial_sum(a.col_ptr.begin(), a.col_ptr.end(), a.col_ptr.begin());
  a.row_idx.resize(columns_.size());
  a.values.resize(columns_.size());
  std::vector<int64_t> next(a.col_ptr.begin(), a.col_ptr.end() - 1);
  for (int64_t row = 0; row < n_; ++row) {
    for (int64_t k = row_ptr_[row]; k < row_ptr_[row + 1]; ++k) {
      const int64_t at = next[columns_[k]]++;
      a.row_idx[at] = static_cast<int32_t>(row);
      a.values[at] = values_[k];
    }
  }
  return a;
}

void AddSummedRow(Terms& terms, RowBuilder& rows) {
  std::sort(terms.begin(), terms.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  for (size_t k = 0; k < terms.size();) {
    const int column = terms[k].first;
    double sum = terms[k].second;
    for (++k; k < terms.size() && terms[k].first == column; ++k) sum += terms[k].second;
    rows.Add(column, sum);
  }
  rows.EndRow();
}

}  // namespace spaid::cli
