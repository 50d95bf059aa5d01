// Test matrices made from a formula: `spaidctl gallery`, and `gallery:NAME[:SIZE]` wherever a
// matrix is wanted.
//
//   auto a = Generate("elasticity", 20);   // 22,800 unknowns
//
// Every matrix is canonical CSC (rows sorted, no duplicates; explicit zeros where the family has
// them) and the same on every run and machine: pseudo-random families are seeded, and all
// arithmetic is plain IEEE double in a fixed order. Thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "client/cpp/spaid/client.h"

namespace spaid::cli {

struct GalleryFamily {
  std::string_view name;
  std::string_view title;         // what it models, for a table
  std::string_view size_meaning;  // what --size counts
  int64_t default_size, min_size, max_size;
  std::string_view properties;  // symmetry and definiteness, for a table
};

// In the order in which they are shown.
std::span<const GalleryFamily> GalleryFamilies();

// `size` 0 means the family's default. Errors: INVALID_ARGUMENT/GALLERY_UNKNOWN,
// INVALID_ARGUMENT/GALLERY_SIZE, RESOURCE_EXHAUSTED/OUT_OF_MEMORY.
Expected<CscMatrix> Generate(std::string_view family, int64_t size);

// What follows "gallery:": NAME or NAME:SIZE. Errors: as Generate, and GALLERY_SIZE for a size that
// is not a number.
Expected<CscMatrix> GenerateFromText(std::string_view text);

}  // namespace spaid::cli
