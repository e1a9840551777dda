// A run whose steps a caller orders one by one.
#ifndef WEFT_EXECUTOR_RUN_RUN_CONTROL_H_
#define WEFT_EXECUTOR_RUN_RUN_CONTROL_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "ops/tensor.h"

namespace weft {

// One thread orders, and every rank carries out each order. Ranks that have nothing to do wait: for
// a short time they ask again and again, so that an order that comes soon wakes nobody.
class RunControl {
 public:
  enum class Order {
    kStep,       // the next step
    kGiveState,  // RunInputs::on_checkpoint with the state before the next step
    kTakeState,  // every rank takes values first; then as kGiveState
    kEnd,        // the run ends before the next step
  };

  // Gives an order. Expects that all ranks have carried out the one before: their results, or the
  // state, are there.
  void Give(Order order);

  // Gives kTakeState. Ranks set the persistable variables of these names, and parts of those of
  // which they have parts; other names are ignored. A value of another type than the variable has
  // is an error that ends the run. `values` are in host memory, and outlive the carrying out.
  void GiveValues(const std::map<std::string, Tensor>* values);
  // Of the last GiveValues.
  const std::map<std::string, Tensor>& values() const { return *values_; }

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
  const std::map<std::string, Tensor>* values_ = nullptr;
  std::atomic<bool> has_ended_{false};
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_RUN_RUN_CONTROL_H_
