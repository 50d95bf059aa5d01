#include "kernels/base/cgroup.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

namespace spaid::kernels {
namespace {

// v1 writes "no limit" as the largest page-aligned int64; anything of that order is none.
constexpr int64_t kNoMemoryLimit = int64_t{1} << 60;

std::optional<std::string> FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

std::optional<int64_t> Integer(const std::string& text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return value;
}

void TightenCpus(double cpus, CgroupLimits& limits) {
  if (cpus > 0) limits.cpus = limits.cpus > 0 ? std::min(limits.cpus, cpus) : cpus;
}

void TightenMemory(int64_t bytes, CgroupLimits& limits) {
  if (bytes <= 0 || bytes >= kNoMemoryLimit) return;
  limits.memory_bytes = limits.memory_bytes > 0 ? std::min(limits.memory_bytes, bytes) : bytes;
}

// "max 100000" or "150000 100000".
void ReadCpuMax(const std::string& folder, CgroupLimits& limits) {
  const auto line = FirstLine(folder + "/cpu.max");
  if (!line) return;
  std::istringstream words(*line);
  std::string quota_text, period_text;
  words >> quota_text >> period_text;
  const auto quota = Integer(quota_text), period = Integer(period_text);
  if (quota && period && *period > 0) TightenCpus(double(*quota) / double(*period), limits);
}

void ReadCpuQuotaV1(const std::string& folder, CgroupLimits& limits) {
  const auto quota_line = FirstLine(folder + "/cpu.cfs_quota_us");
  const auto period_line = FirstLine(folder + "/cpu.cfs_period_us");
  if (!quota_line || !period_line) return;
  const auto quota = Integer(*quota_line), period = Integer(*period_line);
  if (quota && period && *period > 0) TightenCpus(double(*quota) / double(*period), limits);
}

void ReadMemory(const std::string& file, CgroupLimits& limits) {
  const auto line = FirstLine(file);
  const auto bytes = line ? Integer(*line) : std::nullopt;
  if (bytes) TightenMemory(*bytes, limits);
}

// The group itself, its parents, and last the mount. In a container without a cgroup name space the
// path is the host's and does not exist under the mount; the walk then ends at the container's
// group.
template <class Read>
void UpToMount(const std::string& mount, std::string path, const Read& read) {
  while (path.size() > 1) {
    read(mount + path);
    path.resize(path.rfind('/'));
  }
  read(mount);
}

}  // namespace

CgroupLimits ReadCgroupLimits(const std::string& root) {
  CgroupLimits limits;
  const std::string base = root + "/sys/fs/cgroup";
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // hierarchy:controllers:path
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (path.empty() || path[0] != '/') continue;
    if (controllers.empty()) {  // v2
      const auto read = [&](const std::string& folder) {
        ReadCpuMax(folder, limits);
        ReadMemory(folder + "/memory.max", limits);
      };
      UpToMount(base, path, read);
      UpToMount(base + "/unified", path, read);
      continue;
    }
    // A joint hierarchy is mounted as "cpu,cpuacct", its parts are links to it (or are missing).
    std::vector<std::string> names{controllers};
    std::istringstream list(controllers);
    for (std::string name; std::getline(list, name, ',');) names.push_back(name);
    for (const std::string& name : names) {
      const std::string mount = base + "/" + name;
      if (("," + controllers + ",").find(",cpu,") != std::string::npos) {
        UpToMount(mount, path, [&](const std::string& f) { ReadCpuQuotaV1(f, limits); });
      }
      if (("," + controllers + ",").find(",memory,") != std::string::npos) {
        UpToMount(mount, path,
                  [&](const std::string& f) { ReadMemory(f + "/memory.limit_in_bytes", limits); });
      }
    }
  }
  return limits;
}

}  // namespace spaid::kernels
