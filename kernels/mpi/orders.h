// Orders, by which rank 0 has all ranks do something together, each in one message. The loop that
// carries them out is session.h's. Internal to this room.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <type_traits>

#include "kernels/mpi/petsc.h"
#include "kernels/mpi/petsc_options.h"

namespace spaid::kernels::mpi {

struct Order {
  enum class What : int32_t {
    kEnd,
    kFree,
    kAnswer,
    kSpread,
    kPlan,
    kGrow,
    kBuild,
    kFsai,
    kSolve,
    kBegin,
    kIndices,
    kValues,
    kArrived,
    kPetsc,
    kJacobi,
    kMultiply,
    kSame,
    kOutput,
    kPiece
  };
  static constexpr size_t kMostNumbers = 24;

  What what = What::kAnswer;
  // kSpread: M, by rows alone; kPlan, kGrow, kFsai: with a pattern; kSolve: with a guess.
  bool flag = false;
  bool factor = false;        // kSpread: it is G of M = GᵀG
  bool adaptive = false;      // kFsai
  bool keep_history = false;  // kSolve
  bool null_space = false;    // kSolve: with one
  int32_t count = 1;          // kSolve: right-hand sides; kPetsc: near-null vectors
  int64_t nnz_m = 0;          // kSolve
  int64_t made = 0;           // the number of what is made; kFree: of what goes
  // Numbers of matrices; 0: none. kSame: both A. kOutput: a, of any. kBegin: a, with the pattern.
  // kArrived: m, whose pattern it has.
  int64_t a = 0, m = 0;
  int64_t n = 0, nnz = 0;          // kBegin
  int64_t first = 0, entries = 0;  // kIndices, kValues, kPiece
  bool by_rows = false;            // kBegin, kOutput
  bool sort_and_sum = false;       // kBegin
  enum class Array : int32_t { kPointers, kIndices, kValues };
  Array array = Array::kPointers;     // kPiece
  bool gather = true;                 // kBuild, kFsai, kJacobi: M comes to rank 0
  int64_t plan = 0;                   // kBuild
  PetscMethod method = {};            // kPetsc
  double numbers[kMostNumbers] = {};  // options, by Pack
};
static_assert(std::is_trivially_copyable_v<Order>);

// Options as numbers, by their Fields. Integers are exact up to 2^53.
template <class Options>
void Pack(const Options& options, Order& order) {
  size_t next = 0;
  Options::Fields(options, [&](const char*, const auto& member, const auto&) {
    if constexpr (requires { member.has_value(); }) {
      order.numbers[next++] = member.has_value() ? 1 : 0;
      order.numbers[next++] = static_cast<double>(member.value_or(0));
    } else {
      order.numbers[next++] = static_cast<double>(member);
    }
  });
}

template <class Options>
void Unpack(const Order& order, Options& options) {
  size_t next = 0;
  Options::Fields(options, [&](const char*, auto& member, const auto&) {
    using Member = std::remove_reference_t<decltype(member)>;
    if constexpr (requires { member.has_value(); }) {
      const bool has = order.numbers[next++] != 0;
      const double value = order.numbers[next++];
      if (has) {
        member = static_cast<typename Member::value_type>(value);
      } else {
        member.reset();
      }
    } else {
      member = static_cast<Member>(order.numbers[next++]);
    }
  });
}

// Rank 0 tells; the others wait for what is told, without burning a core meanwhile, and call idle()
// about once a second.
void TellOrder(MPI_Comm comm, Order order);
Order AwaitOrder(MPI_Comm comm, const std::function<void()>& idle);

}  // namespace spaid::kernels::mpi
