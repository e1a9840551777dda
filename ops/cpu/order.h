// The order of elements that sorting and searching have.
#ifndef WEFT_OPS_CPU_ORDER_H_
#define WEFT_OPS_CPU_ORDER_H_

namespace weft {

// Numbers that are none come last in ascending, first in descending order.
template <typename T>
bool Less(T a, T b) {
  return b != b ? a == a : a < b;
}

}  // namespace weft

#endif  // WEFT_OPS_CPU_ORDER_H_
