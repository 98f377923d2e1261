// Package fueltest helps to test programs that use fuel, and fuel itself.
//
//   - Register puts a fake GPU in the place of a plugin for the time of one
//     test. It delays work, runs out of memory, fails at the call that you
//     choose, gets lost, or is not there at all, so that a program's paths for
//     a GPU, and for none, can be tested on any machine.
//   - LeakCheck fails a test that leaves a Storage open.
//   - Checked turns on checked mode for a test.
//   - TestDriver is the conformance suite that the CPU, the fake and every
//     plugin pass.
//
// Import it from tests only. What it changes belongs to the whole process, so
// tests that use it must not be parallel with each other.
package fueltest
