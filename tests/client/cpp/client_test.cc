// The client against a scripted server: what goes over the wire, and what comes back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spaid/client.h>
#include <spaid/system.h>

#include <atomic>
#include <cstring>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "client/cpp/arrays.h"
#include "tests/client/cpp/scripted_server.h"

namespace spaid {
namespace {

using testing::Done;
using ::testing::ElementsAre;
using testing::Need;
using testing::Script;
using testing::ScriptedServer;
using testing::Small;

using UploadStream = grpc::ServerReaderWriter<v1::UploadMatrixResponse, v1::UploadMatrixRequest>;
using SolveStream = grpc::ServerReaderWriter<v1::SolveResponse, v1::SolveRequest>;

// Reads to the half-close; the bytes of each array, put where their offsets say.
struct Received {
  std::vector<v1::MatrixHeader> headers;
  std::map<int, std::string> arrays;
  int chunks = 0;
};

Received ReadAll(UploadStream& stream) {
  Received received;
  v1::UploadMatrixRequest request;
  while (stream.Read(&request)) {
    if (request.has_header()) {
      received.headers.push_back(request.header());
      continue;
    }
    ++received.chunks;
    const v1::ArrayChunk& chunk = request.chunk();
    const size_t element = chunk.array() == v1::ARRAY_KIND_INDICES ? 4 : 8;
    std::string& array = received.arrays[chunk.array()];
    array.resize(static_cast<size_t>(chunk.offset()) * element);
    array += chunk.data();
  }
  return received;
}

template <class T>
std::string Bytes(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), sizeof(T) * values.size()};
}

TEST(Upload, SendsNothingOfWhatTheServerHas) {
  std::atomic<int> chunks = -1;
  v1::MatrixDigest digest;
  ScriptedServer server({.upload = [&](grpc::ServerContext&, UploadStream& stream) {
    v1::UploadMatrixRequest request;
    stream.Read(&request);
    digest = request.header().digest();
    v1::UploadMatrixResponse have;
    have.mutable_have()->set_name("matrices/known");
    have.mutable_have()->set_n(3);
    stream.Write(have);
    chunks = ReadAll(stream).chunks;
    stream.Write(Done("matrices/known", 3));
    return grpc::Status::OK;
  }});
  Client client({.address = server.address()});
  const auto info = client.Upload(Small());
  ASSERT_TRUE(info.ok()) << info.error().message;
  EXPECT_EQ(info->name, "matrices/known");
  EXPECT_EQ(chunks, 0);
  EXPECT_EQ(digest.pattern().size(), 16u);
  EXPECT_EQ(digest.pattern_sha256().size(), 32u) << "at once, of a small matrix";
  EXPECT_EQ(digest.values_sha256().size(), 32u);
}

// 2 I, of more bytes than are hashed before it is known that this pays.
CscMatrix Large() {
  CscMatrix a{.n = 30'000, .col_ptr = {0}, .row_idx = {}, .values = {}};
  for (int32_t j = 0; j < 30'000; ++j) {
    a.row_idx.push_back(j);
    a.col_ptr.push_back(j + 1);
  }
  a.values.assign(30'000, 2);
  return a;
}

TEST(Upload, HashesALargeMatrixWhereTheServerHintsThatItPays) {
  std::vector<v1::MatrixHeader> headers;
  int chunks = -1;
  ScriptedServer server({.upload = [&](grpc::ServerContext&, UploadStream& stream) {
    v1::UploadMatrixRequest request;
    stream.Read(&request);
    headers.push_back(request.header());
    v1::UploadMatrixResponse wait, have;
    wait.mutable_wait();
    stream.Write(wait);
    stream.Write(Need(v1::ARRAY_KIND_POINTERS, 0, 30'001));
    stream.Read(&request);
    headers.push_back(request.header());
    stream.Write(wait);
    have.mutable_have()->set_name("matrices/known");
    have.mutable_have()->set_n(30'000);
    stream.Write(have);
    chunks = ReadAll(stream).chunks;
    stream.Write(Done("matrices/known", 30'000));
    return grpc::Status::OK;
  }});
  Client client({.address = server.address()});
  const auto info = client.Upload(Large());
  ASSERT_TRUE(info.ok()) << info.error().message;
  EXPECT_EQ(chunks, 0);
  ASSERT_EQ(headers.size(), 2u);
  EXPECT_EQ(headers[0].digest().values().size(), 16u);
  EXPECT_EQ(headers[0].digest().pattern_sha256(), "");
  EXPECT_EQ(headers[1].digest().values(), headers[0].digest().values());
  EXPECT_EQ(headers[1].digest().pattern_sha256().size(), 32u);
  EXPECT_EQ(headers[1].digest().values_sha256().size(), 32u);
}

TEST(Upload, SendsALargeMatrixThatNobodyHasOrThatIsAnotherOne) {
  for (const bool hinted : {false, true}) {
    Received received;
    ScriptedServer server({.upload = [&](grpc::ServerContext&, UploadStream& stream) {
      v1::UploadMatrixRequest request;
      stream.Read(&request);
      v1::UploadMatrixResponse wait;
      wait.mutable_wait();
      if (hinted) stream.Write(wait);
      stream.Write(Need(v1::ARRAY_KIND_VALUES, 0, 30'000));
      if (hinted) {
        stream.Read(&request);
        EXPECT_EQ(request.header().digest().pattern_sha256().size(), 32u);
        stream.Write(Need(v1::ARRAY_KIND_VALUES, 0, 30'000));
      }
      received = ReadAll(stream);
      stream.Write(Done("matrices/x", 30'000));
      return grpc::Status::OK;
    }});
    Client client({.address = server.address()});
    const auto info = client.Upload(Large());
    ASSERT_TRUE(info.ok()) << info.error().message;
    EXPECT_TRUE(received.headers.empty());
    EXPECT_EQ(received.arrays[v1::ARRAY_KIND_VALUES], Bytes(Large().values));
  }
}

TEST(Upload, WaitsThenSendsOnlyTheRangesNeeded) {
  Received received;
  ScriptedServer server({.upload = [&](grpc::ServerContext&, UploadStream& stream) {
    v1::UploadMatrixRequest request;
    stream.Read(&request);
    v1::UploadMatrixResponse wait;
    wait.mutable_wait();
    stream.Write(wait);
    stream.Write(Need(v1::ARRAY_KIND_VALUES, 2, 3));
    received = ReadAll(stream);
    stream.Write(Done("matrices/x", 3));
    return grpc::Status::OK;
  }});
  Client client({.address = server.address()});
  ASSERT_TRUE(client.Upload(Small()).ok());
  ASSERT_EQ(received.arrays.size(), 1u);
  const std::vector<double> part(Small().values.begin() + 2, Small().values.begin() + 5);
  EXPECT_EQ(received.arrays[v1::ARRAY_KIND_VALUES].substr(16), Bytes(part));
}

TEST(Upload, WithoutDigestsTheArraysFollowTheHeaderAtOnce) {
  Received received;
  ScriptedServer server({.upload = [&](grpc::ServerContext&, UploadStream& stream) {
    received = ReadAll(stream);  // to the half-close, without an answer before
    stream.Write(Done("matrices/x", 3));
    return grpc::Status::OK;
  }});
  Client client({.address = server.address(), .send_digests = false, .chunk_bytes = 16});
  std::vector<std::pair<int64_t, int64_t>> transfers;
  std::string reported;
  Timings timings;
  const auto info = client.Upload(Small(), "a label",
                                  {.on_progress =
                                       [&](const Progress& progress) {
                                         if (progress.kind == Progress::Kind::kTransfer) {
                                           EXPECT_EQ(progress.stage, Stage::kUpload);
                                           transfers.emplace_back(progress.done, progress.total);
                                         } else if (progress.kind == Progress::Kind::kMatrix) {
                                           reported = progress.matrix->name;
                                         }
                                       }},
                                  &timings);
  ASSERT_TRUE(info.ok()) << info.error().message;
  ASSERT_EQ(received.headers.size(), 1u);
  EXPECT_FALSE(received.headers[0].has_digest());
  EXPECT_EQ(received.headers[0].n(), 3);
  EXPECT_EQ(received.headers[0].nnz(), 7);
  EXPECT_EQ(received.headers[0].label(), "a label");
  EXPECT_EQ(received.headers[0].layout(), v1::LAYOUT_CSC);
  EXPECT_EQ(received.headers[0].value_type(), v1::VALUE_TYPE_FLOAT64);
  EXPECT_EQ(received.arrays[v1::ARRAY_KIND_POINTERS], Bytes(Small().col_ptr));
  EXPECT_EQ(received.arrays[v1::ARRAY_KIND_INDICES], Bytes(Small().row_idx));
  EXPECT_EQ(received.arrays[v1::ARRAY_KIND_VALUES], Bytes(Small().values));
  EXPECT_EQ(received.chunks, 2 + 2 + 4);
  ASSERT_EQ(transfers.size(), 8u);
  EXPECT_EQ(transfers.back(), std::pair(int64_t{32 + 28 + 56}, int64_t{32 + 28 + 56}));
  EXPECT_EQ(reported, "matrices/x");
  EXPECT_EQ(timings.bytes_up, 1234);
}

TEST(Upload, SaysWhatTheArraysAre) {
  std::vector<v1::MatrixHeader> headers;
  ScriptedServer server({.upload = [&](grpc::ServerContext&, UploadStream& stream) {
    v1::UploadMatrixRequest request;
    stream.Read(&request);
    headers.push_back(request.header());
    stream.Write(Need(v1::ARRAY_KIND_POINTERS, 0, 4));
    ReadAll(stream);
    stream.Write(Done("matrices/x", 3));
    return grpc::Status::OK;
  }});
  Client client({.address = server.address()});
  CscView rows = Small();
  rows.by_rows = true;
  rows.sort_and_sum = true;
  ASSERT_TRUE(client.Upload(rows).ok());
  CscView pattern = Small();
  pattern.values = {};
  ASSERT_TRUE(client.Upload(pattern).ok());
  const std::vector<float> narrow(Small().values.begin(), Small().values.end());
  CscView fp32 = pattern;
  fp32.values_f32 = narrow;
  ASSERT_TRUE(client.Upload(fp32).ok());
  ASSERT_EQ(headers.size(), 3u);
  EXPECT_EQ(headers[0].layout(), v1::LAYOUT_CSR);
  EXPECT_TRUE(headers[0].sort_and_sum());
  EXPECT_FALSE(headers[0].has_digest());
  EXPECT_EQ(headers[0].sent_digest().values().size(), 16u);
  EXPECT_TRUE(headers[1].pattern_only());
  EXPECT_EQ(headers[1].value_type(), v1::VALUE_TYPE_UNSPECIFIED);
  EXPECT_EQ(headers[1].digest().values(), "");
  EXPECT_FALSE(headers[2].pattern_only());
  EXPECT_EQ(headers[2].value_type(), v1::VALUE_TYPE_FLOAT32);
  EXPECT_EQ(headers[2].digest().values().size(), 16u);
}

TEST(Metadata, TokenAndTenantGoWithEveryCall) {
  std::multimap<std::string, std::string> metadata;
  ScriptedServer server({.info = [&](grpc::ServerContext& context, const v1::GetServerInfoRequest&,
                                     v1::GetServerInfoResponse& response) {
    for (const auto& [key, value] : context.client_metadata()) {
      metadata.emplace(std::string(key.data(), key.size()),
                       std::string(value.data(), value.size()));
    }
    response.set_version("1.2.3");
    response.set_tenant("blue");
    response.add_engines(v1::ENGINE_KIND_JACOBI);
    response.mutable_limits()->set_max_rhs_count(7);
    response.mutable_queue()->set_running(2);
    return grpc::Status::OK;
  }});
  Client client({.address = server.address(), .token = "secret", .tenant = "blue"});
  const auto info = client.GetServerInfo();
  ASSERT_TRUE(info.ok()) << info.error().message;
  EXPECT_EQ(metadata.find("authorization")->second, "Bearer secret");
  EXPECT_EQ(metadata.find("x-spaid-tenant")->second, "blue");
  EXPECT_EQ(info->version, "1.2.3");
  EXPECT_THAT(info->engines, ElementsAre(Engine::kJacobi));
  EXPECT_EQ(info->max_rhs_count, 7);
  EXPECT_EQ(info->running, 2);
}

TEST(Lists, AllPagesAreFetched) {
  std::vector<std::string> tokens;
  ScriptedServer server(
      {.list_matrices = [&](grpc::ServerContext&, const v1::ListMatricesRequest& request,
                            v1::ListMatricesResponse& response) {
        tokens.push_back(request.page_token());
        response.add_matrices()->set_name("matrices/" + std::to_string(tokens.size()));
        if (tokens.size() < 3) response.set_next_page_token("t" + std::to_string(tokens.size()));
        return grpc::Status::OK;
      }});
  Client client({.address = server.address()});
  const auto all = client.ListMatrices();
  ASSERT_TRUE(all.ok());
  ASSERT_EQ(all->size(), 3u);
  EXPECT_EQ((*all)[2].name, "matrices/3");
  EXPECT_THAT(tokens, ElementsAre("", "t1", "t2"));
}

TEST(Lists, APageThatLeadsToItselfEndsTheCall) {
  ScriptedServer server({.list_matrices = [&](grpc::ServerContext&, const v1::ListMatricesRequest&,
                                              v1::ListMatricesResponse& response) {
    response.set_next_page_token("again");
    return grpc::Status::OK;
  }});
  Client client({.address = server.address()});
  EXPECT_EQ(client.ListMatrices().error().reason, "PROTOCOL_VIOLATION");
}

// A server that solves nothing but keeps the books.
struct SolveBooks {
  std::vector<v1::SolveHeader> headers;
  std::map<int, std::string> arrays;
};

auto KeepBooks(SolveBooks& books) {
  return [&books](grpc::ServerContext&, SolveStream& stream) {
    v1::SolveRequest request;
    while (stream.Read(&request)) {
      if (request.has_header()) {
        books.headers.push_back(request.header());
        books.arrays[v1::ARRAY_KIND_RHS].clear();
      } else {
        books.arrays[request.chunk().array()] += request.chunk().data();
      }
    }
    const int rhs_count = books.headers.back().rhs_count();
    v1::SolveResponse response;
    response.mutable_job()->set_number(1);
    response.mutable_job()->mutable_queued()->set_job("jobs/1");
    stream.Write(response);
    for (int i = 0; i < rhs_count; ++i) {
      response.Clear();
      v1::Residual& residual = *response.mutable_job()->mutable_residuals()->add_residuals();
      residual.set_rhs(i);
      residual.set_iteration(1);
      residual.set_relative_residual(0.5 * (i + 1));
      stream.Write(response);
    }
    if (!books.headers.back().omit_solution()) {
      response.Clear();
      response.mutable_chunk()->set_array(v1::ARRAY_KIND_SOLUTION);
      response.mutable_chunk()->set_data(books.arrays[v1::ARRAY_KIND_RHS]);
      stream.Write(response);
    }
    response.Clear();
    v1::SolveDone& done = *response.mutable_done();
    for (int i = 0; i < rhs_count; ++i) {
      done.add_outcomes()->set_outcome(i == 0 ? v1::OUTCOME_CONVERGED : v1::OUTCOME_STAGNATED);
    }
    done.set_method(v1::METHOD_GMRES);
    done.mutable_outcomes(0)->set_unreachable(0.25);
    done.set_null_space("constants");
    done.set_job("jobs/1");
    done.mutable_timings()->set_solve_ms(2.5);
    done.set_preconditioner_storage(v1::PRECISION_FP64);
    done.set_storage_reason("fp64: so it is");
    done.set_placement("gpu:0: it is large");
    done.mutable_choice()->set_placement("cpu: it was small");
    v1::SolveFigures& figures = *done.mutable_figures();
    figures.set_place_ms(1);
    figures.set_trial_ms(2);
    figures.set_host_to_device_ms(3);
    figures.set_iterate_ms(4);
    figures.set_check_ms(5);
    figures.set_device_to_host_ms(6);
    figures.set_iterations(7);
    figures.set_iterations_per_second(8);
    figures.set_bytes_per_second(9);
    figures.set_copy_bytes_per_second(10);
    figures.set_copy_share(11);
    stream.Write(response);
    return grpc::Status::OK;
  };
}

auto Matrix3(std::atomic<int>& asked) {
  return [&asked](grpc::ServerContext&, const v1::GetMatrixRequest& request,
                  v1::GetMatrixResponse& response) {
    ++asked;
    response.mutable_matrix()->set_name(request.name());
    response.mutable_matrix()->set_n(3);
    return grpc::Status::OK;
  };
}

TEST(Solve, ByHandleAsksForTheOrderOnce) {
  SolveBooks books;
  std::atomic<int> asked = 0;
  ScriptedServer server({.get_matrix = Matrix3(asked), .solve = KeepBooks(books)});
  Client client({.address = server.address()});
  const std::vector<double> b{1, 2, 3, 4, 5, 6};
  const std::vector<double> guess{6, 5, 4, 3, 2, 1};
  SolveOptions options{.engine = Engine::kStaticSpai,
                       .spec = {.pattern_power = 2,
                                .keep_tau = 0.25,
                                .row_match = true,
                                .local_solver = LocalSolver::kGram,
                                .thread_strategy = ThreadStrategy::kVariable},
                       .method = Method::kGmres,
                       .rtol = 1e-9,
                       .max_iterations = 77,
                       .restart = 11,
                       .initial_guess = guess,
                       .m_precision = Precision::kFp32};
  CallOptions call{.max_queue = std::chrono::milliseconds(1500)};
  std::vector<Progress::Kind> kinds;
  call.on_progress = [&](const Progress& progress) { kinds.push_back(progress.kind); };
  const auto solved = client.Solve("matrices/a", b, options, call);
  ASSERT_TRUE(solved.ok()) << solved.error().message;
  ASSERT_TRUE(client.Solve("matrices/a", b).ok());
  ASSERT_TRUE(
      client.Solve("matrices/a", b, {.engine = Engine::kJacobi, .spec = {.block_size = 3}}).ok());
  EXPECT_EQ(asked, 1);

  const v1::SolveHeader& header = books.headers[0];
  EXPECT_EQ(header.matrix(), "matrices/a");
  EXPECT_EQ(header.rhs_count(), 2);
  EXPECT_EQ(header.method(), v1::METHOD_GMRES);
  EXPECT_EQ(header.rtol(), 1e-9);
  EXPECT_EQ(header.max_iterations(), 77);
  EXPECT_EQ(header.restart(), 11);
  EXPECT_EQ(header.preconditioner_storage(), v1::PRECISION_FP32);
  EXPECT_EQ(books.headers[1].preconditioner_storage(), v1::PRECISION_AUTO);
  EXPECT_TRUE(header.has_initial_guess());
  EXPECT_EQ(header.spec().engine(), v1::ENGINE_KIND_STATIC_SPAI);
  EXPECT_EQ(header.spec().static_spai().pattern_power(), 2);
  EXPECT_EQ(header.spec().static_spai().keep_tau(), 0.25);
  EXPECT_TRUE(header.spec().static_spai().row_match());
  EXPECT_EQ(header.spec().static_spai().local_solver(), v1::LOCAL_SOLVER_GRAM);
  EXPECT_EQ(header.spec().static_spai().thread_strategy(), v1::THREAD_STRATEGY_VARIABLE);
  EXPECT_FALSE(header.spec().has_jacobi());
  EXPECT_EQ(books.headers[2].spec().engine(), v1::ENGINE_KIND_JACOBI);
  EXPECT_EQ(books.headers[2].spec().jacobi().block_size(), 3);
  EXPECT_EQ(header.limits().max_queue().seconds(), 1);
  EXPECT_EQ(header.limits().max_queue().nanos(), 500'000'000);
  EXPECT_FALSE(header.limits().has_max_run());
  EXPECT_EQ(books.arrays[v1::ARRAY_KIND_INITIAL_GUESS], Bytes(guess));
  EXPECT_EQ(books.headers[1].spec().engine(), v1::ENGINE_KIND_AUTO);

  EXPECT_EQ(solved->x, b);
  ASSERT_EQ(solved->rhs.size(), 2u);
  EXPECT_EQ(solved->rhs[0].outcome, Outcome::kConverged);
  EXPECT_EQ(solved->rhs[1].outcome, Outcome::kStagnated);
  ASSERT_EQ(solved->rhs[1].history.size(), 1u);
  EXPECT_EQ(solved->rhs[1].history[0].relative_residual, 1.0);
  EXPECT_EQ(solved->method, Method::kGmres);
  EXPECT_EQ(solved->job, "jobs/1");
  EXPECT_EQ(solved->timings.solve_ms, 2.5);
  EXPECT_EQ(solved->m_precision, Precision::kFp64);
  EXPECT_EQ(solved->precision_reason, "fp64: so it is");
  EXPECT_EQ(solved->placement, "gpu:0: it is large");
  EXPECT_EQ(solved->m_placement, "cpu: it was small");
  const SolveFigures& f = solved->figures;
  EXPECT_EQ((std::vector<double>{f.place_ms, f.trial_ms, f.host_to_device_ms, f.iterate_ms,
                                 f.check_ms, f.device_to_host_ms, static_cast<double>(f.iterations),
                                 f.iterations_per_second, f.bytes_per_second,
                                 f.copy_bytes_per_second, f.copy_share}),
            (std::vector<double>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}));
  EXPECT_FALSE(solved->quality.has_value());
  EXPECT_THAT(kinds, ::testing::IsSupersetOf({Progress::Kind::kTransfer, Progress::Kind::kQueued,
                                              Progress::Kind::kResiduals}));
}

TEST(Solve, SendsNullVectorsAndReadsWhatIsUnreachable) {
  SolveBooks books;
  std::atomic<int> asked = 0;
  ScriptedServer server({.get_matrix = Matrix3(asked), .solve = KeepBooks(books)});
  Client client({.address = server.address()});
  const std::vector<double> b{1, 2, 3}, vectors{1, 1, 1, 1, 0, -1};
  const auto solved = client.Solve("matrices/a", b, {.null_vectors = vectors});
  ASSERT_TRUE(solved.ok()) << solved.error().message;
  EXPECT_EQ(books.headers[0].null_vectors(), 2);
  EXPECT_EQ(books.headers[0].null_space(), v1::NULL_SPACE_UNSPECIFIED);
  EXPECT_EQ(books.arrays[v1::ARRAY_KIND_NULL_SPACE], Bytes(vectors));
  EXPECT_EQ(solved->rhs[0].unreachable, 0.25);
  EXPECT_EQ(solved->null_space, "constants");
  ASSERT_TRUE(client.Solve("matrices/a", b, {.null_space = NullSpace::kNone}).ok());
  EXPECT_EQ(books.headers[1].null_space(), v1::NULL_SPACE_NONE);
  EXPECT_EQ(books.headers[1].null_vectors(), 0);
  const auto odd = client.Solve("matrices/a", b, {.null_vectors = std::span(vectors).first(4)});
  ASSERT_FALSE(odd.ok());
  EXPECT_EQ(odd.error().field, "null_vectors");
}

TEST(Solve, WithAPreconditionerSendsNoSpec) {
  SolveBooks books;
  std::atomic<int> asked = 0;
  ScriptedServer server({.get_matrix = Matrix3(asked), .solve = KeepBooks(books)});
  Client client({.address = server.address()});
  const std::vector<double> b{1, 2, 3};
  const auto solved = client.Solve(
      "matrices/a", b,
      {.engine = Engine::kJacobi, .preconditioner = "preconditioners/p", .omit_solution = true});
  ASSERT_TRUE(solved.ok()) << solved.error().message;
  EXPECT_EQ(books.headers[0].preconditioner(), "preconditioners/p");
  EXPECT_FALSE(books.headers[0].has_spec());
  EXPECT_TRUE(solved->x.empty());
}

TEST(Solve, UploadsAgainWhatWasEvicted) {
  std::atomic<int> uploads = 0, solves = 0;
  SolveBooks books;
  const auto keep = KeepBooks(books);
  ScriptedServer server(
      {.upload =
           [&](grpc::ServerContext&, UploadStream& stream) {
             ++uploads;
             v1::UploadMatrixRequest request;
             stream.Read(&request);
             stream.Write(Done("matrices/" + std::to_string(uploads), 3));
             return grpc::Status::OK;
           },
       .solve = [&](grpc::ServerContext& context, SolveStream& stream) -> grpc::Status {
         if (++solves == 1) return testing::Evicted("matrices/1");
         return keep(context, stream);
       }});
  Client client({.address = server.address()});
  const std::vector<double> b{1, 2, 3};
  const auto solved = client.Solve(Small(), b);
  ASSERT_TRUE(solved.ok()) << solved.error().message;
  EXPECT_EQ(uploads, 2);
  EXPECT_EQ(books.headers[0].matrix(), "matrices/2");
  EXPECT_EQ(solved->timings.bytes_up, 1234);  // of the upload
}

// A system is larger than what comes along with a solve, and its matrix goes before the solve
// comes.
TEST(SystemSolve, UploadsAgainWhatWasGoneBeforeItsFirstSolve) {
  std::atomic<int> uploads = 0, solves = 0;
  SolveBooks books;
  const auto keep = KeepBooks(books);
  const int n = 20000;
  ScriptedServer server(
      {.upload =
           [&](grpc::ServerContext&, UploadStream& stream) {
             ++uploads;
             v1::UploadMatrixRequest request;
             while (stream.Read(&request)) {
             }
             stream.Write(Done("matrices/" + std::to_string(uploads), n));
             return grpc::Status::OK;
           },
       .solve = [&](grpc::ServerContext& context, SolveStream& stream) -> grpc::Status {
         if (++solves == 1) return testing::Evicted("matrices/1");
         return keep(context, stream);
       }});
  Client client({.address = server.address(), .send_digests = false});
  std::vector<int64_t> col_ptr(n + 1);
  std::vector<int32_t> row_idx(n);
  std::iota(col_ptr.begin(), col_ptr.end(), 0);
  std::iota(row_idx.begin(), row_idx.end(), 0);
  const std::vector<double> ones(n, 1.0);
  System system(client, CscView{n, col_ptr, row_idx, ones},
                {.engine = Engine::kNone, .omit_solution = true});
  (void)system.Solve(ones);
  EXPECT_EQ(uploads, 2);
  ASSERT_EQ(books.headers.size(), 1U);
  EXPECT_EQ(books.headers[0].matrix(), "matrices/2");
}

TEST(Solve, AnEvictedPreconditionerIsNotHealedByUploading) {
  std::atomic<int> uploads = 0;
  ScriptedServer server(
      {.upload =
           [&](grpc::ServerContext&, UploadStream& stream) {
             ++uploads;
             stream.Write(Done("matrices/1", 3));
             return grpc::Status::OK;
           },
       .solve = [&](grpc::ServerContext&,
                    SolveStream&) { return testing::Evicted("preconditioners/1"); }});
  Client client({.address = server.address()});
  const std::vector<double> b{1, 2, 3};
  const auto solved = client.Solve(Small(), b, {.preconditioner = "preconditioners/1"});
  ASSERT_FALSE(solved.ok());
  EXPECT_EQ(solved.error().reason, "HANDLE_EVICTED");
  EXPECT_EQ(uploads, 1);
}

TEST(Solve, AnUnknownHandleIsNotUploadedAgain) {
  std::atomic<int> uploads = 0;
  ScriptedServer server({.upload =
                             [&](grpc::ServerContext&, UploadStream& stream) {
                               ++uploads;
                               stream.Write(Done("matrices/1", 3));
                               return grpc::Status::OK;
                             },
                         .solve =
                             [&](grpc::ServerContext&, SolveStream&) {
                               return testing::Refusal(grpc::StatusCode::NOT_FOUND,
                                                       "HANDLE_UNKNOWN", "unknown");
                             }});
  Client client({.address = server.address()});
  const std::vector<double> b{1, 2, 3};
  EXPECT_EQ(client.Solve(Small(), b).error().reason, "HANDLE_UNKNOWN");
  EXPECT_EQ(uploads, 1);
}

TEST(Watch, GoesOnBehindTheLastEventAfterABrokenConnection) {
  std::vector<int64_t> first_events;
  ScriptedServer server({.watch = [&](grpc::ServerContext&, const v1::WatchJobRequest& request,
                                      grpc::ServerWriter<v1::WatchJobResponse>& writer) {
    first_events.push_back(request.first_event());
    v1::WatchJobResponse response;
    if (first_events.size() == 1) {
      for (int number = 1; number <= 2; ++number) {
        response.mutable_event()->set_number(number);
        response.mutable_event()->mutable_progress()->set_stage(v1::STAGE_BUILD);
        response.mutable_event()->mutable_progress()->set_done(number);
        writer.Write(response);
      }
      return grpc::Status(grpc::StatusCode::UNAVAILABLE, "Socket closed");
    }
    response.mutable_event()->set_number(3);
    v1::Job& job = *response.mutable_event()->mutable_finished()->mutable_job();
    job.set_name("jobs/1");
    job.set_state(v1::JOB_STATE_FAILED);
    job.mutable_error()->set_code(9);
    job.mutable_error()->set_reason("ZERO_COLUMN");
    writer.Write(response);
    return grpc::Status::OK;
  }});
  Client client({.address = server.address()});
  std::vector<int64_t> seen;
  const auto job = client.Watch("jobs/1", {.on_progress = [&](const Progress& progress) {
                                  seen.push_back(progress.event_number);
                                  EXPECT_EQ(progress.job, "jobs/1");
                                }});
  ASSERT_TRUE(job.ok()) << job.error().message;
  EXPECT_EQ(job->state, JobState::kFailed);
  ASSERT_TRUE(job->error);
  EXPECT_EQ(job->error->code, Code::kFailedPrecondition);
  EXPECT_EQ(job->error->reason, "ZERO_COLUMN");
  EXPECT_THAT(first_events, ElementsAre(1, 3));
  EXPECT_THAT(seen, ElementsAre(1, 2, 3));
}

// The connection breaks amid the solution: the events are not told again, the solution comes whole.
TEST(Watch, BringsTheSolutionWhereAsked) {
  const std::vector<double> x{1, 2, 3, 4};
  int calls = 0;
  ScriptedServer server({.watch = [&](grpc::ServerContext&, const v1::WatchJobRequest& request,
                                      grpc::ServerWriter<v1::WatchJobResponse>& writer) {
    v1::WatchJobResponse response;
    if (request.first_event() <= 1) {
      response.mutable_event()->set_number(1);
      response.mutable_event()->mutable_finished()->mutable_job()->set_state(
          v1::JOB_STATE_SUCCEEDED);
      writer.Write(response);
    }
    if (!request.with_solution()) return grpc::Status::OK;
    response.Clear();
    response.mutable_solution()->set_n(2);
    response.mutable_solution()->set_rhs_count(2);
    writer.Write(response);
    for (int64_t k = 0; k < 4; k += 2) {
      response.Clear();
      response.mutable_chunk()->set_array(v1::ARRAY_KIND_SOLUTION);
      response.mutable_chunk()->set_offset(k);
      response.mutable_chunk()->set_data(std::string(reinterpret_cast<const char*>(&x[k]), 16));
      writer.Write(response);
      if (++calls == 1) return grpc::Status(grpc::StatusCode::UNAVAILABLE, "Socket closed");
    }
    return grpc::Status::OK;
  }});
  Client client({.address = server.address()});
  int events = 0;
  Solution solution;
  const auto job =
      client.Watch("jobs/1", {.on_progress = [&](const Progress&) { ++events; }}, 1, &solution);
  ASSERT_TRUE(job.ok()) << job.error().message;
  EXPECT_EQ(events, 1);
  EXPECT_EQ(solution.n, 2);
  EXPECT_EQ(solution.rhs_count, 2);
  EXPECT_EQ(solution.x, x);
  EXPECT_TRUE(client.Watch("jobs/1", {}).ok());
}

}  // namespace
}  // namespace spaid
