#include "transpiler/passes/gradient_writer.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/op_role.h"
#include "transpiler/passes/fused_buffer.h"

namespace weft {
namespace {

constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();

pb::OpDesc WaitOp(const std::string& type, int ring) {
  return BuildOp(InPlaceOp(type, {}, {{"ring_id", ring}}, kRoleBackward), Dialect::kWeft);
}

}  // namespace

GradientWriter::Ring::Ring(int id)
    : wait_compute(WaitOp("c_wait_compute", id)), wait_comm(WaitOp("c_wait_comm", id)) {}

GradientWriter::GradientWriter(const Program& program, const GradientAnalysis& analysis, int nrings,
                               GradientExchange* exchange, Rewriter* rewriter)
    : program_(program),
      analysis_(analysis),
      exchange_(*exchange),
      rewriter_(*rewriter),
      names_(program),
      completes_(program.op_id_limit(), kNone),
      uses_(program.op_id_limit(), kNone),
      next_use_(analysis.gradients.size(), kNone),
      bucket_of_(analysis.gradients.size(), kNone) {
  for (int i = 0; i < nrings; ++i) rings_.emplace_back(i);
}

void GradientWriter::Write(const std::vector<GradientBucket>& buckets) {
  for (size_t b = buckets.size(); b-- > 0;) {
    const std::vector<int>& members = buckets[b].gradients;
    for (size_t k = members.size(); k-- > 0;) {
      const int i = members[k];
      bucket_of_[i] = static_cast<uint32_t>(b);
      if (!analysis_.gradients[i].first_use.valid()) continue;
      uint32_t& head = uses_[analysis_.gradients[i].first_use.value()];
      next_use_[i] = head;
      head = static_cast<uint32_t>(i);
    }
    if (buckets[b].block != 0) continue;  // complete when the block begins
    completes_[analysis_.gradients[members.back()].completed_by.value()] = static_cast<uint32_t>(b);
  }
  for (const GradientBucket& bucket : buckets) AllocateBuffer(bucket);
  for (size_t b = 0; b < buckets.size(); ++b) {
    for (const std::string& variable : VariablesOf(buckets, b)) {
      exchange_.Declare({variable, buckets[b]}, &rewriter_);
    }
  }
  size_t end = 0;
  for (size_t begin = 0; begin < buckets.size(); begin = end) {
    while (end < buckets.size() && buckets[end].block == buckets[begin].block) ++end;
    WriteBlock(buckets, begin, end);
  }
}

void GradientWriter::WriteBlock(const std::vector<GradientBucket>& buckets, size_t begin,
                                size_t end) {
  const int block = buckets[begin].block;
  const absl::Span<const OpId> ops = program_.block(block).ops();
  if (block != 0) {
    Launch(buckets, begin, end,
           [&](const pb::OpDesc& op) { rewriter_.InsertBefore(ops.front(), op); });
  }
  for (OpId id : ops) {
    for (uint32_t i = uses_[id.value()]; i != kNone; i = next_use_[i]) WaitFor(bucket_of_[i], id);
    const size_t first = completes_[id.value()];
    if (first == kNone) continue;
    size_t last = first;
    while (last < end && analysis_.gradients[buckets[last].gradients.back()].completed_by == id) {
      ++last;
    }
    Launch(buckets, first, last, [&](const pb::OpDesc& op) { rewriter_.InsertAfter(id, op); });
  }
  for (Ring& ring : rings_) WaitForRing(&ring, OpId(), block);
}

std::string GradientWriter::NameOf(int gradient) const {
  return std::string(program_.name(analysis_.gradients[gradient].grad));
}

std::vector<std::string> GradientWriter::VariablesOf(const std::vector<GradientBucket>& buckets,
                                                     size_t b) const {
  if (!buffers_[b].empty()) return {buffers_[b]};
  if (!exchange_.LaunchesGroups()) return {NameOf(buckets[b].gradients.front())};
  std::vector<std::string> names;
  for (int i : buckets[b].gradients) names.push_back(NameOf(i));
  return names;
}

// Inserts the buffer of several gradients before the first of them is written. Accumulated
// gradients are copied into it when their block begins.
void GradientWriter::AllocateBuffer(const GradientBucket& bucket) {
  buffers_.emplace_back();
  const bool is_apart = exchange_.LaunchesGroups() || !exchange_.UsesBuffer(bucket);
  if (bucket.gradients.size() == 1 || is_apart) return;
  const FusedTensors tensors = TensorsOf(program_, analysis_, bucket);
  const std::string buffer = buffers_.back() = names_.Next("fused_gradient");
  rewriter_.AddVar(bucket.block, FusedBuffer(buffer, tensors));
  const bool is_accumulated = bucket.block != 0;
  const OpId before =
      is_accumulated ? program_.block(bucket.block).ops().front() : bucket.begins_at;
  const FusedValues values = is_accumulated ? FusedValues::kCopied : FusedValues::kDiscarded;
  rewriter_.InsertBefore(before, Coalesce(tensors, buffer, values, kRoleBackward));
}

void GradientWriter::Launch(const std::vector<GradientBucket>& buckets, size_t begin, size_t end,
                            Insert insert) {
  const size_t nrings = rings_.size();
  for (size_t turn = begin; turn < std::min(end, begin + nrings); ++turn) {
    const int ring_id = static_cast<int>(turn % nrings);
    Ring& ring = rings_[ring_id];
    if (ring.in_flight.empty()) ring.first_in_flight = turn;
    std::vector<std::string> travelling;
    std::vector<std::vector<std::string>> launched;
    for (size_t b = turn; b < end; b += nrings) {
      launched.push_back(VariablesOf(buckets, b));
      for (const std::string& variable : launched.back()) {
        exchange_.Prepare(variable, insert);
        std::string sent = exchange_.Sent(variable);
        if (sent == buffers_[b]) {
          for (int i : buckets[b].gradients) travelling.push_back(NameOf(i));
        }
        travelling.push_back(std::move(sent));
      }
    }
    insert(ring.wait_compute.InPlace(travelling));
    ring.in_flight.insert(ring.in_flight.end(), travelling.begin(), travelling.end());
    for (const std::vector<std::string>& variables : launched) {
      insert(exchange_.Launch(variables, ring_id));
      for (const std::string& variable : variables) {
        std::string result = exchange_.Result(variable);
        if (result != exchange_.Sent(variable)) ring.in_flight.push_back(std::move(result));
        ring.buckets.push_back(variable);
      }
    }
  }
}

// An earlier wait on the ring may have covered the bucket.
void GradientWriter::WaitFor(size_t bucket, OpId before) {
  Ring& ring = rings_[bucket % rings_.size()];
  if (bucket >= ring.first_in_flight) WaitForRing(&ring, before, 0);
}

void GradientWriter::WaitForRing(Ring* ring, OpId before, int block) {
  if (ring->in_flight.empty()) return;
  const auto insert = [&](const pb::OpDesc& op) {
    if (before.valid()) {
      rewriter_.InsertBefore(before, op);
    } else {
      rewriter_.Append(block, op);
    }
  };
  insert(ring->wait_comm.InPlace(ring->in_flight));
  for (const std::string& variable : ring->buckets) exchange_.Finish(variable, insert);
  ring->buckets.clear();
  ring->in_flight.clear();
}

void GradientWriter::Explain(absl::string_view pass, const std::string& what,
                             const std::string& op_type, const std::vector<GradientBucket>& buckets,
                             PassContext& context, const std::string& group_type) const {
  if (context.remarks == nullptr) return;
  const auto op_name = [&](OpId id) { return program_.op(id).DebugName(); };
  for (size_t b = 0; b < buckets.size(); ++b) {
    for (int i : buckets[b].gradients) {
      const Gradient& gradient = analysis_.gradients[i];
      Remark remark{
          std::string(pass),
          std::string(program_.name(gradient.grad)),
          what,
          absl::StrCat("gradient of replicated parameter ", program_.name(gradient.param)),
          {{"op", buckets[b].gradients.size() > 1 && buffers_[b].empty() ? group_type : op_type},
           {"ring", absl::StrCat(b % rings_.size())},
           {"after", op_name(gradient.completed_by)},
           {"waited_for_by",
            gradient.first_use.valid() ? op_name(gradient.first_use) : "the end of the program"}}};
      if (gradient.block != 0) remark.details.push_back({"block", absl::StrCat(gradient.block)});
      if (!buffers_[b].empty()) remark.details.push_back({"buffer", buffers_[b]});
      if (!buckets[b].why_alone.empty()) remark.details.push_back({"alone", buckets[b].why_alone});
      context.remarks->push_back(std::move(remark));
    }
  }
  for (const SkippedGradient& skipped : analysis_.skipped) {
    context.Explain(pass, std::string(program_.name(skipped.grad)), absl::StrCat("not ", what),
                    skipped.why, {{"parameter", std::string(program_.name(skipped.param))}});
  }
}

}  // namespace weft
