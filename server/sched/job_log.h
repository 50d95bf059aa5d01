// Keeps the numbered events of one job, in bounded memory whatever the job does.
//
// Numbers have no gaps and an event never changes once it can be read, with one exception that says
// so itself: residuals are kept in full up to `max_points`; beyond, every second one is dropped
// (again and again), and JobResiduals.stride says that only every stride-th iteration is there.
// Progress becomes an event when a percent more of its stage is done: at most 101 per stage.
// Residuals are gathered into batches: the first one comes at once, the others as often as ten
// times a second, and ever less often with the age of the job, so that their number grows with the
// logarithm of its running time, however fast it iterates. A batch has everything since the one
// before, so that all of them together are the whole history.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "server/base/clock.h"
#include "spaid/v1/job.pb.h"

namespace spaid::server {

struct JobLogOptions {
  size_t max_points = 100'000;                 // residuals kept; about 2 MB as one event
  std::chrono::milliseconds batch{100};        // shortest time between residual events
  std::chrono::milliseconds progress_gap{50};  // shortest time between progress events of a stage
};

// Thread-compatible: the job's lock guards it.
class JobLog {
 public:
  explicit JobLog(WallTime created_wall, TimePoint created, JobLogOptions options = {});

  void Add(TimePoint now, v1::JobEvent event);  // queued, started, quality, rung, finished
  // Record progress and a residual; true: that made an event.
  bool Progress(TimePoint now, v1::Stage stage, int64_t done, int64_t total);
  bool Residual(TimePoint now, int32_t rhs, int32_t iteration, double relative_residual);
  // Makes an event of the residuals gathered; `only_if_due`: only if they are due. True: it did.
  bool Flush(TimePoint now, bool only_if_due);

  int64_t size() const { return static_cast<int64_t>(entries_.size()); }
  // Returns event `number`, 1 .. size().
  v1::JobEvent Get(int64_t number) const;
  // Returns the residuals of one right-hand side so far: at most `max_points` (2 or more) of them,
  // the first, the last and others evenly between.
  struct CurvePoint {
    int32_t iteration;
    double relative_residual;
  };
  std::vector<CurvePoint> Curve(int32_t rhs, size_t max_points) const;
  // Returns the last residual of the first right-hand side in each batch so far, with the time of
  // the batch: at most `max_marks` (2 or more), chosen as by Curve.
  struct Mark {
    WallTime time;
    int32_t iteration;
    double relative_residual;
  };
  std::vector<Mark> Marks(size_t max_marks) const;
  int64_t bytes() const;

 private:
  struct Point {
    int32_t rhs;
    int32_t iteration;
    double relative_residual;
  };
  struct Range {  // in points_
    size_t begin, end;
  };
  struct ProgressEntry {
    v1::Stage stage;
    int64_t done, total;
  };
  struct Entry {
    TimePoint time;
    std::variant<v1::JobEvent, ProgressEntry, Range> what;
  };

  std::chrono::nanoseconds Interval(TimePoint now) const;
  WallTime Wall(TimePoint time) const;
  void Thin();

  const WallTime created_wall_;
  const TimePoint created_;
  const JobLogOptions options_;
  std::vector<Entry> entries_;
  std::vector<Point> points_;
  size_t open_begin_ = 0;  // points_[open_begin_ ..) are in no event yet
  int64_t stride_ = 1;
  TimePoint last_flush_;
  v1::Stage stage_ = v1::STAGE_UNSPECIFIED;
  int64_t percent_ = -1;
  TimePoint last_progress_;
};

}  // namespace spaid::server
