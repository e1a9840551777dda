#include "executor/run/run_control.h"

#include "base/wait_briefly.h"

namespace weft {

void RunControl::Give(Order order) {
  std::lock_guard<std::mutex> lock(mutex_);
  order_ = order;
  if (order == Order::kEnd) has_ended_ = true;
  ++number_;
  is_given_.notify_all();
}

void RunControl::GiveValues(const std::map<std::string, Tensor>* values) {
  values_ = values;  // which nobody reads before the order
  Give(Order::kTakeState);
}

RunControl::Order RunControl::Next(int64_t* number) {
  const auto is_there = [&] { return number_ > *number || has_ended_; };
  WaitBriefly(is_there);
  // The order was written before its number, and stays until all ranks have carried it out.
  if (!is_there()) {
    std::unique_lock<std::mutex> lock(mutex_);
    is_given_.wait(lock, is_there);
  }
  if (has_ended_) return Order::kEnd;
  ++*number;
  return order_;
}

void RunControl::Stop() {
  std::lock_guard<std::mutex> lock(mutex_);
  has_ended_ = true;
  is_given_.notify_all();
}

}  // namespace weft
