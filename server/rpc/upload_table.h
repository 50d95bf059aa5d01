// Makes one upload of the same matrix from many clients at once: the first one sends and the others
// wait while it sends at a good rate. If it does not, one of those who wait sends, too.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace spaid::server {

// Bytes of arrays per second that a sender for others must bring, over each span of kLeaderSpan.
inline constexpr double kLeaderRate = 8 << 20;
inline constexpr std::chrono::seconds kLeaderSpan{2};

// Uploads in flight by (tenant, content key), no more than there are streams. Thread-safe; waiters
// are woken without a lock held, on the thread that ends the leader's turn.
class UploadTable {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  class Waiter {
   public:
    virtual ~Waiter() = default;
    // Tells the waiter to ask again.
    virtual void Wake() = 0;
  };

  // A turn at sending. While the leader's lives, others of the key wait; when it dies, they are all
  // woken and ask again: the content is there now, or one of them leads. They are woken, too, when
  // one dies whose lead another one has taken. Movable.
  class Turn {
   public:
    Turn() = default;
    ~Turn() { End(); }
    Turn(Turn&& other) noexcept;
    Turn& operator=(Turn&& other) noexcept;
    // Counts bytes of arrays that the sender has brought.
    void Came(int64_t bytes, TimePoint now);
    // Notes that everything has come: others no longer wait for the sender.
    void CameWhole();
    // It is the sender after all, from now on.
    void Begins(TimePoint now);
    void End();
    explicit operator bool() const { return table_ != nullptr; }

   private:
    friend class UploadTable;
    Turn(UploadTable* table, std::string key, uint64_t number)
        : table_(table), key_(std::move(key)), number_(number) {}
    UploadTable* table_ = nullptr;
    std::string key_;
    uint64_t number_ = 0;
  };

  // Returns the turn if nobody is sending the content within the tenant, or if the leader is too
  // slow, whose lead it takes; else nothing, and `waiter` is woken once (unless it is gone by
  // then).
  Turn Enter(const std::string& tenant, const std::string& content_key,
             std::weak_ptr<Waiter> waiter, TimePoint now);
  // Returns true if a waiter should ask again.
  bool LeaderIsSlow(const std::string& tenant, const std::string& content_key, TimePoint now);

 private:
  struct Upload {
    uint64_t leader = 0;  // the number of its turn
    std::vector<std::weak_ptr<Waiter>> waiting;
    // Measures the leader's rate.
    TimePoint span_start{};
    int64_t span_bytes = 0;
    bool slow = false, whole = false;
  };
  // Updates `slow`.
  static void Look(TimePoint now, Upload* upload);
  // Returns the upload that this turn leads, or null.
  Upload* LedBy(const Turn& turn);
  void Leave(const std::string& key, uint64_t number);

  std::mutex mu_;
  std::unordered_map<std::string, Upload> in_flight_;
  uint64_t turns_ = 0;
};

}  // namespace spaid::server
