#include "transpiler/passes/gradients/gradient_writer.h"

#include <cstdint>
#include <limits>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/optional.h"
#include "proto/op_role.h"
#include "transpiler/passes/support/fused_buffer.h"
#include "transpiler/passes/support/op_edits.h"

namespace weft {
namespace {

constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();

pb::OpDesc WaitOp(const std::string& type, int ring) {
  return BuildOp(InPlaceOp(type, {}, {{"ring_id", ring}}, kRoleBackward));
}

// What MindSpore fuses by.
void AddFusion(const GradientBucket& bucket, pb::OpDesc* op) {
  if (!bucket.fusion_id.has_value()) return;
  AddAttr("fusion", int32_t{*bucket.fusion_id}, op);
  if (bucket.indices.empty()) return;
  AddAttr("index", std::vector<int32_t>(bucket.indices.begin(), bucket.indices.end()), op);
}

}  // namespace

GradientWriter::Ring::Ring(int id, std::vector<int> group_ranks)
    : id(id),
      group_ranks(std::move(group_ranks)),
      wait_compute(WaitOp("c_wait_compute", id)),
      wait_comm(WaitOp("c_wait_comm", id)) {}

GradientWriter::GradientWriter(const Program& program, const GradientAnalysis& analysis, int nrings,
                               GradientExchange* exchange, Rewriter* rewriter)
    : program_(program),
      analysis_(analysis),
      exchange_(*exchange),
      rewriter_(*rewriter),
      names_(program),
      nrings_(nrings),
      completes_(program.op_id_limit(), kNone),
      uses_(program.op_id_limit(), kNone),
      next_use_(analysis.gradients.size(), kNone),
      bucket_of_(analysis.gradients.size(), kNone) {
  for (int i = 0; i < nrings; ++i) rings_.emplace_back(i, std::vector<int>());
}

void GradientWriter::AssignRings(const std::vector<GradientBucket>& buckets) {
  size_t turn = 0;
  std::map<int, RankGroup> groups;
  for (const GradientBucket& bucket : buckets) {
    if (bucket.group.has_value()) {
      groups.emplace(bucket.group->index, *bucket.group);
    }
  }
  std::map<int, int> ring_of_group;
  for (const auto& [index, group] : groups) {
    ring_of_group[index] = static_cast<int>(rings_.size());
    rings_.emplace_back(static_cast<int>(nrings_) + index, group.ranks);
  }
  for (const GradientBucket& bucket : buckets) {
    ring_of_.push_back(bucket.group.has_value() ? ring_of_group[bucket.group->index]
                                                : static_cast<int>(turn++ % nrings_));
  }
  launched_.resize(rings_.size());
}

void GradientWriter::Write(const std::vector<GradientBucket>& buckets) {
  AssignRings(buckets);
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
  for (Ring& ring : rings_) {
    WaitForRing(&ring, [&](const pb::OpDesc& op) { rewriter_.Append(block, op); });
  }
}

std::string GradientWriter::NameOf(int gradient) const {
  return std::string(program_.name(analysis_.gradients[gradient].grad));
}

std::vector<std::string> GradientWriter::VariablesOf(const std::vector<GradientBucket>& buckets,
                                                     size_t b) const {
  if (!buffers_[b].empty()) return {buffers_[b]};
  std::vector<std::string> names;
  for (int i : buckets[b].gradients) {
    names.push_back(NameOf(i));
    if (exchange_.SharingOf(buckets[b]) == Sharing::kSeparate) break;
  }
  return names;
}

// Inserts the buffer of several gradients before the first of them is written. Accumulated
// gradients are copied into it when their block begins.
void GradientWriter::AllocateBuffer(const GradientBucket& bucket) {
  buffers_.emplace_back();
  const absl::optional<int64_t> padding = exchange_.PaddingOf(bucket);
  const bool is_alone = bucket.gradients.size() == 1 && !padding.has_value();
  if (is_alone || exchange_.SharingOf(bucket) != Sharing::kBuffer) return;
  FusedTensors tensors = TensorsOf(program_, analysis_, bucket);
  const std::string buffer = buffers_.back() = names_.Next("fused_gradient");
  int alignment = kSliceAlignment;
  std::vector<pb::OpDesc> ops;
  if (padding.has_value()) alignment = static_cast<int>(SizeOf(tensors.dtype));
  if (padding.value_or(0) > 0) {
    tensors.names.push_back(names_.Next("gradient_padding"));
    tensors.dims.push_back({*padding});
    rewriter_.AddVar(bucket.block, TensorVar(tensors.names.back(), tensors.dtype, {*padding}));
    ops.push_back(
        BuildOp(FillOp(tensors.names.back(), tensors.dtype, {*padding}, 0, kRoleBackward)));
  }
  rewriter_.AddVar(bucket.block, FusedBuffer(buffer, tensors, alignment));
  const bool is_accumulated = bucket.block != 0;
  const OpId before =
      is_accumulated ? program_.block(bucket.block).ops().front() : bucket.begins_at;
  const FusedValues values = is_accumulated ? FusedValues::kCopied : FusedValues::kDiscarded;
  // Zeros are copied, or written into the buffer.
  ops.insert(is_accumulated ? ops.end() : ops.begin(),
             Coalesce(tensors, buffer, values, kRoleBackward, alignment));
  for (const pb::OpDesc& op : ops) rewriter_.InsertBefore(before, op);
}

void GradientWriter::Launch(const std::vector<GradientBucket>& buckets, size_t begin, size_t end,
                            Insert insert) {
  std::vector<int> order;  // rings, by their first bucket
  for (size_t b = begin; b < end; ++b) {
    if (launched_[ring_of_[b]].empty()) order.push_back(ring_of_[b]);
    launched_[ring_of_[b]].push_back(b);
  }
  for (int index : order) {
    Ring& ring = rings_[index];
    const std::vector<size_t> of_ring = std::move(launched_[index]);
    launched_[index].clear();
    if (exchange_.TravelsAlone()) WaitForRing(&ring, insert);
    if (ring.in_flight.empty()) ring.first_in_flight = of_ring.front();
    std::vector<std::string> travelling;
    std::vector<std::vector<std::string>> launched;
    for (size_t b : of_ring) {
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
    for (size_t k = 0; k < of_ring.size(); ++k) {
      const std::vector<std::string>& variables = launched[k];
      const GradientBucket& bucket = buckets[of_ring[k]];
      const bool is_of_all = ring.group_ranks.empty();
      const bool is_group = exchange_.SharingOf(bucket) == Sharing::kGroup;
      const pb::OpDesc& launch = exchange_.Launch(variables, is_of_all ? ring.id : 0);
      if (is_of_all && !is_group) {
        insert(launch);
      } else {
        pb::OpDesc collective = launch;
        if (!is_of_all) SetRingOfGroup(ring.id, ring.group_ranks, &collective);
        if (is_group) AddFusion(bucket, &collective);
        insert(collective);
      }
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
  Ring& ring = rings_[ring_of_[bucket]];
  if (bucket < ring.first_in_flight) return;
  WaitForRing(&ring, [&](const pb::OpDesc& op) { rewriter_.InsertBefore(before, op); });
}

void GradientWriter::WaitForRing(Ring* ring, Insert insert) {
  if (ring->in_flight.empty()) return;
  insert(ring->wait_comm.InPlace(ring->in_flight));
  for (const std::string& variable : ring->buckets) exchange_.Finish(variable, insert);
  ring->buckets.clear();
  ring->in_flight.clear();
}

void GradientWriter::Explain(absl::string_view pass, const std::string& what,
                             const std::string& op_type, const std::vector<GradientBucket>& buckets,
                             const PassContext& context, const std::string& group_type) const {
  if (context.sink.remarks == nullptr) return;
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
           {"ring", absl::StrCat(rings_[ring_of_[b]].id)},
           {"after", op_name(gradient.completed_by)},
           {"waited_for_by",
            gradient.first_use.valid() ? op_name(gradient.first_use) : "the end of the program"}}};
      if (gradient.block != 0) remark.details.push_back({"block", absl::StrCat(gradient.block)});
      if (const absl::optional<RankGroup>& group = buckets[b].group; group.has_value()) {
        remark.details.push_back({"group", group->name});
        remark.details.push_back({"ranks", absl::StrJoin(group->ranks, ", ")});
      }
      if (!buffers_[b].empty()) remark.details.push_back({"buffer", buffers_[b]});
      if (!buckets[b].why_alone.empty()) remark.details.push_back({"alone", buckets[b].why_alone});
      context.sink.remarks->push_back(std::move(remark));
    }
  }
  for (const SkippedGradient& skipped : analysis_.skipped) {
    context.sink.Explain(pass, std::string(program_.name(skipped.grad)), absl::StrCat("not ", what),
                         skipped.why, {{"parameter", std::string(program_.name(skipped.param))}});
  }
}

}  // namespace weft
