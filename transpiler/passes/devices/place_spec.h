// Which ops run on which device, as text.
#ifndef WEFT_TRANSPILER_PASSES_DEVICES_PLACE_SPEC_H_
#define WEFT_TRANSPILER_PASSES_DEVICES_PLACE_SPEC_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "ops/schema/device_ops.h"
#include "proto/program.h"

namespace weft {

// "type:adam=cpu,param:embedding_0.w_0=cpu,name:fc_*=sim": the first rule that matches an op says
// where it runs. '*' in a pattern stands for any characters.
//
//   type:P   ops of a type
//   param:P  ops that name a parameter or its gradient; of collectives, synchronizations and fused
//            buffers, those that name nothing else
//   name:P   ops that write a variable of that name; of coalesce_tensor, the buffer and no slice
//
// A rule op_device matches nothing, and is for programs whose ops have that attribute.
//
// Other ops run where their op_device says, if it says cpu, sim or gpu. What remains runs on the
// device that the rules do not name: on the accelerator, unless all of them name it.
class PlaceSpec {
 public:
  // InvalidArgument, with the rule: another form, an unknown device, two kinds of accelerators.
  static absl::StatusOr<PlaceSpec> Parse(absl::string_view text);

  // "sim" or "gpu".
  const std::string& accelerator() const { return accelerator_; }

  // The device that a rule gives the op; none: no rule matches.
  absl::optional<DeviceKind> Find(const Op& op) const;
  // Of an op without a rule: by its op_device, which must be known; or the device that remains.
  absl::StatusOr<DeviceKind> Default(const Op& op) const;

  // The parameters that optimizers of the root block update on the host, by gradients that ops of
  // the accelerator write. An op whose op_device is unknown runs on the accelerator.
  std::vector<std::string> UpdatedOnHost(const Program& program) const;

  // Rules that say nothing about the program, which are probably mistakes, each with the reason:
  // they match no op, or only ops that earlier rules match.
  struct UnusedRule {
    std::string text, why;
  };
  std::vector<UnusedRule> Unused(const Program& program) const;

 private:
  enum class By { kType, kParam, kName };
  struct Rule {
    std::string text;
    By by;
    std::string pattern;
    DeviceKind device;
  };

  static bool Matches(const Rule& rule, const Op& op);

  std::vector<Rule> rules_;
  std::string accelerator_ = "sim";
  DeviceKind rest_ = DeviceKind::kAccelerator;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_DEVICES_PLACE_SPEC_H_
