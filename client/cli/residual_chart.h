// Draws the residual of a running solve as a small chart for a terminal that shows UTF-8.
#pragma once

#include <string>
#include <vector>

#include "client/cli/residual_track.h"

namespace spaid::cli {

constexpr int kChartRows = 8;         // rows of the curve; the axis and a line of words come below
constexpr int kChartMinColumns = 48;  // columns of the terminal
constexpr int kChartMaxColumns = 100;

// Draws log10 of the relative residual over iterations, in braille dots, with powers of ten at the
// left, the target as a broken line, and the track's status as the last line: kChartRows + 2 lines
// of fewer than `columns` characters, without line ends. Returns nothing if the track is empty.
std::vector<std::string> ResidualChart(const ResidualTrack& track, int columns, bool color);

}  // namespace spaid::cli
