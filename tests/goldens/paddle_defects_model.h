// Small models for tests of what the two dialects write and what that computes.
//
// They can be followed by hand: prediction x w, loss = its mean, so that the gradient of w on a
// rank is the mean of its rows of x.
#ifndef WEFT_TESTS_GOLDENS_PADDLE_DEFECTS_MODEL_H_
#define WEFT_TESTS_GOLDENS_PADDLE_DEFECTS_MODEL_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/program.h"
#include "proto/testing/program_builder.h"
#include "transpiler/transpile.h"

namespace weft::testing {

// Declares the data x and the learning rate lr.
ProgramBuilder Data();
// Appends a loss of `param`: forward, and backward to its gradient, without pairs. `fill_role` is
// that of the op that fills the gradient of the loss.
void AddLoss(ProgramBuilder* p, const std::string& param, const std::string& grad,
             int fill_role = kRoleBackward | kRoleLoss);
// Data and the loss of w, whose gradient is w@GRAD, with its pair.
ProgramBuilder PairedModel();
void AddSgd(ProgramBuilder* p, const std::string& param, const std::string& grad);
// Updates w; moments m1 and m2, powers of beta b1 and b2.
void AddAdam(ProgramBuilder* p);
// Those before the first step.
const std::map<std::string, float>& BetaPowers();

// Two gradients of one loss, b@GRAD first, and their updates by sgd, w first. Not to be run.
ProgramBuilder TwoGradients(pb::VarType::Type dtype = pb::VarType::FP32);
// Makes w, b and lr of such a program.
Program StartupOfTwo();

// Modes for two ranks: without endpoints; with endpoints a:1 and b:1, and one ring where the mode
// has a choice.
TranspileOptions Weft(const std::string& mode);
TranspileOptions Paddle(const std::string& mode);

// Both programs, rewritten. Without a startup program where none is given.
struct Rewritten {
  Program main, startup;
  std::vector<std::string> warnings;
};
absl::StatusOr<Rewritten> Rewrite(const Program& main, const TranspileOptions& options);
absl::StatusOr<Rewritten> Rewrite(const Program& main, const Program& startup,
                                  const TranspileOptions& options);

// The first op of the root block of this type, which there must be; its attributes.
Op FirstOp(const Program& program, absl::string_view type);
int IntOf(const Op& op, absl::string_view attr);
// Which op of the root block is the first whose text (OpTexts) begins like this; the number of ops
// where there is none.
int Position(const Program& program, absl::string_view text);

struct Outcome {
  std::vector<float> w;  // after the last step, by rank
  // What persists on rank 0: the first element of each float tensor.
  std::map<std::string, float> state;
  std::vector<std::string> warnings;
};

// Rewrites the program and runs it on two ranks: rank r is fed r + 1 in every step. The startup
// program, which is rewritten and run too, makes what persists: lr is 1, the rest 0 unless
// `initial` has it.
absl::StatusOr<Outcome> Train(const ProgramBuilder& builder, const TranspileOptions& options,
                              int steps = 1, const std::map<std::string, float>& initial = {});

}  // namespace weft::testing

#endif  // WEFT_TESTS_GOLDENS_PADDLE_DEFECTS_MODEL_H_
