// Every op of a training step gives what Paddle's kernel gave on the same inputs. Here no op sees
// the rounding of those before it, which deep models carry far (docs/interop.md): the values that
// Paddle 2.6.2 computed on its CPU are what each op starts from.
//
// trace0.npz of a model holds
//   feed/<variable>   the first rows of the first batch
//   var/<variable>    the value of a variable that exactly one op of the step writes, unless large
//   rows/<variable>   the numbers of its rows, of SelectedRows
#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/types/optional.h"
#include "base/status_macros.h"
#include "base/testing/test.h"
#include "executor/files/npz.h"
#include "executor/files/params_file.h"
#include "ops/cpu/testing.h"
#include "proto/formats/program_file.h"
#include "tests/support/rounding.h"

namespace weft::testing {
namespace {

using ::testing::Values;
using Tensors = std::map<std::string, Tensor>;

// `values` as rows of a tensor as tall as the parameter that they are the gradient of.
Tensor AsRows(const std::string& name, const Tensor& values, const Tensor& rows,
              const Tensors& params) {
  const std::string param = name.substr(0, name.find("@GRAD"));
  Tensor result;
  result.ResizeRows(values.dtype(), params.at(param).dims(), rows.size());
  std::copy_n(rows.data<int64_t>(), rows.size(), result.mutable_rows().begin());
  std::copy_n(values.data<float>(), values.size(), result.data<float>());
  return result;
}

// What the trace says of the variables that ops of the step write.
Tensors Written(const Tensors& trace, const Tensors& params) {
  Tensors written;
  for (const auto& entry : trace) {
    absl::string_view rest = entry.first;
    if (!absl::ConsumePrefix(&rest, "var/")) continue;
    const std::string name(rest);
    const auto rows = trace.find(absl::StrCat("rows/", name));
    written[name] = rows == trace.end() ? entry.second.Clone()
                                        : AsRows(name, entry.second, rows->second, params);
  }
  return written;
}

// What the variables hold before the step.
Tensors Before(const Tensors& trace, const Tensors& params) {
  Tensors before;
  for (const auto& param : params) before[param.first] = param.second.Clone();
  for (const auto& entry : trace) {
    absl::string_view name = entry.first;
    if (absl::ConsumePrefix(&name, "feed/")) before[std::string(name)] = entry.second.Clone();
  }
  return before;
}

void ExpectNear(const std::string& name, const Tensor& found, const Tensor& expected,
                const std::vector<Tensor>& moved) {
  SCOPED_TRACE(name);
  ASSERT_EQ(found.dtype(), expected.dtype());
  ASSERT_EQ(found.dims(), expected.dims());
  ASSERT_EQ(found.is_rows(), expected.is_rows());
  if (found.is_rows()) {
    ASSERT_EQ(found.rows(), expected.rows());
  }
  const std::vector<double> values = AsDoubles(found), paddles = AsDoubles(expected);
  const std::vector<double> allowed = RoundingBoundsOf(found, moved);
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_NEAR(values[i], paddles[i], allowed[i]) << "element " << i;
  }
}

class OpTracesTest : public ::testing::TestWithParam<const char*> {
 protected:
  // Clones of what the op reads; none where one of them is not known.
  static absl::optional<Tensors> Inputs(const Op& op, const Tensors& now) {
    Tensors inputs;
    for (Symbol symbol : op.input_args()) {
      const std::string name(op.program().name(symbol));
      if (name == kEmptyVarName) continue;
      const auto value = now.find(name);
      if (value == now.end()) return absl::nullopt;
      inputs[name] = value->second.Clone();
    }
    return inputs;
  }

  // Runs the op on `inputs`; what it writes are SelectedRows where those of `expected` are.
  static absl::StatusOr<Tensors> Run(const Op& op, Tensors variables, const Tensors& expected) {
    for (Symbol symbol : op.output_args()) {
      const std::string name(op.program().name(symbol));
      Tensor& variable = variables[name];
      const auto value = expected.find(name);
      if (value != expected.end() && value->second.is_rows()) {
        variable.ResizeRows(value->second.dtype(), value->second.dims(), 0);
      }
    }
    WEFT_ASSIGN_OR_RETURN(OpRunner bound, OpRunner::Make(op, &variables));
    WEFT_RETURN_IF_ERROR(bound.Run());
    return variables;
  }
};

TEST_P(OpTracesTest, EveryOpGivesPaddlesOutputsForPaddlesInputs) {
  const std::string model = absl::StrCat("tests/data/", GetParam(), "/");
  WEFT_ASSERT_OK_AND_ASSIGN(const Program program, ReadProgram(model + "main.pb"));
  WEFT_ASSERT_OK_AND_ASSIGN(const Tensors params,
                            LoadParams(model + "init.params", model + "persistables.txt"));
  WEFT_ASSERT_OK_AND_ASSIGN(const Tensors trace, ReadNpz(model + "trace0.npz"));
  const Tensors expected = Written(trace, params);
  // Values as the trace has them, or ours where it does not; then those of each moved run.
  std::vector<Tensors> now;
  now.push_back(Before(trace, params));
  for (int run = 0; run < kMovedRuns; ++run) {
    Tensors& moved = now.emplace_back();
    for (const auto& [name, value] : now[0]) moved[name] = MovedByRounding(value, run);
  }

  size_t num_compared = 0;
  for (OpId id : program.block(0).ops()) {
    const Op op = program.op(id);
    SCOPED_TRACE(op.DebugName());
    // What dropout draws is not what Paddle drew. Branches are not taken: the trace has nothing of
    // what they write and of what follows from that.
    const bool draws = op.type() == "dropout";
    std::vector<Tensors> found(now.size());
    for (size_t run = 0; run < now.size(); ++run) {
      absl::optional<Tensors> inputs = Inputs(op, now[run]);
      if (!inputs.has_value() || draws || !op.SubBlocks().empty()) continue;
      WEFT_ASSERT_OK_AND_ASSIGN(found[run], Run(op, *std::move(inputs), expected));
    }
    for (Symbol symbol : op.output_args()) {
      const std::string name(program.name(symbol));
      const auto value = expected.find(name);
      if (value == expected.end()) {
        for (size_t run = 0; run < now.size(); ++run) {
          now[run].erase(name);
          if (found[run].count(name) > 0) now[run][name] = std::move(found[run][name]);
        }
        continue;
      }
      std::vector<Tensor> moved;
      for (int run = 0; run < kMovedRuns; ++run) {
        moved.push_back(found[1 + run][name]);
        now[1 + run][name] = MovedByRounding(value->second, run);
      }
      if (!draws) ExpectNear(name, found[0][name], value->second, moved);
      ++num_compared;
      now[0][name] = value->second.Clone();
    }
  }
  EXPECT_EQ(num_compared, expected.size());
}

INSTANTIATE_TEST_SUITE_P(
    Paddle, OpTracesTest,
    Values("bert_tiny", "fit_a_line", "lenet_momentum", "mlp_adagrad", "mlp_adam",
           "mlp_clip_global_norm", "mlp_clip_norm", "mlp_clip_value", "mlp_dropout",
           "mlp_gradient_merge", "mlp_lamb", "mlp_lr_decay", "mlp_lr_host", "mlp_lr_piecewise",
           "mlp_momentum", "mlp_rmsprop", "mlp_sgd", "mlp_shared_weights", "resnet18_cifar",
           "two_losses", "wide_deep", "word2vec_sparse_adam", "word2vec_sparse_sgd"),
    [](const ::testing::TestParamInfo<const char*>& info) { return info.param; });

}  // namespace
}  // namespace weft::testing
