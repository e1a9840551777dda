// Variable types in program text.
//
//   fp32[-1, 13]                     a dense tensor: element type and dimensions
//   fp32[-1, 13] lod=1               the same with its lod_level
//   selected_rows<fp32[100, 8]>      string, strings, vocab, sparse_coo, sparse_csr likewise
//   lod_tensor_array<fp32[-1] lod=0>
//   reader<fp32[-1, 13], int64[-1, 1] lod=0>
//   tuple<fp32, lod_tensor>
//   raw, step_scopes, lod_tensor     a type without a description
//   {type: RAW, 99: 5}               all else: a literal (proto/text/text_literal.h)
//
// Types have the names of VarType.Type in lower case.
#ifndef WEFT_PROTO_TEXT_TEXT_TYPE_H_
#define WEFT_PROTO_TEXT_TEXT_TYPE_H_

#include <string>

#include "proto/framework.pb.h"
#include "proto/text/text_lexer.h"

namespace weft {

enum class TextDetail {
  kExact,  // reads back as an equal message
  kBrief,  // without lod=0
};

void AppendVarType(const paddle::framework::proto::VarType& type, TextDetail detail,
                   std::string* out);
bool ReadVarType(TextLexer* lexer, paddle::framework::proto::VarType* type);

// True if the type has a form other than a literal.
bool HasShortForm(const paddle::framework::proto::VarType& type);

}  // namespace weft

#endif  // WEFT_PROTO_TEXT_TEXT_TYPE_H_
