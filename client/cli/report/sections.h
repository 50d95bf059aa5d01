// Writes the sections of a report. Each returns markup, or "" where it has nothing to tell.
#pragma once

#include <string>

#include "client/cli/report/report.h"

namespace spaid::cli {

std::string MatrixSection(const Report& report);
std::string ComparisonSection(const Report& report);
std::string AutoSection(const Report& report);
std::string QualitySection(const Report& report);
std::string SpectrumSection(const Report& report);
std::string RepeatSection(const Report& report);

}  // namespace spaid::cli
