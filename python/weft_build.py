"""Builds the wheel of `pip install .` (PEP 517), with nothing but Python and Bazel.

WEFT_BUILT names a folder that has libweft_c.so, transpile and weft, and may have libgloo.so.0; otherwise
Bazel builds them, which takes an hour on two cores, and Gloo is that of the system.
"""
import base64
import glob
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TAG = "py3-none-linux_x86_64"
BUILD = ["bazel", "build", "-c", "opt", "--config=nocuda", "--force_pic", "--symlink_prefix=/",
         "//c:libweft_c.so", "//tools:transpile", "//tools:weft"]
METADATA = """Metadata-Version: 2.1
Name: weft
Version: %s
Summary: Rewrites static training programs for many ranks, proves the rewrite, and runs the result
License: Apache-2.0
Requires-Python: >=3.8
Description-Content-Type: text/markdown

%s"""


def version():
    """As base/version.h says."""
    with open(os.path.join(ROOT, "base", "version.h"), encoding="utf-8") as file:
        return re.search(r'kVersion\[\] = "(.*)"', file.read()).group(1)


def built():
    """The folder of the library and the commands, which are built if nobody has built them."""
    folder = os.environ.get("WEFT_BUILT")
    if folder:
        paths = {name: os.path.join(folder, name) for name in ("libweft_c.so", "transpile", "weft")}
        gloo = os.path.join(folder, "libgloo.so.0")
        return dict(paths, **{"libgloo.so.0": gloo}) if os.path.exists(gloo) else paths
    subprocess.run(BUILD, cwd=ROOT, check=True)
    info = ["bazel", "info"] + BUILD[2:5] + ["bazel-bin"]
    folder = subprocess.run(info, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout.decode().strip()
    return {"libweft_c.so": os.path.join(folder, "c", "libweft_c.so"),
            "transpile": os.path.join(folder, "tools", "transpile"),
            "weft": os.path.join(folder, "tools", "weft")}


def stripped(path, folder):
    """A copy without what debuggers need."""
    copy = os.path.join(folder, os.path.basename(path))
    shutil.copyfile(path, copy)
    os.chmod(copy, 0o755)
    subprocess.run(["strip", "--strip-unneeded", copy], check=True)
    return copy


def description():
    """The page of the package."""
    with open(os.path.join(ROOT, "docs", "python.md"), encoding="utf-8") as file:
        return file.read()


def files_of_wheel(folder):
    """(name in the wheel, content, mode)."""
    files = []
    for path in sorted(glob.glob(os.path.join(ROOT, "python", "weft", "*.py")) +
                       [os.path.join(ROOT, "python", "weft", "py.typed")]):
        with open(path, "rb") as file:
            files.append(("weft/" + os.path.basename(path), file.read(), 0o644))
    for name, path in built().items():
        place = "weft/" if ".so" in name else "weft-%s.data/scripts/" % version()
        with open(stripped(path, folder), "rb") as file:
            files.append((place + name, file.read(), 0o755))
    info = "weft-%s.dist-info/" % version()
    with open(os.path.join(ROOT, "LICENSE"), "rb") as file:
        files.append((info + "LICENSE", file.read(), 0o644))
    files.append((info + "METADATA", (METADATA % (version(), description())).encode(), 0o644))
    wheel = "Wheel-Version: 1.0\nGenerator: weft_build\nRoot-Is-Purelib: false\nTag: %s\n" % TAG
    files.append((info + "WHEEL", wheel.encode(), 0o644))
    record = "".join("%s,sha256=%s,%d\n" % (
        name, base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("="),
        len(content)) for name, content, _ in files)
    files.append((info + "RECORD", (record + info + "RECORD,,\n").encode(), 0o644))
    return files


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """Writes the wheel, and returns its name. Equal files give equal bytes."""
    name = "weft-%s-%s.whl" % (version(), TAG)
    path = os.path.join(wheel_directory, name)
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(
            path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file_name, content, mode in files_of_wheel(folder):
            entry = zipfile.ZipInfo(file_name)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100000 | mode) << 16
            archive.writestr(entry, content)
    return name


def get_requires_for_build_wheel(config_settings=None):
    """Nothing: pip needs no network."""
    return []
