// Multigrid's options, figures, vectors and parts between client.h and the wire.
#include <gtest/gtest.h>
#include <spaid/system.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "client/cpp/convert.h"
#include "tests/client/cpp/scripted_server.h"

namespace spaid {
namespace {

using testing::ScriptedServer;
using testing::Small;
using UploadStream = grpc::ServerReaderWriter<v1::UploadMatrixResponse, v1::UploadMatrixRequest>;
using BuildStream =
    grpc::ServerReaderWriter<v1::BuildPreconditionerResponse, v1::BuildPreconditionerRequest>;
using Download = v1::DownloadPreconditionerResponse;

TEST(AmgSpecs, CarryWhatTheEngineReads) {
  PreconditionerSpec spec{.engine = Engine::kAmg,
                          .pattern_power = 3,
                          .regrow = true,
                          .amg = {.coarsening = Coarsening::kPlainAggregation,
                                  .strength_threshold = 0,
                                  .node_size = 3,
                                  .near_null_space = "matrices/b",
                                  .coordinates = "matrices/x",
                                  .smoother = Smoother::kStaticSpai,
                                  .pre_sweeps = 0,
                                  .post_sweeps = 2,
                                  .chebyshev_degree = 3,
                                  .cycle = Cycle::kW,
                                  .max_levels = 7,
                                  .max_coarse_size = 11,
                                  .max_growth = 0,
                                  .max_operator_complexity = 1,
                                  .hierarchy_precision = Precision::kFp64,
                                  .k_max = 0,
                                  .step_size = 4,
                                  .epsilon = 0}};
  const v1::PreconditionerSpec sent = internal::ToProto(spec);
  EXPECT_EQ(sent.engine(), v1::ENGINE_KIND_AMG);
  EXPECT_FALSE(sent.has_fsai() || sent.has_static_spai());
  EXPECT_TRUE(sent.regrow());
  const v1::AmgSpec& amg = sent.amg();
  EXPECT_EQ(amg.coarsening(), v1::COARSENING_PLAIN_AGGREGATION);
  EXPECT_TRUE(amg.has_strength_threshold() && amg.has_pre_sweeps() && amg.has_max_growth() &&
              amg.has_k_max() && amg.has_epsilon())
      << "0 is no default";
  EXPECT_EQ(amg.near_null_space(), "matrices/b");
  EXPECT_EQ(amg.coordinates(), "matrices/x");
  EXPECT_EQ(amg.smoother(), v1::SMOOTHER_STATIC_SPAI);
  EXPECT_EQ(amg.cycle(), v1::CYCLE_W);
  EXPECT_EQ(amg.hierarchy_precision(), v1::HIERARCHY_PRECISION_FP64);
  EXPECT_EQ(internal::ToProto(internal::FromProto(sent)).SerializeAsString(),
            sent.SerializeAsString());

  spec.engine = Engine::kAfsai;
  EXPECT_FALSE(internal::ToProto(spec).has_amg());
  EXPECT_EQ(internal::ToProto(spec).fsai().k_max(), 30) << "its own, not multigrid's";
}

TEST(AmgSpecs, UnsetIsTheDefault) {
  v1::PreconditionerSpec sent;
  sent.set_engine(v1::ENGINE_KIND_AMG);
  sent.mutable_amg();
  EXPECT_EQ(internal::ToProto(internal::FromProto(sent)).SerializeAsString(),
            internal::ToProto({.engine = Engine::kAmg}).SerializeAsString());
}

TEST(AmgFigures, ComeFieldForField) {
  v1::Preconditioner in;
  EXPECT_TRUE(internal::FromProto(in.quality()).measured());
  v1::AmgQuality& quality = *in.mutable_quality()->mutable_amg();
  for (int64_t rows : {90, 10}) {
    v1::AmgQuality::AmgLevel& level = *quality.add_levels();
    level.set_rows(rows);
    level.set_nnz(2 * rows);
    level.set_aggregates(3);
    level.set_isolated(4);
    level.set_guarded(rows == 90);
    level.set_rho(1.5);
    level.set_nnz_p(5);
    level.set_nnz_smoother(6);
    level.set_boxes(rows == 90);
  }
  quality.set_smoother(v1::SMOOTHER_CHEBYSHEV);
  quality.set_precision(v1::HIERARCHY_PRECISION_FP32);
  quality.set_node_size(2);
  quality.set_operator_complexity(1.25);
  quality.set_grid_complexity(1.125);
  quality.set_near_null_rayleigh(0.5);
  quality.set_beta(7);
  quality.set_singular_coarse_pivots(1);
  quality.set_inverted(true);
  quality.set_pattern_reused(true);
  v1::Part& part = *in.add_parts();
  part.set_level(1);
  part.set_kind(v1::PART_KIND_COARSE_INVERSE);
  part.set_rows(10);
  part.set_columns(11);
  part.set_nnz(100);
  part.set_smoother(v1::SMOOTHER_L1_JACOBI);
  part.set_rho(1.5);
  part.set_omega(2.5);
  part.add_coefficients(3.5);
  const PreconditionerInfo out = internal::FromProto(in);
  EXPECT_FALSE(out.quality.measured());
  ASSERT_TRUE(out.quality.amg);
  const AmgQuality& amg = *out.quality.amg;
  ASSERT_EQ(amg.levels.size(), 2u);
  EXPECT_EQ(amg.levels[0].rows, 90);
  EXPECT_EQ(amg.levels[1].nnz, 20);
  EXPECT_EQ(amg.levels[1].aggregates, 3);
  EXPECT_EQ(amg.levels[1].isolated, 4);
  EXPECT_TRUE(amg.levels[0].guarded && !amg.levels[1].guarded);
  EXPECT_EQ(amg.levels[0].rho, 1.5);
  EXPECT_EQ(amg.levels[0].nnz_p, 5);
  EXPECT_EQ(amg.levels[0].nnz_smoother, 6);
  EXPECT_TRUE(amg.levels[0].boxes && !amg.levels[1].boxes);
  EXPECT_EQ(amg.smoother, Smoother::kChebyshev);
  EXPECT_EQ(amg.precision, Precision::kFp32);
  EXPECT_EQ(amg.node_size, 2);
  EXPECT_EQ(amg.operator_complexity, 1.25);
  EXPECT_EQ(amg.grid_complexity, 1.125);
  EXPECT_EQ(amg.near_null_rayleigh, 0.5);
  EXPECT_EQ(amg.beta, 7);
  EXPECT_EQ(amg.singular_coarse_pivots, 1);
  EXPECT_TRUE(amg.inverted && amg.pattern_reused);
  ASSERT_EQ(out.parts.size(), 1u);
  EXPECT_EQ(out.parts[0].level, 1);
  EXPECT_EQ(out.parts[0].kind, PartKind::kCoarseInverse);
  EXPECT_EQ(out.parts[0].rows, 10);
  EXPECT_EQ(out.parts[0].columns, 11);
  EXPECT_EQ(out.parts[0].nnz, 100);
  EXPECT_EQ(out.parts[0].smoother, Smoother::kL1Jacobi);
  EXPECT_EQ(out.parts[0].rho, 1.5);
  EXPECT_EQ(out.parts[0].omega, 2.5);
  EXPECT_EQ(out.parts[0].coefficients, (std::vector<double>{3.5}));
}

// Takes uploads, and keeps the columns of what came, as the server sees them.
struct VectorBooks {
  int uploads = 0;
  int64_t n = 0;
  std::vector<int64_t> col_ptr;
  std::vector<int32_t> row_idx;
  std::vector<double> values;

  grpc::Status Take(UploadStream& stream) {
    ++uploads;
    v1::UploadMatrixRequest request;
    while (stream.Read(&request)) {
      if (request.has_header()) n = request.header().n();
      const std::string& data = request.chunk().data();
      const auto append = [&data](auto& to) {
        const size_t before = to.size(), each = sizeof(to[0]);
        to.resize(before + data.size() / each);
        std::copy(data.begin(), data.end(), reinterpret_cast<char*>(to.data() + before));
      };
      if (request.chunk().array() == v1::ARRAY_KIND_POINTERS) append(col_ptr);
      if (request.chunk().array() == v1::ARRAY_KIND_INDICES) append(row_idx);
      if (request.chunk().array() == v1::ARRAY_KIND_VALUES) append(values);
    }
    stream.Write(testing::Done("matrices/v" + std::to_string(uploads), n));
    return grpc::Status::OK;
  }
};

TEST(Vectors, AreTheFirstColumnsOfASquareMatrix) {
  VectorBooks books;
  ScriptedServer server(
      {.upload = [&](grpc::ServerContext&, UploadStream& stream) { return books.Take(stream); }});
  Client client({.address = server.address(), .send_digests = false});
  const std::vector<double> vectors{1, 0, 3, 4, 5, 6};
  const auto stored = client.UploadVectors(3, 2, vectors);
  ASSERT_TRUE(stored.ok()) << stored.error().message;
  EXPECT_EQ(stored->name, "matrices/v1");
  EXPECT_EQ(books.n, 3);
  EXPECT_EQ(books.col_ptr, (std::vector<int64_t>{0, 3, 6, 6}));
  EXPECT_EQ(books.row_idx, (std::vector<int32_t>{0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(books.values, vectors) << "zeros are stored, too: a column is one that stores anything";
}

TEST(Vectors, ThatDoNotFitAreRefusedHere) {
  Client client({.address = "127.0.0.1:1"});
  const std::vector<double> six(6, 1.0);
  for (const auto& [n, count] :
       std::vector<std::pair<int64_t, int>>{{3, 3}, {4, 2}, {0, 1}, {6, 0}, {2, 3}, {-3, -2}}) {
    const auto stored = client.UploadVectors(n, count, six);
    ASSERT_FALSE(stored.ok()) << n << " x " << count;
    EXPECT_EQ(stored.error().reason, "SIZE_MISMATCH");
    EXPECT_EQ(stored.error().field, "vectors");
  }
}

std::vector<Download> PartOf(int64_t rows, std::vector<int32_t> row_idx) {
  std::vector<Download> messages(1);
  v1::CscHeader& header = *messages[0].mutable_header();
  header.set_n(2);
  header.set_rows(rows);
  header.set_nnz(3);
  header.set_value_type(v1::VALUE_TYPE_FLOAT64);
  const std::vector<int64_t> col_ptr{0, 1, 3};
  const std::vector<double> values{1, 2, 3};
  internal::ChunkSource source(
      {internal::Outgoing(v1::ARRAY_KIND_POINTERS, std::span<const int64_t>(col_ptr)),
       internal::Outgoing(v1::ARRAY_KIND_INDICES, std::span<const int32_t>(row_idx)),
       internal::Outgoing(v1::ARRAY_KIND_VALUES, std::span<const double>(values))},
      1 << 20, true);
  source.WantAll();
  while (!source.Empty()) {
    *messages.emplace_back().mutable_chunk() = testing::NextChunk(source);
  }
  messages.emplace_back().mutable_done();
  return messages;
}

TEST(Parts, AreDownloadedByLevelAndKind) {
  // By name, as a refused answer is still being written when the next is asked for.
  const std::map<std::string, std::vector<Download>> answers{
      {"preconditioners/p", PartOf(5, {0, 1, 4})},
      {"preconditioners/square", PartOf(2, {0, 0, 1})},
      {"preconditioners/far", PartOf(5, {0, 1, 5})},
      {"preconditioners/twice", PartOf(1, {0, 0, 0})},
      {"preconditioners/negative", PartOf(-1, {0, 0, 1})},
      {"preconditioners/tall", PartOf(int64_t{1} << 40, {0, 0, 1})}};
  v1::DownloadPreconditionerRequest asked;
  ScriptedServer server(
      {.download = [&](grpc::ServerContext&, const v1::DownloadPreconditionerRequest& request,
                       grpc::ServerWriter<Download>& writer) {
        if (request.name() == "preconditioners/p") asked = request;
        for (const Download& message : answers.at(request.name())) writer.Write(message);
        return grpc::Status::OK;
      }});
  Client client({.address = server.address()});
  const auto fetch = [&](const std::string& name) {
    return client.DownloadPart("preconditioners/" + name, {.level = 2, .kind = PartKind::kP});
  };
  const auto p = fetch("p");
  ASSERT_TRUE(p.ok()) << p.error().message;
  EXPECT_EQ(asked.part().level(), 2);
  EXPECT_EQ(asked.part().kind(), v1::PART_KIND_P);
  EXPECT_EQ(p->n, 2);
  EXPECT_EQ(p->rows, 5);
  EXPECT_EQ(p->row_idx, (std::vector<int32_t>{0, 1, 4}));
  EXPECT_EQ(fetch("square")->rows, 0);
  for (const char* const name : {"far", "twice", "negative", "tall"}) {
    const auto broken = fetch(name);
    ASSERT_FALSE(broken.ok()) << name;
    EXPECT_EQ(broken.error().reason, "PROTOCOL_VIOLATION");
  }
}

TEST(Parts, AreSaidToBeThereWhereMIsAskedFor) {
  Client client({.address = "127.0.0.1:1"});
  const auto built = client.Build("matrices/a", {.engine = Engine::kAmg}, /*fetch_result=*/true);
  ASSERT_FALSE(built.ok());
  EXPECT_EQ(built.error().reason, "PART_NEEDED");
  EXPECT_EQ(built.error().field, "part");
}

// A system sends its vectors once, again where the server has lost them, and for no other engine.
TEST(SystemVectors, AreSentOnceAndAgainWhereTheyAreGone) {
  VectorBooks books;
  std::vector<v1::BuildHeader> builds;
  bool evicted = false;
  ScriptedServer server(
      {.upload = [&](grpc::ServerContext&, UploadStream& stream) { return books.Take(stream); },
       .build = [&](grpc::ServerContext&, BuildStream& stream) -> grpc::Status {
         v1::BuildPreconditionerRequest request;
         stream.Read(&request);
         builds.push_back(request.header());
         if (std::exchange(evicted, false)) {
           return testing::Evicted(request.header().spec().amg().coordinates());
         }
         v1::BuildPreconditionerResponse response;
         response.mutable_done()->mutable_preconditioner()->set_name("preconditioners/p");
         stream.Write(response);
         return grpc::Status::OK;
       }});
  Client client({.address = server.address(), .send_digests = false});
  System system(client, Small(), {.engine = Engine::kAmg});
  const std::vector<double> vectors{1, 1, 1};
  system.SetNearNullSpace(1, vectors);
  ASSERT_TRUE(system.Build().ok());
  EXPECT_EQ(books.uploads, 2) << "the matrix, the vectors";
  EXPECT_EQ(builds.back().spec().amg().near_null_space(), "matrices/v2");
  ASSERT_TRUE(system.Build().ok());
  EXPECT_EQ(books.uploads, 2);

  system.SetCoordinates(1, vectors);
  EXPECT_EQ(system.preconditioner(), "") << "M is of other vectors";
  ASSERT_TRUE(system.Build().ok());
  EXPECT_EQ(builds.back().spec().amg().coordinates(), "matrices/v3");
  EXPECT_EQ(builds.back().spec().amg().near_null_space(), "");
  evicted = true;
  ASSERT_TRUE(system.Build().ok());
  EXPECT_EQ(books.uploads, 4);
  EXPECT_EQ(builds.back().spec().amg().coordinates(), "matrices/v4");

  system.SetCoordinates(2, vectors);
  const auto odd = system.Build();
  ASSERT_FALSE(odd.ok());
  EXPECT_EQ(odd.error().reason, "SIZE_MISMATCH");

  system.SetOptions({.engine = Engine::kJacobi}, {});
  ASSERT_TRUE(system.Build().ok());
  EXPECT_EQ(books.uploads, 4);
  EXPECT_FALSE(builds.back().spec().has_amg());
}

}  // namespace
}  // namespace spaid
