#include "server/rpc/download.h"

#include <utility>

#include "server/base/clock.h"
#include "server/rpc/backend.h"

namespace spaid::server {

Download::Download(std::shared_ptr<const Preconditioner> stored, v1::ValueType type,
                   std::string known_pattern)
    : stored_(std::move(stored)),
      m_(std::make_shared<const PartialMatrix>(stored_->kernel)),
      type_(type),
      known_pattern_(std::move(known_pattern)) {}

Download::Download(std::shared_ptr<const Preconditioner> stored,
                   std::unique_ptr<kernels::RanksOutput> from, v1::ValueType type)
    : stored_(std::move(stored)),
      m_(std::make_shared<const PartialMatrix>(stored_->kernel)),
      spread_(std::make_unique<SpreadDownload>(std::move(from), type == v1::VALUE_TYPE_FLOAT32)),
      type_(type) {}

bool Download::Fetching(Backend* backend, const std::string& tenant, const Resume& resume) {
  if (fetching_) return true;
  if (version_ == 0 || spread_->ready() || !fetched_.ok()) return false;
  fetching_ = true;
  const auto put = [self = shared_from_this(), resume](absl::StatusOr<ChunkSource> piece) {
    const auto come = std::make_shared<absl::StatusOr<ChunkSource>>(std::move(piece));
    resume([self, come] {
      self->fetching_ = false;
      self->fetched_ = come->status();
      if (come->ok()) self->spread_->Put(**std::move(come));
    });
  };
  absl::Status runs = backend->Run(
      Backend::Pool::kRanks, tenant,
      [self = shared_from_this(), put] { put(self->spread_->Fetch()); },
      [put](const absl::Status& error) { put(error); });
  if (runs.ok()) return true;
  fetching_ = false;
  fetched_ = std::move(runs);
  return false;
}

bool Download::Waits(Backend* backend, const std::string& tenant, const Resume& resume) {
  if (spread_ != nullptr) return Fetching(backend, tenant, resume);
  if (known_pattern_.empty() || comparing_) return comparing_;
  int64_t version = 0;
  m_->Read([&](const PartialMatrix::View& view) { version = view.version; });
  if (version == 0 || version == compared_) return false;
  comparing_ = true;
  const auto self = shared_from_this();
  const auto compare = [self, version, resume] {
    const std::optional<Digest> digest = self->stored_ != nullptr
                                             ? self->stored_->pattern_digest()
                                             : PatternDigestOf(*self->m_, version);
    resume([&] { self->Compared(version, digest); });
  };
  const auto failed = [self, version, resume](const absl::Status&) {
    resume([&] { self->Compared(version, Digest()); });
  };
  if (!backend->Run(Backend::Pool::kCount, tenant, compare, failed).ok()) {
    Compared(version, Digest());
  }
  return comparing_;
}

void Download::Compared(int64_t version, const std::optional<Digest>& digest) {
  comparing_ = false;
  if (!digest) return;
  compared_ = version;
  values_only_ = digest->ToBytes() == known_pattern_;
}

void Download::Begin(const PartialMatrix::View& view, v1::CscHeader* header) {
  if (version_ == 0) start_ = Clock::now();
  version_ = view.version;
  bytes_before_ += chunks_.bytes_down();
  // Its arrays are looked at under PartialMatrix::Read alone.
  chunks_ = ChunkSource::OfMatrix(nullptr, view.m, type_ == v1::VALUE_TYPE_FLOAT32, values_only_);
  header->set_n(view.m.n_cols);
  header->set_nnz(view.m.nnz());
  header->set_value_type(type_);
  header->set_is_factor(view.is_factor);
  header->set_values_only(values_only_);
}

void Download::BeginPart(v1::CscHeader* header) {
  start_ = Clock::now();
  version_ = 1;
  chunks_ = ChunkSource::OfMatrix(part_, *part_, type_ == v1::VALUE_TYPE_FLOAT32);
  header->set_n(part_->n_cols);
  if (part_->n_rows != part_->n_cols) header->set_rows(part_->n_rows);
  header->set_nnz(part_->nnz());
  header->set_value_type(type_);
}

void Download::BeginSpread(v1::CscHeader* header) {
  start_ = Clock::now();
  version_ = 1;
  header->set_n(spread_->n());
  header->set_nnz(spread_->nnz());
  header->set_value_type(type_);
  header->set_is_factor(stored_->kernel->is_factor());
}

void Download::AddTo(v1::Timings* timings) const {
  timings->set_download_ms(version_ > 0 ? ToMs(Clock::now() - start_) : 0);
  timings->set_bytes_down(bytes_before_ + chunks_.bytes_down() +
                          (spread_ != nullptr ? spread_->bytes_down() : 0));
}

}  // namespace spaid::server
