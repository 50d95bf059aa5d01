#include "client/cli/byte_file.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdio>
#include <set>
#include <string>

#include "tests/client/cli/temp_folder.h"

namespace spaid::cli {
namespace {

std::set<std::string> Names(const TempFolder& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    names.insert(entry.path().filename().string());
  }
  return names;
}

// A folder where others may write: they know the name that the file will have, and plant links.
TEST(ByteWriter, GrowsWhereNobodyCouldPlantALink) {
  const TempFolder folder;
  const std::string precious = folder.Write("precious", "old"), path = folder.File("x.mtx");
  const std::string planted = path + ".part" + std::to_string(getpid());
  std::filesystem::create_symlink(precious, planted);
  auto first = ByteWriter::Open(path), second = ByteWriter::Open(path);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(Names(folder).size(), 4u) << "each writer has a file of its own";
  EXPECT_FALSE(std::filesystem::exists(path));
  std::fputs("one", first->file());
  std::fputs("two", second->file());
  EXPECT_FALSE(first->Commit());
  EXPECT_FALSE(second->Commit());
  EXPECT_EQ(TempFolder::Read(path), "two");
  EXPECT_EQ(TempFolder::Read(precious), "old");
  EXPECT_TRUE(std::filesystem::is_symlink(planted));
  EXPECT_EQ(Names(folder).size(), 3u);
}

TEST(ByteWriter, ReplacesALinkAndLeavesWhereItLeads) {
  const TempFolder folder;
  const std::string precious = folder.Write("precious", "old"), path = folder.File("x.mtx");
  std::filesystem::create_symlink(precious, path);
  auto writer = ByteWriter::Open(path);
  ASSERT_TRUE(writer.ok());
  std::fputs("new", writer->file());
  EXPECT_FALSE(writer->Commit());
  EXPECT_EQ(TempFolder::Read(path), "new");
  EXPECT_EQ(TempFolder::Read(precious), "old");
}

}  // namespace
}  // namespace spaid::cli
