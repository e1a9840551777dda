// Recurrent networks.
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

// The rows of the weights for each hidden element; 0 for an unknown mode.
int64_t NumGates(const std::string& mode) {
  if (mode == "LSTM") return 4;
  if (mode == "GRU") return 3;
  return mode == "RNN_TANH" || mode == "RNN_RELU" ? 1 : 0;
}

struct RnnSizes {
  int64_t gates, hidden, layers, directions;
  size_t states;  // LSTM has two, the hidden one and the cell
};

absl::StatusOr<RnnSizes> ReadSizes(const InferContext& context) {
  const OpAttrs& attrs = context.attrs();
  RnnSizes sizes;
  const std::string& mode = attrs.String("mode");
  sizes.gates = NumGates(mode);
  sizes.hidden = attrs.Int("hidden_size");
  sizes.layers = attrs.Int("num_layers");
  sizes.directions = attrs.Bool("is_bidirec") ? 2 : 1;
  sizes.states = mode == "LSTM" ? 2 : 1;
  return sizes;
}

absl::Status CheckCount(const InferContext& context, const char* slot, size_t expected) {
  if (context.NumInputs(slot) == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("input ", slot, ": expected ", expected,
                                                 " variables, found ", context.NumInputs(slot)));
}

// WeightList has, for each layer and direction, a matrix for its input and one for its hidden
// state. After all matrices it has, for each layer and direction, two biases.
absl::Status CheckWeights(const InferContext& context, const RnnSizes& sizes, int64_t input_size) {
  const int64_t cells = sizes.layers * sizes.directions, rows = sizes.gates * sizes.hidden;
  WEFT_RETURN_IF_ERROR(CheckCount(context, "WeightList", 4 * cells));
  for (int64_t cell = 0; cell < cells; ++cell) {
    const int64_t width = cell < sizes.directions ? input_size : sizes.directions * sizes.hidden;
    WEFT_RETURN_IF_ERROR(CheckDims(context, "WeightList", {rows, width}, 2 * cell));
    WEFT_RETURN_IF_ERROR(CheckDims(context, "WeightList", {rows, sizes.hidden}, 2 * cell + 1));
    for (int64_t bias : {2 * cells + 2 * cell, 2 * cells + 2 * cell + 1}) {
      WEFT_RETURN_IF_ERROR(CheckDims(context, "WeightList", {rows}, bias));
    }
  }
  return absl::OkStatus();
}

// Reserve holds what the gradient op needs, in fp32 or fp64. DropoutState holds nothing.
absl::Status InferRnn(InferContext& context) {
  WEFT_ASSIGN_OR_RETURN(const RnnSizes sizes, ReadSizes(context));
  WEFT_RETURN_IF_ERROR(CheckCount(context, "PreState", sizes.states));
  const TensorType* input = context.Input("Input");
  if (input == nullptr) return absl::OkStatus();
  if (input->dims.size() != 3) return context.InputError("Input", "[time, batch, input_size]");
  const int64_t batch = input->dims[1];
  const Dims state = {sizes.layers * sizes.directions, batch, sizes.hidden};
  for (size_t i = 0; i < sizes.states; ++i) {
    WEFT_RETURN_IF_ERROR(CheckDims(context, "PreState", state, i));
  }
  WEFT_RETURN_IF_ERROR(CheckDims(context, "SequenceLength", {batch}));
  WEFT_RETURN_IF_ERROR(CheckWeights(context, sizes, input->dims[2]));
  const Dims out = {input->dims[0], batch, sizes.directions * sizes.hidden};
  context.SetOutput("Out", {input->dtype, out});
  if (context.NumOutputs("State") > sizes.states) {
    return absl::InvalidArgumentError(absl::StrCat("output State: expected ", sizes.states,
                                                   " variables, found ",
                                                   context.NumOutputs("State")));
  }
  for (size_t i = 0; i < context.NumOutputs("State"); ++i) {
    context.SetOutput("State", i, {input->dtype, state});
  }
  const bool is_double = input->dtype == DType::kFloat64;
  context.SetOutput("Reserve", {is_double ? DType::kFloat64 : DType::kFloat32, {-1}});
  context.SetOutput("DropoutState", {DType::kUint8, {-1}});
  return absl::OkStatus();
}

}  // namespace

void AddRnnSchemas(OpSchemaTable* schemas) {
  AddWithGrad(
      schemas,
      OpSchema("rnn",
               "Input, PreState*, SequenceLength?, WeightList* -> DropoutState?~, Out, Reserve?~, "
               "State*")
          .Attr("dropout_prob", 0.0f, range::Between(0, 1))
          .RequiredAttr("hidden_size", 1, range::AtLeast(1))
          .RequiredAttr("input_size", 1)
          .Attr("is_bidirec", false)
          .Attr("is_test", false)
          .RequiredAttr("mode", std::string(),
                        range::OneOf({"LSTM", "GRU", "RNN_TANH", "RNN_RELU"}))
          .Attr("num_layers", 1, range::AtLeast(1))
          .Attr("seed", 0)
          .With(Trait::kSideEffect)
          .Infer(InferRnn)
          .Batch({batch::Rnn, Powers::kOwn, "Input"})
          // The other state of dropout is a variable of ProgramDesc's op alone.
          .Pir("(x:Input, pre_state, weight_list, sequence_length, dropout_state_in:-) -> out, "
               "dropout_state_out:DropoutState, state, reserve"),
      {{"DropoutState", "Input", "Out", "PreState", "Reserve", "SequenceLength", "WeightList"},
       {"Out", "State"},
       {"Input", "PreState", "WeightList"}});
}

}  // namespace weft
