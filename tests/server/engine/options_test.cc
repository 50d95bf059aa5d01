// Options are described in proto/spaid/v1/options.proto, checked by the kernels, and have defaults
// in the kernels and in the client's structs: that all of these agree.
#include "kernels/engine/options.h"

#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <string>

#include "client/cpp/convert.h"
#include "proto/fields.h"
#include "server/engine/convert.h"
#include "server/engine/resolved_build.h"

namespace spaid::server {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

// Compares the ranges that the kernels check with those of the contract.
template <class Options>
void ExpectRanges(const Descriptor& type) {
  std::set<std::string> seen;
  const Options defaults;
  Options::Fields(defaults, [&](const std::string& name, const auto& member,
                                const kernels::OptionRange& range) {
    const FieldDescriptor* field = type.FindFieldByName(name);
    if (field == nullptr) return;  // the kernels' own
    seen.insert(name);
    ASSERT_TRUE(field->options().HasExtension(v1::option)) << type.name() << "." << name;
    const v1::Option& option = wire::OptionOf(*field);
    if (std::is_enum_v<std::decay_t<decltype(member)>> || field->message_type() != nullptr ||
        field->cpp_type() == FieldDescriptor::CPPTYPE_BOOL) {
      EXPECT_FALSE(option.has_min() || option.has_max()) << name;
      return;
    }
    EXPECT_EQ(option.has_min(), true) << type.name() << "." << name;
    EXPECT_EQ(option.min(), range.min) << type.name() << "." << name;
    EXPECT_EQ(option.has_max() ? option.max() : std::numeric_limits<double>::max(), range.max)
        << type.name() << "." << name;
    EXPECT_EQ(option.below_max(), range.below_max) << type.name() << "." << name;
  });
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    if (!field.options().HasExtension(v1::option)) continue;
    // Handles, which the server looks up, and what it has found before.
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_STRING || field.name() == "regrow") continue;
    EXPECT_TRUE(seen.contains(field.name())) << type.name() << "." << field.name();
  }
}

TEST(OptionsTest, TheKernelsCheckTheRangesOfTheContract) {
  ExpectRanges<kernels::StaticSpaiOptions>(*v1::StaticSpaiSpec::descriptor());
  ExpectRanges<kernels::FsaiOptions>(*v1::FsaiSpec::descriptor());
  ExpectRanges<kernels::DynamicSpaiOptions>(*v1::DynamicSpaiSpec::descriptor());
  ExpectRanges<kernels::AmgOptions>(*v1::AmgSpec::descriptor());
  ExpectRanges<kernels::SolveOptions>(*v1::SolveHeader::descriptor());
  const v1::Option& block = wire::OptionOf(*v1::JacobiSpec::descriptor()->field(0));
  EXPECT_EQ(block.min(), 1);
  EXPECT_EQ(block.max(), kernels::kMaxBlockSize);
  const v1::Option& factor =
      wire::OptionOf(*v1::ReusePolicy::descriptor()->FindFieldByName("factor"));
  EXPECT_EQ(factor.min(), 1);
  EXPECT_FALSE(factor.above_min() || factor.has_max());
}

TEST(OptionsTest, EngineNamesAreThoseOfTheWire) {
  const Descriptor& spec = *v1::PreconditionerSpec::descriptor();
  const auto expect_known = [](const FieldDescriptor& field) {
    for (const std::string& engine : wire::OptionOf(field).engines()) {
      EXPECT_NE(v1::EngineKind_descriptor()->FindValueByName("ENGINE_KIND_" + engine), nullptr)
          << field.full_name() << ": " << engine;
    }
  };
  for (int i = 0; i < spec.field_count(); ++i) {
    const FieldDescriptor& message = *spec.field(i);
    expect_known(message);
    if (message.message_type() == nullptr) continue;
    EXPECT_FALSE(wire::OptionOf(message).engines().empty()) << message.full_name();
    for (int k = 0; k < message.message_type()->field_count(); ++k) {
      expect_known(*message.message_type()->field(k));
    }
  }
}

TEST(OptionsTest, DefaultsOfTheClientAreThoseOfTheKernels) {
  for (const EngineTraits& traits : kEngines) {
    const Engine engine = traits.engine;
    PreconditionerSpec sent;
    sent.engine = engine;
    v1::PreconditionerSpec unset;
    unset.set_engine(internal::ToProto(sent).engine());
    const auto parsed = ParseSpec(internal::ToProto(sent), "spec");
    const auto defaults = ParseSpec(unset, "spec");
    ASSERT_TRUE(parsed.ok() && defaults.ok()) << Name(engine);
    EXPECT_EQ(ToProto(parsed->spec, {}).SerializeAsString(),
              ToProto(defaults->spec, {}).SerializeAsString())
        << Name(engine);
  }
  v1::SolveHeader header;
  internal::Set(SolveOptions(), &header);
  const auto parsed = ParseSolve(header, "header");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  const kernels::SolveOptions defaults;
  EXPECT_EQ(parsed->options.rtol, defaults.rtol);
  EXPECT_EQ(parsed->options.atol, defaults.atol);
  EXPECT_EQ(parsed->options.max_iterations, defaults.max_iterations);
  EXPECT_EQ(parsed->options.restart, defaults.restart);
  EXPECT_EQ(parsed->options.basis_bytes, defaults.basis_bytes);
  EXPECT_EQ(parsed->options.shadow_vectors, defaults.shadow_vectors);
  EXPECT_EQ(parsed->options.m_storage, defaults.m_storage);
  header.set_preconditioner("preconditioners/1");
  *header.mutable_reuse() = internal::ToProto(spaid::ReusePolicy());
  const auto reuse = ParseSolve(header, "header");
  ASSERT_TRUE(reuse.ok()) << reuse.status();
  EXPECT_EQ(reuse->reuse.mode, ReusePolicy().mode);
  EXPECT_EQ(reuse->reuse.factor, ReusePolicy().factor);
}

}  // namespace
}  // namespace spaid::server
