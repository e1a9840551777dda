// Whether values of a run are what a relation along the batch (ops/schema/batch_relation.h) says.
#ifndef WEFT_TESTS_PROPERTIES_RELATION_CHECKS_H_
#define WEFT_TESTS_PROPERTIES_RELATION_CHECKS_H_

#include <string>
#include <vector>

#include "ops/schema/batch_relation.h"
#include "ops/schema/tensor_type.h"

namespace weft::testing {

struct Values {
  Dims dims;
  std::vector<double> data;
};

// Infinity if one is not finite.
double Largest(const Values& values);

// Whether the values of the ranks and of one device have the relation, up to rounding.
bool Holds(BatchRelation relation, const std::vector<Values>& of_ranks, const Values& whole);

// Dimensions, and the first elements.
std::string Show(const std::vector<Values>& values);

}  // namespace weft::testing

#endif  // WEFT_TESTS_PROPERTIES_RELATION_CHECKS_H_
