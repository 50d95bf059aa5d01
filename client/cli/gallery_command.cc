// spaidctl gallery
#include <nlohmann/json.hpp>

#include "client/cli/commands.h"
#include "client/cli/gallery.h"
#include "client/cli/matrix_market.h"
#include "kernels/gallery/gallery.h"

namespace spaid::cli {
namespace {

ExitCode ListFamilies(const Output& out) {
  if (out.json()) {
    nlohmann::json families = nlohmann::json::array();
    for (const gallery::Family& f : gallery::Families()) {
      families.push_back({{"name", f.name},
                          {"title", f.title},
                          {"size_meaning", f.size_meaning},
                          {"default_size", f.default_size},
                          {"min_size", f.min_size},
                          {"max_size", f.max_size},
                          {"properties", f.properties}});
    }
    out.PrintJson({{"command", "gallery"}, {"families", std::move(families)}});
    return out.Finish(ExitCode::kOk);
  }
  Table table({{"family", Table::Align::kLeft},
               {"size", Table::Align::kRight},
               {"what it is", Table::Align::kLeft},
               {"properties", Table::Align::kLeft},
               {"--size counts", Table::Align::kLeft}});
  for (const gallery::Family& f : gallery::Families()) {
    table.Add({{std::string(f.name), Style::kBold},
               FormatCount(f.default_size),
               std::string(f.title),
               std::string(f.properties),
               std::string(f.size_meaning)});
  }
  out.Print(table.Text(out.color()) +
            "\n  Use one anywhere: spaidctl solve gallery:elasticity:20"
            "\n  Or write it:      spaidctl gallery elasticity --size=20 --out=E.mtx.gz\n");
  return out.Finish(ExitCode::kOk);
}

}  // namespace

ExitCode RunGallery(const Output& out, const GalleryArgs& args) {
  if (args.family.empty()) return ListFamilies(out);
  auto a = Generate(args.family, args.size);
  if (!a.ok()) return out.Fail(a.error());
  if (!args.out.empty()) {
    if (auto error = WriteMatrix(args.out, *a)) return out.Fail(*error);
  }
  const int64_t nnz = a->col_ptr.back();
  if (out.json()) {
    nlohmann::json object = {
        {"command", "gallery"}, {"family", args.family}, {"n", a->n}, {"nnz", nnz}};
    if (!args.out.empty()) object["file"] = args.out;
    out.PrintJson(object);
  } else {
    out.Print(args.family + ": n " + FormatCount(a->n) + ", nnz " + FormatCount(nnz) +
              (args.out.empty() ? "; give --out=FILE to write it\n" : ", in " + args.out + "\n"));
  }
  return out.Finish(ExitCode::kOk);
}

}  // namespace spaid::cli
