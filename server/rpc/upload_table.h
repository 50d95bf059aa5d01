// The same matrix from 64 ranks at once is one upload: the first one sends, the others wait.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace spaid::server {

// Uploads in flight by (tenant, content key). Thread-safe; waiters are woken without a lock held,
// on the thread that ends the leader's turn.
class UploadTable {
 public:
  class Waiter {
   public:
    virtual ~Waiter() = default;
    // Time to ask again.
    virtual void Wake() = 0;
  };

  // A turn at sending. While the leader's lives, others of the key wait; when it dies, they are all
  // woken and ask again: the content is there now, or one of them leads. Movable.
  class Turn {
   public:
    Turn() = default;
    ~Turn() { End(); }
    Turn(Turn&& other) noexcept;
    Turn& operator=(Turn&& other) noexcept;
    void End();
    explicit operator bool() const { return table_ != nullptr; }

   private:
    friend class UploadTable;
    Turn(UploadTable* table, std::string key) : table_(table), key_(std::move(key)) {}
    UploadTable* table_ = nullptr;
    std::string key_;
  };

  // The turn, where nobody is sending `key` within the tenant; else nothing, and `waiter` is woken
  // once (unless it is gone by then).
  Turn Enter(const std::string& tenant, const std::string& content_key,
             std::weak_ptr<Waiter> waiter);

 private:
  void Leave(const std::string& key);

  std::mutex mu_;
  std::unordered_map<std::string, std::vector<std::weak_ptr<Waiter>>> in_flight_;
};

}  // namespace spaid::server
