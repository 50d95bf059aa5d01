// Results as they arrive, whole and broken: a client never hands out what it has not checked.
#include <gtest/gtest.h>
#include <spaid/client.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "client/cpp/arrays.h"
#include "client/cpp/chunk_source.h"
#include "tests/client/cpp/scripted_server.h"

namespace spaid {
namespace {

using testing::ScriptedServer;
using testing::Small;
using BuildStream =
    grpc::ServerReaderWriter<v1::BuildPreconditionerResponse, v1::BuildPreconditionerRequest>;
using SolveStream = grpc::ServerReaderWriter<v1::SolveResponse, v1::SolveRequest>;
using UploadStream = grpc::ServerReaderWriter<v1::UploadMatrixResponse, v1::UploadMatrixRequest>;
using Download = v1::DownloadPreconditionerResponse;

std::vector<Download> WholeDownload() {
  std::vector<Download> messages(1);
  messages[0].mutable_header()->set_n(3);
  messages[0].mutable_header()->set_nnz(7);
  messages[0].mutable_header()->set_value_type(v1::VALUE_TYPE_FLOAT64);
  const CscMatrix& m = Small();
  internal::ChunkSource source(
      {internal::Outgoing(v1::ARRAY_KIND_POINTERS, std::span<const int64_t>(m.col_ptr)),
       internal::Outgoing(v1::ARRAY_KIND_INDICES, std::span<const int32_t>(m.row_idx)),
       internal::Outgoing(v1::ARRAY_KIND_VALUES, std::span<const double>(m.values))},
      24, true);
  source.WantAll();
  while (!source.Empty()) {
    *messages.emplace_back().mutable_chunk() = testing::NextChunk(source);
  }
  messages.emplace_back().mutable_done();
  return messages;
}

Expected<CscMatrix> Fetch(const std::vector<Download>& messages, const CscMatrix* known = nullptr) {
  ScriptedServer server(
      {.download = [&](grpc::ServerContext&, const v1::DownloadPreconditionerRequest&,
                       grpc::ServerWriter<Download>& writer) {
        for (const Download& message : messages) writer.Write(message);
        return grpc::Status::OK;
      }});
  Client client({.address = server.address()});
  return client.Download("preconditioners/p", {}, known);
}

TEST(Download, IsPutTogether) {
  const auto m = Fetch(WholeDownload());
  ASSERT_TRUE(m.ok()) << m.error().message;
  EXPECT_EQ(m->col_ptr, Small().col_ptr);
  EXPECT_EQ(m->row_idx, Small().row_idx);
  EXPECT_EQ(m->values, Small().values);
}

TEST(Download, AFactorIsSaidToBeOne) {
  auto messages = WholeDownload();
  EXPECT_FALSE(Fetch(messages)->is_factor);
  messages[0].mutable_header()->set_is_factor(true);
  EXPECT_TRUE(Fetch(messages)->is_factor);
}

TEST(Download, ValuesOfAKnownPatternArePutIntoIt) {
  std::vector<Download> messages;
  for (const Download& message : WholeDownload()) {
    if (message.chunk().array() == v1::ARRAY_KIND_VALUES || !message.has_chunk()) {
      messages.push_back(message);
    }
  }
  messages[0].mutable_header()->set_values_only(true);
  CscMatrix known = Small();
  const auto m = Fetch(messages, &known);
  ASSERT_TRUE(m.ok()) << m.error().message;
  EXPECT_EQ(m->row_idx, Small().row_idx);
  EXPECT_EQ(m->values, Small().values);
  EXPECT_EQ(Fetch(messages).error().reason, "PROTOCOL_VIOLATION") << "nobody offered a pattern";
  messages[0].mutable_header()->set_nnz(8);
  EXPECT_EQ(Fetch(messages, &known).error().reason, "PROTOCOL_VIOLATION");
  known.col_ptr.pop_back();
  EXPECT_EQ(Fetch(messages, &known).error().reason, "SIZE_MISMATCH");
}

TEST(Download, AFlippedBitIsFound) {
  auto messages = WholeDownload();
  (*messages[3].mutable_chunk()->mutable_data())[5] ^= 0x10;
  const auto m = Fetch(messages);
  EXPECT_EQ(m.error().code, Code::kDataLoss);
  EXPECT_EQ(m.error().reason, "CHECKSUM_MISMATCH");
}

TEST(Download, MissingSwappedAndSurplusChunksAreFound) {
  auto missing = WholeDownload();
  missing.erase(missing.begin() + 2);
  EXPECT_EQ(Fetch(missing).error().reason, "PROTOCOL_VIOLATION");
  auto swapped = WholeDownload();
  std::swap(swapped[1], swapped[2]);
  EXPECT_EQ(Fetch(swapped).error().reason, "PROTOCOL_VIOLATION");
  auto surplus = WholeDownload();
  surplus.insert(surplus.begin() + 2, surplus[1]);
  EXPECT_EQ(Fetch(surplus).error().reason, "PROTOCOL_VIOLATION");
  auto headless = WholeDownload();
  headless.erase(headless.begin());
  EXPECT_EQ(Fetch(headless).error().reason, "PROTOCOL_VIOLATION");
  auto two_headed = WholeDownload();
  two_headed.insert(two_headed.begin(), two_headed[0]);
  EXPECT_EQ(Fetch(two_headed).error().reason, "PROTOCOL_VIOLATION");
  auto cut = WholeDownload();
  cut.resize(4);
  EXPECT_EQ(Fetch(cut).error().reason, "PROTOCOL_VIOLATION");
  EXPECT_EQ(Fetch({}).error().reason, "PROTOCOL_VIOLATION");
}

TEST(Download, AHugePromiseIsRefusedNotAllocated) {
  auto messages = WholeDownload();
  messages[0].mutable_header()->set_nnz(int64_t{1} << 62);
  EXPECT_EQ(Fetch(messages).error().reason, "PROTOCOL_VIOLATION");
}

Expected<BuildResult> BuildWith(const std::function<void(BuildStream&)>& play, bool fetch,
                                const grpc::Status& end = grpc::Status::OK,
                                const CallOptions& call = {}, const CscMatrix* known = nullptr) {
  ScriptedServer server({.build = [&](grpc::ServerContext&, BuildStream& stream) {
    v1::BuildPreconditionerRequest request;
    stream.Read(&request);
    EXPECT_EQ(request.header().stream_result(), fetch);
    EXPECT_EQ(request.header().partial_result(), fetch);
    EXPECT_EQ(request.header().known_pattern().size(), fetch && known != nullptr ? 16u : 0u);
    play(stream);
    return end;
  }});
  Client client({.address = server.address()});
  return client.Build("matrices/a", PreconditionerSpec{}, fetch, call, known);
}

// The header and chunks of M, the first `count` of them, each time that it is called.
void WriteParts(BuildStream& stream, size_t count) {
  const std::vector<Download> parts = WholeDownload();
  for (size_t i = 0; i < count; ++i) {
    v1::BuildPreconditionerResponse response;
    if (parts[i].has_header()) *response.mutable_result() = parts[i].header();
    if (parts[i].has_chunk()) *response.mutable_chunk() = parts[i].chunk();
    stream.Write(response);
  }
}

v1::BuildPreconditionerResponse DoneBuild() {
  v1::BuildPreconditionerResponse response;
  response.mutable_done()->mutable_preconditioner()->set_name("preconditioners/p");
  return response;
}

TEST(Build, BringsTheMatrixWhereAskedFor) {
  const auto built = BuildWith(
      [](BuildStream& stream) {
        for (const Download& part : WholeDownload()) {
          v1::BuildPreconditionerResponse response;
          if (part.has_header()) *response.mutable_result() = part.header();
          if (part.has_chunk()) *response.mutable_chunk() = part.chunk();
          if (part.has_done()) {
            response.mutable_done()->mutable_preconditioner()->set_name("preconditioners/p");
            response.mutable_done()
                ->mutable_preconditioner()
                ->mutable_quality()
                ->set_residual_frobenius(0.25);
            response.mutable_done()->mutable_timings()->set_rebuild(true);
          }
          stream.Write(response);
        }
      },
      true);
  ASSERT_TRUE(built.ok()) << built.error().message;
  ASSERT_TRUE(built->m);
  EXPECT_EQ(built->m->values, Small().values);
  EXPECT_EQ(built->preconditioner.quality.residual_frobenius, 0.25);
  EXPECT_TRUE(built->timings.rebuild);
}

TEST(Build, ValuesOfAKnownPatternArePutIntoIt) {
  const auto play = [](BuildStream& stream) {
    for (Download part : WholeDownload()) {
      v1::BuildPreconditionerResponse response;
      if (part.has_header()) {
        *response.mutable_result() = part.header();
        response.mutable_result()->set_values_only(true);
        stream.Write(response);
      } else if (part.chunk().array() == v1::ARRAY_KIND_VALUES) {
        *response.mutable_chunk() = part.chunk();
        stream.Write(response);
      }
    }
    stream.Write(DoneBuild());
  };
  CscMatrix known = Small();
  known.values.assign(known.values.size(), 0);
  const auto built = BuildWith(play, true, grpc::Status::OK, {}, &known);
  ASSERT_TRUE(built.ok()) << built.error().message;
  EXPECT_EQ(built->m->col_ptr, Small().col_ptr);
  EXPECT_EQ(built->m->row_idx, Small().row_idx);
  EXPECT_EQ(built->m->values, Small().values);
  EXPECT_EQ(BuildWith(play, true).error().reason, "PROTOCOL_VIOLATION");
  EXPECT_TRUE(BuildWith([](BuildStream& stream) { stream.Write(DoneBuild()); }, false,
                        grpc::Status::OK, {}, &known)
                  .ok())
      << "nobody asked for M";
  known.col_ptr.pop_back();
  Client client({.address = "127.0.0.1:1"});
  EXPECT_EQ(client.Build("matrices/a", PreconditionerSpec{}, true, {}, &known).error().reason,
            "SIZE_MISMATCH");
}

// The build began anew: what had come is void.
TEST(Build, ASecondHeaderBeginsTheMatrixAgain) {
  const size_t all = WholeDownload().size() - 1;
  for (const size_t before : {size_t{1}, size_t{4}, all - 1, all}) {
    const auto built = BuildWith(
        [&](BuildStream& stream) {
          WriteParts(stream, before);
          WriteParts(stream, all);
          stream.Write(DoneBuild());
        },
        true);
    ASSERT_TRUE(built.ok()) << built.error().message;
    EXPECT_EQ(built->m->col_ptr, Small().col_ptr);
    EXPECT_EQ(built->m->values, Small().values);
  }
}

TEST(Build, AnErrorBehindTheFirstChunksSaysThatTheyAreDiscarded) {
  const grpc::Status failed =
      testing::Refusal(grpc::StatusCode::FAILED_PRECONDITION, "ZERO_COLUMN", "column 7 is empty");
  const auto parts = [](size_t count) {
    return [count](BuildStream& stream) { WriteParts(stream, count); };
  };
  const auto before = BuildWith(parts(1), true, failed), after = BuildWith(parts(4), true, failed);
  EXPECT_EQ(before.error().reason, "ZERO_COLUMN");
  EXPECT_EQ(before.error().message.find("discarded"), std::string::npos);
  EXPECT_EQ(after.error().reason, "ZERO_COLUMN");
  EXPECT_NE(after.error().message.find("column 7 is empty"), std::string::npos);
  EXPECT_NE(after.error().message.find("had come, which were discarded"), std::string::npos)
      << after.error().message;
}

// Chunks between events of a build are no stage of their own.
TEST(Build, TransfersAreToldOnceTheBuildHasEnded) {
  std::vector<Progress::Kind> kinds;
  CallOptions call;
  call.on_progress = [&](const Progress& progress) { kinds.push_back(progress.kind); };
  const auto event = [](BuildStream& stream, int64_t number, const auto& fill) {
    v1::BuildPreconditionerResponse response;
    response.mutable_job()->set_number(number);
    fill(*response.mutable_job());
    stream.Write(response);
  };
  const auto built = BuildWith(
      [&](BuildStream& stream) {
        event(stream, 1, [](v1::JobEvent& e) { e.mutable_queued()->set_job("jobs/j"); });
        event(stream, 2, [](v1::JobEvent& e) { e.mutable_started()->set_device("cpu"); });
        const size_t all = WholeDownload().size() - 1;
        WriteParts(stream, all);
        event(stream, 3, [](v1::JobEvent& e) {
          e.mutable_progress()->set_stage(v1::STAGE_BUILD);
          e.mutable_progress()->set_done(3);
          e.mutable_progress()->set_total(3);
        });
        event(stream, 4, [](v1::JobEvent& e) {
          e.mutable_finished()->mutable_job()->set_state(v1::JOB_STATE_SUCCEEDED);
        });
        WriteParts(stream, all);
        stream.Write(DoneBuild());
      },
      true, grpc::Status::OK, call);
  ASSERT_TRUE(built.ok()) << built.error().message;
  const auto first = std::find(kinds.begin(), kinds.end(), Progress::Kind::kTransfer);
  EXPECT_NE(first, kinds.end());
  EXPECT_EQ(std::count(kinds.begin(), first, Progress::Kind::kFinished), 1);
}

TEST(Build, WithoutTheResultThatWasAskedForIsAnError) {
  const auto only_done = [](BuildStream& stream) { stream.Write(DoneBuild()); };
  EXPECT_EQ(BuildWith(only_done, true).error().reason, "PROTOCOL_VIOLATION");
  EXPECT_TRUE(BuildWith(only_done, false).ok());
  EXPECT_EQ(BuildWith([](BuildStream&) {}, false).error().reason, "PROTOCOL_VIOLATION");
}

Expected<SolveResult> SolveWith(const std::function<void(SolveStream&)>& play) {
  ScriptedServer server(
      {.get_matrix =
           [](grpc::ServerContext&, const v1::GetMatrixRequest&, v1::GetMatrixResponse& response) {
             response.mutable_matrix()->set_n(3);
             return grpc::Status::OK;
           },
       .solve =
           [&](grpc::ServerContext&, SolveStream& stream) {
             v1::SolveRequest request;
             while (stream.Read(&request)) {
             }
             play(stream);
             return grpc::Status::OK;
           }});
  Client client({.address = server.address()});
  const std::vector<double> b{1, 2, 3};
  return client.Solve("matrices/a", b);
}

v1::SolveResponse Solution(size_t elements) {
  v1::SolveResponse response;
  response.mutable_chunk()->set_array(v1::ARRAY_KIND_SOLUTION);
  response.mutable_chunk()->set_data(std::string(8 * elements, 0));
  return response;
}

v1::SolveResponse DoneWith(int outcomes) {
  v1::SolveResponse response;
  response.mutable_done();
  for (int i = 0; i < outcomes; ++i) {
    response.mutable_done()->add_outcomes()->set_outcome(v1::OUTCOME_CONVERGED);
  }
  return response;
}

TEST(SolveResults, AreCheckedBeforeTheyAreBelieved) {
  const auto whole = SolveWith([](SolveStream& stream) {
    stream.Write(Solution(3));
    stream.Write(DoneWith(1));
  });
  EXPECT_TRUE(whole.ok());
  const auto short_x = SolveWith([](SolveStream& stream) {
    stream.Write(Solution(2));
    stream.Write(DoneWith(1));
  });
  EXPECT_EQ(short_x.error().reason, "PROTOCOL_VIOLATION");
  const auto long_x = SolveWith([](SolveStream& stream) { stream.Write(Solution(4)); });
  EXPECT_EQ(long_x.error().reason, "PROTOCOL_VIOLATION");
  const auto outcomes = SolveWith([](SolveStream& stream) {
    stream.Write(Solution(3));
    stream.Write(DoneWith(2));
  });
  EXPECT_EQ(outcomes.error().reason, "PROTOCOL_VIOLATION");
  const auto no_end = SolveWith([](SolveStream& stream) { stream.Write(Solution(3)); });
  EXPECT_EQ(no_end.error().reason, "PROTOCOL_VIOLATION");
  const auto stray = SolveWith([](SolveStream& stream) {
    v1::SolveResponse response;
    response.mutable_job()->mutable_residuals()->add_residuals()->set_rhs(1);
    stream.Write(response);
    stream.Write(Solution(3));
    stream.Write(DoneWith(1));
  });
  EXPECT_EQ(stray.error().reason, "PROTOCOL_VIOLATION");
}

TEST(SolveResults, AnOutcomeOfANewerServerIsNotConverged) {
  const auto solved = SolveWith([](SolveStream& stream) {
    stream.Write(Solution(3));
    v1::SolveResponse response = DoneWith(1);
    response.mutable_done()->mutable_outcomes(0)->set_outcome(static_cast<v1::Outcome>(77));
    stream.Write(response);
  });
  ASSERT_TRUE(solved.ok());
  EXPECT_NE(solved->rhs[0].outcome, Outcome::kConverged);
}

Expected<MatrixInfo> UploadWith(const v1::UploadMatrixResponse& answer) {
  ScriptedServer server({.upload = [&](grpc::ServerContext&, UploadStream& stream) {
    v1::UploadMatrixRequest request;
    stream.Read(&request);
    stream.Write(answer);
    while (stream.Read(&request)) {
    }
    return grpc::Status::OK;
  }});
  Client client({.address = server.address()});
  return client.Upload(Small());
}

TEST(Upload, BrokenAnswersAreErrors) {
  EXPECT_EQ(UploadWith(testing::Need(v1::ARRAY_KIND_VALUES, 5, 3)).error().reason,
            "PROTOCOL_VIOLATION");
  EXPECT_EQ(UploadWith(testing::Need(v1::ARRAY_KIND_RHS, 0, 1)).error().reason,
            "PROTOCOL_VIOLATION");
  EXPECT_EQ(UploadWith(testing::Need(v1::ARRAY_KIND_VALUES, 0, 7)).error().reason,
            "PROTOCOL_VIOLATION");  // the end came without the matrix
  EXPECT_EQ(UploadWith(testing::Done("matrices/x", 4)).error().reason, "PROTOCOL_VIOLATION");
  EXPECT_TRUE(UploadWith(testing::Done("matrices/x", 3)).ok());
}

}  // namespace
}  // namespace spaid
