package cpu

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/go-fuel/fuel/internal/race"
)

// strided is CopyStrided by its definition, element by element.
func strided(src []byte, off, elem int, shape, strides []int) (out []byte) {
	if len(shape) == 0 {
		return slices.Clone(src[off : off+elem])
	}
	for i := range shape[0] {
		out = append(out, strided(src, off+i*strides[0], elem, shape[1:], strides[1:])...)
	}
	return out
}

func counted(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8)
	}
	return b
}

func TestCopyStridedNeverDiffersFromItsDefinition(t *testing.T) {
	src := counted(3 * Piece)
	type one struct {
		off, elem      int
		shape, strides []int
	}
	cases := map[string]one{
		"contiguous":           {0, 4, []int{3, 5}, []int{20, 4}},
		"contiguous, long":     {1, 4, []int{2, Piece / 4, 1}, []int{Piece, 4, 99}},
		"transposed":           {8, 4, []int{5, 3}, []int{4, 20}},
		"broadcast":            {3, 2, []int{4, 3}, []int{0, 2}},
		"broadcast, innermost": {3, 2, []int{4, 3}, []int{2, 0}},
		"backwards":            {100, 8, []int{5}, []int{-8}},
		"backwards, odd":       {99, 8, []int{5, 2}, []int{-16, -3}},
		"overlapping":          {0, 4, []int{7, 2}, []int{1, 2}},
		"scalar":               {7, 3, nil, nil},
		"none":                 {-5, 4, []int{3, 0, math.MaxInt, math.MaxInt}, []int{math.MinInt, 1, 2, math.MaxInt}},
		"ones":                 {9, 4, []int{1, 1, 1}, []int{math.MinInt, math.MaxInt, 5}},
		"ones between":         {9, 4, []int{1, 3, 1, 4, 1}, []int{math.MaxInt, 16, 5, 4, math.MinInt}},
		"long runs":            {5, 1, []int{2, Piece + 3}, []int{Piece + 9, 1}},
		"permuted":             {0, 2, []int{3, 4, 5}, []int{2, 6 * 5, 6}},
		"many axes":            {0, 1, []int{2, 2, 2, 2, 2, 2, 2, 2, 2, 2}, []int{3, 1, 7, 2, 20, 5, 40, 0, 3, 9}},
		"reaches both ends":    {len(src)/2 - 4, 4, []int{3, 3}, []int{len(src)/4 - 2, -(len(src)/4 - 2)}},
	}
	for elem := 1; elem <= 20; elem++ {
		cases[fmt.Sprint("elements of ", elem)] = one{elem, elem, []int{3, 2, 5}, []int{7 * elem, -1, elem + 1}}
	}
	for _, elem := range []int{1, 2, 3, 4, 8, 12, 16} {
		for _, c := range [][2]int{{2, 8}, {7, 15}, {tileHeight, 16}, {tileHeight + 1, 9}, {2*tileHeight + 3, 2*tileWidth - 1}} {
			h, w, far := c[0], c[1], c[0]*elem+3
			name := fmt.Sprintf("tiles of %d, %d by %d", elem, h, w)
			cases[name] = one{1, elem, []int{h, w}, []int{elem, far}}
			cases[name+", upside down"] = one{1 + h*elem, elem, []int{h, w}, []int{-elem, far}}
			cases[name+", mirrored"] = one{1 + w*far, elem, []int{h, w}, []int{elem, -far}}
			cases[name+", overlapping"] = one{5, elem, []int{h, w}, []int{1, far}}
			cases[name+", repeated"] = one{5, elem, []int{h, w}, []int{0, far}}
			cases[name+", four axes"] = one{w * far, elem, []int{2, 3, h, w}, []int{-elem - 1, 2 * w * far, elem, far}}
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 300 {
		c := one{2000, 1 + random.IntN(17), nil, nil}
		for range random.IntN(6) {
			c.shape = append(c.shape, 1+random.IntN(4))
			c.strides = append(c.strides, random.IntN(200)-100)
			if k := len(c.shape) - 1; k > 0 && random.IntN(2) == 0 {
				c.strides[k] = c.elem
				c.strides[k-1] = c.shape[k] * c.elem
			}
		}
		cases[fmt.Sprint("random ", i, c)] = c
	}
	for name, c := range cases {
		size := c.elem
		for _, n := range c.shape {
			if size *= n; n == 0 {
				break
			}
		}
		got := bytes.Repeat([]byte{canary}, size+2)
		CopyStrided(got[1:1+size], src, c.off, c.elem, c.shape, c.strides)
		var want []byte
		if size > 0 {
			want = strided(src, c.off, c.elem, c.shape, c.strides)
		}
		if !bytes.Equal(got[1:1+size], want) || got[0] != canary || got[1+size] != canary {
			t.Errorf("%s: differs", name)
		}
	}
	if !bytes.Equal(src, counted(len(src))) {
		t.Error("src has changed")
	}
}

func TestCopyStridedNeverLeavesItsMemory(t *testing.T) {
	const huge = math.MaxInt
	for name, c := range map[string]struct {
		dst, src, off, elem int
		shape, strides      []int
		text                string
	}{
		"past the end":        {12, 11, 0, 4, []int{3}, []int{4}, "outside of src"},
		"before the start":    {12, 100, 7, 4, []int{3}, []int{-4}, "outside of src"},
		"both":                {16, 15, 4, 4, []int{2, 2}, []int{-4, 8}, "outside of src"},
		"two axes upward":     {16, 16, 0, 4, []int{2, 2}, []int{8, 8}, "outside of src"},
		"two axes downward":   {16, 16, 12, 4, []int{2, 2}, []int{-8, -8}, "outside of src"},
		"offset":              {4, 10, 7, 4, nil, nil, "outside of src"},
		"offset below 0":      {4, 10, -1, 4, nil, nil, "outside of src"},
		"offset wraps":        {4, 10, huge, 4, nil, nil, "outside of src"},
		"stride wraps":        {12, 10, 0, 4, []int{3}, []int{huge}, "outside of src"},
		"stride wraps to 0":   {12, 100, 0, 4, []int{3}, []int{math.MinInt}, "outside of src"},
		"strides wrap":        {16, 100, 50, 4, []int{2, 2}, []int{huge, huge}, "outside of src"},
		"strides cancel":      {16, 100, 0, 4, []int{2, 2}, []int{200, -200}, "outside of src"},
		"no source":           {4, 0, 0, 4, nil, nil, "outside of src"},
		"dst short":           {11, 100, 0, 4, []int{3}, []int{4}, "dst has not"},
		"dst long":            {13, 100, 0, 4, []int{3}, []int{4}, "dst has not"},
		"dst of none":         {4, 100, 0, 4, []int{3, 0}, []int{4, 4}, "dst has not"},
		"length wraps to 0":   {0, 100, 0, 4, []int{1 << (intBits - 3), 2}, []int{0, 0}, "dst has not"},
		"length wraps":        {16, 100, 0, 4, []int{1<<(intBits-2) + 4, 1}, []int{0, 0}, "dst has not"},
		"length below 0":      {4, 100, 0, 4, []int{-1}, []int{4}, "dst has not"},
		"two below 0":         {4, 100, 0, 4, []int{-1, -1}, []int{4, 4}, "dst has not"},
		"below 0 beside 0":    {0, 100, 0, 4, []int{0, -1}, []int{4, 4}, "dst has not"},
		"no element":          {0, 100, 0, 0, []int{3}, []int{4}, "no bytes"},
		"element below 0":     {0, 100, 0, -4, []int{3}, []int{4}, "no bytes"},
		"strides are missing": {4, 100, 0, 4, []int{1}, nil, "differ in length"},
	} {
		dst := bytes.Repeat([]byte{canary}, c.dst)
		text := panicOf(func() { CopyStrided(dst, make([]byte, c.src), c.off, c.elem, c.shape, c.strides) })
		if !bytes.Contains([]byte(text), []byte("cpu.CopyStrided: ")) || !bytes.Contains([]byte(text), []byte(c.text)) {
			t.Errorf("%s: panic %q", name, text)
		}
		if !bytes.Equal(dst, bytes.Repeat([]byte{canary}, c.dst)) {
			t.Errorf("%s: dst was written to", name)
		}
	}
	b := make([]byte, 20)
	if text := panicOf(func() { CopyStrided(b[:8], b[7:], 4, 4, []int{2}, []int{4}) }); text != "cpu.CopyStrided: dst and src overlap" {
		t.Errorf("panic %q", text)
	}
}

const intBits = 32 << (^uint(0) >> 63)

// panicOf returns the text with which f panics.
func panicOf(f func()) (text string) {
	defer func() {
		if r := recover(); r != nil {
			text = fmt.Sprint(r)
		}
	}()
	f()
	return "none"
}

func TestCopyStridedDoesNotAllocate(t *testing.T) {
	probe := testing.AllocsPerRun(10, func() {
		var b [300]byte
		addressOf(b[:])
	})
	if race.Enabled || probe != 0 {
		t.Skip("this build (-race, -d=checkptr) lets whatever has its address taken escape")
	}
	n := testing.AllocsPerRun(100, func() {
		var dst, src [240]byte
		shape, strides := [...]int{2, 3, 5, 2}, [...]int{4, 80, 8, 0}
		CopyStrided(dst[:], src[:], 0, 4, shape[:], strides[:])
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}
