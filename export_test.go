package fuel

// For tests of package fuel_test.
var (
	ForcePool = forcePool
	Unchecked = unchecked
)

// HoldPrivateCopies keeps s from getting a private copy, as another that takes
// long does.
func HoldPrivateCopies(s *Storage) (release func()) {
	s.own.mu.Lock()
	return s.own.mu.Unlock
}
