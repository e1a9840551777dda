#ifndef WEFT_TRANSPILER_PASSES_DEVICES_HETERO_PARTITION_H_
#define WEFT_TRANSPILER_PASSES_DEVICES_HETERO_PARTITION_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/option_binder.h"
#include "transpiler/passes/devices/device_order.h"
#include "transpiler/passes/devices/device_values.h"
#include "transpiler/pipeline/pass.h"

namespace weft {

// Puts the ops of the main program on two devices, each with its own memory
// (ops/schema/device_ops.h). With {place="type:sgd=cpu"},
//
//   Out=[y] = mul(X=[x], Y=[w]) ...
//   Y@GRAD=[w@GRAD] = mul_grad(...)
//   ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr])
//
// becomes
//
//   Out=[w@SIM] = memcpy_h2d(X=[w])
//   Out=[w@SIM] = stream_wait(X=[w@SIM]) {stream="compute", awaited="h2d"}
//   Out=[y] = mul(X=[x], Y=[w@SIM]) ...
//   Y@GRAD=[w@GRAD] = mul_grad(...)
//   Out=[w@GRAD] = stream_wait(X=[w@GRAD]) {stream="d2h", awaited="compute"}
//   Out=[w@GRAD@CPU] = memcpy_d2h(X=[w@GRAD])
//   Out=[w@GRAD@CPU] = stream_wait(X=[w@GRAD@CPU]) {stream="cpu", awaited="d2h"}
//   ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD@CPU], LearningRate=[lr]) {op_device="cpu"}
//
// PlaceSpec says which ops run where, OrderOps in which order, DeviceValues what is copied, and
// DeviceCopies what waits. A coalesce_tensor for which nothing says where it runs is where its
// buffer is used; slices that the other device writes or reads are copied one by one, or, where the
// host reads all of a buffer that an op has written as a whole, in one copy of the buffer to a
// buffer on the host. With {staging=double}, values that go to the host take turns in two buffers.
// The result computes the same bits. Ops of the accelerator keep their order, unless other ones can
// run while they would wait for the host; and they never change places with synchronizations and
// ops that have blocks.
//
// Without rules, nothing changes; {place=op_device} has none, and puts ops where their op_device
// says.
//
// {device_memory=BYTES} puts on the host, besides, what does not fit into the memory of the
// accelerator (ChoosePlacement): ops of which neither a rule nor op_device says where they run. A
// note says what it chose, and remarks why.
//
// It comes last: other passes do not see through the copies. A program that is on two devices stays
// as it is, and so does one whose ops are all on one of them.
//
// Ops of a block run where the op that has the block runs, and so do those of its gradient blocks.
// If nothing says where that is, it is where rules put ops of these blocks; if one of them cannot
// run there, all stay, and notes say so.
//
// InvalidArgument: the errors of PlaceSpec; a rule that matches no op, or only ops of
// earlier rules; an op_device other than cpu, sim or gpu; rules for an op that has a block and for
// ops of the block that name two devices; rules only for ops that stay, without device_memory.
// Unimplemented, on the host: loops, ops that draw random numbers, ops that exchange values with
// parameter servers, unregistered ops. Unimplemented: ops on both devices access a fused buffer as
// a whole. ResourceExhausted: no placement fits into device_memory. FailedPrecondition in the
// paddle dialect. O(arguments), and for each rule O(ops).
class HeteroPartition : public Pass {
 public:
  static constexpr absl::string_view kName = "hetero-partition";
  static constexpr absl::string_view kDescription =
      "main program: puts ops on the host or an accelerator, and copies between their memories";
  struct Options {
    std::string place;
    DeviceOrder order = DeviceOrder::kEarlyStart;
    Staging staging = Staging::kAll;
    int64_t device_memory = 0;
    int64_t batch = 32;
    int64_t copy_bandwidth = 10000000000;
    int64_t accelerator_speed = 50;
    void Bind(OptionBinder& bind);
  };
  explicit HeteroPartition(Options options) : options_(std::move(options)) {}

  absl::string_view name() const override { return kName; }
  bool HasTrait(PassTrait trait) const override {
    return trait == PassTrait::kReadsCollectiveTimes && options_.device_memory > 0;
  }
  // Finds which parameters rules and op_device update on the host.
  void Foresee(const ConstProgramPair& programs, const PassContext& context,
               Forecast* forecast) const override;
  absl::StatusOr<bool> Run(const PassContext& context, ProgramPair& programs) const override;

 private:
  const Options options_;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_DEVICES_HETERO_PARTITION_H_
