#!/usr/bin/env python3
"""Writes ggml.txt: the block sizes that ggml itself compiles to.

    python3 ggml.py <ggml checkout> > ggml.txt        (needs a C compiler)

One line for each number of enum ggml_type: number, name ("-" for a type that
was removed), elements of a block, bytes of a block.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

root = pathlib.Path(sys.argv[1])
header = (root / "include/ggml.h").read_text()
source = (root / "src/ggml.c").read_text()
enum = re.search(r"enum ggml_type \{(.*?)\};", header, re.S).group(1)
ids = {n: int(v) for n, v in re.findall(r"^\s+(GGML_TYPE_\w+)\s*=\s*(\d+)", enum, re.M)}
table = re.search(r"type_traits\[GGML_TYPE_COUNT\] = \{(.*?)\n\};", source, re.S).group(1)
rows = re.findall(r"\[(\w+)\] = \{.*?blck_size\s*=\s*(\w+).*?type_size\s*=\s*([^,]*),", table, re.S)

c = """#define GGML_COMMON_DECL_C
#include <stdio.h>
#include <stdint.h>
#include <assert.h>
#include "ggml-common.h"
typedef uint16_t ggml_fp16_t;
typedef struct { uint16_t bits; } ggml_bf16_t;
int main(void) {
"""
for key, elems, size in sorted(rows, key=lambda r: ids.get(r[0]) if r[0] in ids else int(r[0])):
    number = ids[key] if key in ids else int(key)
    name = key.removeprefix("GGML_TYPE_") if key in ids else "-"
    c += f'printf("%d %s %d %d\\n", {number}, "{name}", (int)({elems}), (int)({size}));\n'
c += "}\n"

commit = subprocess.run(["git", "-C", root, "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()
print("# ggml", commit or "(not a git checkout)", flush=True)
with tempfile.TemporaryDirectory() as tmp:
    path = pathlib.Path(tmp)
    (path / "sizes.c").write_text(c)
    subprocess.run(["cc", "-I", root / "src", "-o", path / "sizes", path / "sizes.c"], check=True)
    subprocess.run([path / "sizes"], check=True)
