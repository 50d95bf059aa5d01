// Turns Ctrl-C (and SIGTERM) into a stop token.
#pragma once

#include <stop_token>
#include <string>

namespace spaid::cli {

// While a Guard lives, the first signal asks the running call to stop (its job is cancelled, then)
// and the second one leaves at once with 130; without a Guard the first one leaves.
class Interrupt {
 public:
  // Handles the signals from now on, whatever threads exist (libraries start theirs before main)
  // and whatever was blocked or ignored when the process began: the sender of a signal means it,
  // and the job of a program that dies of it would run on. `program` is printed before the hints,
  // and must live as long as the process.
  static void Install(const char* program);
  static std::stop_token Token();
  // Returns true if the first signal was answered with a hint on stderr. Call this and the next
  // with stderr locked (flockfile): the answer comes before or after.
  static bool Answered();
  // Sets the text written before the hint, in place of a line end, to put the screen in order: at
  // Ctrl-C a terminal drops what it has not shown yet, in the middle of a drawing.
  static void SetScreen(std::string screen);

  class Guard {
   public:
    // `hint` is printed on stderr at the first signal; it must outlive the guard.
    explicit Guard(const char* hint);
    ~Guard();
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;
  };
};

}  // namespace spaid::cli
