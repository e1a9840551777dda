// Symbols for the values of programs that are replayed.
#ifndef WEFT_TESTS_REPLAY_VALUES_H_
#define WEFT_TESTS_REPLAY_VALUES_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/optional.h"

namespace weft::testing {

// A symbol: an initial value, a number, or what an op makes of symbols. Equal numbers are equal
// values; values that are equal by more than sums, factors of sums and of gradients, and parts of a
// whole may have different ones.
using ValueId = uint32_t;

class ValueTable {
 public:
  ValueTable();

  ValueId Named(const std::string& text);
  ValueId Number(double number);
  absl::optional<double> NumberOf(ValueId value) const;
  // The sum of values times factors.
  ValueId Linear(const std::vector<std::pair<ValueId, double>>& terms);
  // A value as a factor times another value; 1 where it has none.
  std::pair<double, ValueId> Factored(ValueId value) const;
  // Several values in a row, and part i of n equal ones of a value.
  ValueId Concat(const std::vector<ValueId>& parts);
  ValueId Part(ValueId whole, int i, int n);
  const std::vector<ValueId>* PartsOf(ValueId value) const;

  const std::string& TextOf(ValueId value) const { return texts_[value]; }

 private:
  struct Whole {
    ValueId whole;
    int i, n;
  };
  absl::flat_hash_map<std::string, ValueId> ids_;
  std::vector<std::string> texts_;
  absl::flat_hash_map<ValueId, double> numbers_;
  absl::flat_hash_map<ValueId, std::vector<std::pair<ValueId, double>>> sums_;
  absl::flat_hash_map<ValueId, std::vector<ValueId>> concats_;
  absl::flat_hash_map<ValueId, Whole> parts_;
};

}  // namespace weft::testing

#endif  // WEFT_TESTS_REPLAY_VALUES_H_
