// A small training program, described by plain values. Any values are valid.
#ifndef WEFT_TESTS_SUPPORT_TRAINING_SPEC_H_
#define WEFT_TESTS_SUPPORT_TRAINING_SPEC_H_

#include <vector>

namespace weft::testing {

enum class Activation { kNone, kRelu, kTanh, kSigmoid };
enum class LossKind { kSquaredError, kSoftmaxCrossEntropy, kSigmoidCrossEntropy };
enum class OptimizerKind { kSgd, kMomentum, kAdam, kLamb, kLars };
enum class ClipKind { kNone, kByValue, kByNorm, kByGlobalNorm };
enum class LearningRateKind { kConstant, kDecayed, kHalvedInBlock };

// y = activation(x w + b).
struct LayerSpec {
  int width = 1;
  Activation activation = Activation::kNone;
  bool bias = false;
  bool in_place = false;       // bias and activation overwrite their input, their gradients too
  bool fp64 = false;           // else fp32; what comes in is cast
  bool shares_weight = false;  // with the nearest layer before of the same shape, if there is one
  bool frozen = false;         // has no gradients
};

// A loss of its own layer on top of another one.
struct HeadSpec {
  int layer = 0;  // modulo the number of layers
  LossKind loss = LossKind::kSquaredError;
  bool fp64 = false;
};

struct TrainingSpec {
  int lookups = 0;  // of one embedding table, concatenated with the dense input
  bool sparse = false;
  std::vector<LayerSpec> layers;
  HeadSpec head;
  std::vector<HeadSpec> more_heads;
  // Each loss has backward and updates of its own, one after the other; else their sum is the loss.
  bool apart = false;

  OptimizerKind weights_by = OptimizerKind::kSgd;
  OptimizerKind biases_by = OptimizerKind::kSgd;
  ClipKind clip = ClipKind::kNone;
  bool clips_in_place = false;
  bool l2_decay = false;
  // Above 1: gradients are accumulated over so many steps, and used up in a conditional block.
  int merged_steps = 1;
  LearningRateKind learning_rate = LearningRateKind::kConstant;
};

}  // namespace weft::testing

#endif  // WEFT_TESTS_SUPPORT_TRAINING_SPEC_H_
