// Matrices of the gallery as users name them: `spaidctl gallery`, and `gallery:NAME[:SIZE]`
// wherever a matrix is wanted.
#pragma once

#include <cstdint>
#include <string_view>

#include "client/cpp/spaid/types.h"

namespace spaid::cli {

// Makes a matrix of the gallery. `size` 0 means the family's default. Errors:
// INVALID_ARGUMENT/GALLERY_UNKNOWN, INVALID_ARGUMENT/GALLERY_SIZE,
// RESOURCE_EXHAUSTED/OUT_OF_MEMORY. Thread-safe.
Expected<CscMatrix> Generate(std::string_view family, int64_t size);

// Parses what follows "gallery:": NAME or NAME:SIZE. Errors: as Generate, and GALLERY_SIZE for a
// size that is not a number.
Expected<CscMatrix> GenerateFromText(std::string_view text);

}  // namespace spaid::cli
