// Ops that random programs are drawn from (tests/properties/random_program.h).
#ifndef WEFT_TESTS_PROPERTIES_RANDOM_OPS_H_
#define WEFT_TESTS_PROPERTIES_RANDOM_OPS_H_

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "ops/schema/op_schema.h"

namespace weft::testing {

// Which values may be an argument.
enum class ArgumentClass : char {
  kFloat = 'f',
  kScalar = 'c',  // of one element
  kInt = 'i',
  kSize = 's',  // made by an op that tells sizes
  kBool = 'b',
  kParam = 'p',
  kStatistic = 'm',  // a moving mean or variance
  kCount = 'q',      // the counts of a metric
};

struct RandomSlot {
  std::string name;
  ArgumentClass of;
  int count;
};

struct RandomAttr {
  std::string name;
  std::vector<AttrValue> values;  // one of these
};

struct RandomOp {
  std::string type;
  std::vector<RandomSlot> inputs;
  std::vector<RandomAttr> attrs;
  int outputs = 1;        // of a slot that may hold several
  bool is_state = false;  // writes a persistable variable
};

// One row for each op and way to use it: every class of rule along the batch has one.
absl::Span<const RandomOp> RandomOps();

}  // namespace weft::testing

#endif  // WEFT_TESTS_PROPERTIES_RANDOM_OPS_H_
