// What a training program does with its gradients.
#ifndef WEFT_TESTS_SUPPORT_UPDATE_OPS_H_
#define WEFT_TESTS_SUPPORT_UPDATE_OPS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "proto/program.h"
#include "tests/support/program_pair_builder.h"
#include "tests/support/training_spec.h"

namespace weft::testing {

struct TrainedParam {
  std::string name;
  std::vector<int64_t> dims;
  pb::VarType::Type type;
  bool is_bias;
  bool sparse_gradient;
};

struct ParamGradient {
  TrainedParam param;
  std::string grad;
};

// Declares the learning rate, a state of this name, and changes it in every step as the spec says.
inline constexpr char kLearningRate[] = "learning_rate";
void AppendLearningRate(const TrainingSpec& spec, ProgramPairBuilder* pair);

// Accumulation, weight decay, clipping, and an optimizer for each parameter. The suffix sets the
// variables apart from those of other updates.
void AppendUpdates(const TrainingSpec& spec, const std::string& suffix,
                   const std::vector<ParamGradient>& gradients, ProgramPairBuilder* pair);

}  // namespace weft::testing

#endif  // WEFT_TESTS_SUPPORT_UPDATE_OPS_H_
