// Writes what makes gradients meet, wherever they are complete, and lets their users wait.
#ifndef WEFT_TRANSPILER_PASSES_GRADIENT_WRITER_H_
#define WEFT_TRANSPILER_PASSES_GRADIENT_WRITER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "ops/analysis/gradients.h"
#include "proto/program.h"
#include "proto/rewriter.h"
#include "transpiler/passes/gradient_buckets.h"
#include "transpiler/passes/op_builder.h"
#include "transpiler/passes/unique_names.h"
#include "transpiler/pipeline/pass.h"

namespace weft {

// How a gradient, or a buffer of several, travels.
class GradientExchange {
 public:
  virtual ~GradientExchange() = default;
  // The collective on the ring's stream. The reference is valid until the next call.
  virtual const pb::OpDesc& Launch(const std::string& variable, int ring) = 0;
  // The variable that the collective writes, where it is another one.
  virtual std::string Result(const std::string& variable) { return variable; }
  // What computes the gradient from what has arrived; behind the wait, on the compute stream.
  virtual void Finish(const std::string& variable,
                      absl::FunctionRef<void(const pb::OpDesc&)> insert) {}
};

// Buckets take rings in turn. Per bucket, after the op that completes the last of its gradients:
// c_wait_compute and the collective; before the first op that uses a gradient which is on its way
// on a ring: c_wait_comm, for everything that the ring was given. Buckets of several gradients are
// given a buffer. All of it in the rewriter, to be committed by the caller. O(ops + gradients).
class GradientWriter {
 public:
  GradientWriter(const Program& program, const GradientAnalysis& analysis, int nrings,
                 GradientExchange* exchange, Rewriter* rewriter);

  // `buckets` as FillBuckets gives them. One walk over the root block, and one over every block in
  // which accumulated gradients are used up.
  void Write(const std::vector<GradientBucket>& buckets);

  // A note for every gradient, after Write: `what` happened ("reduced"), by which op.
  void Explain(absl::string_view pass, const std::string& what, const std::string& op_type,
               const std::vector<GradientBucket>& buckets, std::vector<Remark>* remarks) const;

 private:
  struct Ring {
    explicit Ring(int id);
    OpTemplate wait_compute, wait_comm;
    std::vector<std::string> sent;       // what is on its way,
    std::vector<std::string> in_flight;  // and what a wait for it names;
    size_t first_in_flight = 0;          // from this bucket on
  };
  // After one op, or before one.
  struct InsertionPoint {
    OpId after, before;
  };

  void WriteBlock(const std::vector<GradientBucket>& buckets, size_t begin, size_t end);
  void AllocateBuffer(const GradientBucket& bucket);
  void Launch(const std::vector<GradientBucket>& buckets, size_t begin, size_t end,
              const InsertionPoint& place);
  void WaitFor(size_t bucket, OpId before);
  // All that is on its way on the ring: before an op, or, invalid, at the end of the block.
  void WaitForRing(Ring* ring, OpId before, int block);
  void Insert(const InsertionPoint& place, const pb::OpDesc& op);

  const Program& program_;
  const GradientAnalysis& analysis_;
  GradientExchange& exchange_;
  Rewriter& rewriter_;
  UniqueNames names_;
  std::vector<Ring> rings_;
  std::vector<std::string> buffers_;  // by bucket; empty where a gradient travels alone
  // By op: the first bucket that it completes, and the first of the gradients that it uses first.
  std::vector<uint32_t> completes_, uses_;
  // By gradient: the next one that the same op uses first; its bucket.
  std::vector<uint32_t> next_use_, bucket_of_;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_GRADIENT_WRITER_H_
