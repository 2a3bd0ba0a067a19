// Package guest is what tests in the kernel lab's guest share: real devices of
// the guest's kernel, made for one test and taken away after it.
//
// Tests that use it begin with testenv.Lab(t) and run by make lab.
package guest
