// The scaling of a spec, and what was done, between client.h and the wire.
#include <gtest/gtest.h>

#include "client/cpp/convert.h"
#include "client/cpp/options.h"

namespace spaid {
namespace {

TEST(ScalingSpecs, GoThereAndBack) {
  for (const EngineTraits& traits : kEngines) {
    PreconditionerSpec spec{.engine = traits.engine};
    EXPECT_EQ(internal::ToProto(spec).scaling(), v1::SCALING_UNSPECIFIED) << traits.name;
    EXPECT_FALSE(internal::FromProto(internal::ToProto(spec)).scaling);
    for (const Scaling scaling :
         {Scaling::kAuto, Scaling::kNone, Scaling::kEquilibrate, Scaling::kMatching}) {
      spec.scaling = scaling;
      const v1::PreconditionerSpec sent = internal::ToProto(spec);
      EXPECT_EQ(static_cast<int>(sent.scaling()), static_cast<int>(scaling) + 1) << Name(scaling);
      EXPECT_EQ(internal::FromProto(sent).scaling, scaling);
    }
    EXPECT_FALSE(internal::FromProto(internal::ToProto(spec)).regrow);
    spec.regrow = true;
    EXPECT_TRUE(internal::ToProto(spec).regrow()) << traits.name;
    EXPECT_TRUE(internal::FromProto(internal::ToProto(spec)).regrow) << traits.name;
  }
  PreconditionerSpec forged{.engine = Engine::kFsai, .scaling = static_cast<Scaling>(9)};
  EXPECT_EQ(internal::ToProto(forged).scaling(), -1) << "the server names those that are";
}

TEST(ScalingSpecs, AreAnOptionOfTheSpecItself) {
  const internal::OptionInfo* info = internal::FindOption("", "scaling", Engine::kFsai);
  ASSERT_NE(info, nullptr);
  EXPECT_EQ(info->flag, "--scaling");
  EXPECT_EQ(info->choices, (std::vector<std::string>{"auto", "none", "equilibrate", "matching"}));
  EXPECT_EQ(info->message, nullptr);
}

TEST(ScalingFigures, ComeFieldForField) {
  v1::BuildQuality in;
  EXPECT_EQ(internal::FromProto(in).scaling, Scaling::kNone);
  EXPECT_FALSE(internal::FromProto(in).scaling_reused);
  in.set_scaling(v1::SCALING_MATCHING);
  in.set_scaling_reused(true);
  EXPECT_EQ(internal::FromProto(in).scaling, Scaling::kMatching);
  EXPECT_TRUE(internal::FromProto(in).scaling_reused);
}

}  // namespace
}  // namespace spaid
