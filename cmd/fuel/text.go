package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode/utf8"
)

// none stands in a table for what does not apply.
const none = "-"

// A table is text in columns.
type table struct {
	columns []column
	rows    [][]string
}

type column struct {
	title string
	right bool // for numbers
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) write(w io.Writer) {
	titles := make([]string, len(t.columns))
	for i, c := range t.columns {
		titles[i] = c.title
	}
	lines := append([][]string{titles}, t.rows...)
	for i, c := range t.columns {
		if c.right {
			alignRight(lines, i)
		}
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, cells := range lines {
		fmt.Fprintln(tw, strings.Join(cells, "\t"))
	}
	tw.Flush() // its error is w's, and w is a buffer
}

func alignRight(lines [][]string, col int) {
	width := 0
	for _, cells := range lines {
		width = max(width, utf8.RuneCountInString(cells[col]))
	}
	for _, cells := range lines {
		cells[col] = fmt.Sprintf("%*s", width, cells[col])
	}
}

// printable makes one line of a text that may come from a file or a driver:
// line ends become "; ", and what else a terminal could take for a command is
// escaped.
func printable(s string) string {
	var b strings.Builder
	for line := range strings.Lines(s) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		if b.Len() > 0 {
			b.WriteString("; ")
		}
		escape(&b, line)
	}
	return b.String()
}

// named is how a name from a file stands in a table: as it is if it is plain,
// else quoted.
func named(s string) string {
	var b strings.Builder
	escape(&b, s)
	if b.String() != s || s == "" || strings.TrimSpace(s) != s {
		return strconv.Quote(s)
	}
	return s
}

// escape appends s with everything escaped that is not a graphic character.
func escape(b *strings.Builder, s string) {
	for i, r := range s {
		if r == utf8.RuneError {
			if _, size := utf8.DecodeRuneInString(s[i:]); size == 1 {
				fmt.Fprintf(b, `\x%02x`, s[i])
				continue
			}
		}
		if strconv.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		quoted := strconv.QuoteRune(r)
		b.WriteString(quoted[1 : len(quoted)-1])
	}
}

// orNone is s, or what stands for nothing.
func orNone(s string) string {
	if s == "" {
		return none
	}
	return printable(s)
}

// memorySize is a number of bytes for a person.
func memorySize(n int64) string {
	if n < 0 {
		return "unknown"
	}
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	f, i := float64(n)/unit, 0
	for f >= unit && i < len("KMGTPE")-1 {
		f, i = f/unit, i+1
	}
	return fmt.Sprintf("%.1f %ciB", f, "KMGTPE"[i])
}

func number[T int | int64](n T) string { return strconv.FormatInt(int64(n), 10) }
