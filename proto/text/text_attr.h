// Attributes in program text: name=value, where the form of the value implies the type.
//
//   axis=-1  epsilon=1e-05  data_format="NCHW"  is_test=false    INT, FLOAT, STRING, BOOLEAN
//   long(5)  float64(0.5)  block(1)  var("x")  scalar({...})     other single values
//   ints[1, 2]  floats[]  strings["a"]  bools[true]  longs[-1]   lists; also float64s, blocks,
//                                                                vars, scalars
//   int()  string()                                              a type without its value
//   {name: "a", 2: 99, i: 3}                                     all else: a literal
//                                                                (proto/text/text_literal.h)
#ifndef WEFT_PROTO_TEXT_TEXT_ATTR_H_
#define WEFT_PROTO_TEXT_TEXT_ATTR_H_

#include <string>

#include "google/protobuf/message.h"
#include "proto/framework.pb.h"
#include "proto/text/text_lexer.h"

namespace weft {

// `Attr` below is OpDesc::Attr or VarDesc::Attr.

// True if the attribute has a form other than a literal: a name, a type, and no field except that
// of the type.
template <typename Attr>
bool HasShortForm(const Attr& attr);

// Appends the value of an attribute with a short form.
template <typename Attr>
void AppendAttrValue(const Attr& attr, std::string* out);
// Appends the whole attribute.
template <typename Attr>
void AppendAttr(const Attr& attr, std::string* out);

// Reads the value after `name=`; sets type and value.
template <typename Attr>
bool ReadAttrValue(TextLexer* lexer, Attr* attr);
template <typename Attr>
bool ReadAttr(TextLexer* lexer, Attr* attr);

}  // namespace weft

#endif  // WEFT_PROTO_TEXT_TEXT_ATTR_H_
