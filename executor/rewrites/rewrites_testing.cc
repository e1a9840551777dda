#include "executor/rewrites/rewrites_testing.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/testing/test.h"
#include "executor/streams/thread_stream.h"
#include "ops/analysis/testing/compact_program.h"
#include "ops/cpu/testing.h"

namespace weft::testing {

RewrittenProgram::RewrittenProgram(const std::string& block,
                                   const std::vector<std::string>& accessed, const Rewrite& rewrite,
                                   PlanExecutorOptions options)
    : device_(NewHostDevice()), random_(RandomState::Seeded(0, 0)) {
  PlanOptions plan_options;
  plan_options.kernels = &CpuKernels();
  plan_ = *Plan::Build(CompactProgram(block), plan_options);
  std::vector<int> read_first;
  for (const std::string& name : accessed) options.accessed.push_back(plan_.FindVariable(name));
  for (size_t v = 0; v < plan_.variables.size(); ++v) {
    if (plan_.variables[v].first_reader >= 0) read_first.push_back(static_cast<int>(v));
  }
  options.accessed.insert(options.accessed.end(), read_first.begin(), read_first.end());
  if (rewrite) rewrite(options.accessed, &plan_);
  options.plan = &plan_;
  options.scope = &scope_;
  options.device = device_.get();
  options.random = &random_;
  executor_ = *PlanExecutor::Create(options);
  for (int v : read_first) SetNumbers(v);
}

void RewrittenProgram::SetNumbers(int v) {
  Tensor& tensor = *executor_->tensor(v);
  tensor.Resize(DType::kFloat32, plan_.variables[v].declared->dims);
  for (int64_t i = 0; i < tensor.size(); ++i) {
    tensor.data<float>()[i] = static_cast<float>((i * 37 + int64_t{v} * 11) % 29) / 29;
  }
}

Plan ExpectSameResults(const std::string& block, const std::vector<std::string>& results,
                       const Rewrite& rewrite, float tolerance) {
  RewrittenProgram as_written(block, results, nullptr), rewritten(block, results, rewrite);
  // Twice: nothing of the first step is left.
  for (int step = 0; step < 2; ++step) {
    WEFT_EXPECT_OK(as_written.RunStep());
    WEFT_EXPECT_OK(rewritten.RunStep());
    for (const std::string& name : results) {
      EXPECT_EQ(as_written[name].dims(), rewritten[name].dims()) << name;
      const std::vector<float> expected = Values<float>(as_written[name]);
      float largest = 1;
      for (float value : expected) {
        if (std::isfinite(value)) largest = std::max(largest, std::fabs(value));
      }
      EXPECT_THAT(Values<float>(rewritten[name]),
                  Pointwise(::testing::NanSensitiveFloatNear(tolerance * largest), expected))
          << name;
    }
  }
  return rewritten.plan();
}

std::vector<std::string> OpTypes(const Plan& plan) {
  std::vector<std::string> types;
  for (const Plan::Instruction& instruction : plan.instructions) {
    if (instruction.kind != Plan::Instruction::Kind::kRunOp) continue;
    types.push_back(plan.ops[instruction.index].type);
  }
  return types;
}

}  // namespace weft::testing
