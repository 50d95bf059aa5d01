// The scheduler's policy in virtual time: arrivals, devices, ends, in one thread.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "server/base/status.h"
#include "server/sched/dispatcher.h"

namespace spaid::server {

class Simulation {
 public:
  struct Arrival {
    double at_ms = 0;
    Work work;                          // without id
    double took_ms = 0;                 // of one device, in truth
    std::optional<double> deadline_ms;  // from arrival on
  };
  struct Record {
    Work work;
    double arrived_ms = 0, started_ms = -1, ended_ms = -1;
    std::vector<size_t> devices;
    bool missed = false;  // its deadline, at which it was stopped
    std::string refused;  // reason
    double eta_ms = 0;    // as told at arrival
    double wait_ms() const { return started_ms - arrived_ms; }
  };

  explicit Simulation(DispatcherOptions options) : dispatcher(std::move(options)) {}

  void Add(Arrival arrival) { arrivals_.push_back(std::move(arrival)); }
  // From then on the job that is the `number`-th to arrive (from 1 on) has another class.
  void Reclass(double at_ms, uint64_t number, Priority priority) {
    changes_.push(Change{at_ms, number, priority});
  }

  // Until all has ended, or to `until_ms`.
  void Run(double until_ms = 1e18) {
    std::stable_sort(arrivals_.begin(), arrivals_.end(),
                     [](const Arrival& x, const Arrival& y) { return x.at_ms < y.at_ms; });
    size_t next = 0;
    for (;;) {
      const double arrival = next < arrivals_.size() ? arrivals_[next].at_ms : 1e18;
      while (!ends_.empty() && IsStale(ends_.top())) ends_.pop();
      const double end = ends_.empty() ? 1e18 : ends_.top().first;
      const double deadline = deadlines_.empty() ? 1e18 : deadlines_.top().first;
      const double change = changes_.empty() ? 1e18 : changes_.top().at_ms;
      const double then = std::min({arrival, end, deadline, change, NextTurn()});
      if (then >= 1e18 || then > until_ms) return;
      now_ms = then;
      if (end <= then) {
        const uint64_t id = ends_.top().second;
        ends_.pop();
        if (records[id].ended_ms < 0) {  // else it was cut off
          records[id].ended_ms = now_ms;
          turns_.erase(id);
          dispatcher.Finish(id, {.learn = true}, Now());
        }
      } else if (deadline <= then) {
        Record& record = records[deadlines_.top().second];
        deadlines_.pop();
        if (record.ended_ms >= 0) continue;
        record.missed = true;
        record.ended_ms = now_ms;
        if (!dispatcher.Remove(record.work.id)) {
          dispatcher.Finish(record.work.id, {}, Now());
        }
      } else if (arrival <= then) {
        Arrive(arrivals_[next++]);
      } else if (change <= then) {
        dispatcher.SetPriority(changes_.top().id, changes_.top().priority);
        changes_.pop();
      }
      Start();
      while (PauseOne()) Start();
      most_queued = std::max(most_queued, dispatcher.queued());
    }
  }

  TimePoint Now() const {
    return TimePoint(std::chrono::duration_cast<TimePoint::duration>(Milliseconds(now_ms)));
  }

  // Of `figure`, a function of records, over the records that `of` names and that
  // started; at least one.
  template <class Of, class Figure>
  double Quantile(double q, const Of& of, const Figure& figure) const {
    std::vector<double> figures;
    for (const auto& [id, record] : records) {
      if (record.started_ms >= 0 && of(record)) figures.push_back(figure(record));
    }
    std::sort(figures.begin(), figures.end());
    return figures.at(static_cast<size_t>(q * static_cast<double>(figures.size() - 1)));
  }
  template <class Of>
  double WaitQuantile(double q, const Of& of) const {
    return Quantile(q, of, [](const Record& record) { return record.wait_ms(); });
  }
  // Device time that jobs of `of` had within [from, to].
  template <class Of>
  double Served(double from, double to, const Of& of) const {
    double ms = 0;
    for (const auto& [id, record] : records) {
      if (record.started_ms < 0 || !of(record)) continue;
      const double end = record.ended_ms < 0 ? to : record.ended_ms;
      ms += std::max(0.0, std::min(end, to) - std::max(record.started_ms, from)) *
            static_cast<double>(record.devices.size());
    }
    return ms;
  }

  Dispatcher dispatcher;
  double now_ms = 0;
  std::map<std::string, double> turns_ms;  // by tenant: of jobs that were paused, until then
  std::map<uint64_t, Record> records;      // by id, in the order of arrival
  int64_t most_queued = 0;

 private:
  void Start() {
    for (const Dispatcher::Start& start : dispatcher.Dispatch(Now())) {
      Record& record = records[start.id];
      if (record.started_ms < 0) record.started_ms = now_ms;
      record.devices = start.devices;
      const double end = now_ms + took_[start.id] / static_cast<double>(start.devices.size());
      ends_.emplace(end, start.id);
      const auto over = dispatcher.TurnEnds(start.id);
      if (over) turns_[start.id] = {now_ms, ToMs(over->time_since_epoch()), end};
    }
  }
  // True for the end of a turn whose job was paused before it.
  bool IsStale(const std::pair<double, uint64_t>& end) {
    if (records[end.second].ended_ms >= 0 || !records[end.second].work.yields) return false;
    const auto turn = turns_.find(end.second);
    return turn == turns_.end() || turn->second.ends_ms != end.first;
  }
  bool OthersWait() const { return dispatcher.queued() + dispatcher.paused() > 0; }
  double NextTurn() const {
    double next = 1e18;
    if (!OthersWait()) return next;
    for (const auto& [id, turn] : turns_) next = std::min(next, std::max(now_ms, turn.over_ms));
    return next;
  }
  // As a solve does at its residual checks.
  bool PauseOne() {
    if (!OthersWait()) return false;
    for (const auto& [id, turn] : turns_) {
      if (turn.over_ms > now_ms + 1e-3) continue;
      const uint64_t paused = id;
      took_[paused] -= now_ms - turn.began_ms;
      turns_ms[records[paused].work.tenant] += now_ms - turn.began_ms;
      turns_.erase(paused);
      dispatcher.Pause(paused, Now());
      return true;
    }
    return false;
  }

  void Arrive(const Arrival& arrival) {
    Work work = arrival.work;
    work.id = records.size() + 1;
    Record& record = records[work.id];
    record.arrived_ms = now_ms;
    const absl::Status status = dispatcher.Admit(&work, arrival.deadline_ms, Now());
    record.work = work;
    if (!status.ok()) {
      record.refused = ReasonOf(status);
      return;
    }
    record.eta_ms = dispatcher.PlaceOf(work, Now()).eta_ms;
    took_[work.id] = arrival.took_ms;
    dispatcher.Push(work, Now());
    if (arrival.deadline_ms) deadlines_.emplace(now_ms + *arrival.deadline_ms, work.id);
  }

  std::vector<Arrival> arrivals_;
  std::map<uint64_t, double> took_;  // still to be taken, where it was paused
  struct Turn {
    double began_ms, over_ms, ends_ms;
  };
  std::map<uint64_t, Turn> turns_;  // of running jobs that can be paused
  struct Change {
    double at_ms;
    uint64_t id;
    Priority priority;
    bool operator>(const Change& other) const { return at_ms > other.at_ms; }
  };
  std::priority_queue<Change, std::vector<Change>, std::greater<>> changes_;
  using End = std::pair<double, uint64_t>;
  std::priority_queue<End, std::vector<End>, std::greater<>> ends_, deadlines_;
};

}  // namespace spaid::server
