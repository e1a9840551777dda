// Communication between ranks: rings, collectives, messages, streams, and fused buffers.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/communication_ops.h"
#include "ops/schema/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

// --- Collectives ---------------------------------------------------------------------------------

// The rows of all ranks, one below the other; a scalar counts as one row.
absl::Status InferAllGather(InferContext& context, const TensorType& x) {
  TensorType out = x;
  if (out.dims.empty()) out.dims.push_back(1);
  out.dims[0] = MulDim(out.dims[0], context.attrs().Int("nranks"));
  context.SetOutput(context.schema().outputs()[0].name, out);
  return absl::OkStatus();
}

// This rank's share of the rows.
absl::Status InferReduceScatter(InferContext& context, const TensorType& x) {
  const int64_t nranks = context.attrs().Int("nranks");
  if (x.dims.empty() || (x.dims[0] != -1 && x.dims[0] % nranks != 0)) {
    return context.InputError(context.schema().inputs()[0].name,
                              absl::StrCat("rows in a multiple of ", nranks));
  }
  TensorType out = x;
  if (out.dims[0] != -1) out.dims[0] /= nranks;
  context.SetOutput(context.schema().outputs()[0].name, out);
  return absl::OkStatus();
}

absl::Status CheckReduceType(InferContext& context) {
  const int64_t reduce_type = context.attrs().Int(kReduceTypeAttr);
  if (reduce_type >= 0 && reduce_type < kNumReductions) return absl::OkStatus();
  return context.AttrError(kReduceTypeAttr,
                           "0 (sum), 1 (maximum), 2 (minimum), 3 (product) or 4 (mean)",
                           absl::StrCat(reduce_type));
}

OpSchema AllReduce(const char* type, absl::string_view slots = "X -> Out") {
  return OpSchema(type, slots)
      .Attr("ring_id", 0)
      .Attr("use_calc_stream", false)
      .Attr("use_model_parallel", false)
      .With(Trait::kCollective)
      .Infer(OutputsLike("X"));
}

OpSchema Collective(OpSchema schema, OpSchema::InferFn infer) {
  return std::move(schema)
      .Attr("use_calc_stream", false)
      .With(Trait::kCollective, Trait::kLinear)
      .Infer(std::move(infer));
}

void AddCollectives(OpSchemaTable* schemas) {
  // If Cond, a boolean in host memory, is false, the op does nothing.
  schemas->Add(AllReduce("c_allreduce_sum", "Cond?, X -> Out").With(Trait::kLinear));
  schemas->Add(AllReduce("c_allreduce_avg").With(Trait::kLinear));
  for (const char* type : {"c_allreduce_max", "c_allreduce_min", "c_allreduce_prod"}) {
    schemas->Add(AllReduce(type));
  }
  // Several variables at once. A fork of Paddle has it; 2.6.2 does not.
  schemas->Add(OpSchema("c_allreduce_xsum", "X* -> Out*=X")
                   .Attr("ring_id", 0)
                   .With(Trait::kCollective, Trait::kLinear)
                   .Infer(OutputsLike("X")));

  schemas->Add(Collective(OpSchema("c_allgather", "X -> Out")
                              .RequiredAttr("nranks", 1, range::AtLeast(1))
                              .Attr("ring_id", 0),
                          IfKnown("X", InferAllGather)));
  schemas->Add(Collective(OpSchema("c_broadcast", "X -> Out").Attr("ring_id", 0).Attr("root", 0),
                          OutputsLike("X")));
  // Rank r gets part r of the rows of every rank.
  schemas->Add(Collective(OpSchema("alltoall", "X -> Out").Attr("ring_id", 0), OutputsLike("X")));
  // Out is defined on rank root_id only.
  schemas->Add(
      Collective(OpSchema("c_reduce_sum", "X -> Out").Attr("ring_id", 0).Attr("root_id", 0),
                 OutputsLike("X")));
  schemas->Add(Collective(OpSchema("c_reducescatter", "X -> Out")
                              .Attr("nranks", 1, range::AtLeast(1))
                              .Attr("ring_id", 0),
                          IfKnown("X", InferReduceScatter)));
}

// The collectives of Paddle 3, which does not have those above. It keeps use_calc_stream on them,
// but does not declare it.
void AddCollectivesOfPaddle3(OpSchemaTable* schemas) {
  const auto like_x = OutputsLike("x");
  // Linear for some reductions only.
  schemas->Add(OpSchema("all_reduce", "x -> out")
                   .Attr(std::string(kReduceTypeAttr), 0)
                   .Attr("ring_id", 0)
                   .Attr("use_calc_stream", false)
                   .With(Trait::kCollective)
                   .Infer(InOrder({CheckReduceType, like_x}))
                   .Pir("all_reduce_")
                   .Pir());
  // out is defined on rank root_id only.
  schemas->Add(OpSchema("reduce", "x -> out")
                   .Attr(std::string(kReduceTypeAttr), 0)
                   .Attr("ring_id", 0)
                   .Attr("root_id", 0)
                   .Attr("use_calc_stream", false)
                   .With(Trait::kCollective)
                   .Infer(InOrder({CheckReduceType, like_x})));
  schemas->Add(Collective(OpSchema("all_gather", "x -> out")
                              .RequiredAttr("nranks", 1, range::AtLeast(1))
                              .Attr("ring_id", 0)
                              .Pir(),
                          IfKnown("x", InferAllGather)));
  schemas->Add(Collective(OpSchema("all_to_all", "x -> out").Attr("ring_id", 0).Pir(), like_x));
  schemas->Add(Collective(
      OpSchema("broadcast", "x -> out").Attr("ring_id", 0).Attr("root", 0).Pir("broadcast_").Pir(),
      like_x));
  schemas->Add(Collective(OpSchema("reduce_scatter", "x -> out")
                              .Attr("nranks", 1, range::AtLeast(1))
                              .Attr("ring_id", 0)
                              .Pir(),
                          IfKnown("x", InferReduceScatter)));
}

// --- Messages ------------------------------------------------------------------------------------

// Out is what the attributes say. With dynamic_shape, it has the shape that the sender sends first.
absl::Status InferReceive(InferContext& context) {
  WEFT_ASSIGN_OR_RETURN(const DType dtype, DTypeFromAttr(context, "dtype"));
  if (context.attrs().Bool("dynamic_shape")) return absl::OkStatus();
  const std::vector<int64_t> shape = context.attrs().Ints("out_shape");
  const bool has_elements =
      std::all_of(shape.begin(), shape.end(), [](int64_t d) { return d > 0; });
  if (shape.empty() || !has_elements) {
    return context.AttrError("out_shape", "one or more dimensions, all 1 or more",
                             absl::StrCat("[", absl::StrJoin(shape, ", "), "]"));
  }
  context.SetOutput("Out", {dtype, Dims(shape.begin(), shape.end())});
  return absl::OkStatus();
}

OpSchema Message(const char* type, absl::string_view slots) {
  return OpSchema(type, slots)
      .Attr("dynamic_shape", false)
      .Attr("peer", 0, range::AtLeast(0))
      .Attr("ring_id", 0)
      .Attr("use_calc_stream", false)
      .With(Trait::kSideEffect);
}

void AddMessages(OpSchemaTable* schemas) {
  schemas->Add(Message("send_v2", "X"));
  schemas->Add(Message("recv_v2", "-> Out")
                   .Attr("dtype", static_cast<int>(pb::VarType::FP32))
                   .Attr("out_shape", Ints{})
                   .Infer(InferReceive)
                   .Batch(batch::Unrelated(batch::kOfOthers)));
  // It has no attribute use_calc_stream: the host waits for it.
  schemas->Add(OpSchema(std::string(kBarrierType), "X -> Out?")
                   .Attr("ring_id", 0)
                   .With(Trait::kSideEffect)
                   .Infer(OutputsLike("X"))
                   .Batch(batch::Unrelated(batch::kOfOthers)));
}

// --- Rings ---------------------------------------------------------------------------------------

OpSchema RingSetup(const char* type, absl::string_view slots = "") {
  return OpSchema(type, slots).With(Trait::kRingSetup, Trait::kSideEffect);
}

void AddRingSetup(OpSchemaTable* schemas) {
  // Rank 0 makes an id and sends it to the other endpoints.
  for (const char* type : {"c_gen_bkcl_id", "c_gen_nccl_id", "c_gen_xccl_id"}) {
    schemas->Add(RingSetup(type, "-> Out")
                     .RequiredAttr("endpoint", std::string())
                     .Attr("other_endpoints", Strings{})
                     .Attr("rank", 0)
                     .Attr("ring_id", 0));
  }
  schemas->Add(RingSetup("c_comm_init", "X")
                   .Attr("device_id", -1)
                   .Attr("endpoints", "")
                   .RequiredAttr("nranks", 1, range::AtLeast(1))
                   .RequiredAttr("rank", 0)
                   .Attr("ring_id", 0));
  // The name until Paddle 2.6, and that of Paddle 3.
  for (const char* type : {"c_comm_init_all", "comm_init_all"}) {
    schemas->Add(RingSetup(type).Attr("devices", Ints{}).Attr("ring_id", 0));
  }
  schemas->Add(RingSetup("c_comm_init_multitrainer", "X")
                   .Attr("devices", Ints{})
                   .RequiredAttr("ntrainers", 1)
                   .Attr("ring_id", 0)
                   .RequiredAttr("trainer_id", 0));
}

// --- Streams -------------------------------------------------------------------------------------

// X and Out name the variables whose work the op orders.
void AddStreamSync(OpSchemaTable* schemas) {
  schemas->Add(OpSchema("c_sync_calc_stream", "X -> Out=X").With(Trait::kStreamSync));
  // c_wait_compute: the ring's stream waits for the compute stream; c_wait_comm: the reverse.
  for (const char* type : {"c_sync_comm_stream", "c_wait_compute", "c_wait_comm"}) {
    schemas->Add(OpSchema(type, "X* -> Out*=X").Attr("ring_id", 0).With(Trait::kStreamSync));
  }
  // Of a program on two devices: `stream` waits for what `awaited` was given so far
  // (ops/schema/device_ops.h).
  schemas->Add(OpSchema("stream_wait", "X* -> Out*=X")
                   .RequiredAttr("stream", std::string())
                   .RequiredAttr("awaited", std::string())
                   .With(Trait::kStreamSync));
}

// --- Fused buffers -------------------------------------------------------------------------------

// The elements that a member occupies in the fused buffer, with its padding to the alignment.
int64_t PaddedElements(int64_t elements, int64_t element_size, int64_t alignment) {
  if (elements == -1) return -1;
  const int64_t bytes = MulDim(elements, element_size);
  return (bytes + alignment - 1) / alignment * alignment / element_size;
}

// Attributes concated_shapes and concated_ranks, if they are set, say what the inputs have.
absl::Status CheckConcatedShapes(const InferContext& context) {
  const std::vector<int64_t> shapes = context.attrs().Ints("concated_shapes");
  const std::vector<int64_t> ranks = context.attrs().Ints("concated_ranks");
  if (shapes.empty() && ranks.empty()) return absl::OkStatus();
  size_t at = 0;
  bool fits = ranks.size() == context.NumInputs("Input");
  for (size_t i = 0; i < ranks.size() && fits; ++i) {
    fits = ranks[i] >= 0 && static_cast<size_t>(ranks[i]) <= shapes.size() - at;
    if (!fits) break;
    const TensorType* const input = context.Input("Input", i);
    const Dims given(shapes.begin() + at, shapes.begin() + at + ranks[i]);
    at += given.size();
    fits = input == nullptr || input->dims.size() == given.size();
    for (size_t d = 0; fits && input != nullptr && d < given.size(); ++d) {
      fits = input->dims[d] == given[d] || input->dims[d] < 0;
    }
  }
  if (fits && at == shapes.size()) return absl::OkStatus();
  return context.AttrError("concated_shapes",
                           "the shapes of the inputs, one after the other, and their numbers of "
                           "dimensions in concated_ranks",
                           absl::StrCat("[", absl::StrJoin(shapes, ", "), "] with ranks [",
                                        absl::StrJoin(ranks, ", "), "]"));
}

// Output i is a view, of Input i's shape, into FusedOutput, whose size is the sum of their padded
// sizes. Without align_size the device determines the padding, and FusedOutput stays unset.
absl::Status InferCoalesceTensor(InferContext& context) {
  const OpAttrs& attrs = context.attrs();
  WEFT_RETURN_IF_ERROR(CheckConcatedShapes(context));
  WEFT_ASSIGN_OR_RETURN(const DType dtype, DTypeFromAttr(context, "dtype"));
  const int64_t given_size = attrs.Int("user_defined_size_of_dtype");
  const int64_t element_size = given_size > 0 ? given_size : static_cast<int64_t>(SizeOf(dtype));
  const int64_t alignment = attrs.Bool("use_align") ? attrs.Int("align_size") : element_size;
  const size_t count = context.NumInputs("Input");
  if (context.HasOutput("Output") && context.NumOutputs("Output") != count) {
    return context.InputError(
        "Input", absl::StrCat("as many variables as Output has, ", context.NumOutputs("Output")));
  }
  absl::optional<int64_t> total = 0;
  for (size_t i = 0; i < count; ++i) {
    const TensorType* input = context.Input("Input", i);
    if (input == nullptr) {
      total = absl::nullopt;
      continue;
    }
    // Paddle's fleet names parameters, for their sizes, where the buffer has gradients in half
    // precision.
    if (input->dtype != dtype && attrs.Bool("copy_data")) {
      return context.InputError("Input", i, absl::StrCat(DTypeName(dtype), " as attribute dtype"));
    }
    TensorType view = *input;
    view.dtype = dtype;
    context.SetOutput("Output", i, view);
    if (!total.has_value() || alignment <= 0) continue;
    total = AddDim(*total, PaddedElements(NumElements(input->dims), element_size, alignment));
  }
  if (total.has_value() && alignment > 0) context.SetOutput("FusedOutput", {dtype, {*total}});
  return absl::OkStatus();
}

void AddFusedBuffers(OpSchemaTable* schemas) {
  schemas->Add(OpSchema("coalesce_tensor", "Input* -> FusedOutput, Output*")
                   .Attr("align_size", -1, range::AtMost(1 << 20))
                   .Attr("concated_ranks", Longs{})
                   .Attr("concated_shapes", Longs{})
                   .Attr("constant", 0.0f)
                   .Attr("copy_data", false)
                   .RequiredAttr("dtype", kFp32)
                   .Attr("persist_output", false)
                   .Attr("set_constant", false)
                   .Attr("use_align", true)
                   .Attr("user_defined_size_of_dtype", -1)
                   .With(Trait::kAlias)
                   .Infer(InferCoalesceTensor)
                   .Batch(batch::Unrelated("BatchFlow follows the slices of the buffer")));
}

}  // namespace

void AddCollectiveSchemas(OpSchemaTable* schemas) {
  AddCollectives(schemas);
  AddCollectivesOfPaddle3(schemas);
  AddMessages(schemas);
  AddRingSetup(schemas);
  AddStreamSync(schemas);
  AddFusedBuffers(schemas);
}

}  // namespace weft
