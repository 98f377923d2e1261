//go:build !unix

package fuel_test

import "testing"

// unseen returns memory of the Go heap, having no other.
func unseen(t testing.TB, n int) []byte { return make([]byte, n) }
