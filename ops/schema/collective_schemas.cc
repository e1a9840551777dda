// Communication between ranks: rings, collectives, streams, and fused buffers.
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/schema/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

// --- Collectives ---------------------------------------------------------------------------------

OpSchema AllReduce(const char* type) {
  return OpSchema(type)
      .In("X")
      .Out("Out")
      .Attr("ring_id", 0)
      .Attr("use_calc_stream", false)
      .Attr("use_model_parallel", false)
      .With(Trait::kCollective)
      .Infer(OutputsLike("X"));
}

absl::StatusOr<int64_t> NumRanks(const InferContext& context) {
  const int64_t nranks = context.attrs().Int("nranks");
  if (nranks < 1) return context.AttrError("nranks", "1 or more", absl::StrCat(nranks));
  return nranks;
}

// The rows of all ranks, one below the other; a scalar counts as one row.
absl::Status InferAllGather(InferContext& context) {
  WEFT_ASSIGN_OR_RETURN(const int64_t nranks, NumRanks(context));
  const TensorType* x = context.Input("X");
  if (x == nullptr) return absl::OkStatus();
  TensorType out = *x;
  if (out.dims.empty()) out.dims.push_back(1);
  out.dims[0] = MulDim(out.dims[0], nranks);
  context.SetOutput("Out", out);
  return absl::OkStatus();
}

// This rank's share of the rows.
absl::Status InferReduceScatter(InferContext& context) {
  WEFT_ASSIGN_OR_RETURN(const int64_t nranks, NumRanks(context));
  const TensorType* x = context.Input("X");
  if (x == nullptr) return absl::OkStatus();
  if (x->dims.empty() || (x->dims[0] != -1 && x->dims[0] % nranks != 0)) {
    return context.InputError("X", absl::StrCat("rows in a multiple of ", nranks));
  }
  TensorType out = *x;
  if (out.dims[0] != -1) out.dims[0] /= nranks;
  context.SetOutput("Out", out);
  return absl::OkStatus();
}

void AddCollectives(OpSchemaTable* schemas) {
  // With Cond (a boolean in host memory) false, nothing is done.
  schemas->Add(OpSchema("c_allreduce_sum")
                   .In("Cond", OpSchema::kOptional)
                   .In("X")
                   .Out("Out")
                   .Attr("ring_id", 0)
                   .Attr("use_calc_stream", false)
                   .Attr("use_model_parallel", false)
                   .With(Trait::kCollective)
                   .With(Trait::kLinear)
                   .Infer(OutputsLike("X")));
  schemas->Add(AllReduce("c_allreduce_avg").With(Trait::kLinear));
  schemas->Add(AllReduce("c_allreduce_max"));
  schemas->Add(AllReduce("c_allreduce_min"));
  schemas->Add(AllReduce("c_allreduce_prod"));
  // Several variables at once. Of a fork of Paddle: 2.6.2 does not have it.
  schemas->Add(OpSchema("c_allreduce_xsum")
                   .In("X", OpSchema::kDuplicable)
                   .OutInPlace("Out", "X", OpSchema::kDuplicable)
                   .Attr("ring_id", 0)
                   .With(Trait::kCollective)
                   .With(Trait::kLinear)
                   .Infer(OutputsLike("X")));

  schemas->Add(OpSchema("c_allgather")
                   .In("X")
                   .Out("Out")
                   .RequiredAttr("nranks", 1)
                   .Attr("ring_id", 0)
                   .Attr("use_calc_stream", false)
                   .With(Trait::kCollective)
                   .With(Trait::kLinear)
                   .Infer(InferAllGather));
  schemas->Add(OpSchema("c_broadcast")
                   .In("X")
                   .Out("Out")
                   .Attr("ring_id", 0)
                   .Attr("root", 0)
                   .Attr("use_calc_stream", false)
                   .With(Trait::kCollective)
                   .With(Trait::kLinear)
                   .Infer(OutputsLike("X")));
  // Out is defined on rank root_id only.
  schemas->Add(OpSchema("c_reduce_sum")
                   .In("X")
                   .Out("Out")
                   .Attr("ring_id", 0)
                   .Attr("root_id", 0)
                   .Attr("use_calc_stream", false)
                   .With(Trait::kCollective)
                   .With(Trait::kLinear)
                   .Infer(OutputsLike("X")));
  schemas->Add(OpSchema("c_reducescatter")
                   .In("X")
                   .Out("Out")
                   .Attr("nranks", 1)
                   .Attr("ring_id", 0)
                   .Attr("use_calc_stream", false)
                   .With(Trait::kCollective)
                   .With(Trait::kLinear)
                   .Infer(InferReduceScatter));
}

// --- Rings ---------------------------------------------------------------------------------------

OpSchema RingSetup(const char* type) {
  return OpSchema(type).With(Trait::kRingSetup).With(Trait::kSideEffect);
}

// Rank 0 makes an id and sends it to the other endpoints.
OpSchema IdExchange(const char* type) {
  return RingSetup(type)
      .Out("Out")
      .RequiredAttr("endpoint", std::string())
      .Attr("other_endpoints", Strings{})
      .Attr("rank", 0)
      .Attr("ring_id", 0);
}

void AddRingSetup(OpSchemaTable* schemas) {
  schemas->Add(IdExchange("c_gen_bkcl_id"));
  schemas->Add(IdExchange("c_gen_nccl_id"));
  schemas->Add(IdExchange("c_gen_xccl_id"));
  schemas->Add(RingSetup("c_comm_init")
                   .In("X")
                   .Attr("device_id", -1)
                   .Attr("endpoints", "")
                   .RequiredAttr("nranks", 1)
                   .RequiredAttr("rank", 0)
                   .Attr("ring_id", 0));
  schemas->Add(RingSetup("c_comm_init_all").Attr("devices", Ints{}).Attr("ring_id", 0));
  schemas->Add(RingSetup("c_comm_init_multitrainer")
                   .In("X")
                   .Attr("devices", Ints{})
                   .RequiredAttr("ntrainers", 1)
                   .Attr("ring_id", 0)
                   .RequiredAttr("trainer_id", 0));
}

// --- Streams -------------------------------------------------------------------------------------

// X and Out name what is ordered.
OpSchema StreamSync(const char* type, int flags) {
  return OpSchema(type).In("X", flags).OutInPlace("Out", "X", flags).With(Trait::kStreamSync);
}

void AddStreamSync(OpSchemaTable* schemas) {
  schemas->Add(StreamSync("c_sync_calc_stream", 0));
  schemas->Add(StreamSync("c_sync_comm_stream", OpSchema::kDuplicable).Attr("ring_id", 0));
  // The ring's stream waits for the compute stream, and the other way round.
  schemas->Add(StreamSync("c_wait_compute", OpSchema::kDuplicable).Attr("ring_id", 0));
  schemas->Add(StreamSync("c_wait_comm", OpSchema::kDuplicable).Attr("ring_id", 0));
}

// --- Fused buffers -------------------------------------------------------------------------------

// Elements that a member takes in the fused buffer: its own, padded to the alignment.
int64_t PaddedElements(int64_t elements, int64_t element_size, int64_t alignment) {
  if (elements == -1) return -1;
  const int64_t bytes = MulDim(elements, element_size);
  return (bytes + alignment - 1) / alignment * alignment / element_size;
}

// Output i is a view of Input i's shape into FusedOutput, which is the sum of their padded sizes.
// The padding is the device's where align_size does not give it: then FusedOutput stays unset.
absl::Status InferCoalesceTensor(InferContext& context) {
  const OpAttrs& attrs = context.attrs();
  const absl::optional<DType> dtype = DTypeFromProto(static_cast<int>(attrs.Int("dtype")));
  if (!dtype.has_value()) {
    return context.AttrError("dtype", "the number of an element type",
                             absl::StrCat(attrs.Int("dtype")));
  }
  const int64_t given_size = attrs.Int("user_defined_size_of_dtype");
  const int64_t element_size = given_size > 0 ? given_size : static_cast<int64_t>(SizeOf(*dtype));
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
    if (input->dtype != *dtype) {
      return context.InputError("Input", i, absl::StrCat(DTypeName(*dtype), " as attribute dtype"));
    }
    context.SetOutput("Output", i, *input);
    if (!total.has_value() || alignment <= 0) continue;
    total = AddDim(*total, PaddedElements(NumElements(input->dims), element_size, alignment));
  }
  if (total.has_value() && alignment > 0) context.SetOutput("FusedOutput", {*dtype, {*total}});
  return absl::OkStatus();
}

void AddFusedBuffers(OpSchemaTable* schemas) {
  schemas->Add(OpSchema("coalesce_tensor")
                   .In("Input", OpSchema::kDuplicable)
                   .Out("FusedOutput")
                   .Out("Output", OpSchema::kDuplicable)
                   .Attr("align_size", -1)
                   .Attr("concated_ranks", Longs{})
                   .Attr("concated_shapes", Longs{})
                   .Attr("constant", 0.0f)
                   .Attr("copy_data", false)
                   .RequiredAttr("dtype", static_cast<int>(DType::kFloat32))
                   .Attr("persist_output", false)
                   .Attr("set_constant", false)
                   .Attr("use_align", true)
                   .Attr("user_defined_size_of_dtype", -1)
                   .With(Trait::kAlias)
                   .Infer(InferCoalesceTensor));
}

}  // namespace

void AddCollectiveSchemas(OpSchemaTable* schemas) {
  AddCollectives(schemas);
  AddRingSetup(schemas);
  AddStreamSync(schemas);
  AddFusedBuffers(schemas);
}

}  // namespace weft
