#!/usr/bin/env python3
"""Writes what other projects say of the messages that ../../message.go has, as facts: names, types, numbers.

    facts.py objc2    CRATE...    unpacked crates objc2-metal and objc2-foundation (crates.io)
    facts.py pyobjc   WHEEL       unpacked wheel pyobjc-framework-Metal (PyPI)
    facts.py gnustep  FOLDER      unpacked Debian package libgnustep-base-dev

A line is a word and fields, with tabs between them:

    source    name and version
    message   class (- where the source does not tell), selector, owned or kept, type of the result, types of the arguments
    function  -, name, owned or kept, type of the result, types of the arguments
    constant  name, value

Types are as the source writes them, with | between arguments. A result is owned where the source says so or, if it
does not, where its name begins like those that Objective-C's convention gives to the caller.
"""
import pathlib
import re
import sys

here = pathlib.Path(__file__).parent
table = set(re.findall(r'\{"(\w+)", "([\w:]+)"', (here / "../../message.go").read_text()))
wanted = {selector for _, selector in table}
functions = {"MTLCreateSystemDefaultDevice", "MTLCopyAllDevices"}
constants = re.compile(r"MTL(CommandBufferStatus|CommandBufferError|ResourceStorageMode)(?!Option)\w+$")
facts = set()


def owned(name, result, told=None):
    if result in ("v", "()"):
        return "kept"
    by_name = re.match(r"(new|alloc|copy|mutableCopy|MTLCopy|MTLCreate)(?![a-z])", name)
    return "owned" if (told if told is not None else by_name) else "kept"


def split(args):
    """Splits at commas outside brackets."""
    parts, depth, part = [], 0, ""
    for c in args:
        depth += (c in "<([") - (c in ">)]")
        if c == "," and depth == 0:
            parts.append(part)
            part = ""
        else:
            part += c
    return [" ".join(p.split()) for p in parts + [part] if p.strip()]


def objc2(*crates):
    for crate in map(pathlib.Path, crates):
        cargo = (crate / "Cargo.toml").read_text()
        facts.add(("source", re.search(r'^name = "(.*)"', cargo, re.M)[1], re.search(r'^version = "(.*)"', cargo, re.M)[1]))
        for file in (crate / "src/generated").glob("*.rs"):
            text = re.sub(r"^\s*//.*$", "", file.read_text(), flags=re.M)
            owner, kind = "-", ""
            for m in re.finditer(
                r"pub unsafe trait (\w+)|^impl(?:<[^{]*?>)? (\w+)|^extern_class!"
                r"|#\[unsafe\(method\(([\w:]+)\)\)\]\s*(?:#\[unsafe\(method_family = (\w+)\)\])?\s*(?:#\[[^\n]*\]\s*)*(?:pub )?(?:unsafe )?fn \w+(?:<[^(]*>)?\(([^;]*?)\)(?:\s*->\s*([^;]*?))?\s*(?:where[^;]*)?;"
                r"|^pub extern \"C-unwind\" fn (\w+)\(([^{]*?)\)(?:\s*->\s*([^{]*?))?\s*\{"
                r"|#\[doc\(alias = \"(MTL\w+)\"\)\]\s*pub const \w+: Self = Self\((\d+)\);",
                text, re.M):
                trait, impl, selector, family, args, result, function, fargs, fresult, name, value = m.groups()
                if trait or impl:
                    owner = trait or impl
                elif (owner, selector) in table:
                    types = [a.split(": ", 1)[1] for a in split(args) if a != "&self"]
                    result = " ".join((result or "()").split())
                    facts.add(("message", owner, selector, owned(selector, result, family in ("new", "copy", "alloc") if family else None), result, " | ".join(types)))
                elif function in functions:
                    facts.add(("function", "-", function, owned(function, fresult), " ".join(fresult.split()), " | ".join(split(fargs))))
                elif name and constants.match(name):
                    facts.add(("constant", name, value))


def pyobjc(wheel):
    wheel = pathlib.Path(wheel)
    info = next(wheel.glob("*.dist-info/METADATA")).read_text()
    facts.add(("source", re.search(r"^Name: (.*)", info, re.M)[1], re.search(r"^Version: (.*)", info, re.M)[1]))
    text = (wheel / "Metal/_metadata.py").read_text()
    call = re.compile(r'^    r\(\s*b"NSObject",\s*b"([\w:]+)",\s*(\{.*?\}),?\s*\)$', re.M | re.S)
    string = lambda x: x.decode() if isinstance(x, bytes) else x
    for selector, data in call.findall(text):
        if selector in wanted:
            data = eval(data)  # a literal with bytes in it
            args = [string(data["arguments"][i]["type"]) for i in sorted(data.get("arguments", {}))]
            told = data["retval"].get("already_retained")
            result = string(data["retval"]["type"])
            facts.add(("message", "-", selector, owned(selector, result, told), result, " | ".join(args)))
    for name in functions:
        m = re.search(r'"%s": \(\s*b"([^"]*)",\s*"",\s*(\{.*?\}),?\s*\),' % name, text, re.S)
        told = eval(m[2])["retval"].get("already_cfretained")
        facts.add(("function", "-", name, owned(name, m[1][0], told), m[1][0], m[1][1:]))
    for name, value in re.findall(r"\$(\w+)@(\d+)", text):
        if constants.match(name):
            facts.add(("constant", name, value))


def gnustep(folder):
    folder = pathlib.Path(folder)
    version = re.search(r"GNUSTEP_BASE_VERSION\s+(\S+)", next(folder.rglob("GSVersionMacros.h")).read_text() + next(folder.rglob("GSConfig.h")).read_text())
    facts.add(("source", "gnustep-base", version[1] if version else "?"))
    for name in "NSObject", "NSArray", "NSString", "NSError":
        text = re.sub(r"/\*.*?\*/", "", next(folder.rglob("Foundation/%s.h" % name)).read_text(), flags=re.S)
        owner = "-"
        for m in re.finditer(r"^@(?:interface|protocol)\s+(?:GS_GENERIC_CLASS\()?(\w+)|^-\s*\(((?:[^()]|\([^()]*\))*)\)\s*(\w+)(?:(:)\s*\(([^()]*)\)\s*\w+)?[\w\s]*;", text, re.M):
            if m[1]:
                owner = m[1]
            elif (owner, m[3] + (m[4] or "")) in table:
                selector = m[3] + (m[4] or "")
                facts.add(("message", owner, selector, owned(selector, m[2]), " ".join(m[2].split()), (m[5] or "").strip()))


{"objc2": objc2, "pyobjc": pyobjc, "gnustep": gnustep}[sys.argv[1]](*sys.argv[2:])
for fact in sorted(facts, key=lambda f: (f[0] != "source", f)):
    print("\t".join(fact).rstrip())
