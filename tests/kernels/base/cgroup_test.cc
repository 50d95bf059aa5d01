#include "kernels/base/cgroup.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace spaid::kernels {
namespace {

// A small /proc and /sys of its own for every test.
class CgroupTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "/spaid_cgroup_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  CgroupLimits Read() const { return ReadCgroupLimits(root_); }

  std::string root_;
};

TEST_F(CgroupTest, NothingThereIsNoLimit) {
  EXPECT_EQ(Read().cpus, 0);
  EXPECT_EQ(Read().memory_bytes, 0);
}

TEST_F(CgroupTest, V2TheTightestParentBinds) {
  Write("/proc/self/cgroup", "0::/pods/one/app\n");
  Write("/sys/fs/cgroup/pods/one/app/cpu.max", "max 100000\n");
  Write("/sys/fs/cgroup/pods/one/app/memory.max", "max\n");
  Write("/sys/fs/cgroup/pods/one/cpu.max", "150000 100000\n");
  Write("/sys/fs/cgroup/pods/one/memory.max", "1073741824\n");
  Write("/sys/fs/cgroup/pods/cpu.max", "800000 100000\n");
  Write("/sys/fs/cgroup/pods/memory.max", "8589934592\n");
  EXPECT_DOUBLE_EQ(Read().cpus, 1.5);
  EXPECT_EQ(Read().memory_bytes, int64_t{1} << 30);
}

TEST_F(CgroupTest, V2InAContainerThatSeesTheHostsPath) {
  Write("/proc/self/cgroup", "0::/kubepods/burstable/pod1/abc\n");
  Write("/sys/fs/cgroup/cpu.max", "400000 100000\n");
  Write("/sys/fs/cgroup/memory.max", "2147483648\n");
  EXPECT_DOUBLE_EQ(Read().cpus, 4);
  EXPECT_EQ(Read().memory_bytes, int64_t{2} << 30);
}

TEST_F(CgroupTest, V1WithJointControllers) {
  Write("/proc/self/cgroup", "5:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n3:cpuset:/x\n");
  Write("/sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_quota_us", "50000\n");
  Write("/sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_period_us", "100000\n");
  Write("/sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "536870912\n");
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_DOUBLE_EQ(Read().cpus, 0.5);
  EXPECT_EQ(Read().memory_bytes, int64_t{512} << 20);
}

TEST_F(CgroupTest, V1UnlimitedIsNoLimit) {
  Write("/proc/self/cgroup", "5:memory:/\n4:cpu:/\n");
  Write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  Write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(Read().cpus, 0);
  EXPECT_EQ(Read().memory_bytes, 0);
}

TEST_F(CgroupTest, NonsenseIsNoLimit) {
  Write("/proc/self/cgroup", "garbage\n0::\n0::relative\n0::/a\n");
  Write("/sys/fs/cgroup/a/cpu.max", "many 0\n");
  Write("/sys/fs/cgroup/a/memory.max", "-5\n");
  Write("/sys/fs/cgroup/cpu.max", "100 0\n");
  Write("/sys/fs/cgroup/memory.max", "99999999999999999999999999\n");
  EXPECT_EQ(Read().cpus, 0);
  EXPECT_EQ(Read().memory_bytes, 0);
}

}  // namespace
}  // namespace spaid::kernels
