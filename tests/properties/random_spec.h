// What a random program is drawn from. Any values are valid. For RapidCheck, which shrinks them
// field by field.
#ifndef WEFT_TESTS_PROPERTIES_RANDOM_SPEC_H_
#define WEFT_TESTS_PROPERTIES_RANDOM_SPEC_H_

#include <vector>

#include "rapidcheck.h"

namespace weft::testing {

// Numbers are taken modulo what there is to choose from. An op that fits nowhere is left out.
struct OpChoice {
  int op = 0;
  std::vector<int> arguments;  // of the first slots; 0 for others
  int attrs = 0;
  bool is_in_place = false;  // overwrites an argument of its type, if there is one
  // Its gradient op has other attributes, if there is a choice: not the gradient.
  bool has_other_gradient = false;
};

// Which ops have the role of a loss: the forward op that makes it, and the op that fills its
// gradient.
enum class RandomMarks { kBoth, kGradient, kNone };

enum class RandomUpdates { kSgd, kMomentum, kByHand };

// How a program tells its data: it marks them, has feed ops for them, each has one or the other or
// both, or it does not tell.
enum class RandomData { kMarked, kFed, kMixed, kUntold };

enum class RandomRewrite { kGradAllReduce, kExactLoss, kLocalSgd };

struct RandomSpec {
  std::vector<OpChoice> ops;
  int loss = 0;
  int loss_of = 0;
  int loss_with = 0;
  int second_loss = 0;  // 0: none
  RandomMarks marks = RandomMarks::kBoth;
  RandomUpdates updates = RandomUpdates::kSgd;
  RandomData data = RandomData::kMarked;
  int data_choices = 0;  // of kMixed: one digit to base 3 for each variable
  // Fetch ops of any variables after the backward pass and after the updates; 0: none.
  int fetched_gradient = 0;
  int fetched_result = 0;
  // What rewrites and what runs the program.
  RandomRewrite rewrite = RandomRewrite::kGradAllReduce;
  bool averages = false;        // gradients; else the gradient of the loss is scaled
  int k_steps = 1;              // of LocalSGD
  const char* state = "local";  // of optimizers, under LocalSGD
  int nranks = 2;
  int rows = 2;  // of the batch of each rank
};

}  // namespace weft::testing

namespace rc {

template <>
struct Arbitrary<weft::testing::RandomSpec> {
  static Gen<weft::testing::RandomSpec> arbitrary();
};

}  // namespace rc

#endif  // WEFT_TESTS_PROPERTIES_RANDOM_SPEC_H_
