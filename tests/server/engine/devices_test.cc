#include "server/engine/devices.h"

#include <gtest/gtest.h>

#include "server/base/status.h"
#include "tests/server/fake_engine.h"

namespace spaid::server {
namespace {

kernels::CudaDevices TwoGpus() {
  kernels::CudaDevices found;
  found.available = true;
  found.status = "2 devices, driver 13.0";
  found.devices = {FakeGpu(0), FakeGpu(1)};
  return found;
}

kernels::CudaDevices NoGpu() {
  kernels::CudaDevices found;
  found.status = "no driver";
  return found;
}

std::vector<int> Ordinals(const DeviceChoice& choice) {
  std::vector<int> ordinals;
  for (const auto& gpu : choice.gpus) ordinals.push_back(gpu.index);
  return ordinals;
}

TEST(DevicesTest, AutoIsTheCpuAndGpu0WhereThereIsOne) {
  auto choice = ChooseDevices("auto", TwoGpus());
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_TRUE(choice->cpu);
  EXPECT_EQ(Ordinals(*choice), std::vector<int>{0});
  choice = ChooseDevices("auto", NoGpu());
  ASSERT_TRUE(choice.ok());
  EXPECT_TRUE(choice->cpu);
  EXPECT_TRUE(choice->gpus.empty());
}

TEST(DevicesTest, NamesAreTakenByOrdinalAndUuid) {
  auto choice = ChooseDevices("gpu-1,gpu:0", TwoGpus());
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_FALSE(choice->cpu) << "a GPU that is named does not bring the CPU along";
  EXPECT_EQ(Ordinals(*choice), (std::vector<int>{1, 0}));
  choice = ChooseDevices("gpu:1,cpu", TwoGpus());
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_TRUE(choice->cpu);
  EXPECT_EQ(Ordinals(*choice), std::vector<int>{1});
}

TEST(DevicesTest, WhatIsWrongSaysTheFlagWhatWasFoundAndTheCure) {
  for (const char* flag :
       {"", "abacus", "gpu", "gpu:", "gpu:x", "gpu:-1", "gpu:0x", "cpu,", "auto,cpu", "cpu,cpu"}) {
    const absl::Status status = CheckDevicesFlag(flag);
    EXPECT_EQ(ReasonOf(status), "BAD_FLAG") << flag;
    EXPECT_NE(status.message().find("--devices"), std::string::npos) << status;
    EXPECT_NE(status.message().find("auto for"), std::string::npos) << status;
  }
  for (const char* flag : {"gpu:0,GPU-0", "gpu:2", "GPU-7", "cpu,gpu:2"}) {
    EXPECT_TRUE(CheckDevicesFlag(flag).ok()) << flag;
    EXPECT_EQ(ReasonOf(ChooseDevices(flag, TwoGpus()).status()), "BAD_FLAG") << flag;
  }
  const absl::Status absent = ChooseDevices("gpu:2", TwoGpus()).status();
  EXPECT_NE(absent.message().find("there is no gpu:2; found: cpu, gpu:0 (fake GPU, GPU-0), gpu:1"),
            std::string::npos)
      << absent;
  const absl::Status none = ChooseDevices("gpu:0", NoGpu()).status();
  EXPECT_NE(none.message().find("found: cpu; CUDA: no driver"), std::string::npos) << none;
}

TEST(DevicesTest, AutoDoesWithoutAGpuThatCannotBeOpened) {
  // None of these is in this machine; where there is a real GPU 0, it is opened instead.
  kernels::CudaDevices found = TwoGpus();
  for (auto& gpu : found.devices) gpu.index += 1000;
  found.devices[0].index = 0;
  if (kernels::ListCudaDevices().available) GTEST_SKIP() << "there is a GPU, which opens";
  auto opened = OpenEngine("auto", 0, 1, found);
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(opened->engine->Devices().size(), 1u);
  EXPECT_EQ(opened->idle.size(), 2u);
  EXPECT_NE(opened->cuda_status.find("not used: gpu:0"), std::string::npos) << opened->cuda_status;

  const auto named = OpenEngine("cpu,gpu:0", 0, 1, found);
  EXPECT_EQ(ReasonOf(named.status()), "DEVICE_UNAVAILABLE");
  EXPECT_NE(named.status().message().find("--devices=cpu,gpu:0"), std::string::npos);
}

TEST(DevicesTest, TheCpuAlone) {
  auto opened = OpenEngine("cpu", 0, 1, TwoGpus());
  ASSERT_TRUE(opened.ok());
  ASSERT_EQ(opened->engine->Devices().size(), 1u);
  EXPECT_EQ(DeviceName(opened->engine->Devices()[0]), "cpu");
  EXPECT_EQ(opened->idle.size(), 2u);
  EXPECT_TRUE(opened->engine->Probe(0).ok());
  EXPECT_FALSE(opened->engine->State(0).lost);
}

TEST(DevicesTest, RanksBringTheCpuAlong) {
  for (const char* flag : {"mpi", "mpi,cpu", "cpu,mpi"}) {
    const auto choice = ChooseDevices(flag, NoGpu());
    ASSERT_TRUE(choice.ok()) << choice.status();
    EXPECT_TRUE(choice->ranks);
    EXPECT_TRUE(choice->cpu);
  }
  EXPECT_FALSE(ChooseDevices("cpu", NoGpu())->ranks);
  EXPECT_EQ(DeviceName(FakeRanks(4, 8)), "mpi:4");
  for (const char* flag : {"mpi:4", "mpix", "auto,mpi"}) {
    EXPECT_EQ(ReasonOf(CheckDevicesFlag(flag)), "BAD_FLAG") << flag;
  }
  EXPECT_NE(CheckDevicesFlag("mpi,mpi").message().find("mpi is named twice"), std::string::npos);
  const auto none = JoinRanks("cpu", "spaid", 1, {});
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_EQ(none->device, nullptr);
  EXPECT_FALSE(none->exit_code.has_value());
}

}  // namespace
}  // namespace spaid::server
