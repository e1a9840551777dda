// How often a job on several hosts was asked to stop.
#ifndef WEFT_TOOLS_JOB_STOP_COUNT_H_
#define WEFT_TOOLS_JOB_STOP_COUNT_H_

#include <chrono>

namespace weft {

// As one launcher counts. All may get one stop at once, as a signal of their own, and as another
// launcher passes it on. A signal soon after a stop from elsewhere is the same stop.
class StopCount {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // This launcher has got a signal. False: that stop counts already.
  bool AddOwn(Time now) {
    if (++num_own_ <= num_ && now < last_ + kSameStop) return false;
    AddOther(now);
    num_own_ = num_;
    return true;
  }
  // Another launcher has passed a stop on.
  void AddOther(Time now) {
    ++num_;
    last_ = now;
  }
  int num() const { return num_; }

 private:
  static constexpr std::chrono::seconds kSameStop{5};

  int num_ = 0;
  int num_own_ = 0;  // of these, those that this launcher has received
  Time last_;        // of these
};

}  // namespace weft

#endif  // WEFT_TOOLS_JOB_STOP_COUNT_H_
