#include "kernels/base/cuda_loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "kernels/base/build_id.h"

namespace spaid::kernels {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A stand-in for libspaid_cuda.so: beside this program, or in ../lib of a build tree.
std::string FakeCuda(const std::string& name) {
  const auto here = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  const std::string file = "libfake_cuda_" + name + ".so";
  const auto beside = here / file;
  return std::filesystem::exists(beside) ? beside.string() : (here / "../lib" / file).string();
}

TEST(CudaLoaderTest, ListsDevices) {
  const CudaDevices cuda = LoadCudaDevices({"/nonexistent/libspaid_cuda.so", FakeCuda("devices")});
  ASSERT_TRUE(cuda.available) << cuda.status;
  EXPECT_EQ(cuda.status, "20 devices, driver 13.1, runtime 13.0");
  ASSERT_EQ(cuda.devices.size(), 20u);
  const DeviceInfo& last = cuda.devices[19];
  EXPECT_EQ(last.backend, Backend::kCuda);
  EXPECT_EQ(last.index, 19);
  EXPECT_EQ(last.name, "Fake 19");
  EXPECT_EQ(last.uuid, "GPU-00000019");
  EXPECT_EQ(last.memory_bytes, int64_t{80} << 30);
  EXPECT_EQ(last.compute_capability_major, 9);
  EXPECT_EQ(last.compute_capability_minor, 1);
}

TEST(CudaLoaderTest, NotFoundNamesEveryPlace) {
  const CudaDevices cuda =
      LoadCudaDevices({"/nowhere/a/libspaid_cuda.so", "libspaid_no_such_library.so"});
  EXPECT_FALSE(cuda.available);
  EXPECT_TRUE(cuda.devices.empty());
  EXPECT_THAT(cuda.status, AllOf(HasSubstr("not found"), HasSubstr("/nowhere/a/libspaid_cuda.so"),
                                 HasSubstr("the loader's path")));
}

TEST(CudaLoaderTest, SaysWhatAnswersWrong) {
  const struct {
    std::string path;
    std::string why;
  } cases[] = {
      {FakeCuda("no_driver"), "no NVIDIA driver answers (cudaSomething: fake words)"},
      {FakeCuda("old_driver"), "the NVIDIA driver is for CUDA 11.4"},
      {FakeCuda("no_device"), "no CUDA device is visible"},
      {FakeCuda("broken"), "CUDA does not work here: cudaSomething: fake words"},
      {FakeCuda("old_build"),
       "is of build 0123456789abcdef, this program is of build " SPAID_BUILD_ID},
      {FakeCuda("not_ours"), "has no symbol spaid_cuda_entry"},
  };
  for (const auto& c : cases) {
    // A good library behind the bad one must not hide that the installation is broken.
    const CudaDevices cuda = LoadCudaDevices({c.path, FakeCuda("devices")});
    EXPECT_FALSE(cuda.available) << c.path;
    EXPECT_TRUE(cuda.devices.empty()) << c.path;
    EXPECT_THAT(cuda.status, HasSubstr(c.why)) << c.path;
  }
}

TEST(CudaLoaderTest, FileThatIsNoLibrary) {
  const std::string path = testing::TempDir() + "/libspaid_cuda_text.so";
  std::ofstream(path) << std::string(4096, 'x');
  const CudaDevices cuda = LoadCudaDevices({path});
  std::remove(path.c_str());
  EXPECT_FALSE(cuda.available);
  EXPECT_THAT(cuda.status, AllOf(HasSubstr("cannot load " + path), HasSubstr("ELF")));
}

TEST(CudaLoaderTest, LooksBesideTheProgramThenInLibThenOnTheLoadersPath) {
  const auto candidates = CudaLibraryCandidates();
  ASSERT_EQ(candidates.size(), 3u);
  EXPECT_THAT(candidates[0], testing::EndsWith("/bin/libspaid_cuda.so"));
  EXPECT_THAT(candidates[1], testing::EndsWith("/lib/libspaid_cuda.so"));
  EXPECT_EQ(candidates[2], "libspaid_cuda.so");
}

}  // namespace
}  // namespace spaid::kernels
