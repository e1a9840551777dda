// The updates of a training step of PyTorch, found by their structure.
#ifndef WEFT_PROTO_FORMATS_PT2_UPDATES_H_
#define WEFT_PROTO_FORMATS_PT2_UPDATES_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/formats/pt2/graph.h"

namespace weft::pt2 {

// Which node makes a value, looking through nodes that hand on the value of their input.
class Makers {
 public:
  // The graph must outlive it.
  explicit Makers(const Graph& graph);

  // The value that `value` is a copy, or another name, of, or is transposed of twice.
  std::string Origin(absl::string_view value) const;
  // Null: an input of the graph.
  const Node* Of(const std::string& value) const;

  static bool HandsOn(const Node& node);
  // The value that `*node` makes `value` of, if that is a collective, a cast, or a product or
  // quotient with a number; else empty.
  std::string Before(const std::string& value, const Node** node) const;

 private:
  absl::flat_hash_map<std::string, const Node*> maker_;
  absl::flat_hash_map<std::string, std::string> origin_;
};

// What torch.optim's functional forms compute, in the names of Weft's ops (ops/formulas/update.h).
struct Update {
  // kComputed: as the nodes say.
  enum class Rule : uint8_t { kSgd, kMomentum, kAdam, kAdamW, kAdagrad, kComputed };
  Rule rule = Rule::kSgd;
  std::string param;
  // What the rule makes. The step leaves the last of `averages` if there are any: values, each what
  // a collective or a factor makes of the one before, as of LocalSGD.
  std::string value;
  std::vector<std::string> averages;
  // A value: what the rule takes for the gradient, with decay that is added to it, clipped.
  // kComputed: the new parameter.
  std::string grad;
  double rate = 0;
  // kMomentum
  std::string velocity;  // a buffer
  double mu = 0;
  bool nesterov = false;
  // kAdam, kAdamW, kAdagrad
  std::string mean, square;              // buffers; kAdagrad has no mean
  std::string beta1_power, beta2_power;  // values, of the number of this step
  double beta1 = 0, beta2 = 0, epsilon = 0;
  double decay = 0;  // kAdamW
};

struct Updates {
  std::vector<Update> updates;
  std::set<std::string> states;  // buffers that updates write
};

// An update for each parameter that the step changes:
//
//   sgd       p - rate g
//   momentum  v' = mu v + g; p - rate v', or p - rate (g + mu v')
//   adam      m' = lerp(m, g, 1 - beta1), s' = beta2 s + (1 - beta2) g g, and p - rate m' / (1 -
//             beta1^t) / (√s' / √(1 - beta2^t) + epsilon), as PyTorch computes it if capturable
//   adamw     the same, of p (1 - rate decay)
//   adagrad   s' = s + g g; p - rate g / (√s' + epsilon)
//
// Any other update is kComputed. All-reduces and factors that come after an update are averages, if
// nothing else reads what they do or make. InvalidArgument: two parameters share a state. O(nodes).
absl::StatusOr<Updates> FindUpdates(const Graph& graph, const Makers& makers);

}  // namespace weft::pt2

#endif  // WEFT_PROTO_FORMATS_PT2_UPDATES_H_
