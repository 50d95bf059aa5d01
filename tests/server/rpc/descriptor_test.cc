// Holds v1 to what was published: the golden descriptors are a snapshot, and everything in it must
// still be there, with its number, type, label and shape. Additions are compatible; they are added
// to the snapshot by
//   protoc -I proto --include_imports --descriptor_set_out=/dev/stdout
//       proto/google/rpc/*.proto proto/spaid/v1/*.proto |
//     protoc -I /usr/include --decode=google.protobuf.FileDescriptorSet
//       google/protobuf/descriptor.proto
#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "golden.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "spaid/v1/job.pb.h"
#include "spaid/v1/local.pb.h"
#include "spaid/v1/matrix.pb.h"
#include "spaid/v1/preconditioner.pb.h"
#include "spaid/v1/server.pb.h"
#include "spaid/v1/solver.pb.h"

namespace {

using google::protobuf::DescriptorProto;
using google::protobuf::EnumDescriptorProto;
using google::protobuf::FieldDescriptorProto;
using google::protobuf::FileDescriptorProto;
using google::protobuf::FileDescriptorSet;
using google::protobuf::ServiceDescriptorProto;

template <class List>
auto Find(const List& list, const std::string& name) -> decltype(&list.Get(0)) {
  for (const auto& item : list) {
    if (item.name() == name) return &item;
  }
  return nullptr;
}

void CompareEnum(const EnumDescriptorProto& old, const EnumDescriptorProto* now,
                 const std::string& where, std::vector<std::string>* broken) {
  if (now == nullptr) return broken->push_back(where + ": enum removed");
  for (const auto& value : old.value()) {
    const auto* found = Find(now->value(), value.name());
    if (found == nullptr) {
      broken->push_back(where + "." + value.name() + ": value removed");
    } else if (found->number() != value.number()) {
      broken->push_back(where + "." + value.name() + ": value renumbered");
    }
  }
}

void CompareMessage(const DescriptorProto& old, const DescriptorProto* now,
                    const std::string& where, std::vector<std::string>* broken) {
  if (now == nullptr) return broken->push_back(where + ": message removed");
  const auto oneof = [](const DescriptorProto& m, const FieldDescriptorProto& f) {
    return f.has_oneof_index() ? m.oneof_decl(f.oneof_index()).name() : std::string();
  };
  for (const auto& field : old.field()) {
    const std::string at = where + "." + field.name();
    const auto* found = Find(now->field(), field.name());
    if (found == nullptr) {
      broken->push_back(at + ": field removed");
    } else if (found->number() != field.number()) {
      broken->push_back(at + ": field renumbered");
    } else if (found->type() != field.type() || found->type_name() != field.type_name() ||
               found->label() != field.label() ||
               found->proto3_optional() != field.proto3_optional()) {
      broken->push_back(at + ": type changed");
    } else if (oneof(*now, *found) != oneof(old, field)) {
      broken->push_back(at + ": oneof changed");
    }
  }
  for (const auto& nested : old.nested_type()) {
    CompareMessage(nested, Find(now->nested_type(), nested.name()), where + "." + nested.name(),
                   broken);
  }
  for (const auto& e : old.enum_type()) {
    CompareEnum(e, Find(now->enum_type(), e.name()), where + "." + e.name(), broken);
  }
}

void CompareService(const ServiceDescriptorProto& old, const ServiceDescriptorProto* now,
                    const std::string& where, std::vector<std::string>* broken) {
  if (now == nullptr) return broken->push_back(where + ": service removed");
  for (const auto& method : old.method()) {
    const std::string at = where + "." + method.name();
    const auto* found = Find(now->method(), method.name());
    if (found == nullptr) {
      broken->push_back(at + ": method removed");
    } else if (found->input_type() != method.input_type() ||
               found->output_type() != method.output_type()) {
      broken->push_back(at + ": request or response changed");
    } else if (found->client_streaming() != method.client_streaming() ||
               found->server_streaming() != method.server_streaming()) {
      broken->push_back(at + ": streaming changed");
    }
  }
}

// What in `old` is no longer so in `now`.
std::vector<std::string> Incompatibilities(const FileDescriptorSet& old,
                                           const FileDescriptorSet& now) {
  std::vector<std::string> broken;
  for (const FileDescriptorProto& file : old.file()) {
    const FileDescriptorProto* found = Find(now.file(), file.name());
    if (found == nullptr || found->package() != file.package()) {
      broken.push_back(file.name() + ": file removed or moved to another package");
      continue;
    }
    for (const auto& message : file.message_type()) {
      CompareMessage(message, Find(found->message_type(), message.name()), message.name(), &broken);
    }
    for (const auto& e : file.enum_type()) {
      CompareEnum(e, Find(found->enum_type(), e.name()), e.name(), &broken);
    }
    for (const auto& service : file.service()) {
      CompareService(service, Find(found->service(), service.name()), service.name(), &broken);
    }
  }
  return broken;
}

FileDescriptorSet Golden() {
  FileDescriptorSet set;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(kGolden, &set));
  return set;
}

FileDescriptorSet Compiled() {
  FileDescriptorSet set;
  const auto* pool = google::protobuf::DescriptorPool::generated_pool();
  const FileDescriptorSet golden = Golden();
  for (const auto& file : golden.file()) {
    if (const auto* found = pool->FindFileByName(file.name())) found->CopyTo(set.add_file());
  }
  return set;
}

DescriptorProto* Message(FileDescriptorSet* set, const std::string& name) {
  for (auto& file : *set->mutable_file()) {
    for (auto& message : *file.mutable_message_type()) {
      if (message.name() == name) return &message;
    }
  }
  ADD_FAILURE() << name;
  return nullptr;
}

class WireContract : public testing::Test {
 protected:
  void SetUp() override {
    // A file is in the pool only once an object of its is linked.
    for (const auto* type :
         {google::rpc::Status::descriptor(), google::rpc::ErrorInfo::descriptor(),
          spaid::v1::UploadMatrixRequest::descriptor(), spaid::v1::SolveRequest::descriptor(),
          spaid::v1::BuildPreconditionerRequest::descriptor(), spaid::v1::Job::descriptor(),
          spaid::v1::GetServerInfoRequest::descriptor(), spaid::v1::LocalRequest::descriptor()}) {
      ASSERT_NE(type, nullptr);
    }
  }
  std::string Broken() {
    std::string all;
    for (const std::string& line : Incompatibilities(golden_, changed_)) all += line + "\n";
    return all;
  }

  const FileDescriptorSet golden_ = Golden();
  FileDescriptorSet changed_ = golden_;
};

TEST_F(WireContract, IsCompatibleWithWhatWasPublished) {
  ASSERT_GE(golden_.file_size(), 11);
  changed_ = Compiled();
  EXPECT_EQ(Broken(), "");
}

// What is served and not in the snapshot is not held yet.
TEST_F(WireContract, TheSnapshotHasAllThatIsServed) {
  std::string missing;
  for (const std::string& line : Incompatibilities(Compiled(), golden_)) missing += line + "\n";
  EXPECT_EQ(missing, "") << "add it to proto/golden";
}

// That the test can fail.
TEST_F(WireContract, RemovedFieldIsFound) {
  Message(&changed_, "MatrixHeader")->mutable_field()->DeleteSubrange(2, 1);
  EXPECT_EQ(Broken(), "MatrixHeader.nnz: field removed\n");
}
TEST_F(WireContract, RenumberedFieldIsFound) {
  Message(&changed_, "MatrixHeader")->mutable_field(0)->set_number(99);
  EXPECT_EQ(Broken(), "MatrixHeader.n: field renumbered\n");
}
TEST_F(WireContract, RetypedFieldIsFound) {
  Message(&changed_, "MatrixHeader")->mutable_field(0)->set_type(FieldDescriptorProto::TYPE_INT32);
  EXPECT_EQ(Broken(), "MatrixHeader.n: type changed\n");
}
TEST_F(WireContract, FieldTakenOutOfItsOneofIsFound) {
  Message(&changed_, "SolveHeader")->mutable_field(0)->clear_oneof_index();
  EXPECT_EQ(Broken(), "SolveHeader.matrix: oneof changed\n");
}
TEST_F(WireContract, RemovedMethodAndChangedStreamingAreFound) {
  for (auto& file : *changed_.mutable_file()) {
    for (auto& service : *file.mutable_service()) {
      if (service.name() != "MatrixService") continue;
      service.mutable_method(0)->set_server_streaming(false);
      service.mutable_method()->RemoveLast();
    }
  }
  EXPECT_EQ(Broken(),
            "MatrixService.UploadMatrix: streaming changed\n"
            "MatrixService.DeleteMatrix: method removed\n");
}
TEST_F(WireContract, RemovedEnumValueIsFound) {
  for (auto& file : *changed_.mutable_file()) {
    for (auto& e : *file.mutable_enum_type()) {
      if (e.name() == "Method") e.mutable_value()->RemoveLast();
    }
  }
  EXPECT_EQ(Broken(), "Method.METHOD_IDR: value removed\n");
}
TEST_F(WireContract, AdditionsPass) {
  auto* field = Message(&changed_, "MatrixHeader")->add_field();
  field->set_name("new_field");
  field->set_number(1000);
  EXPECT_EQ(Broken(), "");
}

}  // namespace
