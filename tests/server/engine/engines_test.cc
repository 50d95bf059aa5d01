// Every engine of the table on its way from the wire and back.
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/engine/engine.h"
#include "server/base/reasons.h"
#include "server/engine/convert.h"
#include "server/engine/resolved_build.h"
#include "tests/server/engine/matrices.h"

namespace spaid::server {
namespace {

TEST(Engines, HaveTheNumbersAndNamesOfTheWire) {
  int known = 0;
  for (const kernels::EngineKind kind : kernels::EngineKinds()) {
    EXPECT_EQ(v1::EngineKind_Name(ToProto(kind)),
              absl::StrCat("ENGINE_KIND_", kernels::WireName(kind)));
    ++known;
  }
  // None but UNSPECIFIED is left out.
  for (int number = 1; number <= v1::EngineKind_MAX; ++number) {
    known -= v1::EngineKind_IsValid(number) ? 1 : 0;
  }
  EXPECT_EQ(known, 0);
}

TEST(Engines, ReadTheOptionsOfTheirFieldOnTheWire) {
  const auto* spec = v1::PreconditionerSpec::descriptor();
  for (const kernels::EngineKind kind : kernels::EngineKinds()) {
    const std::string field(kernels::TraitsOf(kind).options_field);
    if (!field.empty()) {
      EXPECT_NE(spec->FindFieldByName(field), nullptr) << field;
    }
  }
}

// A spec that came from the wire, resolved, goes there and comes back the same, and resolves to
// itself.
TEST(Engines, ResolvedSpecsComeBackFromTheWire) {
  const auto engine = kernels::MakeCpuEngine();
  const kernels::CscMatrix a = Diagonal(5);
  const kernels::Diagnosis diagnosis = kernels::Diagnose(a);
  for (const kernels::EngineKind kind : kernels::EngineKinds()) {
    if (kind == kernels::EngineKind::kAuto) continue;
    v1::PreconditionerSpec asked;
    asked.set_engine(ToProto(kind));
    asked.mutable_jacobi()->set_block_size(3);
    asked.mutable_static_spai()->set_keep_tau(0.25);
    asked.mutable_static_spai()->set_local_solver(v1::LOCAL_SOLVER_QR);
    asked.mutable_static_spai()->set_thread_strategy(v1::THREAD_STRATEGY_AUTO);
    asked.mutable_fsai()->set_post_filter(0.125);
    asked.mutable_dynamic_spai()->set_max_steps(3);
    const auto parsed = ParseSpec(asked, "spec");
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    const auto resolved = engine->Resolve(parsed->spec, a, diagnosis, nullptr, {});
    if (kernels::TraitsOf(kind).ranks_alone) {
      EXPECT_EQ(resolved.status().reason(), reason::kRanksNeeded);
      continue;
    }
    ASSERT_TRUE(resolved.ok()) << resolved.status().message();
    const v1::PreconditionerSpec shown = ToProto(resolved->spec, {});
    EXPECT_EQ(shown.engine(), asked.engine());
    const auto again = ParseSpec(shown, "spec");
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(ToProto(again->spec, {}).DebugString(), shown.DebugString());
    const auto twice = engine->Resolve(again->spec, a, diagnosis, nullptr, {});
    ASSERT_TRUE(twice.ok());
    EXPECT_EQ(ToProto(twice->spec, {}).DebugString(), shown.DebugString());
  }
}

}  // namespace
}  // namespace spaid::server
