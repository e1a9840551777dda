#include "transpiler/verifier/servers/key_values.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "ops/analysis/core/block_args.h"
#include "ops/analysis/core/storage.h"
#include "ops/schema/server_ops.h"

namespace weft {
namespace {

// A variable of a worker, and how often its memory was written before: equal for equal values.
using Version = std::pair<uint64_t, int64_t>;
using VersionsByKey = absl::flat_hash_map<int64_t, std::vector<Version>>;

// What workers push besides gradients, in the order of kScalarSlots.
VersionsByKey FindPushedScalars(const Program& worker) {
  VersionsByKey pushed;
  const Storage storage(worker);
  BlockArgs args(worker);
  absl::flat_hash_map<uint64_t, int64_t> num_writes;  // by class of storage
  std::vector<Symbol> reads, writes;
  for (OpId id : worker.block(0).ops()) {
    const Op op = worker.op(id);
    if (FindServerOp(op.type()) == ServerOp::kPush) {
      std::vector<Version>& of_key = pushed[ServerKeyOf(op).value_or(-1)];
      for (absl::string_view slot : kScalarSlots) {
        for (Symbol scalar : op.Input(slot)) {
          of_key.emplace_back(storage.KeyOf(0, scalar), num_writes[storage.ClassOf(0, scalar)]);
        }
      }
    }
    reads.clear();
    writes.clear();
    args.Append(op, &reads, &writes);
    for (Symbol written : writes) ++num_writes[storage.ClassOf(0, written)];
  }
  return pushed;
}

// Walks over the servers' program, in whose order a server runs the ops of a key, and those of
// other keys that come in between.
class KeyValues {
 public:
  KeyValues(const Program& worker, const Program& server, const ServerKeys& keys, bool is_async,
            Findings* findings)
      : server_(server),
        storage_(server),
        empty_(server.FindSymbol(kEmptyVarName)),
        report_({0, false}, findings) {
    if (!is_async) pushed_ = FindPushedScalars(worker);
    for (const auto& [key, of] : keys.keys) {
      for (OpId id : of.ops) key_of_[id] = key;
    }
  }

  void Check() {
    for (OpId id : server_.block(0).ops()) {
      const Op op = server_.op(id);
      const int64_t key = key_of_.at(id);
      const absl::Span<const Symbol> args = op.args();
      for (size_t i = 0; i < args.size(); ++i) {
        const bool is_output = i >= op.signature().num_input_args;
        if (args[i] == empty_) continue;
        if (IsKept(args[i])) {
          UseKept(op, key, args[i], is_output);
        } else if (!is_output) {
          Read(op, key, args[i]);
        }
      }
      if (FindServerOp(op.type()) == ServerOp::kReceive) {
        Receive(op, key);
      } else {
        for (Symbol name : op.output_args()) Write(op, key, name, absl::nullopt);
      }
    }
  }

 private:
  // A variable, or several that share memory, whose value the next step has.
  struct Kept {
    OpId first, second;  // the first op, and the first one of another key
    bool is_written = false, is_reported = false;
  };
  struct Passed {
    absl::flat_hash_map<int64_t, int64_t> own;  // by key: the position of its last write
    OpId last;                                  // the last write
    Symbol name;
    absl::optional<Version> version;
    int64_t equal_since = 0;  // the position of the first of the last writes that are equal
  };

  bool IsKept(Symbol name) const {
    const VarId var = server_.block(0).Resolve(name);
    return var.valid() && server_.var(var).persistable();
  }

  void UseKept(const Op& op, int64_t key, Symbol name, bool is_output) {
    Kept& kept = kept_[storage_.ClassOf(0, name)];
    if (!kept.first.valid()) kept.first = op.id();
    if (!kept.second.valid() && key_of_.at(kept.first) != key) kept.second = op.id();
    kept.is_written |= is_output;
    if (!kept.is_written || !kept.second.valid() || kept.is_reported) return;
    kept.is_reported = true;
    const OpId other = key_of_.at(kept.first) != key ? kept.first : kept.second;
    Report(op, name,
           absl::StrCat(": expected ", server_.name(name), " in ops of one key, as another server ",
                        "may have another key, found it in ", OpText(other), ", too"));
  }

  void Read(const Op& op, int64_t key, Symbol name) {
    const Passed& passed = passed_[storage_.ClassOf(0, name)];
    const auto own = passed.own.find(key);
    if (own != passed.own.end() && own->second >= passed.equal_since) return;
    Report(op, name,
           absl::StrCat(": expected in ", server_.name(name), " what key ", key,
                        " has received or computed, found ",
                        passed.last.valid() ? "what " + OpText(passed.last) + " writes" : "none"));
  }

  void Receive(const Op& op, int64_t key) {
    for (Symbol grad : op.Output("Grad")) Write(op, key, grad, absl::nullopt);
    const std::vector<Version>& versions = pushed_[key];
    size_t next = 0;
    for (absl::string_view slot : kScalarSlots) {
      for (Symbol scalar : op.Output(slot)) {
        const bool is_known = next < versions.size();
        Write(op, key, scalar, is_known ? absl::make_optional(versions[next]) : absl::nullopt);
        ++next;
      }
    }
  }

  void Write(const Op& op, int64_t key, Symbol name, const absl::optional<Version>& version) {
    if (name == empty_ || IsKept(name)) return;
    Passed& passed = passed_[storage_.ClassOf(0, name)];
    const bool is_equal = version.has_value() && version == passed.version && name == passed.name;
    if (!is_equal) passed.equal_since = op.position();
    passed.own[key] = op.position();
    passed.last = op.id();
    passed.name = name;
    passed.version = version;
  }

  std::string OpText(OpId id) const {
    return absl::StrCat(server_.op(id).DebugName(), " of key ", key_of_.at(id));
  }

  void Report(const Op& op, Symbol name, const std::string& message) {
    report_.Add("W520", OpId(), server_.name(name),
                absl::StrCat("server program: ", op.DebugName(), message));
  }

  const Program& server_;
  const Storage storage_;
  const Symbol empty_;
  Reporter report_;
  VersionsByKey pushed_;
  absl::flat_hash_map<OpId, int64_t> key_of_;
  absl::flat_hash_map<uint64_t, Kept> kept_;      // by class of storage
  absl::flat_hash_map<uint64_t, Passed> passed_;  // the same
};

}  // namespace

void CheckKeyValues(const Program& worker, const Program& server, const ServerKeys& keys,
                    bool is_async, Findings* findings) {
  KeyValues(worker, server, keys, is_async, findings).Check();
}

}  // namespace weft
