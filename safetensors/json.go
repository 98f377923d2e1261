package safetensors

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/go-fuel/fuel"
)

// maxDepth is how deep arrays and objects may nest, the limit of the
// reference implementation.
const maxDepth = 127

// A scanner walks a header's JSON text, which is valid UTF-8. It stands in for
// encoding/json, which takes a key twice, replaces lone surrogates and cannot
// say where in the file a value stands.
type scanner struct {
	text string
	pos  int
	base int64 // of text in the file
}

// at is where the scanner stands, in bytes from the start of the file.
func (s *scanner) at() int64 { return s.base + int64(s.pos) }

func (s *scanner) fail(format string, args ...any) error {
	return &FormatError{Offset: s.at(), Msg: fmt.Sprintf(format, args...)}
}

// unexpected is the error for a byte that cannot stand where it does.
func (s *scanner) unexpected(want string) error {
	if s.pos >= len(s.text) {
		return s.fail("header ends where %s should be", want)
	}
	r, _ := utf8.DecodeRuneInString(s.text[s.pos:])
	return s.fail("%q where %s should be", r, want)
}

// peek skips white space and returns the byte after it, 0 at the end (a zero
// byte is no token either).
func (s *scanner) peek() byte {
	for s.pos < len(s.text) {
		switch c := s.text[s.pos]; c {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return c
		}
	}
	return 0
}

func (s *scanner) expect(c byte, want string) error {
	if s.peek() != c {
		return s.unexpected(want)
	}
	s.pos++
	return nil
}

// object reads an object and calls field with each key, the scanner standing
// before the value, which field must read. at is where the key stands in the
// file. Keys that come twice are for field to refuse.
func (s *scanner) object(field func(key string, at int64) error) error {
	if err := s.expect('{', "an object"); err != nil {
		return err
	}
	if s.peek() == '}' {
		s.pos++
		return nil
	}
	for {
		s.peek()
		at := s.at()
		key, err := s.string("a key")
		if err != nil {
			return err
		}
		if err := s.expect(':', "':'"); err != nil {
			return err
		}
		if err := field(key, at); err != nil {
			return err
		}
		switch s.peek() {
		case ',':
			s.pos++
		case '}':
			s.pos++
			return nil
		default:
			return s.unexpected("',' or '}'")
		}
	}
}

// array reads an array and calls element before each value, which element must
// read.
func (s *scanner) array(element func() error) error {
	if err := s.expect('[', "an array"); err != nil {
		return err
	}
	if s.peek() == ']' {
		s.pos++
		return nil
	}
	for {
		if err := element(); err != nil {
			return err
		}
		switch s.peek() {
		case ',':
			s.pos++
		case ']':
			s.pos++
			return nil
		default:
			return s.unexpected("',' or ']'")
		}
	}
}

// string reads a string. Without escapes the result is a piece of the text.
func (s *scanner) string(want string) (string, error) {
	if err := s.expect('"', want); err != nil {
		return "", err
	}
	start := s.pos
	for ; s.pos < len(s.text); s.pos++ {
		switch c := s.text[s.pos]; {
		case c == '"':
			s.pos++
			return s.text[start : s.pos-1], nil
		case c == '\\':
			return s.escaped(start)
		case c < ' ':
			return "", s.fail("control character %q in a string", c)
		}
	}
	return "", s.unexpected("the end of a string")
}

// escaped reads on from the first escape of a string that began at start.
func (s *scanner) escaped(start int) (string, error) {
	var b strings.Builder
	b.WriteString(s.text[start:s.pos])
	for s.pos < len(s.text) {
		c := s.text[s.pos]
		switch {
		case c == '"':
			s.pos++
			return b.String(), nil
		case c < ' ':
			return "", s.fail("control character %q in a string", c)
		case c != '\\':
			b.WriteByte(c)
			s.pos++
			continue
		}
		r, err := s.escape()
		if err != nil {
			return "", err
		}
		b.WriteRune(r)
	}
	return "", s.unexpected("the end of a string")
}

// escape reads one escape sequence, both halves of it where it is a surrogate
// pair.
func (s *scanner) escape() (rune, error) {
	if s.pos+1 >= len(s.text) {
		return 0, s.fail("header ends within an escape")
	}
	if c := s.text[s.pos+1]; c != 'u' {
		i := strings.IndexByte(`"\/bfnrt`, c)
		if i < 0 {
			return 0, s.fail("unknown escape")
		}
		s.pos += 2
		return rune("\"\\/\b\f\n\r\t"[i]), nil
	}
	r, err := s.hex()
	if err != nil || !utf16.IsSurrogate(r) {
		return r, err
	}
	if s.pos+1 >= len(s.text) || s.text[s.pos] != '\\' || s.text[s.pos+1] != 'u' {
		return 0, s.fail("half a surrogate pair in a string")
	}
	low, err := s.hex()
	if err != nil {
		return 0, err
	}
	if r = utf16.DecodeRune(r, low); r == utf8.RuneError {
		return 0, s.fail("half a surrogate pair in a string")
	}
	return r, nil
}

// hex reads \uXXXX.
func (s *scanner) hex() (rune, error) {
	if len(s.text)-s.pos < 6 {
		return 0, s.fail("header ends within an escape")
	}
	var r rune
	for i := s.pos + 2; i < s.pos+6; i++ {
		c := s.text[i]
		switch {
		case '0' <= c && c <= '9':
			r = r<<4 | rune(c-'0')
		case 'a' <= c && c <= 'f':
			r = r<<4 | rune(c-'a'+10)
		case 'A' <= c && c <= 'F':
			r = r<<4 | rune(c-'A'+10)
		default:
			return 0, s.fail("not four hexadecimal digits after \\u")
		}
	}
	s.pos += 6
	return r, nil
}

// integer reads a number of at least 0 that is written without a sign and is at
// most most, beyond which it is fuel.ErrOverflow. A fraction or an exponent is
// what the next token fails at.
func (s *scanner) integer(most int64) (int64, error) {
	c := s.peek()
	start := s.pos
	if c < '0' || c > '9' {
		return 0, s.unexpected("an integer of at least 0")
	}
	var n uint64
	over := false
	for ; s.pos < len(s.text); s.pos++ {
		c := s.text[s.pos]
		if c < '0' || c > '9' {
			break
		}
		if n > (math.MaxUint64-9)/10 {
			over = true
			continue
		}
		n = n*10 + uint64(c-'0')
	}
	if s.text[start] == '0' && s.pos > start+1 {
		s.pos = start
		return 0, s.fail("an integer that begins with 0")
	}
	if over || n > uint64(most) {
		s.pos = start
		return 0, &FormatError{Offset: s.at(), Msg: "an integer above " + fmt.Sprint(most), Err: fuel.ErrOverflow}
	}
	return int64(n), nil
}

// skip reads a value that nobody wants, at a depth of depth arrays and
// objects, and holds it to the rules all the same.
func (s *scanner) skip(depth int) error {
	c := s.peek()
	if (c == '{' || c == '[') && depth >= maxDepth {
		return s.fail("more than %d arrays and objects inside one another", maxDepth)
	}
	switch {
	case c == '{':
		seen := make(map[string]struct{})
		return s.object(func(key string, at int64) error {
			if _, ok := seen[key]; ok {
				return duplicateKey(key, at)
			}
			seen[key] = struct{}{}
			return s.skip(depth + 1)
		})
	case c == '[':
		return s.array(func() error { return s.skip(depth + 1) })
	case c == '"':
		_, err := s.string("a string")
		return err
	case c == '-' || '0' <= c && c <= '9':
		return s.number()
	}
	for _, word := range []string{"true", "false", "null"} {
		if s.literal(word) {
			return nil
		}
	}
	return s.unexpected("a value")
}

// literal reads word if it is next.
func (s *scanner) literal(word string) bool {
	s.peek()
	if !strings.HasPrefix(s.text[s.pos:], word) {
		return false
	}
	s.pos += len(word)
	return true
}

// number reads any JSON number that a float64 can hold, like the reference
// implementation.
func (s *scanner) number() error {
	start := s.pos
	if s.text[s.pos] == '-' {
		s.pos++
	}
	if s.next('0') == 0 && s.digits() == 0 {
		return s.unexpected("a digit")
	}
	if s.next('.') > 0 && s.digits() == 0 {
		return s.unexpected("a digit")
	}
	if s.next('e')+s.next('E') > 0 {
		if s.next('+') == 0 {
			s.next('-')
		}
		if s.digits() == 0 {
			return s.unexpected("a digit")
		}
	}
	if _, err := strconv.ParseFloat(s.text[start:s.pos], 64); err != nil {
		s.pos = start
		return s.fail("a number that is too large")
	}
	return nil
}

// next reads c if it is next and returns how many bytes that were.
func (s *scanner) next(c byte) int {
	if s.pos < len(s.text) && s.text[s.pos] == c {
		s.pos++
		return 1
	}
	return 0
}

// digits reads digits and returns how many.
func (s *scanner) digits() int {
	start := s.pos
	for s.pos < len(s.text) && '0' <= s.text[s.pos] && s.text[s.pos] <= '9' {
		s.pos++
	}
	return s.pos - start
}

func duplicateKey(key string, at int64) error {
	return &FormatError{Offset: at, Msg: "key " + quote(key) + " comes twice in one object"}
}
