// How parameters move when ranks synchronize them.
#ifndef WEFT_PROTO_OUTER_OPTIMIZER_H_
#define WEFT_PROTO_OUTER_OPTIMIZER_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace weft {

// Ranks train separately between two synchronizations. The outer gradient of a parameter is its
// value after the last synchronization, x, minus that of now. With d, the mean of the outer
// gradients over the ranks, a synchronization sets x, and the parameters of all ranks to x:
//
//   kAveraging   x -= d: the mean of the parameters
//   kSgd         x -= lr d
//   kNesterov    v = momentum v + d, x -= lr (d + momentum v): DiLoCo
//   kSlowMo      u = momentum u + d / rate, x -= lr rate u, where `rate` is the learning rate of
//                the parameter's own optimizer at that time
//
// v and u begin with 0.
struct OuterOptimizer {
  enum class Rule { kAveraging, kSgd, kNesterov, kSlowMo };
  Rule rule = Rule::kAveraging;
  double lr = 1;
  double momentum = 0;

  // Whether x is a state of the program.
  bool HasState() const { return rule != Rule::kAveraging; }
  bool HasMomentum() const { return rule == Rule::kNesterov || rule == Rule::kSlowMo; }

  friend bool operator==(const OuterOptimizer& a, const OuterOptimizer& b) {
    return a.rule == b.rule && a.lr == b.lr && a.momentum == b.momentum;
  }
};

inline constexpr char kOuterOptimizers[] =
    "averaging, sgd{lr=1}, nesterov{lr=0.7,momentum=0.9} or slowmo{lr=1,momentum=0.5}, with lr > 0 "
    "and 0 < momentum < 1";

// "nesterov{lr=0.7,momentum=0.9}". What is left out has the value of kOuterOptimizers.
// InvalidArgument for other text.
absl::StatusOr<OuterOptimizer> ParseOuterOptimizer(absl::string_view text);

// The inverse of ParseOuterOptimizer.
std::string ToString(const OuterOptimizer& outer);

}  // namespace weft

#endif  // WEFT_PROTO_OUTER_OPTIMIZER_H_
