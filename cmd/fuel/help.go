package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/pflag"
)

const helpHead = `fuel shows what this machine can do with tensors.

Usage:
  fuel [flags]            check the checkpoint inside the program
  fuel COMMAND [flags]

Commands:
`

const helpTail = `
"fuel help COMMAND" has the flags and details, "fuel help json" the fields of
--json; "fuel --version" prints the version. Without a command the flags are
those of check.

The exit status is 0 if all went well, 1 if something failed or differed, 2 if
the command line is wrong. Errors go to the standard error, a line each.
`

// help prints the help on a topic, or the general one.
func (p *program) help(topic []string) error {
	var b bytes.Buffer
	switch {
	case len(topic) > 1:
		return usagef("help takes one topic")
	case len(topic) == 0:
		b.WriteString(helpHead)
		w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		for _, c := range commands() {
			fmt.Fprintf(w, "  %s %s\t%s\n", c.name, c.args, c.brief)
		}
		w.Flush()
		b.WriteString(helpTail)
	case topic[0] == "json":
		b.WriteString(helpJSON)
	default:
		c := findCommand(topic[0])
		if c == nil {
			return usagef("there is no help on %q", topic[0])
		}
		fmt.Fprintf(&b, "Usage: %s\n\n%s\nFlags:\n", strings.TrimSpace("fuel "+c.name+" [flags] "+c.args), c.help)
		c.writeFlags(&b)
	}
	return p.print(b.Bytes())
}

// writeFlags lists the flags of c.
func (c *command) writeFlags(w io.Writer) {
	set, _ := c.flags()
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	set.VisitAll(func(f *pflag.Flag) {
		short := "   "
		if f.Shorthand != "" {
			short = "-" + f.Shorthand + ","
		}
		value, usage := pflag.UnquoteUsage(f)
		for i, line := range strings.Split(usage, "\n") {
			if i > 0 {
				fmt.Fprintf(tw, "\t%s\n", line)
				continue
			}
			fmt.Fprintf(tw, "  %s --%s\t%s\n", short, strings.TrimSpace(f.Name+" "+value), line)
		}
	})
	tw.Flush() // its error is w's, and w is a buffer
}

// helpJSON documents every field; a test compares it with what is printed.
const helpJSON = `With --json each command prints one document and nothing else on the standard
output. Fields may be added; those below keep their names and meanings. Sizes
and offsets are bytes. A field that is marked with ? is left out where it would
be empty.

fuel check --json
  ok                  true if the exit status will be 0
  files[]             in the order of the command line
    file              path, "" for the checkpoint inside the program
    embedded          whether it is that
    error?            why the file could not be opened; devices is then empty
    (summary)         see below
    devices[]
      kind            "cpu", "cuda", "vulkan", "metal"
      device?         "cpu", "cuda:0", …; left out where the kind has none
      state           "available", "not linked", "unavailable", "probing"
      result          "equal", "mismatch", "error", "skipped"
      reason?         why it was skipped, or the text of the error
      mismatches[]?   tensors that differed
        tensor        name
        byte          where the first difference is, from the start of the tensor
      tensors         how many were compared
      bytes           how many were compared
      to, from        measured in each direction, null where nothing was
        bytes         moved in all passes
        seconds       what that took
        gbPerSecond   10^9 bytes a second
      staged          bytes of one pass that went through host memory on their
                      way to the device, because they were mapped

fuel probe --json
  kinds[]             one for each kind
    kind, state       as above
    reason?           why it is not available, or what is unusual
    import?           package that provides the kind
    library?          vendor library that was loaded
    driverVersion?
    tier?             cpu: the implementation of the kernels
    devices[]
      device, name
      uuid?           stable across restarts
      memory          total, free; -1 is unknown
      maxAlloc        largest tensor; 0: no limit but memory
      alignment       of everything allocated there
      unified, pinned, peer, hostImport
                      what it can do: its memory is the host's; pinned host
                      memory; copies to its peers; host memory without a copy
      hostAlign       of host memory for that, in bytes; 0: it takes none

fuel inspect --json
  ok                  true if the exit status will be 0
  files[]
    file, error?      as above
    (summary)         see below
    size              of the file
    dataOffset        where the data begins
    metadata?         the file's own texts
    items[]           tensors in the order of their bytes
      name, dtype     dtype is fuel's name: "f32", "f8e4m3fn"
      shape[]
      len             elements
      bytes
      offset          from the start of the file
      required        alignment that was asked for
      found           alignment in the file as it is in memory, at most 4096
      addressMod64    of the bytes that a program gets, null where there are none
      placement       "zero-copy", "realigned", "byte order swapped", "loaded"

(summary)
  tensors, bytes      in all
  mapped              whether the file is mapped
  notMapped?          why it is not
  zeroCopyTensors, zeroCopyBytes     used where they lie
  realignedTensors, realignedBytes   copied, for alignment or byte order
  loadedTensors, loadedBytes         read, because nothing is mapped
`
