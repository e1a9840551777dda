// A run whose steps a caller orders one by one.
#ifndef WEFT_EXECUTOR_RUN_RUN_CONTROL_H_
#define WEFT_EXECUTOR_RUN_RUN_CONTROL_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace weft {

// One thread orders, and every rank carries out each order. Ranks that have nothing to do wait: for
// a short time they ask again and again, so that an order that comes soon wakes nobody.
class RunControl {
 public:
  enum class Order {
    kStep,       // the next step
    kGiveState,  // RunInputs::on_checkpoint with the state before the next step
    kEnd,        // the run ends before the next step
  };

  // Gives an order. Expects that all ranks have carried out the one before: their results, or the
  // state, are there.
  void Give(Order order);

  // Returns the order that follows the first `*number`, and counts it; waits until it is given.
  // kEnd after Stop. Thread-safe.
  Order Next(int64_t* number);

  // Whether the run is to end. Thread-safe.
  bool has_ended() const { return has_ended_; }

  // Releases the ranks that wait, now and later: the run has failed. Thread-safe.
  void Stop();

 private:
  std::mutex mutex_;
  std::condition_variable is_given_;
  std::atomic<int64_t> number_{0};  // of orders
  Order order_ = Order::kStep;      // the last one
  std::atomic<bool> has_ended_{false};
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_RUN_RUN_CONTROL_H_
