// Opens a spill folder: its lock, its index, and the order between that and the files.
#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/checksum.h"
#include "server/base/log.h"
#include "server/base/reasons.h"
#include "server/base/status.h"
#include "server/store/spill_folder.h"

namespace spaid::server {
namespace {

// The row that has the key of fingerprints; no handle of anybody's.
constexpr char kKeyRow[] = "key";

absl::Status BadFolder(const std::string& folder, const std::string& what) {
  return MakeError(absl::StatusCode::kFailedPrecondition, reason::kBadSpillFolder,
                   absl::StrCat("--spill-dir=", folder, ": ", what));
}

absl::Status BadFolder(const std::string& folder, const std::string& part, int why) {
  return BadFolder(folder, absl::StrCat(part, ": ", std::strerror(why),
                                        "; name a folder that the daemon may write"));
}

// Opens a folder in `parent`, made if it is not there.
int OpenIn(int parent, const char* name) {
  if (mkdirat(parent, name, 0700) != 0 && errno != EEXIST) return -1;
  return openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

// Calls visit(name) for each file in the folder.
template <class Visit>
bool EachFile(int folder, const Visit& visit) {
  const int again = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* const files = again >= 0 ? fdopendir(again) : nullptr;
  if (files == nullptr) return false;
  while (const dirent* file = readdir(files)) {
    const std::string name = file->d_name;
    if (name != "." && name != "..") visit(name);
  }
  closedir(files);
  return true;
}

}  // namespace

SpillFolder::SpillFolder(SpillOptions options)
    : options_(std::move(options)),
      shares_({.limits = {options_.max_bytes}, .rules = options_.shares}) {}

absl::Status SpillFolder::OpenFolder() {
  const std::string& path = options_.folder;
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return BadFolder(path, "make it", errno);
  folder_ = Descriptor(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!folder_.open()) return BadFolder(path, "open it", errno);
  struct stat own = {};
  fstat(folder_.get(), &own);
  if (own.st_uid != geteuid()) {
    return BadFolder(path,
                     "it belongs to another user; name one in it, which the daemon makes for "
                     "itself, or one of its own");
  }
  if (fchmod(folder_.get(), 0700) != 0) return BadFolder(path, "mode 0700", errno);
  lock_ =
      Descriptor(openat(folder_.get(), "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!lock_.open()) return BadFolder(path, "lock", errno);
  if (flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    return BadFolder(path, errno == EWOULDBLOCK
                               ? "another daemon uses it; stop that one, or name another folder: "
                                 "each daemon has its own"
                               : absl::StrCat("lock: ", std::strerror(errno)));
  }
  files_ = Descriptor(OpenIn(folder_.get(), "files"));
  if (!files_.open()) return BadFolder(path, "files", errno);
  damaged_ = Descriptor(OpenIn(folder_.get(), "damaged"));
  if (!damaged_.open()) return BadFolder(path, "damaged", errno);
  return absl::OkStatus();
}

absl::Status SpillFolder::UseKey(const SpillRecord* key) {
  FingerprintKey there;
  if (key != nullptr && key->meta.size() == there.size()) {
    std::memcpy(there.data(), key->meta.data(), there.size());
    if (!UseFingerprintKey(there)) {
      // Names and keys of now are others than those of then: what is there is found by its handles.
      Log(LogLevel::kWarning, "spill_other_key", {{"folder", options_.folder}});
    }
    return absl::OkStatus();
  }
  there = CurrentFingerprintKey();
  SpillRecord row;
  row.handle = kKeyRow;
  row.meta.assign(there.begin(), there.end());
  return index_->Put(row);
}

void SpillFolder::Adopt(SpillIndex::Opened opened) {
  std::set<std::string> there;
  EachFile(files_.get(), [&](const std::string& name) { there.insert(name); });
  EachFile(damaged_.get(), [&](const std::string&) { ++kept_damaged_; });
  // In the order in which they came.
  std::sort(opened.records.begin(), opened.records.end(),
            [](const SpillRecord& a, const SpillRecord& b) { return a.sequence < b.sequence; });
  const std::lock_guard lock(mutex_);
  for (SpillRecord& record : opened.records) {
    if (record.handle == kKeyRow) continue;
    const bool whole =
        std::all_of(record.blobs.begin(), record.blobs.end(),
                    [&](const SpillBlobRef& blob) { return there.contains(blob.file()); });
    if (!whole) {
      ++stats_.damaged;
      if (!record.pinned) {
        rows_to_delete_.insert(record.handle);
        continue;
      }
      record.blobs.clear();  // who was promised it shall hear that it is lost
    }
    for (const SpillBlobRef& blob : record.blobs) HoldLocked(blob, record.tenant);
    AddLocked(std::make_shared<const SpillRecord>(std::move(record)));
  }
  // Left by a write that was cut off.
  for (const std::string& name : there) {
    if (!by_name_.contains(name)) files_to_delete_.insert(name);
  }
}

absl::Status SpillFolder::OpenIndex() {
  char real[PATH_MAX];
  if (realpath(options_.folder.c_str(), real) == nullptr) {
    return BadFolder(options_.folder, "find it", errno);
  }
  // A damaged index comes with its log: two more than there may be otherwise, if all are old.
  int64_t kept = 0;
  EachFile(damaged_.get(), [&](const std::string&) { ++kept; });
  if (kept >= kMaxDamaged) {
    EachFile(damaged_.get(), [&](const std::string& name) {
      if (name.starts_with("index.")) unlinkat(damaged_.get(), name.c_str(), 0);
    });
  }
  SpillIndex::Opened opened;
  auto index = SpillIndex::Open(real, absl::StrCat(real, "/damaged"), options_.sync, &opened);
  if (!index.ok()) {
    if (!ReasonOf(index.status()).empty()) return index.status();
    return BadFolder(options_.folder, std::string(index.status().message()));
  }
  index_ = *std::move(index);
  const auto key = std::find_if(opened.records.begin(), opened.records.end(),
                                [](const SpillRecord& row) { return row.handle == kKeyRow; });
  absl::Status status = UseKey(key == opened.records.end() ? nullptr : &*key);
  if (!status.ok()) return BadFolder(options_.folder, std::string(status.message()));
  const bool damaged = opened.damaged;
  const size_t rows = opened.records.size();
  Adopt(std::move(opened));
  if (damaged) {
    ++stats_.damaged;
    Log(LogLevel::kError, "spill_index_damaged",
        {{"folder", options_.folder}, {"rows_taken_over", rows}});
  }
  Records gone;  // a limit that is lower than it was
  {
    const std::lock_guard lock(mutex_);
    MakeRoomLocked("", 0, &gone);
  }
  WriteDeletes();
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<SpillFolder>> SpillFolder::Open(SpillOptions options) {
  std::unique_ptr<SpillFolder> folder(new SpillFolder(std::move(options)));
  RETURN_IF_ERROR(folder->OpenFolder());
  RETURN_IF_ERROR(folder->OpenIndex());
  const SpillStats found = folder->stats();
  Log(LogLevel::kInfo, "spill_opened",
      {{"folder", folder->path()},
       {"records", found.records},
       {"files", found.files},
       {"bytes", found.bytes},
       {"max_bytes", found.max_bytes}});
  return folder;
}

}  // namespace spaid::server
