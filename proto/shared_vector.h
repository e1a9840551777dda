// A vector that is cheap to copy.
#ifndef WEFT_PROTO_SHARED_VECTOR_H_
#define WEFT_PROTO_SHARED_VECTOR_H_

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "absl/types/span.h"

namespace weft {

// Copies share the elements that exist at the call of Share. Elements that are appended later are
// separate. A rewritten program and its original differ in few elements; as vectors, they would
// take twice the memory.
template <typename T>
class SharedVector {
 public:
  size_t size() const { return num_shared_ + own_.size(); }
  const T& operator[](size_t i) const {
    return i < num_shared_ ? shared_data_[i] : own_[i - num_shared_];
  }
  // Consecutive elements, all appended before Share or all after it.
  absl::Span<const T> subspan(size_t first, size_t count) const {
    return {first < num_shared_ ? shared_data_ + first : own_.data() + (first - num_shared_),
            count};
  }

  void reserve(size_t count) { own_.reserve(count); }
  void push_back(const T& value) { own_.push_back(value); }
  // Not to fewer elements than are shared.
  void resize(size_t count) { own_.resize(count - num_shared_); }
  // For changing an element. O(1); O(elements) once if a copy shares it.
  T& Mutable(size_t i) {
    if (i >= num_shared_) return own_[i - num_shared_];
    if (shared_.use_count() > 1) SetShared(std::vector<T>(*shared_));
    return (*shared_)[i];
  }

  // Called once, before the first copy.
  void Share() { SetShared(std::exchange(own_, {})); }

 private:
  void SetShared(std::vector<T> elements) {
    shared_ = std::make_shared<std::vector<T>>(std::move(elements));
    shared_data_ = shared_->data();
    num_shared_ = shared_->size();
  }

  std::shared_ptr<std::vector<T>> shared_;
  const T* shared_data_ = nullptr;
  size_t num_shared_ = 0;
  std::vector<T> own_;
};

}  // namespace weft

#endif  // WEFT_PROTO_SHARED_VECTOR_H_
