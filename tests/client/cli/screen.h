// What a terminal shows of the text written to it, as far as spaidctl's own escape sequences go.
#pragma once

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>
#include <vector>

namespace spaid::cli {

class Screen {
 public:
  explicit Screen(std::string_view text) {
    for (size_t at = 0; at < text.size();) at += Take(text.substr(at));
  }

  const std::vector<std::string>& lines() const { return lines_; }  // without blanks at the end
  std::string Text() const {
    std::string text;
    for (const std::string& line : lines_) text += line + "\n";
    return text;
  }
  size_t row() const { return row_; }  // of the cursor, from 0
  size_t column() const { return column_; }
  int frames() const { return frames_; }  // drawings: how often the cursor's place was kept
  // Of the lowest row that something was drawn on.
  size_t bottom() const { return bottom_; }

 private:
  // The bytes it took.
  size_t Take(std::string_view text) {
    if (text.starts_with("\033[")) return Escape(text);
    if (text.starts_with("\0337")) {
      kept_row_ = row_;
      kept_column_ = column_;
      ++frames_;
      return 2;
    }
    if (text.starts_with("\0338")) {
      row_ = kept_row_;
      column_ = kept_column_;
      return 2;
    }
    if (text[0] == '\r') {
      column_ = 0;
    } else if (text[0] == '\n') {
      ++row_;
      column_ = 0;
    } else {
      size_t size = 1;
      while (size < text.size() && (text[size] & 0xC0) == 0x80) ++size;
      Put(std::string(text.substr(0, size)));
      return size;
    }
    return 1;
  }

  size_t Escape(std::string_view text) {
    size_t end = 2;
    while (end < text.size() && std::isalpha(static_cast<unsigned char>(text[end])) == 0) ++end;
    const std::string parameters(text.substr(2, end - 2));
    switch (end < text.size() ? text[end] : ' ') {
      case 'A': {
        const size_t up = std::stoul(parameters.empty() ? "1" : parameters);
        row_ -= std::min(row_, up);
        break;
      }
      case 'J':
        for (size_t k = row_ + 1; k < cells_.size(); ++k) cells_[k].clear();
        [[fallthrough]];
      case 'K':
        if (row_ < cells_.size() && cells_[row_].size() > column_) cells_[row_].resize(column_);
        break;
      default:
        break;
    }
    Refresh();
    return std::min(end + 1, text.size());
  }

  void Put(std::string character) {
    if (cells_.size() <= row_) cells_.resize(row_ + 1);
    if (cells_[row_].size() <= column_) cells_[row_].resize(column_ + 1, " ");
    cells_[row_][column_++] = std::move(character);
    bottom_ = std::max(bottom_, row_);
    Refresh();
  }

  void Refresh() {
    lines_.resize(cells_.size());
    if (row_ >= cells_.size()) return;
    for (size_t k = row_; k < cells_.size(); ++k) {
      lines_[k].clear();
      for (const std::string& cell : cells_[k]) lines_[k] += cell;
      while (lines_[k].ends_with(' ')) lines_[k].pop_back();
    }
  }

  std::vector<std::vector<std::string>> cells_;
  std::vector<std::string> lines_;
  size_t row_ = 0, column_ = 0, bottom_ = 0;
  size_t kept_row_ = 0, kept_column_ = 0;
  int frames_ = 0;
};

}  // namespace spaid::cli
