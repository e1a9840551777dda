// Layers, losses, draws, updates, arrays and branches.
#include <algorithm>
#include <cstddef>

#include "ops/schema/across_ranks.h"
#include "ops/schema/batch_context.h"
#include "ops/schema/batch_rule_functions.h"

namespace weft {
namespace batch {
void LayerNorm(BatchContext& c) {
  const BatchRelation x = c.In("X");
  if (!x.IsSharded() || x.axis >= c.attrs().Int("begin_norm_axis") ||
      !c.OthersAreReplicated({"X"})) {
    return;
  }
  c.Set("Y", x);
  if (x.axis != 0) return;
  c.Set("Mean", x);
  c.Set("Variance", x);
}

// Normalizes by statistics of the rank's part of the batch, or by running statistics.
void BatchNorm(BatchContext& c) {
  const OpAttrs& attrs = c.attrs();
  const bool fixed = (attrs.Bool("is_test") && !attrs.Bool("trainable_statistics")) ||
                     attrs.Bool("use_global_stats");
  if (!c.OthersAreSame({"X", "Mean", "Variance"})) return;
  if (fixed && !(c.In("Mean").IsSame() && c.In("Variance").IsSame())) return;
  if (!c.In("X").IsSame() && c.In("X") != BatchRelation::Sharded(0)) return;
  c.Set("Y", c.In("X"));
  if (c.In("X").IsSame()) {
    // The statistics of one value are those of all ranks' values.
    for (const char* slot : {"SavedMean", "SavedVariance"})
      c.Set(slot, BatchRelation::Replicated());
    c.Set("MeanOut", c.In("Mean"));
    c.Set("VarianceOut", c.In("Variance"));
    return;
  }
  if (!fixed) return c.set_effect(BatchEffect::kStatistics);
  for (const char* slot : {"MeanOut", "VarianceOut", "SavedMean", "SavedVariance"}) {
    c.Set(slot, BatchRelation::Replicated());
  }
}

// The ranks exchange their statistics: those of the whole batch.
void SyncBatchNorm(BatchContext& c) {
  if (c.In("X").IsSame() || !ComputesAcrossRanks("sync_batch_norm", c.attrs())) return BatchNorm(c);
  if (c.In("X") != BatchRelation::Sharded(0) || !c.OthersAreReplicated({"X"})) return;
  c.SetAll(BatchRelation::Replicated());
  c.Set("Y", BatchRelation::Sharded(0));
}

// Of a rank's part; the sums of all ranks are gathered before anything is computed from them.
void ChannelSums(BatchContext&) {}

void Dropout(BatchContext& c) {
  const OpAttrs& attrs = c.attrs();
  // A product of multiples is another multiple of the product.
  if (!c.OthersAreSame({"X"}) || c.In("X").IsPartialOther()) return;
  c.Set("Out", c.In("X"));
  if (attrs.Bool("is_test") || attrs.Float("dropout_prob") == 0) return;
  c.Set("Mask", c.In("X").WithoutPower());
  // A tensor Seed may be 0: none.
  const bool has_seed = c.AllIn("Seed").empty() && attrs.Bool("fix_seed") && attrs.Int("seed") != 0;
  const bool has_same_shape = !c.In("X").IsSharded();
  if (!has_seed || !has_same_shape) c.set_effect(BatchEffect::kDraws);
}

// The classes of each example are along an axis; Label has one number there, or a share of each.
void SoftmaxCrossEntropy(BatchContext& c) {
  const BatchRelation in = c.In("Logits");
  const absl::optional<Dims> dims = c.InDims("Logits");
  if (!in.IsSharded() || !dims.has_value() || c.In("Label") != in) return;
  if (c.Axis("axis", dims->size()) != in.axis) c.SetAll(in);
}

void SigmoidCrossEntropy(BatchContext& c) {
  // Normalized by how many labels count, which differs between ranks.
  if (!c.attrs().Bool("normalize")) Elementwise(c);
}

void KlDiv(BatchContext& c) {
  const std::string& reduction = c.attrs().String("reduction");
  Elementwise(c);
  const BatchRelation each = c.In("X");
  if (reduction == "none" || each != BatchRelation::Sharded(0) || c.In("Target") != each) return;
  c.SetAll(reduction == "sum" ? BatchRelation::PartialSum() : BatchRelation::Partial());
}

// A mean is divided by the sum of the weights of the rows' labels. Without Weight, each row weighs
// 1 unless its label is ignore_index, which is no class, and seldom there, if it is negative.
void NllLoss(BatchContext& c) {
  const std::string& reduction = c.attrs().String("reduction");
  const BatchRelation rows = BatchRelation::Sharded(0);
  if (c.In("X") != rows || c.In("Label") != rows || !c.OthersAreReplicated({"X", "Label"})) return;
  if (reduction == "mean") {
    if (!c.AllIn("Weight").empty() || c.attrs().Int("ignore_index") >= 0) return;
    c.set_effect(BatchEffect::kCountsLabels);
    c.Set("Out", BatchRelation::Partial());
    return c.Set("Total_weight", BatchRelation::PartialSum());
  }
  c.SetAll(BatchRelation::PartialSum());
  if (reduction == "none") c.Set("Out", rows);
}

void Accuracy(BatchContext& c) {
  for (const BatchRelation& in : c.inputs()) {
    if (in != BatchRelation::Sharded(0)) return;
  }
  c.Set("Accuracy", BatchRelation::Partial());
  c.Set("Correct", BatchRelation::PartialSum());
  c.Set("Total", BatchRelation::PartialSum());
}

BatchRun Draw(BatchRun shape) {
  return [=](BatchContext& c) {
    shape(c);
    if (c.attrs().Has("seed") && c.attrs().Int("seed") != 0 && c.OthersAreSame({})) return;
    c.set_effect(BatchEffect::kDraws);
  };
}

BatchRun DrawBy(BatchRun rule) {
  return Draw([rule](BatchContext& c) {
    if (c.OthersAreSame({})) return c.SetAll(BatchRelation::Replicated());
    for (BatchRelation in : c.inputs()) {
      if (in.power != 0 || !(in.IsReplicated() || in.IsSharded())) return;
    }
    rule(c);
  });
}

void FractionalPool(BatchContext& c) {
  if (c.attrs().Float("random_u") == 0) return DrawBy(Rows({"x"}))(c);
  if (c.OthersAreSame({})) return c.SetAll(BatchRelation::Replicated());
  Rows({"x"})(c);
}

// Slopes are drawn in training.
void RandomizedRelu(BatchContext& c) {
  if (c.attrs().Bool("is_test")) return Elementwise(c);
  DrawBy(Elementwise)(c);
}

// Without a seed of its own, a new one in every step.
void Seed(BatchContext& c) {
  c.SetAll(BatchRelation::Replicated());
  if (c.attrs().Int("seed") == 0) c.set_effect(BatchEffect::kDraws);
}

// Input and Out are [time, batch, ...]; states are [layers, batch, ...].
void Rnn(BatchContext& c) {
  const bool draws = c.attrs().Float("dropout_prob") != 0 && !c.attrs().Bool("is_test");
  if (draws) c.set_effect(BatchEffect::kDraws);
  if (c.OthersAreSame({}) && !draws) return c.SetAll(BatchRelation::Replicated());
  const BatchRelation in = c.In("Input");
  const absl::string_view per_sample[] = {"Input", "PreState", "SequenceLength"};
  if (in != BatchRelation::Sharded(1) || !c.OthersAreReplicated(per_sample)) return;
  for (const BatchRelation& state : c.AllIn("PreState")) {
    if (state != in) return;
  }
  if (!c.In("SequenceLength").IsReplicated() &&
      c.In("SequenceLength") != BatchRelation::Sharded(0)) {
    return;
  }
  c.Set("Out", in);
  c.Set("State", in);
}

// A loss for each sequence of [time, batch, classes].
void Ctc(BatchContext& c) {
  const absl::string_view per_sample[] = {"Logits", "Label", "LogitsLength", "LabelLength"};
  if (c.In("Logits") != BatchRelation::Sharded(1) || !c.OthersAreReplicated(per_sample)) return;
  for (absl::string_view slot : {"Label", "LogitsLength", "LabelLength"}) {
    if (c.In(slot) != BatchRelation::Sharded(0)) return;
  }
  c.Set("Loss", BatchRelation::Sharded(0));
}

void Swiglu(BatchContext& c) { c.AllIn("y").empty() ? NotLast("x")(c) : Elementwise(c); }

void SequenceMask(BatchContext& c) {
  // Else as wide as the longest of the rank's own.
  const bool has_length =
      c.AllIn("MaxLenTensor").empty() ? c.attrs().Int("maxlen") >= 0 : c.has_no_negative_sizes();
  if (has_length) Lookup("X")(c);
}

namespace {

// Sets Out to what X is; false if X is something else than gradients, or parts of them.
bool SetScaled(BatchContext& c) {
  const absl::Span<const BatchRelation> x = c.AllIn("X");
  const bool are_known = std::all_of(x.begin(), x.end(), [](BatchRelation in) {
    return in.IsSame() || in == BatchRelation::Sharded(0);
  });
  if (!are_known || !c.OthersAreSame({"X"})) return false;
  for (size_t i = 0; i < x.size(); ++i) c.Set("Out", i, x[i]);
  return true;
}

}  // namespace

void Unscale(BatchContext& c) {
  if (SetScaled(c)) c.Set("FoundInfinite", BatchRelation::PartialMax());
}

void UpdateLossScale(BatchContext& c) {
  c.SetAll(BatchRelation::Replicated());
  if (!SetScaled(c)) c.SetAll(BatchRelation::Unrelated());
}

// Linear in parameter, gradient and velocity. (Of optimizers, the others are not.)
void LinearUpdate(BatchContext& c) {
  const absl::string_view linear[] = {"Param", "MasterParam", "Grad", "Velocity"};
  if (!c.OthersAreSame(linear)) return;
  BatchRelation joined = BatchRelation::Replicated();
  for (absl::string_view slot : linear) {
    for (BatchRelation in : c.AllIn(slot)) joined = Join(joined, in);
  }
  c.SetAll(joined);
}

// Out: X, whatever the other inputs say.
void First(BatchContext& c) {
  if (c.OthersAreReplicated({"X"})) c.SetAll(c.In("X"));
}

// Of an array of gradients, X_W has the dimensions of an element that is missing, which is zero.
void ReadFromArray(BatchContext& c) {
  const BatchRelation x = c.In("X");
  for (BatchRelation like : c.AllIn("X_W")) {
    if (like.WithoutPower() != x.WithoutPower()) return;
  }
  if (c.OthersAreReplicated({"X", "X_W"})) c.SetAll(x);
}

// Of an array: every rank has as many tensors as one device.
void Length(BatchContext& c) { c.SetAll(BatchRelation::Replicated()); }

void Selected(BatchContext& c) {
  if (!c.In("Mask").IsSame()) return;
  BatchRelation joined = c.In("X");
  for (BatchRelation in : c.AllIn("X")) joined = Join(joined, in);
  c.SetAll(joined);
}

}  // namespace batch
}  // namespace weft
