// The order of accesses and calls, whatever the timing of streams; and rings.
#include <algorithm>

#include "checker/walk.h"

namespace checker {
namespace {

void Join(const Clock& from, Clock* to) {
  for (size_t i = 0; i < from.size(); ++i) (*to)[i] = std::max((*to)[i], from[i]);
}

}  // namespace

void Walk::Spend(uint64_t work, uint64_t memory) {
  Expect(work <= work_left_ && memory <= memory_left_,
         "it takes more time or memory than programs of this size may");
  work_left_ -= work;
  memory_left_ -= memory;
}

// Fails unless the access comes after all that conflict with it.
void Walk::Touch(uint32_t stream, Var* var, bool writes) {
  Spend(1, 0);
  const Clock& clock = clocks_[stream];
  const auto check = [&](const Access& before) {
    const uint32_t ended = clock[before.stream];
    Expect(
        before.stream == stream || (before.written <= ended && (!writes || before.read <= ended)),
        "nothing orders its access to ", var->name, " after an earlier one");
    return before.stream == stream;
  };
  Access* own = check(var->computing) ? &var->computing : nullptr;
  for (Access& access : var->others) {
    if (check(access)) own = &access;
  }
  if (own == nullptr) own = &var->others.emplace_back(Access{stream, 0, 0});
  (writes ? own->written : own->read) = clock[stream];
}

// An access to a buffer is one to all of its parts.
void Walk::TouchAll(uint32_t stream, Var* var, bool writes) {
  for (const auto& [part, offset] : var->parts) Touch(stream, part, writes);
  Touch(stream, var, writes);
}

uint32_t Walk::Launch(uint32_t stream) {
  Join(clocks_[kHost], &clocks_[stream]);
  ++clocks_[stream][stream];
  return stream;
}

// The ring of an op that is on the stream that computes, or on the stream of the ring.
uint64_t Walk::UseRing(bool computes) {
  const auto ring = static_cast<uint64_t>(Number("ring_id", 0));
  Expect(ring <= 0x7fffffff, "attribute ring_id: expected a ring");
  Expect(main_ == nullptr || set_up_.count(ring) > 0 || (computes && set_up_.empty()),
         "its ring is not set up");
  rings.insert(ring);
  calls_compute_ = calls_compute_ && computes;
  return ring;
}

uint32_t Walk::StreamOf(uint64_t ring) {
  const uint32_t stream = streams_.emplace(ring, streams_.size() + 1).first->second;
  Expect(stream < kHost, "more than 16 rings");
  return stream;
}

uint32_t Walk::LaunchCall(const char* kind, const Var& var) {
  Spend(0, 128);
  const bool computes = Number("use_calc_stream", 0) != 0;
  const uint64_t ring = UseRing(computes);
  schedule += Text(std::to_string(ring), " ", kind, " ", std::to_string(var.dtype), " ",
                   std::to_string(var.elements), "\n");
  ++num_calls;
  return Launch(computes ? 0 : StreamOf(ring));
}

void Walk::Wait() {
  Expect(in_ == out_, "expected X and the same Out");
  if (op_->type == "c_sync_calc_stream") return Join(clocks_[0], &clocks_[kHost]);
  const uint32_t ring = StreamOf(UseRing(false));
  if (op_->type == "c_sync_comm_stream") Join(clocks_[ring], &clocks_[kHost]);
  if (op_->type == "c_wait_compute") Join(clocks_[0], &clocks_[ring]);
  if (op_->type == "c_wait_comm") Join(clocks_[ring], &clocks_[0]);
}

// Of all ranks, on as many devices if they are named. It waits until the ops before have ended.
void Walk::SetUp() {
  const size_t devices = Numbers("devices").size();
  const auto ring = static_cast<uint64_t>(Number("ring_id", 0));
  Expect((devices == 0 || devices == setting_.nranks) && set_up_.insert(ring).second &&
             rings.count(ring) == 0,
         "the ring does not have all ranks, is set up twice, or after its use");
  Join(clocks_[0], &clocks_[kHost]);
}

// An id is made by rank 0 and sent to the endpoints of the others.
void Walk::MakeId() {
  const Attr *const own = op_->Find("endpoint"), *const others = op_->Find("other_endpoints");
  const auto of = static_cast<uint64_t>(Number("rank", 0));
  Expect(out_.size() == 1 && own != nullptr && others != nullptr && setting_.nranks > 0,
         "expected Out, endpoints, and a known number of ranks");
  std::vector<std::string_view> all = others->Texts();
  Expect(of <= all.size() && own->Texts().size() == 1, "expected a rank and its endpoint");
  all.insert(all.begin() + static_cast<std::ptrdiff_t>(of), own->Texts()[0]);
  // The claim quotes them: they must not look like lines of it.
  for (const std::string_view endpoint : all) {
    for (const char c : endpoint) {
      Expect(c > 0x20 && c < 0x7f, "expected endpoints of printable characters");
    }
  }
  Expect(all.size() == setting_.nranks &&
             std::set<std::string_view>(all.begin(), all.end()).size() == all.size() &&
             (endpoints.empty() || (all == endpoints && of == rank)),
         "expected an endpoint for each rank, the same for all rings");
  endpoints = std::move(all);
  rank = of;
  Expect(NewVar(out_[0]).type == 17 && !out_[0]->has_value, out_[0]->name, " is no new id");
  out_[0]->has_value = true;
  Join(clocks_[0], &clocks_[kHost]);
}

void Walk::Init() {
  Expect(in_.size() == 1 && NewVar(in_[0]).has_value && !in_[0]->is_frozen, "X is no unused id");
  in_[0]->is_frozen = true;
  Expect(op_->Find("nranks") != nullptr && Number("rank", -1) == static_cast<int64_t>(rank),
         "the ring does not have all ranks, or this one has another number");
  SetUp();
}

void Walk::CheckStreamsEnd() const {
  for (uint32_t stream = 1; stream < kHost; ++stream) {
    Expect(std::max(clocks_[0][stream], clocks_[kHost][stream]) == clocks_[stream][stream],
           "the program ends while communication goes on");
  }
  if (main_ == nullptr) return;
  const bool is_outside = set_up_.empty() && main_->calls_compute_ && calls_compute_;
  for (const uint64_t ring : main_->rings) {
    Expect(set_up_.count(ring) > 0 || is_outside, "ring ", std::to_string(ring), " is not set up");
  }
}

}  // namespace checker
