// The fixture of tests that share one daemon.
#pragma once

#include <gtest/gtest.h>

#include <memory>

#include "tests/e2e/daemon.h"

namespace spaid::e2e {

// A daemon without flags of its own, which the suite starts and ends.
class OneDaemon : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { daemon_ = std::make_unique<Daemon>(); }
  static void TearDownTestSuite() { daemon_.reset(); }
  void SetUp() override { ASSERT_TRUE(daemon_->serving()) << daemon_->log(); }

  static inline std::unique_ptr<Daemon> daemon_;
};

}  // namespace spaid::e2e
