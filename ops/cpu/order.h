// The order of elements for sorting and searching.
#ifndef WEFT_OPS_CPU_ORDER_H_
#define WEFT_OPS_CPU_ORDER_H_

namespace weft {

// NaN comes last in ascending, first in descending order.
template <typename T>
bool Less(T a, T b) {
  return b != b ? a == a : a < b;
}

}  // namespace weft

#endif  // WEFT_OPS_CPU_ORDER_H_
