// An integer that cannot be mixed up with another kind of integer.
#ifndef WEFT_BASE_STRONG_ID_H_
#define WEFT_BASE_STRONG_ID_H_

#include <cstdint>
#include <ostream>
#include <utility>

namespace weft {

// A 32-bit index that counts one kind of thing. `Tag` names the kind and may stay incomplete:
//
//   using OpId = StrongId<struct OpTag>;
//
// Comparable, hashable (absl::Hash), printable; no arithmetic. The default value is invalid.
template <typename Tag>
class StrongId {
 public:
  constexpr StrongId() = default;
  constexpr explicit StrongId(uint32_t value) : value_(value) {}

  constexpr uint32_t value() const { return value_; }
  constexpr bool valid() const { return value_ != kInvalid; }

  friend constexpr bool operator==(StrongId a, StrongId b) { return a.value_ == b.value_; }
  friend constexpr bool operator!=(StrongId a, StrongId b) { return a.value_ != b.value_; }
  friend constexpr bool operator<(StrongId a, StrongId b) { return a.value_ < b.value_; }

  template <typename H>
  friend H AbslHashValue(H state, StrongId id) {
    return H::combine(std::move(state), id.value_);
  }
  friend std::ostream& operator<<(std::ostream& os, StrongId id) {
    return id.valid() ? os << id.value_ : os << "invalid";
  }

 private:
  static constexpr uint32_t kInvalid = 0xffffffffu;
  uint32_t value_ = kInvalid;
};

}  // namespace weft

#endif  // WEFT_BASE_STRONG_ID_H_
