#include "checker/walk.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <unordered_map>

#include "checker/program.h"

namespace checker {
namespace {

using Words = std::vector<std::string_view>;

std::set<std::string_view> Split(std::string_view list) {
  std::set<std::string_view> words;
  while (!list.empty()) {
    const size_t end = std::min(list.find(' '), list.size());
    words.insert(list.substr(0, end));
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return words;
}

bool IsIn(std::string_view word, const std::set<std::string_view>& list) {
  return list.count(word) > 0;
}

bool EndsWith(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

// Ops that exchange values with other ranks, besides those that name a ring or begin with c_, mp_
// or ps_; that give two names to one memory; or that work on other streams.
const auto kNotPlain = Split(
    "all_gather all_reduce all_to_all allreduce alltoall as_strided barrier broadcast "
    "coalesce_tensor comm_init_all dist_concat fetch_barrier global_gather "
    "global_scatter inplace_abn inplace_abn_grad listen_and_serv memcpy_d2h memcpy_h2d "
    "p_recv p_send partial_allgather partial_allreduce partial_recv partial_send recv "
    "recv_v2 reduce reduce_scatter rnn_memory_helper send send_and_recv send_barrier send_v2 "
    "share_buffer share_data stream_wait sync_batch_norm sync_batch_norm_grad tensor_unfold "
    "view_dtype view_shape view_slice");
// Ops that draw random numbers or take values from outside. Attributes with a default may be
// absent, so that no seed may be there by which to tell.
const auto kDraw = Split(
    "bernoulli binomial class_center_sample cudnn_lstm dirichlet dpsgd dropout dropout_nd "
    "exponential feed flash_attn flash_attn_qkvpacked flash_attn_unpadded "
    "flash_attn_varlen_qkvpacked flashmask_attention fractional_max_pool2d "
    "fractional_max_pool3d fused_attention fused_bias_dropout_residual_layer_norm "
    "fused_dot_product_attention fused_dropout_add fused_feedforward gaussian "
    "gaussian_inplace gaussian_random gaussian_random_batch_size_like "
    "generate_proposal_labels graph_khop_sampler graph_sample_neighbors gumbel_softmax load "
    "load_combine memory_efficient_attention multinomial nce poisson py_func pyramid_hash "
    "randint random random_crop randperm read retinanet_target_assign rnn rpn_target_assign "
    "rrelu run_program sample_logits sampling_id seed shuffle_batch standard_gamma "
    "tdm_sampler top_p_sampling truncated_gaussian_random truncated_gaussian_random_inplace "
    "uniform uniform_inplace uniform_random uniform_random_batch_size_like "
    "uniform_random_inplace weighted_sample_neighbors");
const auto kConstant = Split("fill_constant assign_value fill full arange");
// Linear in all inputs together. So are gradient ops, in the inputs that are gradients.
const auto kLinear = Split("sum scale cast assign concat elementwise_add elementwise_sub");
// Of new ops: attributes that say where in a script an op was made, and others without effect.
const auto kNoEffect = Split("op_role op_role_var op_callstack op_namescope");
const auto kOffOrEmpty = Split("op_device with_quant_attr use_mkldnn use_model_parallel");

using Clock = std::vector<uint32_t>;  // of each stream, the last op that has ended for sure
void Join(const Clock& from, Clock* to) {
  for (size_t i = 0; i < from.size(); ++i) (*to)[i] = std::max((*to)[i], from[i]);
}

class Walk {
 public:
  Walk(std::string_view original, std::string_view result, const Setting& setting,
       const Facts* main)
      : original_(ParseProgram(original)),
        result_(ParseProgram(result)),
        setting_(setting),
        main_(main),
        originals_(original_.blocks[0], Parts::kOps),
        results_(result_.blocks[0], Parts::kOps),
        work_left_(1000 + 16 * result.size()) {}

  Facts Run(const Steps& steps) {
    CompareRest();
    ReadDecls();
    ReadBlocks();
    uint64_t index = 0;
    for (const auto& [step, count] : steps) {
      for (uint64_t i = 0; i < count; ++i, ++index) {
        std::string_view is, was;
        Expect(results_.Next(&is), "proof.txt: the result has no further op");
        Expect(step != '=' || originals_.Next(&was), "proof.txt: the original has no further op");
        try {
          op_.Parse(is);
          Expect(step != '=' || IsSameOp(is, was), "the op of the original is another one");
          if (step == '=') {
            Keep();
          } else {
            Insert();
          }
        } catch (const Failure& failure) {
          throw Failure{Text(main_ == nullptr ? "" : "startup: ", "op ", std::to_string(index),
                             " (", op_.type, "): ", failure.why)};
        }
      }
    }
    CheckEnd();
    return std::move(facts_);
  }

 private:
  static constexpr uint32_t kNone = ~uint32_t{0};
  static constexpr uint32_t kCompute = 0;  // a stream; the others belong to rings
  // What a variable of the result holds of the variable `of` of the original.
  enum Kind : uint8_t {
    kSame,    // its value
    kScaled,  // its value / n
    kSum,     // the sum of its values over the ranks, where the mean is wanted
    kLost,    // anything
    kGathered,
    kGatheredScaled,  // the values of all ranks; the same / n
    kPart,
    kPartScaled,  // the value of rank `part`
  };
  struct Var {
    std::string_view name;
    uint32_t decl = kNone, of = kNone, of_version = 0, version = 0, part = 0;
    uint32_t buffer = kNone;         // whose part or memory it is
    uint32_t read = 0, written = 0;  // the last accesses of the compute stream
    uint32_t others = kNone;         // the first of the accesses of other streams
    Kind kind = kSame;
    bool in_original = false, in_root = false, is_declared = false;
    bool equal = false;       // on all ranks
    bool has_value = false;   // from this step
    bool read_first = false;  // before this step wrote it
    bool read_since_write = false;
    bool is_gradient = false, is_reduced = false, is_parameter = false;
    bool is_broadcast = false, is_rounded = false, is_buffer = false;
  };
  struct Access {
    uint32_t stream, read, written, next;
  };
  struct Buffer {
    std::vector<uint32_t> parts;
    std::vector<int64_t> offsets;  // in elements; empty: the device decides
  };
  struct BlockUse {
    std::vector<uint32_t> reads, writes;  // before it writes them; ever
    bool draws = false;
  };

  // --- Before the ops ----------------------------------------------------------------------------

  void CompareRest() {
    const auto &was = original_.blocks, &is = result_.blocks;
    Expect(original_.other_fields == result_.other_fields && was.size() == is.size() &&
               was[0].other_fields == is[0].other_fields,
           "the result has another version or other blocks");
    for (size_t i = 1; i < was.size(); ++i) {
      Expect(was[i].bytes == is[i].bytes, "block ", std::to_string(i), " is another one");
    }
    // The setting tells `weft run` and `weft verify` what the program is for, as JSON.
    const std::string_view setting = result_.setting;
    bool is_inside = false;
    for (const char c : setting) {
      if (c == '"') is_inside = !is_inside;
      Expect(is_inside || static_cast<unsigned char>(c) > ' ',
             "setting of the result: found a blank between its parts");
    }
    for (const char* part : {"\\", "ordered_by_data\"", "averaging\"", "groups\"", "common\"",
                             "distributed_params\"", "shares\"", "assumptions\""}) {
      Expect(setting.find(part) == setting.npos, "setting of the result: found ", part);
    }
    const auto expect = [&](std::string_view key, const std::string& value) {
      for (size_t at = setting.find(key); at != setting.npos; at = setting.find(key, at + 1)) {
        const std::string_view found = setting.substr(at).substr(0, key.size() + value.size() + 1);
        const bool is_it = (found.back() == ',' || found.back() == '}') &&
                           found.substr(0, found.size() - 1) == Text(key, value);
        Expect(is_it, "setting of the result: ", key, ": expected ", value);
      }
    };
    expect("\"nranks\":", std::to_string(setting_.nranks));
    expect("\"reduction\":", setting_.sums ? "\"sum\"" : "\"mean\"");
  }

  uint32_t VarOf(std::string_view name) {
    const auto [entry, is_new] = names_.try_emplace(name, static_cast<uint32_t>(vars_.size()));
    if (is_new) vars_.emplace_back().name = name;
    return entry->second;
  }

  const Decl& DeclOf(const Var& var) const {
    Expect(var.decl != kNone, var.name, " is not declared");
    return decls_[var.decl];
  }

  void Declare(Decl decl, Var* var) {
    var->decl = static_cast<uint32_t>(decls_.size());
    decls_.push_back(std::move(decl));
  }

  void ReadDecls() {
    std::string_view bytes;
    size_t num_missing = 0;
    for (const Block& block : original_.blocks) {
      const bool is_root = &block == original_.blocks.data();
      for (Parts decls(block, Parts::kDecls); decls.Next(&bytes);) {
        Decl decl = ParseDecl(bytes);
        Var& var = vars_[VarOf(decl.name)];
        const bool is_first = var.decl == kNone;
        Expect(is_first || !is_root, decl.name, " is declared twice");
        if (is_root) ++num_missing;
        var.in_root = var.in_root || is_root;
        // What is a state in one block counts as one everywhere.
        if (!is_first) decls_[var.decl].persistable |= decl.persistable;
        if (!is_first) continue;
        var.in_original = true;
        Declare(std::move(decl), &var);
      }
    }
    for (Parts decls(result_.blocks[0], Parts::kDecls); decls.Next(&bytes);) {
      Decl decl = ParseDecl(bytes);
      Var& var = vars_[VarOf(decl.name)];
      Expect(!var.is_declared, decl.name, " is declared twice");
      var.is_declared = true;
      if (var.in_original) {
        const Decl& was = DeclOf(var);
        Expect(var.in_root, decl.name, " is declared in an inner block");
        Expect(was.bytes == bytes ||
                   (was.type == decl.type && was.dtype == decl.dtype && was.dims == decl.dims &&
                    was.persistable == decl.persistable && was.is_data == decl.is_data &&
                    was.is_parameter == decl.is_parameter),
               decl.name, " is not declared as in the original");
        --num_missing;
        continue;
      }
      const bool is_id = main_ != nullptr && decl.type == kRaw;
      Expect(is_id || (decl.type == kDense && !decl.persistable), "the new variable ", decl.name,
             " is a state, or no tensor");
      var.kind = kLost;
      Declare(std::move(decl), &var);
    }
    Expect(num_missing == 0, "a variable of the original is not declared");
    for (Var& var : vars_) {
      if (!var.in_original || !IsState(DeclOf(var))) continue;
      facts_.states.insert(var.name);
      var.equal = main_ == nullptr && setting_.own.count(var.name) == 0;
    }
  }

  // Calls `visit` with each variable that some slots of the op have.
  template <typename Visit>
  void ForArgs(const std::vector<Slot>& slots, const Visit& visit) {
    for (const Slot& slot : slots) {
      for (size_t a = slot.begin; a < slot.end; ++a) {
        if (op_.args[a].empty() || op_.args[a] == "@EMPTY@") continue;
        const uint32_t id = VarOf(op_.args[a]);
        Expect(vars_[id].decl != kNone, op_.args[a], " is not declared");
        visit(id);
      }
    }
  }

  // Before Paddle 2, what print gives has the memory of what it prints.
  bool SharesAsPrint() const {
    return op_.type == "print" && original_.version < 2000000 &&
           std::adjacent_find(op_.args.begin(), op_.args.end(), std::not_equal_to<>()) !=
               op_.args.end();
  }

  // An op of the original neither communicates nor shares memory. Returns whether it draws.
  bool CheckIsPlain() const {
    const auto names_seed = [](const auto& part) {
      const std::string_view name = part.name;
      for (size_t i = 0; i + 4 <= name.size(); ++i) {
        const auto is = [&](size_t at, char c) { return (name[i + at] | 32) == c; };
        if (is(0, 's') && is(1, 'e') && is(2, 'e') && is(3, 'd')) return true;
      }
      return false;
    };
    Attr attr;
    Expect((!op_.Find("ring_id", &attr) || static_cast<int64_t>(attr.number) < 0) &&
               !op_.Find("ring_ids", &attr) && op_.type.substr(0, 2) != "c_" &&
               op_.type.substr(0, 3) != "mp_" && op_.type.substr(0, 3) != "ps_" &&
               !IsIn(op_.type, kNotPlain) && !SharesAsPrint(),
           "no certificate for originals that communicate or share memory");
    Expect(
        !op_.Find("execution_stream", &attr) || attr.text.empty() || attr.text == "DefaultStream",
        "no certificate for originals on several streams");
    const bool has_inputs = std::any_of(op_.inputs.begin(), op_.inputs.end(),
                                        [](const Slot& slot) { return slot.begin < slot.end; });
    return (!has_inputs && !IsIn(op_.type, kConstant)) || IsIn(op_.type, kDraw) ||
           std::any_of(op_.attrs.begin(), op_.attrs.end(), names_seed) ||
           std::any_of(op_.inputs.begin(), op_.inputs.end(), names_seed);
  }

  // Adds what the blocks of an op in block `above` use.
  void AddBlocks(size_t above, BlockUse* use) {
    for (const Op::AttrRef& ref : op_.attrs) {
      if (ref.type != kBlockAttr && ref.type != kBlocksAttr) continue;
      const Attr attr = ParseAttr(ref.bytes);
      const std::vector<uint64_t> one = {attr.number};
      for (const uint64_t block : ref.type == kBlockAttr ? one : attr.numbers) {
        Expect(block > above && block < blocks_.size(), "there is no such block");
        const BlockUse& inner = blocks_[block];
        Spend(inner.reads.size() + inner.writes.size());
        use->reads.insert(use->reads.end(), inner.reads.begin(), inner.reads.end());
        use->writes.insert(use->writes.end(), inner.writes.begin(), inner.writes.end());
        use->draws = use->draws || inner.draws;
      }
    }
  }

  void ReadBlocks() {
    blocks_.resize(original_.blocks.size());
    for (size_t i = blocks_.size(); i-- > 1;) {
      std::set<uint32_t> reads, writes, always;
      std::string_view bytes;
      for (Parts ops(original_.blocks[i], Parts::kOps); ops.Next(&bytes);) {
        op_.Parse(bytes);
        BlockUse inner;
        inner.draws = CheckIsPlain();
        AddBlocks(i, &inner);
        ForArgs(op_.inputs, [&](uint32_t id) { inner.reads.push_back(id); });
        for (const uint32_t id : inner.reads) {
          if (always.count(id) == 0) reads.insert(id);
        }
        writes.insert(inner.writes.begin(), inner.writes.end());
        ForArgs(op_.outputs, [&](uint32_t id) { always.insert(id); });
        blocks_[i].draws = blocks_[i].draws || inner.draws;
      }
      writes.insert(always.begin(), always.end());
      blocks_[i].reads.assign(reads.begin(), reads.end());
      blocks_[i].writes.assign(writes.begin(), writes.end());
    }
  }

  void Spend(uint64_t work) {
    Expect(work <= work_left_, "following the programs takes too much time");
    work_left_ -= work;
  }

  // --- Streams -----------------------------------------------------------------------------------

  uint32_t StreamOf(uint64_t ring) {
    const auto [entry, is_new] = streams_.emplace(ring, static_cast<uint32_t>(clocks_.size()));
    if (!is_new) return entry->second;
    Expect(clocks_.size() <= 16, "more than 16 rings");
    for (Clock& clock : clocks_) clock.push_back(0);
    host_.push_back(0);
    clocks_.emplace_back(host_.size());
    return entry->second;
  }

  uint32_t Launch(uint32_t stream) {
    Join(host_, &clocks_[stream]);
    ++clocks_[stream][stream];
    return stream;
  }

  // The ring of an op that is on the stream that computes, or on the stream of the ring.
  uint64_t UseRing(bool computes) {
    const auto ring = static_cast<uint64_t>(Int("ring_id", 0));
    Expect(ring <= 0x7fffffff, "attribute ring_id: expected a ring");
    Expect(main_ == nullptr || set_up_.count(ring) > 0 || (computes && set_up_.empty()),
           "its ring is not set up");
    facts_.rings.insert(ring);
    facts_.calls_compute = facts_.calls_compute && computes;
    return ring;
  }

  // Launches a call on the stream of its ring, or on that which computes.
  uint32_t LaunchCall(const char* kind, const Decl& decl) {
    const bool computes = Bool("use_calc_stream", false);
    const uint64_t ring = UseRing(computes);
    facts_.schedule += Text(std::to_string(ring), " ", kind, " ", std::to_string(decl.dtype), " ",
                            std::to_string(decl.elements), "\n");
    ++facts_.num_calls;
    return Launch(computes ? kCompute : StreamOf(ring));
  }

  // Fails unless the access comes after all that conflict with it, whatever the streams do.
  void Touch(uint32_t stream, uint32_t id, bool writes) {
    Spend(1);
    Var& var = vars_[id];
    const Clock& clock = clocks_[stream];
    uint32_t own = kNone;
    const auto check = [&](uint32_t other, uint32_t read, uint32_t written) {
      Expect(other == stream || (written <= clock[other] && (!writes || read <= clock[other])),
             "nothing orders its access to ", var.name, " after an earlier one");
    };
    check(kCompute, var.read, var.written);
    for (uint32_t i = var.others; i != kNone; i = accesses_[i].next) {
      check(accesses_[i].stream, accesses_[i].read, accesses_[i].written);
      if (accesses_[i].stream == stream) own = i;
    }
    if (stream != kCompute && own == kNone) {
      own = static_cast<uint32_t>(accesses_.size());
      accesses_.push_back({stream, 0, 0, var.others});
      var.others = own;
    }
    uint32_t& last = stream == kCompute ? (writes ? var.written : var.read)
                                        : (writes ? accesses_[own].written : accesses_[own].read);
    last = clock[stream];
  }

  void Wait() {
    ReadAttrs({"ring_id"});
    Expect(Args(op_.inputs, "X") == Args(op_.outputs, "Out") &&
               op_.args.size() == 2 * Args(op_.inputs, "X").size(),
           "expected X and the same Out");
    if (op_.type == "c_sync_calc_stream") return Join(clocks_[kCompute], &host_);
    const uint32_t ring = StreamOf(UseRing(false));
    if (op_.type == "c_sync_comm_stream") Join(clocks_[ring], &host_);
    if (op_.type == "c_wait_compute") Join(clocks_[kCompute], &clocks_[ring]);
    if (op_.type == "c_wait_comm") Join(clocks_[ring], &clocks_[kCompute]);
  }

  // --- Kept ops ----------------------------------------------------------------------------------

  void Keep() {
    bool is_equal = !CheckIsPlain(), is_scaled = false;
    BlockUse blocks;
    AddBlocks(0, &blocks);
    is_equal = is_equal && !blocks.draws;
    const bool has_blocks = !blocks.reads.empty() || !blocks.writes.empty();
    Attr role, pairs;
    const bool is_backward =
        main_ == nullptr && op_.Find("op_role", &role) && (role.number & 15) == 1;
    if (is_backward && op_.Find("op_role_var", &pairs)) {
      Expect(pairs.texts.size() % 2 == 0, "op_role_var is no list of pairs");
      for (size_t i = 0; i < pairs.texts.size(); i += 2) {
        vars_[VarOf(pairs.texts[i])].is_parameter = true;
        vars_[VarOf(pairs.texts[i + 1])].is_gradient = true;
      }
    }
    Launch(kCompute);
    const auto read = [&](uint32_t id) {
      Var& var = vars_[id];
      Expect(var.in_original, var.name, " is not declared in the original");
      Expect(var.kind == kSame || var.kind == kScaled, "it reads ", var.name,
             ", which does not have the value that it has in the original");
      Expect(!var.is_broadcast, "it reads ", var.name, " after its broadcast");
      is_scaled = is_scaled || var.kind == kScaled;
      is_equal = is_equal && var.equal && HasValue(var);
      var.read_first = var.read_first || !var.has_value;
      var.read_since_write = true;
      Touch(kCompute, id, false);
    };
    ForArgs(op_.inputs, read);
    for (const uint32_t id : blocks.reads) read(id);
    if (is_scaled) CheckScaled(has_blocks);
    const auto write = [&](uint32_t id) {
      Var& var = vars_[id];
      Expect(var.in_original, var.name, " is not declared in the original");
      Expect(!var.is_broadcast, "it writes ", var.name, " after its broadcast");
      Expect(!var.is_reduced || !is_backward, "it writes the gradient ", var.name, " again");
      // A block may leave what was there.
      Expect(!has_blocks || var.kind == kSame, "it may leave ", var.name,
             ", which does not have the value that it has in the original");
      // Nor may a value be left that comes from outside, and that each rank has to itself.
      const bool may_be_fed = DeclOf(var).is_data || var.read_first;
      const bool was_equal = HasValue(var) ? var.equal : !may_be_fed;
      var.equal = is_equal && (!has_blocks || was_equal);
      var.read_first = var.read_first || (has_blocks && !var.has_value);
      var.read_since_write = has_blocks;
      var.kind = is_scaled ? kScaled : kSame;
      var.has_value = true;
      var.is_rounded = false;
      ++var.version;
      Touch(kCompute, id, true);
    };
    for (const uint32_t id : blocks.writes) write(id);
    ForArgs(op_.outputs, write);
  }

  bool HasValue(const Var& var) const {
    return var.has_value || (main_ == nullptr && DeclOf(var).persistable);
  }

  // A value / n goes in. All outputs are divided by n, too, if the op is linear in what is divided.
  void CheckScaled(bool has_blocks) {
    const bool is_gradient = EndsWith(op_.type, "_grad") && !EndsWith(op_.type, "_grad_grad");
    Attr bias;
    Expect(!has_blocks && (is_gradient || IsIn(op_.type, kLinear)) &&
               (op_.type != "scale" || !op_.Find("bias", &bias) ||
                (bias.type == kFloatAttr && bias.real == 0)),
           "it reads a value / n, and is not known to be linear");
    for (const Slot& slot : op_.inputs) {
      const bool is_divided = !is_gradient || EndsWith(slot.name, "@GRAD");
      ForArgs({slot}, [&](uint32_t id) {
        Expect((vars_[id].kind == kScaled) == is_divided, "it reads ", vars_[id].name,
               ", which is ", is_divided ? "not " : "", "divided by n");
        if (is_divided) ExpectFloats(id);
      });
    }
    for (const Slot& slot : op_.outputs) {
      Expect(!is_gradient || slot.begin == slot.end || EndsWith(slot.name, "@GRAD"), "its output ",
             slot.name, " is no gradient");
      ForArgs({slot}, [&](uint32_t id) { ExpectFloats(id); });
    }
  }

  // A whole number divided by n, or rounded after the division, is another one.
  void ExpectFloats(uint32_t id) const {
    Expect(SizeOf(DeclOf(vars_[id]).dtype) > 0, vars_[id].name,
           ", which is divided by n, is not declared as floats");
  }

  // --- New ops -----------------------------------------------------------------------------------

  void Insert() {
    const std::string_view type = op_.type;
    const bool is_main = main_ == nullptr;
    Attr role;
    const bool is_backward = !op_.Find("op_role", &role) || (role.number & 15) == 1;
    if (IsIn(type, {"c_wait_compute", "c_wait_comm", "c_sync_calc_stream", "c_sync_comm_stream"})) {
      Wait();
    } else if (type == "c_broadcast" || type == "broadcast") {
      Broadcast();
    } else if (is_main && IsIn(type, {"c_allreduce_sum", "c_allreduce_avg", "all_reduce"})) {
      AllReduce();
    } else if (is_main && type == "scale") {
      Scale();
    } else if (is_main && type == "cast") {
      Cast();
    } else if (is_main && type == "coalesce_tensor") {
      Coalesce();
    } else if (is_main && (type == "c_allgather" || type == "all_gather")) {
      Gather();
    } else if (is_main && type == "split") {
      SplitParts();
    } else if (is_main && type == "sum") {
      SumParts();
    } else if (!is_main && (type == "c_comm_init_all" || type == "comm_init_all")) {
      InitAll();
    } else if (!is_main && type == "c_gen_nccl_id") {
      MakeId();
    } else if (!is_main && type == "c_comm_init") {
      Init();
    } else {
      throw Failure{"no rule inserts such an op"};
    }
    if (is_main && !IsIn(type, {"c_broadcast", "broadcast", "c_wait_comm", "c_wait_compute",
                                "c_sync_calc_stream", "c_sync_comm_stream"})) {
      Expect(is_backward, "attribute op_role: expected backward");
    }
  }

  // Refuses attributes that a rule does not know.
  void ReadAttrs(const std::set<std::string_view>& known) {
    attrs_.clear();
    Expect(op_.attrs.size() <= 64, "it has more than 64 attributes");
    for (const Op::AttrRef& ref : op_.attrs) {
      const Attr attr = ParseAttr(ref.bytes);
      Expect(IsIn(attr.name, known) || IsIn(attr.name, kNoEffect) ||
                 (IsIn(attr.name, kOffOrEmpty) && attr.text.empty() && attr.number == 0),
             "no rule allows attribute ", attr.name);
      Expect(AttrOf(attr.name) == nullptr, "attribute ", attr.name, " is there twice");
      attrs_.push_back(attr);
    }
  }

  const Attr* AttrOf(std::string_view name) const {
    const auto has_name = [&](const Attr& attr) { return attr.name == name; };
    const auto found = std::find_if(attrs_.begin(), attrs_.end(), has_name);
    return found == attrs_.end() ? nullptr : &*found;
  }

  int64_t Int(std::string_view name, int64_t absent) const {
    const Attr* const attr = AttrOf(name);
    if (attr == nullptr) return absent;
    Expect(attr->type == kIntAttr || attr->type == kLongAttr, "attribute ", name, " is no integer");
    return static_cast<int64_t>(attr->number);
  }

  bool Bool(std::string_view name, bool absent) const {
    const Attr* const attr = AttrOf(name);
    Expect(attr == nullptr || attr->type == kBoolAttr, "attribute ", name, " is no boolean");
    return attr == nullptr ? absent : attr->number != 0;
  }

  void Require(std::string_view attr, int64_t value) const {
    Expect(Int(attr, value) == value, "attribute ", attr, ": expected ", std::to_string(value));
  }

  // Whether a list is absent, empty or this one.
  bool IsList(std::string_view name, const std::vector<uint64_t>& list) const {
    const Attr* const attr = AttrOf(name);
    return attr == nullptr || attr->numbers.empty() || attr->numbers == list;
  }

  // Of a slot; Paddle 3 writes the slots of communication in lower case.
  std::vector<uint32_t> Args(const std::vector<Slot>& slots, std::string_view name) {
    std::vector<uint32_t> args;
    bool is_found = false;
    for (const Slot& slot : slots) {
      const bool is_it = slot.name.size() == name.size() && slot.name.substr(1) == name.substr(1) &&
                         (slot.name[0] | 32) == (name[0] | 32);
      if (!is_it) continue;
      Expect(!is_found, "slot ", name, " is there twice");
      is_found = true;
      ForArgs({slot}, [&](uint32_t id) { args.push_back(id); });
    }
    return args;
  }

  // The only variables of an op: X and Out.
  std::pair<uint32_t, uint32_t> InOut() {
    const std::vector<uint32_t> in = Args(op_.inputs, "X"), out = Args(op_.outputs, "Out");
    Expect(op_.args.size() == 2 && in.size() == 1 && out.size() == 1,
           "expected X, Out, and no other variable");
    return {in[0], out[0]};
  }

  uint32_t InPlace() {
    const auto [in, out] = InOut();
    Expect(in == out, "expected Out to be X");
    return in;
  }

  // The value that a variable holds is one of the original, and still current there.
  Var& Current(uint32_t id) {
    Var& var = vars_[id];
    Expect(var.in_original || (var.of != kNone && var.of_version == vars_[var.of].version),
           var.name, " holds no current value");
    return var;
  }

  std::vector<uint32_t> PartsOf(uint32_t id) {
    if (!vars_[id].is_buffer) return {id};
    Spend(buffers_[vars_[id].buffer].parts.size());
    return buffers_[vars_[id].buffer].parts;
  }

  Var& NewVar(uint32_t id) {
    Expect(!vars_[id].in_original && vars_[id].buffer == kNone, "it writes ", vars_[id].name);
    return vars_[id];
  }

  void AllReduce() {
    ReadAttrs({"ring_id", "use_calc_stream", "accumulate_type", "reduce_type"});
    const int64_t reduction = Int("reduce_type", 0);
    const bool averages = op_.type == "c_allreduce_avg" || reduction == 4;
    Expect(AttrOf("reduce_type") == nullptr ||
               (op_.type == "all_reduce" && (averages || reduction == 0)),
           "attribute reduce_type: expected 0 or 4");
    const uint32_t id = InPlace();
    const uint32_t stream = LaunchCall(averages ? "mean" : "sum", DeclOf(vars_[id]));
    for (const uint32_t part : PartsOf(id)) {
      Reduce(part, averages);
      Touch(stream, part, true);
    }
    Touch(stream, id, true);
  }

  void Reduce(uint32_t id, bool averages) {
    Var& var = Current(id);
    const uint32_t of = var.in_original ? id : var.of;
    Var& gradient = vars_[of];
    const Decl& decl = DeclOf(gradient);
    const bool is_scaled = var.kind == kScaled;
    Expect(gradient.is_gradient, gradient.name, " is no gradient of a parameter");
    Expect(!gradient.is_reduced, gradient.name, " is reduced twice");
    Expect(!gradient.read_since_write, "an op uses ", gradient.name, " before its reduction");
    Expect(gradient.has_value && !decl.persistable && decl.type == kDense && decl.elements >= 0 &&
               SizeOf(decl.dtype) > 0,
           gradient.name, " is no tensor of a known size that this step computes");
    Expect(var.kind == kSame || is_scaled, var.name, " does not hold the value of a rank");
    Expect(!is_scaled || (!averages && !setting_.sums), var.name, " is divided by n already");
    Expect(!averages || !setting_.sums, "expected a sum, as the claim says");
    // From here on, the original of the claim has the gradient of all ranks.
    ++gradient.version;
    ++facts_.num_gradients;
    gradient.is_reduced = true;
    if (of != id) gradient.kind = kLost;
    var.of = of;
    var.of_version = gradient.version;
    var.kind = is_scaled || averages || setting_.sums ? kSame : kSum;
    var.equal = true;
  }

  // A division by the number of ranks.
  void Scale() {
    ReadAttrs({"scale", "bias", "bias_after_scale", "nranks"});
    const uint32_t id = InPlace();
    const Attr *const factor = AttrOf("scale"), *const bias = AttrOf("bias");
    Expect(setting_.nranks > 0 && factor != nullptr && factor->type == kFloatAttr &&
               factor->real == 1.0F / static_cast<float>(setting_.nranks),
           "attribute scale: expected 1 / ranks");
    Expect(bias == nullptr || (bias->type == kFloatAttr && bias->real == 0), "it has a bias");
    Require("nranks", static_cast<int64_t>(setting_.nranks));
    Launch(kCompute);
    for (const uint32_t part : PartsOf(id)) {
      Var& var = Current(part);
      Expect(!setting_.sums && (var.kind == kSame || var.kind == kSum) &&
                 SizeOf(DeclOf(var).dtype) > 0,
             var.name, " is not to be divided");
      var.kind = var.kind == kSum ? kSame : kScaled;
      Touch(kCompute, part, true);
    }
    Touch(kCompute, id, true);
  }

  // A copy of a gradient in another type, or back.
  void Cast() {
    ReadAttrs({"in_dtype", "out_dtype"});
    const auto [in, out] = InOut();
    const Var &x = vars_[in], &y = vars_[out];
    const int from = DeclOf(x).dtype, to = DeclOf(y).dtype;
    Expect(Int("in_dtype", -1) == from && Int("out_dtype", -1) == to && SizeOf(from) > 0 &&
               SizeOf(to) > 0,
           "the attributes are not the types of the variables");
    Expect(x.is_buffer == y.is_buffer &&
               (!x.is_buffer || (!buffers_[x.buffer].offsets.empty() &&
                                 buffers_[x.buffer].offsets == buffers_[y.buffer].offsets)),
           "the buffers have other parts");
    const std::vector<uint32_t> sources = PartsOf(in), targets = PartsOf(out);
    Launch(kCompute);
    for (size_t i = 0; i < sources.size(); ++i) {
      const Var& source = Current(sources[i]);
      Var& target = vars_[targets[i]];
      const uint32_t of = source.in_original ? sources[i] : source.of;
      Expect(source.kind <= kSum && DeclOf(source).dims == DeclOf(target).dims &&
                 (!target.in_original || (of == targets[i] && target.is_gradient)),
             target.name, " cannot hold ", source.name);
      target.of = of;
      target.of_version = vars_[of].version;
      target.kind = source.kind;
      target.equal = source.equal;
      target.is_rounded = source.is_rounded || SizeOf(to) < SizeOf(from) || SizeOf(to) == 2;
      if (target.in_original && target.is_rounded) ++facts_.num_rounded;
      Touch(kCompute, sources[i], false);
      Touch(kCompute, targets[i], true);
    }
    Touch(kCompute, in, false);
    Touch(kCompute, out, true);
  }

  // Tensors become parts of one buffer.
  void Coalesce() {
    ReadAttrs({"align_size", "concated_ranks", "concated_shapes", "constant", "copy_data", "dtype",
               "persist_output", "set_constant", "use_align", "user_defined_size_of_dtype"});
    Expect(!Bool("persist_output", false) && !Bool("set_constant", false),
           "it fills the buffer, or keeps what is in it");
    Buffer buffer;
    buffer.parts = Args(op_.inputs, "Input");
    const std::vector<uint32_t> fused = Args(op_.outputs, "FusedOutput");
    Expect(!buffer.parts.empty() && buffer.parts == Args(op_.outputs, "Output") &&
               fused.size() == 1 && op_.args.size() == 2 * buffer.parts.size() + 1,
           "expected Input, the same Output, and FusedOutput");
    const auto dtype = static_cast<int>(Int("dtype", -1));
    const int64_t size = SizeOf(dtype), given = Int("user_defined_size_of_dtype", -1);
    const int64_t bytes = Int("align_size", -1);
    const bool copies = Bool("copy_data", false), aligns = Bool("use_align", true);
    Expect(size > 0 && bytes <= 1 << 20 && (given == -1 || given == size),
           "expected a type of floats, and its size");
    const int64_t unit = aligns ? std::max<int64_t>(1, bytes / size) : 1;
    std::vector<uint64_t> shapes, ranks;
    int64_t end = 0;
    Launch(kCompute);
    for (const uint32_t part : buffer.parts) {
      Var& var = vars_[part];
      const Decl& decl = DeclOf(var);
      Expect(decl.type == kDense && decl.dtype == dtype && decl.elements >= 0 &&
                 decl.elements <= int64_t{1} << 40 && !decl.persistable && end < int64_t{1} << 60,
             var.name, " is no tensor of a known size and of this type");
      Expect(var.buffer == kNone, var.name, " is in a buffer already");
      var.buffer = static_cast<uint32_t>(buffers_.size());
      buffer.offsets.push_back(end);
      end += (decl.elements + unit - 1) / unit * unit;
      shapes.insert(shapes.end(), decl.dims.begin(), decl.dims.end());
      ranks.push_back(decl.dims.size());
      if (copies) var.read_first = var.read_first || !var.has_value;
      if (!copies) var.kind = kLost;
      Touch(kCompute, part, true);
    }
    Expect(IsList("concated_shapes", shapes) && IsList("concated_ranks", ranks),
           "its attributes have other shapes than the variables");
    Var& var = NewVar(fused[0]);
    const bool is_known = !aligns || bytes > 0;  // else the device decides
    Expect(DeclOf(var).dtype == dtype && (!is_known || DeclOf(var).elements == end),
           "FusedOutput is not declared with ", std::to_string(end), " elements of this type");
    if (!is_known) buffer.offsets.clear();
    var.buffer = static_cast<uint32_t>(buffers_.size());
    var.is_buffer = true;
    buffers_.push_back(std::move(buffer));
    Touch(kCompute, fused[0], true);
  }

  // Of rank 0. In the main program, of what is equal on all ranks: nothing changes.
  void Broadcast() {
    ReadAttrs({"ring_id", "root", "use_calc_stream"});
    Require("root", 0);
    const uint32_t id = InPlace();
    Var& var = vars_[id];
    Expect(var.in_original && var.kind == kSame && HasValue(var) && (main_ != nullptr || var.equal),
           var.name, " has no value, or not an equal one on all ranks");
    var.is_broadcast = main_ != nullptr;
    var.equal = true;
    Touch(LaunchCall("broadcast", DeclOf(var)), id, true);
  }

  void Gather() {
    ReadAttrs({"ring_id", "nranks", "use_calc_stream"});
    Expect(setting_.nranks > 0 && AttrOf("nranks") != nullptr, "expected a number of ranks");
    Require("nranks", static_cast<int64_t>(setting_.nranks));
    const auto [in, out] = InOut();
    const Var& x = vars_[in];
    Var& y = NewVar(out);
    std::vector<int64_t> dims = DeclOf(x).dims;
    if (dims.empty()) dims.push_back(1);
    dims[0] *= static_cast<int64_t>(setting_.nranks);
    Expect(x.in_original && x.kind <= kScaled && DeclOf(x).elements >= 0 &&
               DeclOf(y).elements >= 0 && DeclOf(y).dims == dims &&
               DeclOf(y).dtype == DeclOf(x).dtype,
           "Out is not declared for the values of all ranks");
    y.of = in;
    y.of_version = x.version;
    y.kind = x.kind == kSame ? kGathered : kGatheredScaled;
    const uint32_t stream = LaunchCall("gather", DeclOf(x));
    Touch(stream, in, false);
    Touch(stream, out, true);
  }

  void SplitParts() {
    ReadAttrs({"axis", "num", "sections"});
    const std::vector<uint32_t> in = Args(op_.inputs, "X"), out = Args(op_.outputs, "Out");
    Expect(in.size() == 1 && out.size() == setting_.nranks && op_.args.size() == out.size() + 1 &&
               Int("num", 0) == static_cast<int64_t>(out.size()) && IsList("sections", {}),
           "expected a part for each rank");
    Require("axis", 0);
    const Var x = Current(in[0]);
    Expect(x.kind == kGathered || x.kind == kGatheredScaled, x.name, " has not the values of all");
    Launch(kCompute);
    Touch(kCompute, in[0], false);
    for (size_t i = 0; i < out.size(); ++i) {
      Var& part = NewVar(out[i]);
      Expect(out[i] != in[0] && DeclOf(part).elements == DeclOf(vars_[x.of]).elements &&
                 DeclOf(part).dtype == DeclOf(x).dtype,
             part.name, " is not declared for the value of a rank");
      part.of = x.of;
      part.of_version = x.of_version;
      part.kind = x.kind == kGathered ? kPart : kPartScaled;
      part.part = static_cast<uint32_t>(i);
      Touch(kCompute, out[i], true);
    }
  }

  void SumParts() {
    ReadAttrs({});
    const std::vector<uint32_t> in = Args(op_.inputs, "X"), out = Args(op_.outputs, "Out");
    Expect(out.size() == 1 && in.size() == setting_.nranks && op_.args.size() == in.size() + 1,
           "expected a part for each rank");
    std::vector<bool> is_there(in.size());
    const Kind kind = vars_[in[0]].kind;
    Launch(kCompute);
    for (const uint32_t id : in) {
      const Var& part = Current(id);
      Expect((kind == kPart || kind == kPartScaled) && part.kind == kind && part.of == out[0] &&
                 !is_there[part.part],
             part.name, " is not the value of another rank");
      is_there[part.part] = true;
      Touch(kCompute, id, false);
    }
    vars_[out[0]].kind = kind == kPart ? kSame : kScaled;
    Reduce(out[0], false);
    Touch(kCompute, out[0], true);
  }

  // --- Rings -------------------------------------------------------------------------------------

  // Whoever sets a ring up waits until the ops before have ended.
  void SetUp() {
    const auto ring = static_cast<uint64_t>(Int("ring_id", 0));
    Expect(set_up_.insert(ring).second && facts_.rings.count(ring) == 0,
           "the ring is set up twice, or after its use");
    Join(clocks_[kCompute], &host_);
  }

  void InitAll() {
    ReadAttrs({"ring_id", "nranks", "devices"});
    const Attr* const devices = AttrOf("devices");
    Require("nranks", static_cast<int64_t>(setting_.nranks));
    Expect(op_.args.empty() && (devices == nullptr || devices->numbers.empty() ||
                                devices->numbers.size() == setting_.nranks),
           "the ring does not have all ranks");
    SetUp();
  }

  // An id is made by rank 0 and sent to the endpoints of the others.
  void MakeId() {
    ReadAttrs({"rank", "endpoint", "other_endpoints", "ring_id"});
    const std::vector<uint32_t> out = Args(op_.outputs, "Out");
    const Attr *const own = AttrOf("endpoint"), *const others = AttrOf("other_endpoints");
    const auto rank = static_cast<uint64_t>(Int("rank", 0));
    Expect(out.size() == 1 && op_.args.size() == 1 && own != nullptr && others != nullptr &&
               setting_.nranks > 0 && rank <= others->texts.size(),
           "expected Out, endpoints, a rank, and a known number of ranks");
    Words all = others->texts;
    all.insert(all.begin() + static_cast<std::ptrdiff_t>(rank), own->text);
    Expect(all.size() == setting_.nranks &&
               std::set<std::string_view>(all.begin(), all.end()).size() == all.size() &&
               (!facts_.has_rank || (all == facts_.endpoints && rank == facts_.rank)),
           "expected an endpoint for each rank, the same for all rings");
    facts_.endpoints = std::move(all);
    facts_.rank = rank;
    facts_.has_rank = true;
    Var& id = NewVar(out[0]);
    Expect(DeclOf(id).type == kRaw && !id.has_value, id.name, " is no new id");
    id.has_value = true;
    Join(clocks_[kCompute], &host_);
  }

  void Init() {
    ReadAttrs({"ring_id", "nranks", "rank", "device_id", "endpoints"});
    const std::vector<uint32_t> in = Args(op_.inputs, "X");
    Expect(in.size() == 1 && op_.args.size() == 1, "expected X");
    Var& id = vars_[in[0]];
    Expect(!id.in_original && id.has_value && !id.is_broadcast, id.name, " is the id of no ring");
    id.is_broadcast = true;  // used
    const Attr* const endpoints = AttrOf("endpoints");
    Expect(Int("nranks", 0) == static_cast<int64_t>(setting_.nranks) && facts_.has_rank &&
               Int("rank", -1) == static_cast<int64_t>(facts_.rank) &&
               (endpoints == nullptr || endpoints->text.empty()),
           "the ring does not have all ranks, or this one has another number");
    SetUp();
  }

  // --- After the ops -----------------------------------------------------------------------------

  void CheckEnd() {
    std::string_view rest;
    Expect(!originals_.Next(&rest), "proof.txt: it leaves out the last ops of the original");
    Expect(!results_.Next(&rest), "proof.txt: it leaves out the last ops of the result");
    for (uint32_t stream = 1; stream < clocks_.size(); ++stream) {
      Expect(std::max(clocks_[kCompute][stream], host_[stream]) == clocks_[stream][stream],
             "the program ends while communication goes on");
    }
    Failure differ;
    for (const Var& var : vars_) {
      if (!var.in_original) continue;
      const Decl& decl = DeclOf(var);
      const bool is_own = setting_.own.count(var.name) > 0;
      Expect(!var.is_gradient || var.is_reduced, "the gradient ", var.name, " is not reduced");
      Expect(!var.is_parameter || (IsState(decl) && !is_own), var.name,
             " is no state of all ranks");
      Expect(var.kind == kSame || (!decl.persistable && !var.read_first), "the step leaves ",
             var.name, " with another value than the original does");
      if (var.kind != kSame) ++facts_.num_others;
      if (var.is_parameter) ++facts_.num_parameters;
      const bool is_shared =
          main_ == nullptr ? IsState(decl) : var.has_value && main_->states.count(var.name) > 0;
      if (is_shared && !is_own && !var.equal) differ.own.emplace_back(var.name);
    }
    for (const std::string_view name : setting_.own) {
      Expect(main_ != nullptr || facts_.states.count(name) > 0, "proof.txt: ", name,
             " is no state");
    }
    if (!differ.own.empty()) {
      differ.why = Text(differ.own[0], " may differ between ranks");
      throw differ;
    }
    facts_.sets_up = !set_up_.empty();
    if (main_ == nullptr) return Expect(facts_.num_gradients > 0, "no gradient is reduced");
    for (const uint64_t ring : main_->rings) {
      const bool is_outside = !facts_.sets_up && main_->calls_compute && facts_.calls_compute;
      Expect(set_up_.count(ring) > 0 || is_outside, "ring ", std::to_string(ring),
             " is not set up");
    }
  }

  const Program original_, result_;
  const Setting& setting_;
  const Facts* const main_;  // null in the main programs
  Facts facts_;
  std::unordered_map<std::string_view, uint32_t> names_;
  std::vector<Var> vars_;
  std::vector<Decl> decls_;
  std::vector<Buffer> buffers_;
  std::vector<BlockUse> blocks_;
  std::unordered_map<uint64_t, uint32_t> streams_;
  std::vector<Clock> clocks_ = {{0}};
  Clock host_ = {0};
  std::vector<Access> accesses_;
  std::set<uint64_t> set_up_;
  Parts originals_, results_;
  Op op_;                    // that is followed
  std::vector<Attr> attrs_;  // of it, if it is new
  uint64_t work_left_;
};

}  // namespace

Facts Follow(std::string_view original, std::string_view result, const Setting& setting,
             const Steps& steps, const Facts* main) {
  return Walk(original, result, setting, main).Run(steps);
}

}  // namespace checker
