#!/usr/bin/env python3
"""What doc_links_test.py takes for a path, a target and a heading.

usage: doc_links_unit_test.py DOC_LINKS_TEST
"""

import os
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.realpath(sys.argv.pop())))
import doc_links_test  # pylint: disable=wrong-import-position

BUILD = """
load(":macro.bzl", "with_corpus")
TAGS = ["manual"]
cc_test(name = "a_test", srcs = glob(["*.cc"]) + select({"//:x": []}), data = ["fake"], tags = TAGS)
with_corpus(name = "parse")
[cc_test(name = name, args = args) for name, args in [("small", ["--few"]), ("large", [])]]
[genrule(name = model + "_out", outs = files) for model, files in {"mlp": ["feeds"]}.items()]
"""


class DocLinksTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(self.folder.cleanup)
        for path, text in {".gitignore": "", "docs/modes.md": "", "ops/relu.cc": "",
                           "pkg/BUILD": BUILD, "pkg/macro.bzl": 'name = name + "_corpus"'}.items():
            path = os.path.join(self.folder.name, path)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        self.tree = doc_links_test.Tree(self.folder.name)

    def test_only_placeholders_stand_for_any_name(self):
        for path in ("docs/modes.md", "ops/X.cc", "ops/relu.{cc,cc}", "relu.cc", "NAME.cc"):
            self.assertTrue(self.tree.has_path(path), path)
        for path in ("docs/NOSUCH.md", "ops/NOSUCH.cc", "NOSUCH.cc", "ops/X.h", "ops/relu.{cc,h}"):
            self.assertFalse(self.tree.has_path(path), path)

    def test_targets_are_the_names_of_rules_and_macros(self):
        for name in ("a_test", "parse", "parse_corpus", "TARGET_corpus", "small", "large", "mlp_out",
                     "{small,large}"):
            self.assertTrue(self.tree.has_target("pkg", name), name)
        for name in ("fake", "manual", "few", "feeds", "mlp", "a_test_corpus", "NOSUCH",
                     "{small,fake}"):
            self.assertFalse(self.tree.has_target("pkg", name), name)
        self.assertFalse(self.tree.has_target("docs", "docs"))

    def test_comments_in_code_are_no_headings(self):
        text = "# A title\n\n```sh\n# a comment\n```\n\n1. Step\n   ```\n# another\n   ```\n## X & `y_z`\n"
        self.assertEqual(doc_links_test.anchors(text), {"a-title", "x--y_z"})


if __name__ == "__main__":
    unittest.main()
