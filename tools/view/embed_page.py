#!/usr/bin/env python3
"""Writes a C++ source that holds the page of `weft view`.

usage: embed_page.py OUT.cc page.html page.css SCRIPT.js...

In page.html, @STYLE@ and @SCRIPT@ stand for the style and for all scripts, one after the other;
@STYLE_HASH@ and @SCRIPT_HASH@ for their hashes, as a content security policy takes them; and @DATA@
for the data, where the page is divided in two.
"""

import base64
import hashlib
import sys

# A limit of the language for one literal; longer ones are warnings.
MAX_LITERAL = 60000


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def policy_hash(text):
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def literals(text):
    """Raw literals, which the compiler joins."""
    parts = [text[i:i + MAX_LITERAL] for i in range(0, len(text), MAX_LITERAL)]
    return "\n".join('R"weft_page(%s)weft_page"' % part for part in parts)


def main(out, page, style, *scripts):
    style = "\n" + read(style)
    script = "\n\"use strict\";\n" + "\n".join(read(path) for path in scripts)
    assert "</script" not in script.lower() and "</style" not in style.lower()
    page = read(page)
    for mark, text in (("@STYLE_HASH@", policy_hash(style)), ("@SCRIPT_HASH@", policy_hash(script)),
                       ("@STYLE@", style), ("@SCRIPT@", script)):
        assert page.count(mark) == 1, mark
        page = page.replace(mark, text)
    head, tail = page.split("@DATA@")
    with open(out, "w", encoding="utf-8") as f:
        f.write("""#include "tools/view/page_text.h"

namespace weft {

absl::string_view PageHead() {
  static constexpr absl::string_view kHead =
%s;
  return kHead;
}

absl::string_view PageTail() {
  static constexpr absl::string_view kTail =
%s;
  return kTail;
}

}  // namespace weft
""" % (literals(head), literals(tail)))


if __name__ == "__main__":
    main(*sys.argv[1:])
