// Inserts collectives where gradients are complete, and waits before their first uses.
#ifndef WEFT_TRANSPILER_PASSES_GRADIENTS_GRADIENT_WRITER_H_
#define WEFT_TRANSPILER_PASSES_GRADIENTS_GRADIENT_WRITER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "ops/analysis/training/gradients.h"
#include "proto/program.h"
#include "proto/rewriter.h"
#include "transpiler/passes/gradients/gradient_buckets.h"
#include "transpiler/passes/support/new_variables.h"
#include "transpiler/passes/support/op_builder.h"
#include "transpiler/pipeline/pass.h"

namespace weft {

// How the ranks exchange a bucket.
class GradientExchange {
 public:
  // How several gradients share a collective. The variable of a bucket is
  //   kBuffer  their fused buffer
  //   kGroup   each of them: one op takes them all, with attributes `fusion` and `index` if
  //            MindSpore's policy made the bucket
  //   kSeparate     the first of them: Prepare reads them all
  enum class Sharing { kBuffer, kGroup, kSeparate };
  struct Bucket {
    std::string variable;
    const GradientBucket& gradients;
  };
  using Insert = absl::FunctionRef<void(const pb::OpDesc&)>;

  virtual ~GradientExchange() = default;
  virtual Sharing SharingOf(const GradientBucket& bucket) const { return Sharing::kBuffer; }
  // Of a bucket that gets a buffer in any case, without gaps between gradients: the elements, all
  // zero, at its end. None: as usual.
  virtual absl::optional<int64_t> PaddingOf(const GradientBucket& bucket) const {
    return absl::nullopt;
  }
  // Whether the next bucket on a ring travels only when the one before has arrived, so that its
  // memory is free for other values.
  virtual bool TravelsAlone() const { return false; }
  // Called for every bucket, before anything is inserted for one. Declares the variables that the
  // exchange adds. A variable that holds several gradients in turn is the variable of several
  // buckets.
  virtual void Declare(const Bucket& bucket, Rewriter* rewriter) {}
  // The variable that travels, which the ops of Prepare make.
  virtual std::string Sent(const std::string& variable) { return variable; }
  // Inserts, when the bucket is complete, the compute-stream ops before its collective.
  virtual void Prepare(const std::string& variable, Insert insert) {}
  // The collective on the ring's stream, of the variable, or of a group of them. The reference is
  // valid until the next call. Of a bucket of a group of ranks, called for ring 0: GradientWriter
  // sets the ring and the ranks.
  virtual const pb::OpDesc& Launch(absl::Span<const std::string> variables, int ring) = 0;
  // The variable that the collective writes.
  virtual std::string Result(const std::string& variable) { return Sent(variable); }
  // Inserts, after the wait, the compute-stream ops that make the gradients from Result.
  virtual void Finish(const std::string& variable, Insert insert) {}
};

// Buckets over all ranks take rings 0 .. nrings-1 in turn; those of a group take its ring,
// nrings + RankGroup::index, and get attribute kGroupRanksAttr. After the op that completes the
// last gradient of a bucket, writes c_wait_compute and the collective. Before the first op that
// uses a gradient in flight, writes c_wait_comm for all that is in flight on the ring. Buckets of
// several gradients get a fused buffer, unless the exchange uses none. The caller commits the
// rewriter. O(ops + gradients).
class GradientWriter {
 public:
  GradientWriter(const Program& program, const GradientAnalysis& analysis, int nrings,
                 GradientExchange* exchange, Rewriter* rewriter);

  // `buckets`: from FillBuckets. Walks the root block and every block that uses accumulated
  // gradients once.
  void Write(const std::vector<GradientBucket>& buckets);

  // Adds a remark for every gradient, after Write. `what`: "reduced", by an op of `op_type`, or of
  // `group_type` for a group.
  void Explain(absl::string_view pass, const std::string& what, const std::string& op_type,
               const std::vector<GradientBucket>& buckets, const PassContext& context,
               const std::string& group_type = "") const;

 private:
  struct Ring {
    Ring(int id, std::vector<int> group_ranks);
    int id;
    std::vector<int> group_ranks;  // empty: all ranks
    OpTemplate wait_compute, wait_comm;
    std::vector<std::string> buckets;    // variables of buckets in flight
    std::vector<std::string> in_flight;  // variables that a wait for them names
    size_t first_in_flight = 0;          // the first bucket in flight
  };
  using Insert = GradientExchange::Insert;
  using Sharing = GradientExchange::Sharing;

  void WriteBlock(const std::vector<GradientBucket>& buckets, size_t begin, size_t end);
  std::string NameOf(int gradient) const;
  std::vector<std::string> VariablesOf(const std::vector<GradientBucket>& buckets, size_t b) const;
  void AllocateBuffer(const GradientBucket& bucket);
  void Launch(const std::vector<GradientBucket>& buckets, size_t begin, size_t end, Insert insert);
  // Sets ring_of_, and adds the rings of groups.
  void AssignRings(const std::vector<GradientBucket>& buckets);
  void WaitFor(size_t bucket, OpId before);
  void WaitForRing(Ring* ring, Insert insert);

  const Program& program_;
  const GradientAnalysis& analysis_;
  GradientExchange& exchange_;
  Rewriter& rewriter_;
  UniqueNames names_;
  std::vector<Ring> rings_;
  const size_t nrings_;                        // over all ranks
  std::vector<int> ring_of_;                   // by bucket: into rings_
  std::vector<std::vector<size_t>> launched_;  // by ring: buckets of one launch
  std::vector<std::string> buffers_;           // by bucket; empty for a single gradient
  // By op: the first bucket that it completes, and the first gradient whose first use it is.
  std::vector<uint32_t> completes_, uses_;
  // By gradient: the next gradient with the same first use, and its bucket.
  std::vector<uint32_t> next_use_, bucket_of_;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_GRADIENTS_GRADIENT_WRITER_H_
