#include "checker/walk.h"

#include <algorithm>
#include <functional>

namespace checker {
namespace {

std::set<std::string_view> Words(std::string_view list) {
  std::set<std::string_view> words;
  for (size_t end = 0; (end = list.find(' ')) != list.npos; list.remove_prefix(end + 1)) {
    words.insert(list.substr(0, end));
  }
  return words;
}

// Ops that exchange values with other ranks, besides those that name a ring or begin with c_, mp_
// or ps_; that give two names to one memory; or that work on other streams.
const auto kNotPlain = Words(
    "all_gather all_reduce all_to_all allreduce alltoall as_strided barrier broadcast "
    "coalesce_tensor comm_init_all dist_concat fetch_barrier global_gather "
    "global_scatter inplace_abn inplace_abn_grad listen_and_serv memcpy_d2h memcpy_h2d "
    "p_recv p_send partial_allgather partial_allreduce partial_recv partial_send recv "
    "recv_v2 reduce reduce_scatter rnn_memory_helper send send_and_recv send_barrier send_v2 "
    "share_buffer share_data stream_wait sync_batch_norm sync_batch_norm_grad tensor_unfold "
    "view_dtype view_shape view_slice ");
// Ops that draw random numbers or take values from outside. Attributes with a default may be
// absent, so that no seed may be there by which to tell.
const auto kDraw = Words(
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
    "uniform_random_inplace weighted_sample_neighbors ");
const auto kConstant = Words("fill_constant assign_value fill full arange ");
// Linear in all inputs together. So are gradient ops, in the inputs that are gradients.
const auto kLinear = Words("sum scale cast assign concat elementwise_add elementwise_sub ");

bool EndsWith(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

bool NamesSeed(std::string_view name) {
  return name.find("seed") != name.npos || name.find("Seed") != name.npos;
}

// The fields that are in `skipped` may differ.
bool IsSameBut(const std::set<uint64_t>& skipped, std::string_view a, std::string_view b) {
  Fields x(a), y(b);
  const auto next = [&](Fields* fields) {
    while (fields->Next()) {
      if (skipped.count(fields->number) == 0) return true;
    }
    return false;
  };
  while (next(&x)) {
    if (!next(&y) || x.whole != y.whole) return false;
  }
  return !next(&y);
}

std::vector<std::string_view> BlocksOf(std::string_view file) {
  std::vector<std::string_view> blocks;
  for (Fields fields(file); fields.Next(1);) {
    blocks.push_back(fields.Bytes());
    Expect(NumberOf(blocks.back(), 1) == blocks.size() - 1 && blocks.size() <= 1 << 16,
           "there are too many blocks, or they are not in order");
  }
  Expect(!blocks.empty(), "the file has no block: it is no program");
  return blocks;
}

}  // namespace

Walk::Walk(std::string_view original, std::string_view result, const Setting& setting, Walk* main)
    : setting_(setting),
      main_(main),
      blocks_(BlocksOf(original)),
      version_(NumberOf(TextOf(original, 4), 1)),
      originals_(blocks_[0]),
      results_(BlocksOf(result)[0]),
      work_left_(1000 + 16 * result.size()),
      memory_left_((1 << 22) + 2 * (original.size() + result.size())) {
  const std::vector<std::string_view> blocks = BlocksOf(result);
  Expect(blocks_.size() == blocks.size() && IsSameBut({1, 1001}, original, result) &&
             IsSameBut({3, 4}, blocks_[0], blocks[0]) &&
             std::equal(blocks.begin() + 1, blocks.end(), blocks_.begin() + 1),
         "the result has another version or other blocks");
  CheckSetting(TextOf(result, 1001));
  Declare(blocks[0]);
}

// The setting tells `weft run` and `weft verify` what the program is for, as JSON.
void Walk::CheckSetting(std::string_view json) const {
  std::string setting;
  for (const char c : json) {
    if (static_cast<unsigned char>(c) > ' ') setting += c;
  }
  for (const char* part : {"\\", "ordered_by_data\"", "averaging\"", "groups\"", "common\"",
                           "distributed_params\"", "shares\"", "assumptions\""}) {
    Expect(setting.find(part) == setting.npos, "setting of the result: found ", part);
  }
  const std::string ranks = std::to_string(setting_.nranks);
  const char* const by = setting_.sums ? "\"sum\"" : "\"mean\"";
  for (const auto& [key, value] : {std::make_pair("\"nranks\":", ranks), {"\"reduction\":", by}}) {
    for (size_t at = 0; (at = setting.find(key, at)) != setting.npos; ++at) {
      const std::string found = setting.substr(at, 64);
      Expect(found.find(Text(key, value, ",")) == 0 || found.find(Text(key, value, "}")) == 0,
             "setting of the result: ", key, ": expected ", value);
    }
  }
}

void Walk::Declare(std::string_view result) {
  locals_.resize(blocks_.size());
  for (size_t i = 1; i < blocks_.size(); ++i) {
    for (Fields fields(blocks_[i]); fields.Next(3);) {
      Spend(0, 64);
      const Decl decl(fields.Bytes());
      Expect(!decl.persistable, "block ", std::to_string(i), " has a state");
      locals_[i].insert(decl.name);
    }
  }
  size_t num_missing = 0, room = 2;
  for (Fields fields(blocks_[0]); fields.Next(3);) room += 2;
  for (Fields fields(result); fields.Next(3);) room += 2;
  size_t size = 1;
  while (size < room) size *= 2;
  Spend(0, size * sizeof(names_[0]));
  names_.resize(size);
  bool is_new = false;
  for (Fields fields(blocks_[0]); fields.Next(3); ++num_missing) {
    Var* const var = Declared(Decl(fields.Bytes()), &is_new);
    Expect(is_new, var->name, " is declared twice");
    var->of = var;
    var->equal = main_ == nullptr && var->IsState();  // startup programs set them
  }
  for (Fields fields(result); fields.Next(3);) {
    Var* const var = Declared(Decl(fields.Bytes()), &is_new);
    Expect(!var->in_result, var->name, " is declared twice");
    var->in_result = true;
    if (is_new) var->kind = kLost;
    if (!is_new) --num_missing;
    Expect(
        !is_new || (main_ != nullptr && var->type == 17) || (var->type == 7 && !var->persistable),
        "the new variable ", var->name, " is a state, or no tensor");
    Expect(var->bytes == fields.Bytes(), var->name, " is not declared as in the original");
  }
  Expect(num_missing == 0, "a variable of the original is not declared");
}

Var* Walk::Declared(const Decl& decl, bool* is_new) {
  Spend(0, 320);
  auto& entry = EntryOf(decl.name);
  *is_new = entry.second == nullptr;
  if (!*is_new) return entry.second;
  entry = {std::hash<std::string_view>()(decl.name), &vars_.emplace_back()};
  static_cast<Decl&>(*entry.second) = decl;
  return entry.second;
}

std::pair<uint64_t, Var*>& Walk::EntryOf(std::string_view name) {
  const uint64_t hash = std::hash<std::string_view>()(name);
  for (uint64_t i = hash;; ++i) {
    auto& entry = names_[i & (names_.size() - 1)];
    if (entry.second == nullptr || (entry.first == hash && entry.second->name == name))
      return entry;
    Spend(1, 0);
  }
}

Var* Walk::VarOf(std::string_view name) {
  Var* const var = Find(name);
  Expect(var != nullptr, name, " is not declared");
  return var;
}

void Walk::MarkOwn(std::string_view state) {
  Var* const var = VarOf(state);
  Expect(var->IsState(), "proof.txt: ", state, " is no state");
  var->is_own = true;
  var->equal = false;
}

std::string Walk::OwnStates() const {
  std::set<std::string_view> names;
  for (const Var& var : vars_) {
    if (var.is_own) names.insert(var.name);
  }
  std::string text;
  for (const std::string_view name : names) text += Text(text.empty() ? "" : " ", name);
  return text.empty() ? "none" : text;
}

bool Walk::Run(std::istream* proof) {
  uint64_t index = 0;
  bool is_main_end = false;
  for (std::string word; !is_main_end && *proof >> word;) {
    is_main_end = main_ == nullptr && word == "startup";
    const char step = word[0];
    const bool is_step = (step == '=' || step == '+') && word.size() > 1 && word.size() < 20 &&
                         word.find_first_not_of("0123456789", 1) == std::string::npos;
    Expect(is_step || is_main_end, "proof.txt: expected a step, found ", word);
    for (uint64_t i = is_step ? std::stoull(word.substr(1)) : 0; i > 0; --i, ++index) {
      Expect(results_.Next(4), "proof.txt: the result has no further op");
      Expect(step == '+' || originals_.Next(4), "proof.txt: the original has no further op");
      try {
        const Op op(results_.Bytes());
        Expect(step == '+' || op.IsSame(originals_.Bytes()),
               "the op of the original is another one");
        op_ = &op;
        step == '+' ? Insert() : Keep(op);
      } catch (const Failure& failure) {
        throw Failure{Text(main_ == nullptr ? "" : "startup: ", "op ", std::to_string(index), " (",
                           TextOf(results_.Bytes(), 3), "): ", failure.why)};
      }
    }
  }
  Expect(!originals_.Next(4), "proof.txt: it leaves out the last ops of the original");
  Expect(!results_.Next(4), "proof.txt: it leaves out the last ops of the result");
  CheckEnd();
  return is_main_end;
}

// An op of the original neither communicates nor shares memory. Returns whether it draws.
bool Walk::CheckIsPlain(const Op& op) const {
  bool draws = kDraw.count(op.type) > 0, has_inputs = false,
       is_plain = kNotPlain.count(op.type) == 0;
  for (const std::string_view begin : {"c_", "mp_", "ps_"}) {
    is_plain = is_plain && op.type.substr(0, begin.size()) != begin;
  }
  std::string_view first;
  for (const Slot& slot : op.slots) {
    draws = draws || (!slot.is_output && NamesSeed(slot.name));
    slot.ForArgs([&](std::string_view arg) {
      has_inputs = has_inputs || !slot.is_output;
      // Before Paddle 2, what print gives has the memory of what it prints.
      if (first.empty()) first = arg;
      is_plain = is_plain && (op.type != "print" || version_ >= 2000000 || arg == first);
    });
  }
  for (const Attr& attr : op.attrs) {
    Expect(attr.type != 13 && attr.type != 14, "attribute ", attr.name, " names a variable");
    draws = draws || NamesSeed(attr.name);
    if (attr.name == "ring_id") {
      for (const uint64_t ring : attr.Numbers()) is_plain = is_plain && ring >> 63 == 1;
    } else if (attr.name == "execution_stream") {
      for (auto s : attr.Texts()) is_plain = is_plain && (s.empty() || s == "DefaultStream");
    }
    is_plain = is_plain && attr.name != "ring_ids";
  }
  Expect(is_plain, "no certificate for originals that communicate or share memory");
  return draws || (!has_inputs && kConstant.count(op.type) == 0);
}

// Adds what the blocks of an op may use of block 0. Returns whether they draw. `path`: the blocks
// in which the op is.
bool Walk::AddBlocks(const Op& op, std::vector<uint64_t>* path, std::vector<Var*>* reads,
                     std::vector<Var*>* writes) {
  bool draws = false;
  for (const Attr& attr : op.attrs) {
    if (attr.type != Attr::kBlock && attr.type != Attr::kBlocks) continue;
    for (const uint64_t block : attr.Numbers()) {
      Expect(block > path->back() && block < blocks_.size() && path->size() < 64,
             "there is no such block");
      path->push_back(block);
      for (Fields fields(blocks_[block]); fields.Next(4);) {
        const Op inner(fields.Bytes());
        draws = CheckIsPlain(inner) || draws;
        for (const Slot& slot : inner.slots) {
          slot.ForArgs([&](std::string_view arg) {
            Spend(1, 16);
            const bool is_local = std::any_of(path->begin(), path->end(), [&](uint64_t above) {
              return locals_[above].count(arg) > 0;
            });
            Var* const var = Find(arg);
            Expect(is_local || var != nullptr, arg, " is not declared");
            if (var != nullptr) (slot.is_output ? writes : reads)->push_back(var);
          });
        }
        draws = AddBlocks(inner, path, reads, writes) || draws;
      }
      path->pop_back();
    }
  }
  return draws;
}

void Walk::Keep(const Op& op) {
  std::vector<Var*> reads, writes;
  const bool draws = CheckIsPlain(op);
  std::vector<uint64_t> path = {0};
  bool is_equal = !AddBlocks(op, &path, &reads, &writes) && !draws, is_scaled = false;
  const bool has_blocks = !reads.empty() || !writes.empty();
  for (const Slot& slot : op.slots) {
    slot.ForArgs([&](auto name) { (slot.is_output ? writes : reads).push_back(VarOf(name)); });
  }
  const bool is_backward = main_ == nullptr && (Number("op_role", 0) & 15) == 1;
  if (const Attr* const pairs = is_backward ? op.Find("op_role_var") : nullptr) {
    const std::vector<std::string_view> names = pairs->Texts();
    for (size_t i = 0; i < names.size(); ++i) {
      Var* const var = VarOf(names[i]);
      (i % 2 == 0 ? var->is_parameter : var->is_gradient) = true;
    }
  }
  Launch(0);
  for (Var* var : reads) {
    Expect(var->of == var && (var->kind == kSame || var->kind == kScaled), "it reads ", var->name,
           ", which does not have the value that it has in the original");
    Expect(!var->is_frozen, "it reads ", var->name, " after its broadcast");
    is_scaled = is_scaled || var->kind == kScaled;
    is_equal = is_equal && var->equal && HasValue(*var);
    var->read_first = var->read_first || !var->has_value;
    var->read_since_write = true;
    Touch(0, var, false);
  }
  if (is_scaled) CheckScaled(op, has_blocks);
  for (Var* var : writes) {
    Expect(var->of == var && !var->is_frozen, "it writes ", var->name,
           ", which is new, or after its broadcast");
    Expect(!var->is_reduced || !is_backward, "it writes the gradient ", var->name, " again");
    // A block may leave what was there.
    Expect(!has_blocks || var->kind == kSame, "it may leave ", var->name,
           ", which does not have the value that it has in the original");
    // Nor may a value be left that comes from outside, and that each rank has to itself.
    const bool was_equal = HasValue(*var) ? var->equal : !var->is_data && !var->read_first;
    var->equal = is_equal && (!has_blocks || was_equal);
    var->read_first = var->read_first || (has_blocks && !var->has_value);
    // An op of another role that writes a gradient again uses what is there.
    var->read_since_write = has_blocks || (!is_backward && main_ == nullptr && var->has_value);
    var->kind = is_scaled ? kScaled : kSame;
    var->has_value = true;
    var->is_rounded = false;
    ++var->version;
    Touch(0, var, true);
  }
}

// A value / n goes in. All outputs are divided by n, too, if the op is linear in what is divided.
// A whole number divided by n, or rounded after the division, is another one.
void Walk::CheckScaled(const Op& op, bool has_blocks) {
  const bool is_gradient = EndsWith(op.type, "_grad") && !EndsWith(op.type, "_grad_grad") &&
                           !EndsWith(op.type, "_double_grad") && !EndsWith(op.type, "_triple_grad");
  const Attr* const bias = op.type == "scale" ? op.Find("bias") : nullptr;
  Expect(!has_blocks && (is_gradient || kLinear.count(op.type) > 0) &&
             (bias == nullptr || bias->IsZero()),
         "it reads a value / n, and is not known to be linear");
  for (const Slot& slot : op.slots) {
    const bool is_divided = is_gradient ? EndsWith(slot.name, "@GRAD")
                                        : slot.name != "ScaleTensor" && slot.name != "BiasTensor";
    slot.ForArgs([&](std::string_view name) {
      const Var& var = *VarOf(name);
      Expect(!slot.is_output || is_divided, "its output ", slot.name, " is no gradient");
      Expect(slot.is_output || (var.kind == kScaled) == is_divided, "it reads ", name,
             ", which is ", is_divided ? "not " : "", "divided by n");
      Expect(!is_divided || var.FloatSize() > 0, name,
             ", which is divided by n, is not declared as floats");
    });
  }
}

void Walk::CheckEnd() {
  CheckStreamsEnd();
  Failure differ;
  for (const Var& var : vars_) {
    const std::string_view name = var.name;
    if (var.of != &var) continue;
    Expect(!var.is_gradient || var.is_reduced, "the gradient ", name, " is not reduced");
    Expect(!var.is_parameter || (var.IsState() && !var.is_own), name, " is no state of all ranks");
    Expect(var.kind == kSame || (!var.persistable && !var.read_first), "the step leaves ", name,
           " with another value than the original does");
    num_others += var.kind != kSame ? 1 : 0;
    num_parameters += var.is_parameter ? 1 : 0;
    const Var* const state = main_ == nullptr ? &var : var.has_value ? main_->Find(name) : nullptr;
    if (state != nullptr && state->IsState() && !state->is_own && !var.equal) {
      differ.own.emplace_back(name);
    }
  }
  Expect(main_ != nullptr || num_gradients > 0, "no gradient is reduced");
  if (differ.own.empty()) return;
  differ.why =
      Text(*std::min_element(differ.own.begin(), differ.own.end()), " may differ between ranks");
  throw differ;
}

}  // namespace checker
