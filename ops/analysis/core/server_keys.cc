#include "ops/analysis/core/server_keys.h"

#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ops/analysis/core/communication.h"
#include "ops/analysis/core/op_traits.h"
#include "proto/all_ops.h"

namespace weft {

ServerKeys FindServerKeys(const Program& server) {
  ServerKeys found;
  for (OpId id : server.block(0).ops()) {
    const Op op = server.op(id);
    const absl::optional<int64_t> key = ServerKeyOf(op);
    if (!key.has_value()) continue;
    ServerKey& of = found.keys[*key];
    of.ops.push_back(id);
    const absl::optional<ServerOp> type = FindServerOp(op.type());
    if (type != ServerOp::kReceive && type != ServerOp::kServe) continue;
    OpId& first = type == ServerOp::kReceive ? of.receive : of.serve;
    first.valid() ? of.repeated.push_back(id) : void(first = id);
  }
  OpTraits traits(server);
  Communications communications(server);
  const auto expected = [&](const Op& op) -> std::string {
    if (op.block() != 0) return "the op in the root block, the only one that servers run";
    const absl::optional<int64_t> key = ServerKeyOf(op);
    if (!key.has_value() || !found.keys.at(*key).serve.valid()) {
      return absl::StrCat("attribute ", kServerKeyAttr, " with a key that an op serves");
    }
    const bool runs_alone = communications.Of(op) == Communication::kNone &&
                            !traits.Has(op, Trait::kStreamSync) &&
                            !traits.Has(op, Trait::kRingSetup) && op.SubBlocks().empty();
    return runs_alone ? "" : "an op without blocks, communication and streams, as servers run";
  };
  for (const Op& op : AllOps(server)) {
    std::string text = expected(op);
    if (!text.empty()) found.strays.push_back({op.id(), std::move(text)});
  }
  for (auto key = found.keys.begin(); key != found.keys.end();) {
    key = key->second.serve.valid() ? std::next(key) : found.keys.erase(key);
  }
  return found;
}

}  // namespace weft
