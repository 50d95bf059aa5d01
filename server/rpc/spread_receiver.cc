#include "server/rpc/spread_receiver.h"

#include <span>
#include <utility>

#include "server/base/status.h"
#include "server/engine/convert.h"

namespace spaid::server {
namespace {

// So much is passed on at once: an order to the ranks costs some tens of microseconds.
constexpr int64_t kPieceBytes = 1 << 20;

}  // namespace

SpreadReceiver::SpreadReceiver(const EngineAdapter& adapter, const v1::MatrixHeader& header,
                               std::shared_ptr<const kernels::OverRanks> like,
                               EngineAdapter::GiveUp give_up)
    : adapter_(adapter),
      like_(std::move(like)),
      give_up_(std::move(give_up)),
      nnz_(header.nnz()),
      layout_(header.layout() == v1::LAYOUT_CSR ? kernels::Layout::kCsr : kernels::Layout::kCsc),
      sort_and_sum_(header.sort_and_sum()),
      pointers_(v1::ARRAY_KIND_POINTERS, like_ != nullptr ? 0 : header.n() + 1),
      indices_(v1::ARRAY_KIND_INDICES, like_ != nullptr ? 0 : header.nnz()),
      values_(v1::ARRAY_KIND_VALUES, header.nnz(), header.value_type() == v1::VALUE_TYPE_FLOAT32),
      pattern_digest_(PatternDigester(header.n(), header.nnz())) {
  indices_.Pass();
  values_.Pass();
}

int64_t SpreadReceiver::Bytes(const v1::MatrixHeader& header) { return 8 * (header.n() + 1); }

absl::Status SpreadReceiver::Add(const ChunkView& chunk, BookBytes book) {
  const auto come = [&]<class T>(ArrayReceiver<T>& array, std::vector<T>& fresh) -> absl::Status {
    if (!pointers_.complete()) {
      return UnexpectedArray(chunk,
                             "the pointers first: the matrix goes to several processes, and "
                             "they tell which one an entry is for");
    }
    RETURN_IF_ERROR(array.Add(chunk, book));
    fresh.insert(fresh.end(), array.last().begin(), array.last().end());
    return absl::OkStatus();
  };
  switch (chunk.array) {
    case v1::ARRAY_KIND_POINTERS:
      RETURN_IF_ERROR(pointers_.Add(chunk, book));
      break;
    case v1::ARRAY_KIND_INDICES:
      RETURN_IF_ERROR(come(indices_, new_indices_));
      break;
    case v1::ARRAY_KIND_VALUES:
      RETURN_IF_ERROR(come(values_, new_values_));
      break;
    default:
      return UnexpectedArray(chunk, "pointers, indices or values");
  }
  bytes_up_ += chunk.bytes;
  return absl::OkStatus();
}

bool SpreadReceiver::full(int64_t with_bytes) const {
  const auto held = static_cast<int64_t>(new_indices_.size() * sizeof(int32_t) +
                                         new_values_.size() * sizeof(double));
  return held + with_bytes >= kPieceBytes;
}

absl::Status SpreadReceiver::Flush() {
  if (input_ == nullptr) {
    if (!pointers_.complete()) return absl::OkStatus();
    if (like_ != nullptr) {
      ASSIGN_OR_RETURN(input_, adapter_.BeginOverRanks(*like_, layout_, give_up_));
    } else {
      ASSIGN_OR_RETURN(input_, adapter_.BeginOverRanks(pointers_.so_far(), nnz_, layout_,
                                                       sort_and_sum_, give_up_));
      pattern_digest_.Update(pointers_.so_far());
      pointers_.Drop();
    }
  }
  if (!new_indices_.empty()) {
    if (kernels::Status sent = input_->Add(std::span<const int32_t>(new_indices_)); !sent.ok()) {
      return ToAbsl(sent);
    }
    pattern_digest_.Update(std::span<const int32_t>(new_indices_));
    new_indices_.clear();
  }
  if (!new_values_.empty()) {
    if (kernels::Status sent = input_->Add(std::span<const double>(new_values_)); !sent.ok()) {
      return ToAbsl(sent);
    }
    value_digest_.Update(std::span<const double>(new_values_));
    new_values_.clear();
  }
  return absl::OkStatus();
}

absl::Status SpreadReceiver::CheckComplete() const {
  RETURN_IF_ERROR(pointers_.CheckComplete());
  RETURN_IF_ERROR(indices_.CheckComplete());
  return values_.CheckComplete();
}

v1::UploadNeed SpreadReceiver::Need() const {
  v1::UploadNeed need;
  AddNeed(pointers_, &need);
  AddNeed(indices_, &need);
  AddNeed(values_, &need);
  return need;
}

absl::StatusOr<std::shared_ptr<Matrix>> SpreadReceiver::Finish(const PrepareOptions& options) {
  RETURN_IF_ERROR(Flush());
  return adapter_.PrepareOverRanks(*input_, options);
}

}  // namespace spaid::server
