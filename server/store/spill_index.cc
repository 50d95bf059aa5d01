#include "server/store/spill_index.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/descriptor.h"
#include "server/base/ids.h"
#include "server/base/reasons.h"
#include "server/base/status.h"

namespace spaid::server {
namespace {

struct Finalize {
  void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};
using Statement = std::unique_ptr<sqlite3_stmt, Finalize>;

Statement Prepare(sqlite3* db, const char* sql) {
  sqlite3_stmt* statement = nullptr;
  sqlite3_prepare_v2(db, sql, -1, &statement, nullptr);
  return Statement(statement);
}

bool Exists(const std::string& file) { return access(file.c_str(), F_OK) == 0; }

// SQLite makes its files as open as the umask lets it: this one is there before it, and those
// beside it take its mode.
absl::Status MakeFile(const std::string& file) {
  const Descriptor made(open(file.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (made.open()) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(file, ": ", std::strerror(errno)));
}

absl::Status Rename(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) == 0) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(from, " to ", to, ": ", std::strerror(errno)));
}

}  // namespace

SpillIndex::~SpillIndex() { sqlite3_close(db_); }

absl::Status SpillIndex::Failed(const char* what) const {
  const int code = sqlite3_errcode(db_) & 0xff;
  const std::string text = absl::StrCat("index, ", what, ": ", sqlite3_errmsg(db_));
  // The SQL is right, and the file could be opened for writing: what SQLite does not understand or
  // does not write is the file.
  if (code == SQLITE_CORRUPT || code == SQLITE_NOTADB || code == SQLITE_ERROR ||
      code == SQLITE_READONLY) {
    return absl::DataLossError(text);
  }
  // A limit on the size of files is an error of I/O to SQLite.
  if (code == SQLITE_FULL || code == SQLITE_NOMEM || code == SQLITE_IOERR) {
    return absl::ResourceExhaustedError(text);
  }
  return absl::UnavailableError(text);
}

absl::Status SpillIndex::Run(const char* sql) {
  if (sqlite3_exec(db_, sql, nullptr, nullptr, nullptr) == SQLITE_OK) return absl::OkStatus();
  return Failed(sql);
}

absl::StatusOr<std::unique_ptr<SpillIndex>> SpillIndex::OpenFile(const std::string& file,
                                                                 SpillSync sync) {
  RETURN_IF_ERROR(MakeFile(file));
  sqlite3* db = nullptr;
  const int opened = sqlite3_open_v2(
      file.c_str(), &db,
      SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW | SQLITE_OPEN_PRIVATECACHE,
      nullptr);
  if (db == nullptr) return absl::ResourceExhaustedError("no memory for SQLite");
  std::unique_ptr<SpillIndex> index(new SpillIndex(db));
  if (opened != SQLITE_OK) return index->Failed("open");
  // No memory is mapped: what somebody cuts short is an error, not a signal.
  RETURN_IF_ERROR(index->Run("PRAGMA locking_mode=EXCLUSIVE"));
  RETURN_IF_ERROR(index->Run("PRAGMA mmap_size=0"));
  RETURN_IF_ERROR(index->Run("PRAGMA cell_size_check=ON"));
  RETURN_IF_ERROR(index->Run("PRAGMA journal_mode=WAL"));
  RETURN_IF_ERROR(index->Run(sync == SpillSync::kNone   ? "PRAGMA synchronous=OFF"
                             : sync == SpillSync::kData ? "PRAGMA synchronous=NORMAL"
                                                        : "PRAGMA synchronous=FULL"));
  return index;
}

absl::Status SpillIndex::SetUp() {
  RETURN_IF_ERROR(Run("BEGIN IMMEDIATE"));
  absl::Status status =
      Run("CREATE TABLE IF NOT EXISTS records (handle TEXT PRIMARY KEY NOT NULL, record BLOB NOT "
          "NULL)");
  if (status.ok()) status = Run(absl::StrCat("PRAGMA user_version=", kVersion).c_str());
  if (status.ok()) status = Run("COMMIT");
  if (!status.ok()) (void)Run("ROLLBACK");
  return status;
}

absl::Status SpillIndex::CheckVersion() {
  const Statement version = Prepare(db_, "PRAGMA user_version");
  if (version == nullptr || sqlite3_step(version.get()) != SQLITE_ROW) return Failed("version");
  const int number = sqlite3_column_int(version.get(), 0);
  const Statement tables = Prepare(db_, "SELECT count(*) FROM sqlite_schema");
  if (tables == nullptr || sqlite3_step(tables.get()) != SQLITE_ROW) return Failed("schema");
  if (number == kVersion) return absl::OkStatus();
  if (number == 0 && sqlite3_column_int(tables.get(), 0) == 0) return absl::OkStatus();  // new
  return MakeError(
      absl::StatusCode::kFailedPrecondition, reason::kBadSpillFolder,
      absl::StrCat("the index of --spill-dir is of version ", number, "; this daemon reads ",
                   kVersion, ": start the daemon that wrote it, or name another folder"));
}

// From both ends, so that what is behind a damaged page is read, too.
absl::Status SpillIndex::ReadAll(Opened* opened) {
  std::map<int64_t, SpillRecord> records;
  for (const char* sql : {"SELECT rowid, record FROM records ORDER BY rowid",
                          "SELECT rowid, record FROM records ORDER BY rowid DESC"}) {
    const Statement rows = Prepare(db_, sql);
    if (rows == nullptr) return Failed("read");
    int step = SQLITE_ROW;
    while ((step = sqlite3_step(rows.get())) == SQLITE_ROW) {
      const auto* const data = static_cast<const char*>(sqlite3_column_blob(rows.get(), 1));
      const auto size = static_cast<size_t>(sqlite3_column_bytes(rows.get(), 1));
      if (auto record = UnpackRecord({data, size})) {
        records.insert_or_assign(sqlite3_column_int64(rows.get(), 0), *std::move(record));
      } else {
        opened->damaged = true;
      }
    }
    if (step == SQLITE_DONE) break;
    opened->damaged = true;
  }
  std::map<std::string, SpillRecord> by_handle;  // one each, whatever the damage
  for (auto& [row, record] : records) by_handle.insert_or_assign(record.handle, std::move(record));
  for (auto& [handle, record] : by_handle) opened->records.push_back(std::move(record));
  if (opened->damaged) return absl::OkStatus();
  const Statement check = Prepare(db_, "PRAGMA integrity_check(1)");
  if (check == nullptr || sqlite3_step(check.get()) != SQLITE_ROW) return Failed("check");
  const auto* const verdict = reinterpret_cast<const char*>(sqlite3_column_text(check.get(), 0));
  opened->damaged = verdict == nullptr || std::strcmp(verdict, "ok") != 0;
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<SpillIndex>> SpillIndex::Open(const std::string& folder,
                                                             const std::string& damaged,
                                                             SpillSync sync, Opened* opened) {
  const std::string file = folder + "/index.sqlite", log = file + "-wal", fresh = file + ".new";
  if (!Exists(file) && Exists(fresh)) {  // a takeover was cut off behind its first step
    unlink(log.c_str());
    RETURN_IF_ERROR(Rename(fresh, file));
  }
  unlink(fresh.c_str());
  *opened = {};
  {
    auto index = OpenFile(file, sync);
    absl::Status status = index.status();
    if (status.ok()) status = (*index)->CheckVersion();
    if (status.ok()) {
      status = (*index)->SetUp();
      const absl::Status read = (*index)->ReadAll(opened);  // what it can, in any case
      if (status.ok()) status = read;
    }
    if (status.ok() && !opened->damaged) return index;
    if (!status.ok() && !absl::IsDataLoss(status)) return status;
  }
  opened->damaged = true;
  {
    ASSIGN_OR_RETURN(const auto index, OpenFile(fresh, sync));
    RETURN_IF_ERROR(index->Run("PRAGMA journal_mode=DELETE"));
    RETURN_IF_ERROR(index->SetUp());
    for (const SpillRecord& record : opened->records) RETURN_IF_ERROR(index->Put(record));
  }
  const std::string aside = absl::StrCat(damaged, "/index.", RandomId());
  if (Exists(file)) RETURN_IF_ERROR(Rename(file, aside));
  if (Exists(log)) RETURN_IF_ERROR(Rename(log, aside + "-wal"));
  RETURN_IF_ERROR(Rename(fresh, file));
  return OpenFile(file, sync);
}

absl::Status SpillIndex::Put(const SpillRecord& record) {
  const Statement put =
      Prepare(db_, "INSERT OR REPLACE INTO records (handle, record) VALUES (?1, ?2)");
  if (put == nullptr) return Failed("write");
  const std::string packed = PackRecord(record);
  const auto size = [](const std::string& text) { return static_cast<int>(text.size()); };
  sqlite3_bind_text(put.get(), 1, record.handle.data(), size(record.handle), SQLITE_STATIC);
  sqlite3_bind_blob(put.get(), 2, packed.data(), size(packed), SQLITE_STATIC);
  return sqlite3_step(put.get()) == SQLITE_DONE ? absl::OkStatus() : Failed("write");
}

absl::Status SpillIndex::Delete(const std::vector<std::string>& handles) {
  if (handles.empty()) return absl::OkStatus();
  const Statement row = Prepare(db_, "DELETE FROM records WHERE handle = ?1");
  if (row == nullptr) return Failed("delete");
  RETURN_IF_ERROR(Run("BEGIN IMMEDIATE"));
  for (const std::string& handle : handles) {
    sqlite3_reset(row.get());
    sqlite3_bind_text(row.get(), 1, handle.data(), static_cast<int>(handle.size()), SQLITE_STATIC);
    if (sqlite3_step(row.get()) == SQLITE_DONE) continue;
    absl::Status failed = Failed("delete");
    sqlite3_reset(row.get());
    (void)Run("ROLLBACK");
    return failed;
  }
  sqlite3_reset(row.get());
  absl::Status status = Run("COMMIT");
  if (!status.ok()) (void)Run("ROLLBACK");
  return status;
}

}  // namespace spaid::server
