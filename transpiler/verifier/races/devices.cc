#include "transpiler/verifier/races/devices.h"

#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "ops/analysis/devices/device_placement.h"
#include "ops/schema/communication_ops.h"
#include "ops/schema/device_ops.h"
#include "proto/all_ops.h"

namespace weft {
namespace {

void CheckWait(const Op& op, Reporter* reporter) {
  for (const char* attr : {"stream", "awaited"}) {
    const std::string name = op.StringAttr(attr).value_or("");
    if (FindDeviceStream(name).has_value()) continue;
    reporter->Add("W411", op.id(), "",
                  absl::StrCat(op.DebugName(), " attribute ", attr,
                               ": expected compute, cpu, d2h, h2d or a ring, as 'ring 0', found '",
                               absl::CEscape(name), "'"));
  }
}

}  // namespace

void CheckDevices(const ProgramFacts& facts, ProgramRef ref, Findings* findings) {
  const Program& program = facts.program();
  const DevicePlacement& placement = facts.Get<DevicePlacement>();
  if (!placement.on_two_devices()) return;
  Reporter reporter(ref, findings);
  for (const DevicePlacement::Clash& clash : placement.clashes()) {
    reporter.Add("W409", clash.op, program.var(clash.var).name(), ToString(program, clash),
                 clash.other);
  }
  for (const DevicePlacement::Stray& stray : placement.strays()) {
    reporter.Add("W410", stray.op, "", ToString(program, placement, stray), stray.holder);
  }
  for (const Op& op : AllOps(program)) {
    if (FindStreamSyncOp(op.type()) == StreamSync::kStreamWaitsForStream) {
      CheckWait(op, &reporter);
    }
  }
}

}  // namespace weft
