#include "server/base/process.h"

#include <dirent.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <sstream>
#include <string>

namespace spaid::server {
namespace {

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

// The kernel tells it in ticks since it booted.
double StartSeconds() {
  std::ifstream file("/proc/self/stat");
  std::string stat;
  std::getline(file, stat);
  const size_t name_end = stat.rfind(')');  // the name may hold anything
  if (name_end == std::string::npos) return 0;
  std::istringstream fields(stat.substr(name_end + 1));
  std::string skipped;
  for (int field = 3; field < 22; ++field) fields >> skipped;
  double ticks = 0;
  timespec since_boot{};
  if (!(fields >> ticks) || clock_gettime(CLOCK_BOOTTIME, &since_boot) != 0) return 0;
  const double age = static_cast<double>(since_boot.tv_sec) +
                     1e-9 * static_cast<double>(since_boot.tv_nsec) -
                     ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  return now.count() - age;
}

int64_t OpenDescriptors() {
  DIR* const folder = opendir("/proc/self/fd");
  if (folder == nullptr) return 0;
  int64_t entries = 0;
  while (readdir(folder) != nullptr) ++entries;
  closedir(folder);
  return entries - 3;  // ".", "..", and the folder's own
}

}  // namespace

int64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t total = 0, resident = 0;
  statm >> total >> resident;
  return statm ? resident * sysconf(_SC_PAGESIZE) : 0;
}

ProcessFigures ReadProcess() {
  static const double started = StartSeconds();  // one value, whatever becomes of the clock
  ProcessFigures figures{.start_seconds = started,
                         .resident_bytes = ResidentBytes(),
                         .open_descriptors = OpenDescriptors()};
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) == 0) {
    figures.cpu_seconds = Seconds(usage.ru_utime) + Seconds(usage.ru_stime);
  }
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    figures.max_descriptors = static_cast<int64_t>(limit.rlim_cur);
  }
  return figures;
}

}  // namespace spaid::server
