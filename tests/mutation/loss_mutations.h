// Models whose losses are no means over the batch.
#ifndef WEFT_TESTS_MUTATION_LOSS_MUTATIONS_H_
#define WEFT_TESTS_MUTATION_LOSS_MUTATIONS_H_

#include <string>
#include <vector>

#include "tests/support/models.h"

namespace weft::testing {

struct LossMutant {
  std::string kind;  // "loss: sum"
  Model model;
};

// The model with another function of the batch as its first loss, and with the backward ops of
// that: a sum, a sum with another divisor, the square, root or exponential of a mean, the product
// with another mean, the maximum. None if the loss is no mean over all elements.
std::vector<LossMutant> LossMutants(const Model& model);

}  // namespace weft::testing

#endif  // WEFT_TESTS_MUTATION_LOSS_MUTATIONS_H_
