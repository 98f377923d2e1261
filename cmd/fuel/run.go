package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/go-fuel/fuel/safetensors"
	"github.com/spf13/pflag"
)

// Exit statuses.
const (
	exitOK      = 0
	exitFailure = 1 // something did not work, or a comparison failed
	exitUsage   = 2 // the command line is wrong
)

// A command is one of those that "fuel help" lists.
type command struct {
	name  string
	args  string // after the name, for the usage line
	brief string
	help  string

	// setup defines the flags and returns what to do once they are parsed.
	setup func(*pflag.FlagSet) action
}

type action func(ctx context.Context, p *program, args []string) error

// commands lists them all; the first is what fuel does without one.
func commands() []*command {
	return []*command{checkCommand, probeCommand, inspectCommand}
}

func findCommand(name string) *command {
	for _, c := range commands() {
		if c.name == name {
			return c
		}
	}
	return nil
}

// flags returns the set of flags of c and what to do with it.
func (c *command) flags() (*pflag.FlagSet, action) {
	set := pflag.NewFlagSet(c.name, pflag.ContinueOnError)
	set.SetOutput(io.Discard)
	set.SortFlags = false
	do := c.setup(set)
	set.BoolP("help", "h", false, "show this help")
	return set, do
}

// A program is one run of the command line.
type program struct {
	stdout, stderr io.Writer
	failed         bool

	// What tests change.
	open   func(context.Context, string, *safetensors.Options) (*source, error) // a file that was named
	enough time.Duration                                                        // that a figure must cover
}

// run does what args say and returns the exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	p := &program{stdout: stdout, stderr: stderr, open: openPath, enough: enoughTime}
	return p.run(ctx, args)
}

func (p *program) run(ctx context.Context, args []string) int {
	err := p.dispatch(ctx, args)
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = errors.New("interrupted")
	}
	if err != nil {
		p.fail(err)
	}
	if _, wrong := errors.AsType[*usageError](err); wrong {
		return exitUsage
	}
	if p.failed {
		return exitFailure
	}
	return exitOK
}

func (p *program) dispatch(ctx context.Context, args []string) error {
	c, named := commands()[0], false
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		if args[0] == "help" {
			return p.help(args[1:])
		}
		if c, named = findCommand(args[0]), true; c == nil {
			return usagef("there is no command %q", args[0])
		}
		args = args[1:]
	}
	set, do := c.flags()
	var version *bool
	if !named {
		version = set.Bool("version", false, "")
	}
	if err := set.Parse(args); err != nil {
		return usagef("%w", err)
	}
	switch help, _ := set.GetBool("help"); {
	case help && named:
		return p.help([]string{c.name})
	case help:
		return p.help(nil)
	case version != nil && *version:
		return p.print([]byte(versionLine() + "\n"))
	case !named && set.NArg() > 0:
		return usagef("%q after a flag: the command comes first", set.Arg(0))
	}
	return do(ctx, p, set.Args())
}

// fail reports an error in one line. The program goes on and ends in failure.
func (p *program) fail(err error) {
	p.failed = true
	line := strings.TrimPrefix(printable(err.Error()), "fuel: ")
	fmt.Fprintf(p.stderr, "fuel: %s\n", line)
}

// print writes text to the standard output at once, so that whoever closes a
// pipe stops fuel at a place where it holds nothing.
func (p *program) print(text []byte) error {
	_, err := p.stdout.Write(text)
	return err
}

// printJSON writes v as one document.
func (p *program) printJSON(v any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	return p.print(b.Bytes())
}

// A usageError is a mistake in the command line.
type usageError struct{ err error }

func usagef(format string, a ...any) error {
	return &usageError{fmt.Errorf(format, a...)}
}

func (e *usageError) Error() string {
	return strings.TrimPrefix(e.err.Error(), "fuel: ") + "; see fuel --help"
}

func (e *usageError) Unwrap() error { return e.err }
