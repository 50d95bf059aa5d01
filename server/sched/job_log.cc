#include "server/sched/job_log.h"

#include <algorithm>
#include <utility>

namespace spaid::server {
namespace {

// Batches grow with the job's age: a thousandth of it, so that a job of t seconds has about
// 1000 (1 + ln(t / 100)) residual events once it is older than 100 seconds.
constexpr int kBatchesOfAge = 1000;

// Keeps at most `most` (2 or more): the first, the last and others evenly between.
template <class T>
void KeepEvenly(size_t most, std::vector<T>* all) {
  if (all->size() <= most) return;
  for (size_t k = 1; k < most; ++k) (*all)[k] = (*all)[k * (all->size() - 1) / (most - 1)];
  all->resize(most);
}

}  // namespace

JobLog::JobLog(WallTime created_wall, TimePoint created, JobLogOptions options)
    : created_wall_(created_wall),
      created_(created),
      options_(options),
      last_flush_(created - options.batch) {}

void JobLog::Add(TimePoint now, v1::JobEvent event) {
  Flush(now, /*only_if_due=*/false);
  entries_.push_back({now, std::move(event)});
}

bool JobLog::Progress(TimePoint now, v1::Stage stage, int64_t done, int64_t total) {
  const int64_t percent =
      total > 0
          ? static_cast<int64_t>(100.0 * static_cast<double>(done) / static_cast<double>(total))
          : 0;
  // Stages follow each other; a late report of an earlier one is news to nobody.
  if (stage < stage_) return false;
  const bool same_stage = stage == stage_;
  if (same_stage) {
    if (percent <= percent_) return false;
    if (done < total && now - last_progress_ < options_.progress_gap) return false;
  }
  stage_ = stage;
  percent_ = percent;
  last_progress_ = now;
  // Within a stage residuals keep their own pace.
  Flush(now, /*only_if_due=*/same_stage);
  entries_.push_back({now, ProgressEntry{stage, done, total}});
  return true;
}

bool JobLog::Residual(TimePoint now, int32_t rhs, int32_t iteration, double relative_residual) {
  if (iteration % stride_ == 0) {
    points_.push_back({rhs, iteration, relative_residual});
    if (points_.size() > options_.max_points) Thin();
  }
  return Flush(now, /*only_if_due=*/true);
}

std::chrono::nanoseconds JobLog::Interval(TimePoint now) const {
  return std::max<std::chrono::nanoseconds>(options_.batch, (now - created_) / kBatchesOfAge);
}

bool JobLog::Flush(TimePoint now, bool only_if_due) {
  if (open_begin_ == points_.size()) return false;
  if (only_if_due && now - last_flush_ < Interval(now)) return false;
  entries_.push_back({now, Range{open_begin_, points_.size()}});
  open_begin_ = points_.size();
  last_flush_ = now;
  return true;
}

void JobLog::Thin() {
  stride_ *= 2;
  // Maps each old index to its new one: the number of points kept before it.
  std::vector<size_t> kept_before(points_.size() + 1);
  size_t kept = 0;
  for (size_t i = 0; i < points_.size(); ++i) {
    kept_before[i] = kept;
    if (points_[i].iteration % stride_ == 0) points_[kept++] = points_[i];
  }
  kept_before[points_.size()] = kept;
  points_.resize(kept);
  open_begin_ = kept_before[open_begin_];
  for (Entry& entry : entries_) {
    if (auto* range = std::get_if<Range>(&entry.what)) {
      *range = {kept_before[range->begin], kept_before[range->end]};
    }
  }
}

v1::JobEvent JobLog::Get(int64_t number) const {
  const Entry& entry = entries_[static_cast<size_t>(number - 1)];
  v1::JobEvent event;
  if (const auto* whole = std::get_if<v1::JobEvent>(&entry.what)) {
    event = *whole;
  } else if (const auto* progress = std::get_if<ProgressEntry>(&entry.what)) {
    event.mutable_progress()->set_stage(progress->stage);
    event.mutable_progress()->set_done(progress->done);
    event.mutable_progress()->set_total(progress->total);
  } else {
    const Range& range = std::get<Range>(entry.what);
    auto* residuals = event.mutable_residuals();
    residuals->mutable_residuals()->Reserve(static_cast<int>(range.end - range.begin));
    for (size_t i = range.begin; i < range.end; ++i) {
      auto* point = residuals->add_residuals();
      point->set_rhs(points_[i].rhs);
      point->set_iteration(points_[i].iteration);
      point->set_relative_residual(points_[i].relative_residual);
    }
    if (stride_ > 1) residuals->set_stride(stride_);
  }
  event.set_number(number);
  SetTime(Wall(entry.time), event.mutable_time());
  return event;
}

std::vector<JobLog::CurvePoint> JobLog::Curve(int32_t rhs, size_t max_points) const {
  std::vector<CurvePoint> curve;
  for (const Point& point : points_) {
    if (point.rhs == rhs) curve.push_back({point.iteration, point.relative_residual});
  }
  KeepEvenly(max_points, &curve);
  return curve;
}

std::vector<JobLog::Mark> JobLog::Marks(size_t max_marks) const {
  std::vector<Mark> marks;
  for (const Entry& entry : entries_) {
    const auto* const range = std::get_if<Range>(&entry.what);
    if (range == nullptr) continue;
    for (size_t i = range->end; i > range->begin; --i) {
      const Point& point = points_[i - 1];
      if (point.rhs != 0) continue;
      marks.push_back({Wall(entry.time), point.iteration, point.relative_residual});
      break;
    }
  }
  KeepEvenly(max_marks, &marks);
  return marks;
}

WallTime JobLog::Wall(TimePoint time) const {
  return created_wall_ + std::chrono::duration_cast<WallTime::duration>(time - created_);
}

int64_t JobLog::bytes() const {
  size_t bytes = entries_.capacity() * sizeof(Entry) + points_.capacity() * sizeof(Point);
  for (const Entry& entry : entries_) {
    if (const auto* whole = std::get_if<v1::JobEvent>(&entry.what)) bytes += whole->SpaceUsedLong();
  }
  return static_cast<int64_t>(bytes);
}

}  // namespace spaid::server
