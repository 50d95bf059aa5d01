#include "client/cli/report/html.h"

#include "client/cli/printable.h"
#include "client/cli/xml.h"

namespace spaid::cli {
namespace {

std::string Class(std::string_view css) {
  return css.empty() ? "" : " class=\"" + std::string(css) + "\"";
}

}  // namespace

std::string Foreign(std::string_view text, size_t most) {
  // A character is 4 bytes at most: the rest of a long text need not be looked at.
  return EscapedBeginning(Printable(text.substr(0, 4 * most + 4)), most);
}

HtmlTable::HtmlTable(const std::vector<std::string>& heads) {
  text_ = "<div class=\"card table\"><table><thead><tr>";
  for (const std::string& head : heads) {
    numbers_.push_back(head.starts_with("#"));
    text_ += numbers_.back() ? "<th class=\"number\">" + head.substr(1) : "<th>" + head;
    text_ += "</th>";
  }
  text_ += "</tr></thead><tbody>\n";
}

void HtmlTable::Row(std::string_view css) {
  if (in_row_) text_ += "</tr>\n";
  text_ += "<tr" + Class(css) + ">";
  in_row_ = true;
  column_ = 0;
}

void HtmlTable::Cell(std::string_view markup, std::string_view css, int span) {
  const bool number = css.empty() && column_ < numbers_.size() && numbers_[column_];
  text_ += "<td" + (number ? " class=\"number\"" : Class(css)) +
           (span > 1 ? " colspan=\"" + std::to_string(span) + "\"" : "") + ">" +
           std::string(markup) + "</td>";
  column_ += static_cast<size_t>(span);
}

std::string HtmlTable::Take() {
  if (in_row_) text_ += "</tr>\n";
  return std::move(text_) + "</tbody></table></div>\n";
}

std::string FactTable(const std::vector<Fact>& facts) {
  std::string text = "<table class=\"facts\"><tbody>\n";
  for (const Fact& fact : facts) {
    text +=
        "<tr><td>" + fact.name + "</td><td" + Class(fact.css) + ">" + fact.value + "</td></tr>\n";
  }
  return text + "</tbody></table>\n";
}

std::string Card(std::string_view content, std::string_view css) {
  return "<div class=\"card" + (css.empty() ? "" : " " + std::string(css)) + "\">" +
         std::string(content) + "</div>\n";
}

std::string Figure(std::string_view title, std::string_view svg, std::string_view note) {
  std::string text = "<figure class=\"card\">";
  if (!title.empty()) text += "<h3>" + std::string(title) + "</h3>\n";
  return text + std::string(svg) + std::string(note) + "</figure>\n";
}

std::string Tile(std::string_view name, std::string_view value, std::string_view more) {
  return Card("<span>" + std::string(name) + "</span><b>" + std::string(value) + "</b><small>" +
                  std::string(more) + "</small>",
              "tile");
}

std::string Key(std::string_view shape, std::string_view meaning) {
  return "<span><svg viewBox=\"0 0 14 14\" aria-hidden=\"true\">" + std::string(shape) + "</svg>" +
         std::string(meaning) + "</span>";
}

}  // namespace spaid::cli
