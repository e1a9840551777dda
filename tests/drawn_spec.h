// What a random program is drawn from. Any values are valid.
#ifndef WEFT_TESTS_DRAWN_SPEC_H_
#define WEFT_TESTS_DRAWN_SPEC_H_

#include <vector>

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
enum class DrawnMarks { kBoth, kGradient, kNone };

enum class DrawnUpdates { kSgd, kMomentum, kByHand };

struct DrawnSpec {
  std::vector<OpChoice> ops;
  int loss = 0;
  int loss_of = 0;
  int loss_with = 0;
  int second_loss = 0;  // 0: none
  DrawnMarks marks = DrawnMarks::kBoth;
  DrawnUpdates updates = DrawnUpdates::kSgd;
  // What rewrites and what runs the program.
  bool averages = false;  // gradients; else the gradient of the loss is scaled
  bool exact_loss = false;
  int nranks = 2;
  int rows = 2;  // of the batch of each rank
};

}  // namespace weft::testing

#endif  // WEFT_TESTS_DRAWN_SPEC_H_
