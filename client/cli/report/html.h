// Writes parts of a page: texts, tables, cards.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace spaid::cli {

// Returns a text of the server or the user, escaped, cut to `most` characters, and without
// characters that hide or reorder others.
std::string Foreign(std::string_view text, size_t most = 400);

// A table whose cells are markup already. Heads that begin with "#" are those of numbers.
class HtmlTable {
 public:
  explicit HtmlTable(const std::vector<std::string>& heads);
  // `css`: of the row.
  void Row(std::string_view css = "");
  // `span`: columns that it takes.
  void Cell(std::string_view markup, std::string_view css = "", int span = 1);
  std::string Take();

 private:
  std::vector<bool> numbers_;  // by column
  size_t column_ = 0;
  bool in_row_ = false;
  std::string text_;
};

// Returns names beside values, both markup; `css`: of the value.
struct Fact {
  std::string name, value, css;
};
std::string FactTable(const std::vector<Fact>& facts);

std::string Card(std::string_view content, std::string_view css = "");
std::string Figure(std::string_view title, std::string_view svg, std::string_view note);
std::string Tile(std::string_view name, std::string_view value, std::string_view more);
// A swatch beside its meaning, for a legend; `shape` is SVG in a box of 14 by 14.
std::string Key(std::string_view shape, std::string_view meaning);

}  // namespace spaid::cli
